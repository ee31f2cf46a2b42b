"""Generated languages whose best possible losses are known exactly."""

from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from sesame.data.batch import IGNORE, Batch
from sesame.data.build import build_store
from sesame.data.store import Store
from sesame.text import Tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def word_tokenizer(words: list[str]) -> Tokenizer:
    """One id a word; the specials come first."""
    vocab = {token: id for id, token in enumerate([*SPECIALS, *words])}
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(SPECIALS)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return Tokenizer(backend, ROLES)


class Chain:
    """Words that follow each other by a first-order Markov chain: each has four successors."""

    def __init__(self, words: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(words)]
        self.step = np.zeros((words, words))
        for word in range(words):
            self.step[word, rng.permutation(words)[:4]] = (0.5, 0.25, 0.15, 0.1)
        values, vectors = np.linalg.eig(self.step.T)
        stay = np.real(vectors[:, np.argmax(np.real(values))])
        self.start = stay / stay.sum()

    def text(self, documents: int, sentences: int, length: int, seed: int) -> str:
        """Documents of sentences; the chain runs through a document without a break."""
        rng = np.random.default_rng(seed)
        ends = self.step.cumsum(axis=1)
        words = rng.choice(len(self.words), documents, p=self.start)
        found = []
        for _ in range(sentences * length):
            found.append(words)
            words = np.minimum((ends[words] < rng.random((documents, 1))).sum(axis=1), len(self.words) - 1)
        texts = np.array(self.words)[np.stack(found, axis=1).reshape(documents, sentences, length)]
        return "\n\n".join("\n".join(" ".join(line) for line in text) for text in texts) + "\n"

    def best_masked_loss(
        self, batches: list[Batch], mask: float = 0.8, random: float = 0.1, rate: float = 0.15
    ) -> float:
        """The masked loss of a reader who knows the chain and the corruption: forward-backward in each row.

        What is seen at a place is the word itself, [MASK], or a random piece of the vocabulary; at the places that are
        asked for it is known that they were chosen.
        """
        first = len(SPECIALS)
        pieces = first + len(self.words)
        keep = 1.0 - mask - random
        total, count = 0.0, 0
        for batch in batches:
            targets = batch.targets["mlm"]
            assert targets.at is not None
            for row in range(batch.size):
                ids = batch.ids[row, 1 : int(batch.lengths[row]) - 1].numpy()
                labels = targets.labels[row].numpy()
                asked = {
                    int(at) - 1: int(label) - first
                    for at, label in zip(targets.at[row], labels, strict=True)
                    if label != IGNORE
                }
                seen = np.zeros((len(ids), len(self.words)))
                for place, id in enumerate(ids):
                    same = (np.arange(len(self.words)) == id - first).astype(float)
                    chosen = np.full(len(self.words), mask) if id == 4 else keep * same
                    chosen = chosen + random / pieces
                    seen[place] = chosen if place in asked else rate * chosen + (1 - rate) * (same if id != 4 else 0)
                forward = np.zeros_like(seen)
                ahead = self.start
                for place in range(len(ids)):
                    forward[place] = ahead * seen[place]
                    forward[place] /= forward[place].sum()
                    ahead = forward[place] @ self.step
                back = np.ones(len(self.words))
                for place in reversed(range(len(ids))):
                    belief = forward[place] * back
                    belief /= belief.sum()
                    if place in asked:
                        total -= float(np.log(belief[asked[place]]))
                        count += 1
                    back = self.step @ (seen[place] * back)
                    back /= back.sum()
        return total / count


class Topics:
    """Every document speaks of one of many topics, each with its own words: a sentence from elsewhere can be told."""

    def __init__(self, topics: int, words: int) -> None:
        self.topics = [[f"t{chr(97 + t)}{chr(97 + w)}" for w in range(words)] for t in range(topics)]
        self.words = [word for topic in self.topics for word in topic]

    def text(self, documents: int, sentences: int, length: int, seed: int) -> str:
        rng = np.random.default_rng(seed)
        made = []
        for number in range(documents):
            topic = self.topics[number % len(self.topics)]
            lines = [" ".join(rng.choice(topic, length)) for _ in range(sentences)]
            made.append("\n".join(lines))
        return "\n\n".join(made) + "\n"


def store_of(text: str, tokenizer: Tokenizer, folder: Path) -> Store:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "text.txt"
    file.write_text(text, encoding="utf-8")
    return build_store([file], tokenizer, folder / "cache", workers=1)
