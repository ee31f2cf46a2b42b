"""A tokenizer of whole words that loses no letter of the others.

The most frequent words are tokens; any other word is the longest of them that it begins with, and then its bytes. So the ids
say for every word how it is written (`characters.py`), and a word that is one token can be asked for by a softmax. Ids follow
frequency, which an adaptive softmax (Grave et al. 2017) needs; bytes, which are never asked for, come last.

Unusual: this is WordPiece over byte-level letters. A space ("Ġ") is put before every word, so tokens that begin a word are
told by their first letter. Words are split at white space and punctuation, as BERT's are; or at white space alone, for text
that was tokenized before (Penn Treebank, CoNLL), whose "U.S." and "<unk>" then are words.
"""

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from sesame.text.learning import learn

LONGEST = 1000  # bytes of a word; a longer one is unknown


def train_words(
    sample: list[str],
    size: int,
    specials: dict[str, str],
    lowercase: bool,
    strip_accents: bool,
    min_count: int,
    spaced: bool = False,
) -> Backend:
    """At most `size` tokens: specials, words by frequency (ties by letter), bytes. `spaced`: only spaces part words."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    normalizer = normalizers.Sequence(steps)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    scratch = Backend(models.WordLevel(unk_token=specials["unk"]))
    scratch.normalizer, scratch.pre_tokenizer = normalizer, _split(spaced)
    room = size - len(specials) - len(letters)
    min_count = 1 if spaced else min_count  # text that was tokenized before has <unk> for words it does not want
    learn(scratch, sample, trainers.WordLevelTrainer(vocab_size=room, min_frequency=min_count, show_progress=False))
    counted = sorted(scratch.get_vocab().items(), key=lambda item: item[1])
    words = [word for word, _ in counted]
    return word_tokenizer(words, specials, normalizer, spaced)


def word_tokenizer(
    words: list[str],
    specials: dict[str, str],
    normalizer: normalizers.Normalizer | None = None,
    spaced: bool = False,
) -> Backend:
    """A tokenizer of these words, each with "Ġ" before it; of none: every word is spelled."""
    tokens = [*specials.values(), *words, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    numbered = {token: id for id, token in enumerate(tokens)}
    model = models.WordPiece(
        numbered, unk_token=specials["unk"], continuing_subword_prefix="", max_input_chars_per_word=LONGEST
    )
    backend = Backend(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = _split(spaced)
    backend.decoder = decoders.ByteLevel()
    return backend


def _split(spaced: bool) -> pre_tokenizers.PreTokenizer:
    first = pre_tokenizers.WhitespaceSplit() if spaced else pre_tokenizers.BertPreTokenizer()
    return pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
