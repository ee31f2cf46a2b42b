"""New words for a vocabulary that exists.

A published tokenizer splits the words of a domain into many pieces ("ne ##ph ##rot ##ic"). Before pre-training goes on,
`choose_words` finds those that cost the most pieces, `extend_tokenizer` makes each of them one piece at the end of the
vocabulary, and `sesame.backbones.grow` starts its vector as the mean of those of its old pieces. No old id moves.

What is unusual here: the words go into the model of the tokenizer, not onto its list of added tokens, which is searched
ahead of the model and so cuts the text around a match, forgets the space before it and is slow when long. By model:

- WordPiece takes the longest piece first: the word in its vocabulary is enough. It never fires in the middle of a word
  (that would be "##word"), but it does begin longer words, as every piece does: "word ##s".
- Unigram takes the most probable path: "▁word" gets the log probability of the pieces it stands for, and a trifle more.
  In a longer word it only joins pieces that were there: one that is split at another place stays as it was.
- BPE would need merges, and their steps would be new pieces that fire in other words. Its `ignore_merges` takes a whole
  word from the vocabulary before any merge is tried: the new piece fires for exactly the word. A byte-level vocabulary
  has two forms of a word, with the space before it and without (after a bracket, on a new line), so it gets two ids.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from tokenizers import Tokenizer as Backend

from sesame.errors import SesameError
from sesame.text.sentencepiece import SPACE
from sesame.text.tokenizer import Tokenizer

LONGEST = 48  # characters: longer runs of letters are no words
CHUNKS = 200_000  # distinct strings between spaces, looked at once in a while
WORDS = 1_000_000  # distinct words whose counts are kept

# A new Unigram piece beats its old path by this much for each character, so that of two new words the longer one wins.
EDGE = 1e-4
UNKNOWN_PENALTY = 10.0  # of the library: an unknown letter costs this much more than the worst piece


def choose_words(
    texts: Iterable[str], tokenizer: Tokenizer, count: int, *, least: int = 20, pieces: int = 3
) -> list[str]:
    """At most `count` words that were seen `least` times and split into `pieces` or more, or unknown, the dearest first.

    A word is a letter and what follows it of letters, marks and digits, in the form that the tokenizer's own normalizer
    gives it. The order is by pieces saved, times seen * (pieces - 1), then by the alphabet. Memory is bounded: when
    there are more than `WORDS` distinct words, the rarest so far are forgotten.
    """
    if count < 1 or least < 1 or pieces < 2:
        raise SesameError("new words: the count and the least number of times are 1 or more, the pieces 2 or more")
    saved: list[tuple[int, str]] = []
    model = tokenizer.backend.model
    kind = _kind(tokenizer)
    known, unknown = _known(tokenizer), tokenizer.id("unk") if tokenizer.has("unk") else -1
    for word, times in _count_words(texts, tokenizer.backend, whole=kind == "BPE").items():
        if times < least or word in known:
            continue
        forms = _forms(tokenizer.backend, word)
        found = [token.id for token in model.tokenize(forms[0])] if forms else []
        # Of an unknown word nothing is left: it costs as if every letter were a piece.
        parts = max(len(word), pieces) if unknown in found else len(found)
        if parts >= pieces:
            saved.append((times * (parts - 1), word))
    saved.sort(key=lambda item: (-item[0], item[1]))
    return [word for _, word in saved[:count]]


def extend_tokenizer(tokenizer: Tokenizer, words: Iterable[str]) -> tuple[Tokenizer, list[list[int]]]:
    """A new tokenizer with the words as pieces from the id `len(tokenizer)` on, and the old pieces of each new id.

    A word that is in the vocabulary already is skipped. One that the tokenizer's preparation takes apart (a hyphen, a
    space) cannot be a piece and is an error.
    """
    kind = _kind(tokenizer)
    fresh = _new_pieces(tokenizer, words, kind)
    state = json.loads(tokenizer.backend.to_str())
    if fresh:
        _absorb_added(state["model"], tokenizer)
        _ADD[kind](state["model"], list(fresh), len(tokenizer))
    backend = Backend.from_str(json.dumps(state))
    if kind == "BPE":
        _check_merges(tokenizer, backend)
    model = backend.model
    for id, piece in enumerate(fresh, len(tokenizer)):
        if [token.id for token in model.tokenize(piece)] != [id]:
            raise SesameError(
                f"{tokenizer.name}: {piece!r} stays split even as a piece of its own; leave this word out"
            )
    extended = tokenizer.changed(backend=backend, inputs=tokenizer.input_names())
    return extended, list(fresh.values())


def _kind(tokenizer: Tokenizer) -> str:
    model = tokenizer.backend.model
    kind = type(model).__name__
    if kind not in _ADD:
        raise SesameError(f"{tokenizer.name}: a {kind} vocabulary cannot be extended; {', '.join(_ADD)} ones can")
    if kind == "BPE" and getattr(model, "end_of_word_suffix", None):
        raise SesameError(
            f"{tokenizer.name}: a BPE that marks the ends of words cannot be extended; byte-level ones can"
        )
    return kind


def _known(tokenizer: Tokenizer) -> set[str]:
    """Added tokens, which are found ahead of the model, as text has them."""
    added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    return {form for token in added for form in (token, _normalize(tokenizer.backend, token))}


def _count_words(texts: Iterable[str], backend: Backend, whole: bool) -> Counter[str]:
    """Strings between spaces are counted first and taken apart once each: most of a text is the same few thousand."""
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.encode("utf-8", "replace").decode("utf-8").split())
        if len(chunks) > CHUNKS:
            _take_apart(chunks, backend, whole, words)
            chunks.clear()
    _take_apart(chunks, backend, whole, words)
    return words


def _take_apart(chunks: Counter[str], backend: Backend, whole: bool, words: Counter[str]) -> None:
    for chunk, times in chunks.items():
        for _, surface in _split(backend, chunk):
            word = _leading_word(surface)
            # A BPE piece stands for the whole of what lies between two cuts; others may be followed by a comma.
            if word and not (whole and len(word) < len(surface)):
                words[word] += times
    floor = 0
    while len(words) > WORDS:
        floor += 1
        for word in [word for word, times in words.items() if times <= floor]:
            del words[word]


def _leading_word(surface: str) -> str:
    """The word that the surface begins with; empty if it begins with something else or goes on too long."""
    if not surface or not surface[0].isalpha():
        return ""
    end = next((at for at, letter in enumerate(surface) if not _in_words(letter)), len(surface))
    return surface[:end] if end <= LONGEST else ""


@cache
def _in_words(letter: str) -> bool:
    """Letters, marks (the vowel signs of Hindi are marks) and digits."""
    return unicodedata.category(letter)[0] in "LMN"


def _normalize(backend: Backend, text: str) -> str:
    return str(backend.normalizer.normalize_str(text)) if backend.normalizer is not None else text


def _split(backend: Backend, text: str) -> list[tuple[str, str]]:
    """What the model is asked about, one by one, and the text of each without the sign of a space."""
    text = _normalize(backend, text)
    cuts: Sequence[tuple[str, tuple[int, int]]] = [(text, (0, len(text)))]
    if backend.pre_tokenizer is not None:
        cuts = backend.pre_tokenizer.pre_tokenize_str(text)
    return [(part, text[start:end].strip().lstrip(SPACE)) for part, (start, end) in cuts]


def _forms(backend: Backend, word: str) -> list[str]:
    """The shapes in which the model may meet the whole word: after a space, at the start, after a bracket."""
    surface = _normalize(backend, word).strip().lstrip(SPACE)
    found = [part for before in (" ", "", "(") for part, text in _split(backend, before + word) if text == surface]
    return [part for part in dict.fromkeys(found) if not part.startswith(2 * SPACE)] if surface else []


def _new_pieces(tokenizer: Tokenizer, words: Iterable[str], kind: str) -> dict[str, list[int]]:
    """Each new piece and the ids it stands for."""
    vocab = tokenizer.backend.get_vocab(with_added_tokens=True)
    known, model = _known(tokenizer), tokenizer.backend.model
    fresh: dict[str, list[int]] = {}
    for word in words:
        forms = _forms(tokenizer.backend, word)
        if not forms:
            raise SesameError(f"{tokenizer.name}: {word!r} is not one word for this tokenizer; leave it out")
        for form in forms if kind == "BPE" else forms[:1]:
            if form not in vocab and form not in fresh and _normalize(tokenizer.backend, word) not in known:
                fresh[form] = [token.id for token in model.tokenize(form)]
    return fresh


def _absorb_added(model: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Tokens that are known to the list of added tokens only have ids behind the model's; they keep them this way.

    The library numbers such tokens by the size of the model when it reads a file, and the model is about to grow.
    """
    tokens = tokenizer.tokens()
    if isinstance(model["vocab"], dict):
        model["vocab"] |= {token: id for id, token in enumerate(tokens) if token}
        return
    worst = min(score for _, score in model["vocab"])
    for id in range(len(model["vocab"]), len(tokens)):
        model["vocab"].append([tokens[id], worst])


def _add_to_dict(model: dict[str, Any], pieces: list[str], first: int) -> None:
    model["vocab"] |= {piece: id for id, piece in enumerate(pieces, first)}


def _add_to_bpe(model: dict[str, Any], pieces: list[str], first: int) -> None:
    _add_to_dict(model, pieces, first)
    model["ignore_merges"] = True


def _add_to_unigram(model: dict[str, Any], pieces: list[str], first: int) -> None:
    assert len(model["vocab"]) == first, "ids of Unigram pieces are their places in the list"
    scores: dict[str, float] = dict(model["vocab"])
    unknown = min(scores.values()) - UNKNOWN_PENALTY
    for piece in pieces:
        # Half a character less for each piece: one new piece beats two new ones of the same length.
        score = _best_path(piece, scores, unknown) + EDGE * (len(piece) - 0.5)
        # Short numbers, because the library reads long ones from a file with an error in the last digit.
        model["vocab"].append([piece, round(score, 6)])


_ADD: dict[str, Callable[[dict[str, Any], list[str], int], None]] = {
    "WordPiece": _add_to_dict,
    "BPE": _add_to_bpe,
    "Unigram": _add_to_unigram,
}


def _best_path(text: str, scores: dict[str, float], unknown: float) -> float:
    """The log probability of the best segmentation; a letter that is no piece counts as unknown."""
    best = [0.0]
    for end in range(1, len(text) + 1):
        parts = [(start, scores.get(text[start:end])) for start in range(end)]
        ways = [best[start] + score for start, score in parts if score is not None]
        if text[end - 1] not in scores:
            ways.append(best[end - 1] + unknown)
        best.append(max(ways))
    return best[-1]


def _check_merges(tokenizer: Tokenizer, extended: Backend) -> None:
    """Taking whole words from the vocabulary must change nothing for the old ones: merges must lead to each of them."""
    before, after = tokenizer.backend.model, extended.model
    vocab = tokenizer.backend.get_vocab(with_added_tokens=False)
    suspects = [id for piece, id in vocab.items() if before.tokenize(piece)[0].id != after.tokenize(piece)[0].id]
    texts = tokenizer.backend.decode_batch([[id] for id in suspects], skip_special_tokens=False)
    for text in texts:
        old, new = (backend.encode(text, add_special_tokens=False).ids for backend in (tokenizer.backend, extended))
        if old != new:
            raise SesameError(
                f"{tokenizer.name}: its merges do not lead to its own piece {text!r}, so new words would change old "
                "ones; train a tokenizer on your text instead"
            )
