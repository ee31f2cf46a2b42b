"""How the published families turn a bare vocabulary into a tokenizer.

A vocab.txt, a merges.txt or a SentencePiece model says which pieces there are, not how text is prepared or which tokens
stand around it. Each function here adds that for one kind of file.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from sesame.text.sentencepiece import CONTROL, UNKNOWN, Piece, SentencePieceModel, build_backend

_BRACKETS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ANGLES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "mask": "<mask>"}

# The token of each role. Some families give one token two roles.
FAMILY_ROLES: dict[str, dict[str, str]] = {
    "bert": _BRACKETS,
    "roberta": {**_ANGLES, "cls": "<s>", "sep": "</s>"},
    "xlm-roberta": {**_ANGLES, "cls": "<s>", "sep": "</s>"},
    "gpt2": dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    "albert": {**_BRACKETS, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"},
    "deberta-v2": {**_BRACKETS, "bos": "[CLS]", "eos": "[SEP]"},
    "xlnet": {**_ANGLES, "cls": "<cls>", "sep": "<sep>"},
    "t5": {role: _ANGLES[role] for role in ("pad", "unk", "eos")},
}

# Names under which config.json or tokenizer_config.json speak of the same preparation.
FAMILY_NAMES: dict[str, str] = {
    **{name: name for name in FAMILY_ROLES},
    **dict.fromkeys(("distilbert", "electra", "mobilebert", "convbert", "lxmert", "tinybert"), "bert"),
    **dict.fromkeys(("bart", "longformer", "led"), "roberta"),
    **dict.fromkeys(("mt5", "umt5", "longt5", "switch_transformers"), "t5"),
    **dict.fromkeys(("xlmroberta", "xlm-roberta-xl"), "xlm-roberta"),
    **dict.fromkeys(("debertav2", "deberta-v3"), "deberta-v2"),
}

BERT_FLAGS = {  # in tokenizer_config.json, and what they are called in a normalizer
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

# Classes whose bare vocabulary looks like one of those above, and which cut texts or frame them by rules that are in no file.
OTHER_RULES = (
    "bertjapanese",
    "bertweet",
    "canine",
    "esm",
    "funnel",
    "herbert",
    "mpnet",
    "phobert",
    "prophetnet",
    "roformer",
    "splinter",
)


def bert_template(backend: Tokenizer, cls: str = "[CLS]", sep: str = "[SEP]") -> processors.TemplateProcessing:
    """[CLS] a [SEP], and for a pair [CLS] a [SEP] b [SEP] where b and its [SEP] are segment 1."""
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in (cls, sep)],
    )


def xlnet_template(backend: Tokenizer, cls: str = "<cls>", sep: str = "<sep>") -> processors.TemplateProcessing:
    """a <sep> <cls>, and for a pair a <sep> b <sep> <cls>; <cls> is last, and a segment of its own, number 2."""
    return _template(backend, f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2")


def end_template(backend: Tokenizer, cls: str = "", sep: str = "</s>") -> processors.TemplateProcessing:
    """a </s>, and for a pair a </s> b </s>: what encoder-decoders read."""
    return _template(backend, f"$A:0 {sep}:0", f"$A:0 {sep}:0 $B:0 {sep}:0")


def wordpiece(vocab: dict[str, int], unk: str, settings: Mapping[str, Any]) -> Tokenizer:
    """BERT's pipeline for a vocab.txt."""
    lowercase = settings.get("do_lower_case")
    backend = Tokenizer(models.WordPiece(vocab, unk_token=unk))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=_looks_uncased(vocab) if lowercase is None else bool(lowercase),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    if "[CLS]" in vocab and "[SEP]" in vocab:
        backend.post_processor = bert_template(backend)
    return backend


def follow_flags(backend: Tokenizer, family: str | None, settings: Mapping[str, Any]) -> None:
    """What tokenizer_config.json says of letters and spaces goes before tokenizer.json, as in the classes of transformers."""
    normalizer, splitter = backend.normalizer, backend.pre_tokenizer
    if family == "bert" and isinstance(normalizer, normalizers.BertNormalizer):
        for key, name in BERT_FLAGS.items():
            if (flag := settings.get(key)) is not None:
                setattr(normalizer, name, bool(flag))
        if "strip_accents" in settings and settings["strip_accents"] is None:
            normalizer.strip_accents = None  # as they are lower-cased
        backend.normalizer = normalizer
    prefix = settings.get("add_prefix_space")
    if family in ("roberta", "gpt2") and isinstance(splitter, pre_tokenizers.ByteLevel) and prefix is not None:
        splitter.add_prefix_space = bool(prefix)
        backend.pre_tokenizer = splitter


def _looks_uncased(vocab: Mapping[str, int]) -> bool:
    """A vocabulary without a single upper-case letter was made from lower-cased text."""
    return not any(token != token.lower() and not (token[0] in "[<" and token[-1] in "]>") for token in vocab)


def guess_byte_level_family(vocab: Mapping[str, int]) -> str:
    """The family by the special tokens: RoBERTa and BART, DeBERTa (BERT's tokens), else GPT-2, which has but one."""
    if {"<s>", "</s>", "<pad>"} <= vocab.keys():
        return "roberta"
    return "deberta-v2" if {"[CLS]", "[SEP]"} <= vocab.keys() else "gpt2"


def byte_level(
    vocab: dict[str, int], merges: list[tuple[str, str]], family: str, settings: Mapping[str, Any]
) -> Tokenizer:
    """GPT-2's byte-level BPE; RoBERTa is the same with <s> a </s> and, for a pair, <s> a </s></s> b </s>."""
    prefix = bool(settings.get("add_prefix_space", False))
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    if family == "roberta":
        sep, cls = ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"])
        backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=prefix)
    elif settings.get("add_bos_token"):
        start = content(settings.get("bos_token")) or FAMILY_ROLES["gpt2"]["bos"]
        backend.add_special_tokens([start])
        begun = _template(backend, f"{start}:0 $A:0", f"{start}:0 $A:0 {start}:0 $B:0")
        backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begun])
    else:
        backend.post_processor = byte_level_template(backend if family == "deberta-v2" else None)
    return backend


def content(token: Any) -> str | None:
    """A special token stands in the files as a string or as an object with its `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return str(token) if token else None


def byte_level_template(bert: Tokenizer | None) -> processors.Sequence:
    """Offsets without the leading space, and BERT's template if `bert` has its tokens."""
    plain = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:0", special_tokens=[])
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), bert_template(bert) if bert else plain])


def guess_spiece_family(pieces: list[Piece]) -> str | None:
    """The family by the control tokens at the head of the file; None for a model of another make."""
    head = [piece.text for piece in pieces[:20]]
    if {"[CLS]", "[SEP]", "[MASK]", "<unk>"} <= set(head):
        return "albert"
    if head[:4] == ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]:
        return "deberta-v2"
    if {"<cls>", "<sep>", "<mask>"} <= set(head):
        return "xlnet"
    if head[:3] == ["<pad>", "</s>", "<unk>"]:
        return "t5"
    return None


def sentencepiece(model: SentencePieceModel, family: str | None, settings: Mapping[str, Any]) -> Tokenizer:
    """The pipeline of a family around a SentencePiece model; without a family the model alone and no template."""
    pieces, unk_id = model.pieces, model.unk_id
    before: list[normalizers.Normalizer] = []
    if family in ("albert", "xlnet"):
        pieces = [_without_number_comma(piece) for piece in pieces]
        before = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.get("keep_accents", False):
            before += [normalizers.NFKD(), normalizers.StripAccents()]
    lowers = family not in ("t5", "xlm-roberta")  # old scripts wrote the flag for every class
    if lowers and settings.get("do_lower_case", family == "albert"):
        before.append(normalizers.Lowercase())
    if family == "t5":
        extra = int(settings.get("extra_ids", 100))
        pieces = [*pieces, *(Piece(f"<extra_id_{i}>", 0.0, CONTROL) for i in reversed(range(extra)))]
    elif family == "xlm-roberta":
        # The model's ids follow fairseq: four tokens of its own stand before the pieces, <mask> behind them.
        head = [Piece(text, 0.0, CONTROL) for text in ("<s>", "<pad>", "</s>")]
        pieces = [*head, Piece("<unk>", 0.0, UNKNOWN), *pieces[3:], Piece("<mask>", 0.0, CONTROL)]
        unk_id = 3
    backend = build_backend(model, pieces, unk_id, before)
    if family == "deberta-v2":
        if settings.get("split_by_punct"):
            isolate = pre_tokenizers.Punctuation(behavior="isolated")
            backend.pre_tokenizer = pre_tokenizers.Sequence([isolate, backend.pre_tokenizer])
        backend.add_special_tokens([AddedToken("[MASK]", normalized=False, special=True)])
    _add_template(backend, family)
    return backend


def _without_number_comma(piece: Piece) -> Piece:
    """ALBERT and XLNet split "1,000," so that no piece holds a digit and then a comma."""
    text = piece.text
    glued = len(text) > 1 and text[-1] == "," and text[-2].isdigit()
    return replace(piece, score=piece.score - 100) if glued else piece


def _add_template(backend: Tokenizer, family: str | None) -> None:
    if family in ("albert", "deberta-v2"):
        backend.post_processor = bert_template(backend)
    elif family == "xlnet":
        backend.post_processor = xlnet_template(backend)
    elif family == "t5":
        backend.post_processor = end_template(backend)
    elif family == "xlm-roberta":
        backend.post_processor = _template(backend, "<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    if family in ("albert", "xlnet", "xlm-roberta"):
        # The mask takes the place of a word together with the space before it.
        mask = FAMILY_ROLES[family]["mask"]
        backend.add_special_tokens([AddedToken(mask, normalized=False, special=True, lstrip=True)])


def frame_by_roles(backend: Tokenizer, family: str, roles: Mapping[str, str]) -> None:
    """Put other tokens around texts, where the files name other ones for it than the family has."""
    ends = ("eos",) if family == "t5" else ("cls", "sep")
    usual = FAMILY_ROLES[family]
    tokens = [roles.get(role) or usual.get(role, "") for role in ends]
    known = [(token, id) for token in tokens if (id := backend.token_to_id(token)) is not None]
    same = tokens == [usual.get(role) for role in ends]
    if same or len(known) < len(tokens) or family in ("gpt2", "xlm-roberta"):
        return
    if family == "roberta":
        prefix = backend.pre_tokenizer.add_prefix_space
        backend.post_processor = processors.RobertaProcessing(known[1], known[0], True, prefix)
    elif family == "t5":
        backend.post_processor = end_template(backend, sep=tokens[0])
    elif family == "xlnet":
        backend.post_processor = xlnet_template(backend, *tokens)
    elif type(backend.pre_tokenizer).__name__ == "ByteLevel":
        offsets = processors.ByteLevel(trim_offsets=True)
        backend.post_processor = processors.Sequence([offsets, bert_template(backend, *tokens)])
    else:
        backend.post_processor = bert_template(backend, *tokens)


def _template(backend: Tokenizer, single: str, pair: str) -> processors.TemplateProcessing:
    used = {part.split(":")[0] for part in pair.split() if not part.startswith("$")}
    special = [(token, backend.token_to_id(token)) for token in sorted(used)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
