"""A tokenizer from your own text.

Letters keep their marks: text is brought to composed form (NFC) first, so й stays й and ё stays ё whether the file has
them in one character or in two; BERT's habit of stripping accents is there only on request. Byte-level BPE leaves text
as it is: it can give back every byte, and composing would break that promise.

What is unusual here: the result depends on the text alone. The library's WordPiece trainer numbers the "##" letters in
the order of a hash table, so it is told all letters beforehand; for Unigram see `unigram.py`.

Memory is bounded by `SAMPLE` bytes of text whatever the amount: `sample_texts` keeps every k-th text and doubles k when
full.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from sesame.errors import SesameError
from sesame.text.families import FAMILY_ROLES, byte_level_template
from sesame.text.learning import learn
from sesame.text.sentencepiece import OUT_OF_REACH, SPACE, decoder
from sesame.text.template import Template, put_around
from sesame.text.tokenizer import Tokenizer
from sesame.text.unigram import frequent_letters, train_unigram
from sesame.text.words import LONGEST, train_words

Kind = Literal["wordpiece", "bpe", "unigram", "word", "spaced"]
Specials = dict[str, str]
"""Token of each role, in the order of their ids."""

SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
# XLNet's names, under the ids that its published models have.
XLNET_SPECIALS = {role: FAMILY_ROLES["xlnet"][role] for role in ("unk", "bos", "eos", "cls", "sep", "pad", "mask")}
_LONG_WORD = re.compile(rf"\S{{{LONGEST}}}(?=\S)")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

# Bytes of text that a vocabulary is made from; Unigram reads them many times over.
SAMPLE = {"wordpiece": 64_000_000, "bpe": 64_000_000, "unigram": 16_000_000, "word": 256_000_000, "spaced": 256_000_000}

# Fewer tokens than this are all letters and no words.
SMALLEST = {
    "wordpiece": 64,
    "bpe": len(SPECIALS) + 256,
    "unigram": len(SPECIALS) + 256 + 64,
    "word": len(SPECIALS) + 256 + 16,
    "spaced": len(SPECIALS) + 256 + 16,
}


def sample_texts(texts: Iterable[str], *, cap: int = SAMPLE["wordpiece"]) -> list[str]:
    """An even sample of at most `cap` bytes (and one text), in one pass and without knowing the amount beforehand."""
    kept: list[tuple[str, int]] = []
    held, every = 0, 1
    for number, text in enumerate(texts):
        if number % every:
            continue
        size = len(text.encode("utf-8", "replace"))
        kept.append((text, size))
        held += size
        while held > cap and len(kept) > 1:
            kept = kept[::2]
            held, every = sum(size for _, size in kept), every * 2
    return [text for text, _ in kept]


def train_tokenizer(
    texts: Iterable[str],
    kind: Kind,
    size: int,
    *,
    lowercase: bool = False,
    strip_accents: bool = False,
    template: Template | Literal["none"] = "bert",
    min_count: int = 2,
) -> Tokenizer:
    """Train a tokenizer with `size` tokens, fewer if the text does not have as many.

    [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 to 4; XLNet's template brings its own, see `XLNET_SPECIALS`.
    `min_count` is how often a pair must occur to become a token.
    """
    if kind not in SAMPLE:
        raise SesameError(f"unknown kind of tokenizer {kind!r}; choose one of {', '.join(SAMPLE)}")
    if size < SMALLEST[kind]:
        raise SesameError(
            f"a {kind} tokenizer of {size} tokens has no room for words; ask for {SMALLEST[kind]} or more"
        )
    kept = sample_texts(texts, cap=SAMPLE[kind])
    sample = [part for text in kept for part in _without_long_words(text.encode("utf-8", "replace").decode("utf-8"))]
    if not any(text.strip() for text in sample):
        raise SesameError("there is no text to train a tokenizer on; give files that are not empty")
    train: dict[str, Callable[..., Backend]] = {
        "wordpiece": _wordpiece,
        "bpe": _bpe,
        "unigram": _unigram,
        "word": train_words,
        "spaced": partial(train_words, spaced=True),
    }
    specials = XLNET_SPECIALS if template == "xlnet" else SPECIALS
    backend = train[kind](sample, size, specials, lowercase, strip_accents, min_count)
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in specials.values()])
    if template != "none":
        put_around(backend, template, specials["cls"], specials["sep"])
    elif kind == "bpe":
        backend.post_processor = byte_level_template(None)
    return Tokenizer(backend, specials)


def _without_long_words(text: str) -> Iterator[str]:
    """The text, cut inside of words of more than LONGEST letters: the library's trainers need time by the square of a word's
    length, so that a genome or a picture in base64, a million letters without a blank, would keep them for hours."""
    start = 0
    for found in _LONG_WORD.finditer(text):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]


def _wordpiece(
    sample: list[str], size: int, specials: Specials, lowercase: bool, strip_accents: bool, min_count: int
) -> Backend:
    """BERT's pipeline on composed text; Chinese characters are words of their own. Where BERT gives up, at words of more than
    100 letters, which in Thai, Lao or Khmer are clauses, this goes on up to LONGEST."""
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(strip_accents=strip_accents, lowercase=lowercase)]
    )
    inner = _inner_letters(sample, normalizer, specials["unk"])
    counts = _count_letters(sample, normalizer)
    alphabet: list[str] = []
    room = size // 2
    for letter in frequent_letters(counts, room):
        room -= 2 if letter in inner else 1
        if room < 0:
            break
        alphabet.append(letter)
    alphabet.sort()
    known = [*specials.values(), *alphabet, *("##" + letter for letter in alphabet if letter in inner)]
    scratch = Backend(models.WordPiece(unk_token=specials["unk"]))
    scratch.normalizer, scratch.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        special_tokens=known,  # numbered first, in this order
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    learn(scratch, sample, trainer)
    model = models.WordPiece(scratch.get_vocab(), unk_token=specials["unk"], max_input_chars_per_word=LONGEST)
    backend = Backend(model)
    backend.normalizer, backend.pre_tokenizer = normalizer, scratch.pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _inner_letters(sample: list[str], normalizer: normalizers.Normalizer, unk: str) -> set[str]:
    """The letters that stand inside of words, and so need a "##" form. Chinese characters, for one, never do."""
    scratch = Backend(models.WordPiece(unk_token=unk))
    scratch.normalizer, scratch.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    learn(scratch, sample, trainers.WordPieceTrainer(vocab_size=0, show_progress=False))
    return {token[2:] for token in scratch.get_vocab() if len(token) == 3 and token.startswith("##")}


def _count_letters(sample: list[str], normalizer: normalizers.Normalizer) -> Counter[str]:
    raw: Counter[str] = Counter()
    for text in sample:
        raw.update(unicodedata.normalize("NFC", text))
    counts: Counter[str] = Counter()
    for letter, count in raw.items():
        for part in normalizer.normalize_str(letter):
            if not part.isspace():
                counts[part] += count
    return counts


def _bpe(
    sample: list[str], size: int, specials: Specials, lowercase: bool, strip_accents: bool, min_count: int
) -> Backend:
    """Byte-level: all 256 bytes are tokens, so nothing is unknown and every text comes back as it was."""
    backend = Backend(models.BPE())
    steps: list[normalizers.Normalizer] = []
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        special_tokens=list(specials.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    learn(backend, sample, trainer)
    return backend


def _unigram(
    sample: list[str], size: int, specials: Specials, lowercase: bool, strip_accents: bool, min_count: int
) -> Backend:
    """Pieces with probabilities; a letter outside of the alphabet is spelled in bytes, so nothing is unknown."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    normalizer = normalizers.Sequence(steps)
    spaces = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always", split=True)]
    )
    pieces = train_unigram(sample, normalizer, spaces, size - len(specials) - len(BYTES), min_count)
    head = [(token, OUT_OF_REACH) for token in (*specials.values(), *BYTES)]
    backend = Backend(models.Unigram([*head, *pieces], list(specials).index("unk"), byte_fallback=True))
    backend.normalizer, backend.pre_tokenizer = normalizer, spaces
    backend.decoder = decoder("always", byte_fallback=True)
    return backend
