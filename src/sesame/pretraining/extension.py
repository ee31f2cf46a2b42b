"""New words for a model that training goes on from: `sesame pretrain ... --start MODEL --extend N`.

    words that cost the most pieces -> the tokenizer -> rows of the backbone and of the masked-language head

What was chosen is kept in the run's `tokenizer/`: a run that goes on takes the same words, without reading the text again.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from sesame.backbones.grow import KINDS, grow, grow_head
from sesame.checkpoint.folder import Parts
from sesame.data.corpus_files import corpus_size
from sesame.data.readers import read_documents
from sesame.errors import SesameError
from sesame.files import read_json, whole_folder, write_json
from sesame.objectives import MaskedLMHead
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.plm import TableHead
from sesame.progress import bar, say
from sesame.text import Tokenizer
from sesame.text.extend import choose_words, extend_tokenizer

WORDS = "new_words.json"
SAMPLE, CLIP = 256, 2000  # documents of the sample, and characters of each
NAMED = 10  # words that are told


def extend(
    started: Parts, tokenizer: Tokenizer, files: list[Path], field: str, count: int, kept: Path
) -> tuple[Parts, Tokenizer]:
    """The model with at most `count` words of the text as new pieces, and its tokenizer, which is kept in `kept`."""
    if not isinstance(started.backbone, KINDS):
        raise SesameError("--extend: the vocabulary of a model of this kind does not grow; leave it out")
    if (kept / WORDS).is_file():
        extended, pieces = extend_tokenizer(tokenizer, read_json(kept / WORDS))
        if Tokenizer.load(kept).fingerprint() != extended.fingerprint():
            raise SesameError(
                f"{kept}: the tokenizer of the start model has changed since this run began; "
                "bring the old one back or choose another --out"
            )
    else:
        words, sample = _choose(tokenizer, files, field, count)
        extended, pieces = extend_tokenizer(tokenizer, words)
        with whole_folder(kept) as folder:
            extended.save(folder)
            write_json(folder / WORDS, words)
        _tell(words, tokenizer, extended, sample)
    return _grown(started, pieces, len(tokenizer), extended), extended


def _grown(started: Parts, pieces: list[list[int]], first: int, tokenizer: Tokenizer) -> Parts:
    heads = dict(started.heads)
    for name in {"mlm", "plm", "lm"} & set(heads):
        head = heads[name]
        assert isinstance(head, MaskedLMHead | TableHead | DecoderHead)
        heads[name] = grow_head(head, pieces, first=first)
    return Parts(
        grow(started.backbone, pieces, first=first), heads, tokenizer, tasks=started.tasks, family=started.family
    )


def _choose(tokenizer: Tokenizer, files: list[Path], field: str, count: int) -> tuple[list[str], list[str]]:
    """The words, and an even sample of the text to measure them on."""
    sample: list[str] = []
    with bar("choosing words", corpus_size(files), "B") as shown:
        texts = (document.text for document in read_documents(files, field, shown.advance))
        return choose_words(_sampled(texts, sample), tokenizer, count), sample


def _sampled(texts: Iterable[str], sample: list[str]) -> Iterator[str]:
    """Pass the texts on; keep every n-th, n doubling as they come, so that the sample is even and bounded."""
    every = 1
    for number, text in enumerate(texts):
        if number % every == 0:
            sample.append(text[:CLIP])
            if len(sample) == 2 * SAMPLE:
                sample[:] = sample[::2]
                every *= 2
        yield text


def _tell(words: list[str], before: Tokenizer, after: Tokenizer, sample: list[str]) -> None:
    if not words:
        say("no new words: none was seen 20 times and is split into 3 pieces or more; the vocabulary stays as it is")
        return
    named = ", ".join(words[:NAMED]) + (" ..." if len(words) > NAMED else "")
    say(
        f"{len(words):,} new {'word' if len(words) == 1 else 'words'} in the vocabulary: {named}; pieces per word "
        f"{pieces_per_word(before, sample):.3f} before, {pieces_per_word(after, sample):.3f} now, on a sample of the text"
    )


def pieces_per_word(tokenizer: Tokenizer, texts: list[str]) -> float:
    """Pieces divided by what stands between spaces."""
    pieces = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts, literal=True))
    return pieces / max(1, sum(len(text.split()) for text in texts))
