"""Loading: every file form, against transformers and sentencepiece on vocabularies made here."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.errors import SesameError
from sesame.text import Tokenizer, train_tokenizer
from sesame.text.sentencepiece import read_sentencepiece

TEXT = [
    "The cat (a big one) sat on the mat - and 1,000 dogs, 25, ran.",
    "Мой ёж пьёт чай: май, йод и ещё каждый день.",
    "A café costs £3.50; naïve “quotes” … and ﬁne print №5",
    "我们在学校学习中文。学校很大。",
    "<0123456789> x ABCDEF",
] * 10
PROBES = [
    *TEXT[:5],
    "",
    "  two  spaces ",
    "tab\tand\nline",
    "unseen ☃ snowman",
    "x" * 40,
    "don't ``quote'' 3,4, 100,000,",
]

BERT_VOCAB = [
    "[PAD]",
    "[unused1]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "s",
    "##at",
    "c",
    "##s",
    ",",
    "学",
    "校",
]


def write_vocab(folder: Path, tokens: list[str]) -> None:
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def equal(ours: Tokenizer, theirs: Any, probes: list[str] = PROBES) -> None:
    for text in probes:
        assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"], text
        assert ours.encode(text, special=True).ids == theirs(text)["input_ids"], text
    pair = theirs(probes[0], probes[1], return_token_type_ids=True)
    assert ours.encode_pair(probes[0], probes[1]).ids == pair["input_ids"]
    assert ours.ids() == {role: getattr(theirs, f"{role}_token_id") for role in ours.roles}


# ---- vocab.txt


def test_vocab_txt_is_bert(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_vocab(tmp_path, BERT_VOCAB)
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    equal(ours, theirs, ["The CAT sat, cats", "学校 thé"])
    assert len(ours) == len(BERT_VOCAB)
    assert ours.encode("thé").ids == ours.encode("THE").ids
    assert Tokenizer.load(tmp_path / "vocab.txt").fingerprint() == ours.fingerprint()


def test_vocab_with_capitals_is_cased(tmp_path: Path) -> None:
    write_vocab(tmp_path, [*BERT_VOCAB, "The"])
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("The the").ids == [15, 6]
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512})
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("The the").ids == [6, 6]
    assert ours.max_length == 512


def test_settings_beside_vocab_txt_count(tmp_path: Path) -> None:
    write_vocab(tmp_path, BERT_VOCAB)
    config = {"tokenize_chinese_chars": False, "strip_accents": False, "model_max_length": 1e30, "mask_token": None}
    write_json(tmp_path / "tokenizer_config.json", config)
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("学校").ids == [2]
    assert ours.encode("thé").ids == [2]
    assert ours.max_length is None
    assert not ours.has("mask")


def test_added_tokens_are_honored(tmp_path: Path) -> None:
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "added_tokens.json", {"covid": 15})
    flags = {"lstrip": True, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {"16": {"content": "<url>", **flags}}})
    ours = Tokenizer.load(tmp_path)
    assert len(ours) == 17
    assert ours.encode("the covid <url>").ids == [6, 15, 16]
    assert 16 not in ours.encode("the <url>", literal=True).ids
    assert ours.decode([6, 15, 16]) == "the covid"
    write_json(tmp_path / "added_tokens.json", {"covid": 40})
    with pytest.raises(SesameError, match="should have id 16 but gets 15"):
        Tokenizer.load(tmp_path)


# ---- vocab.json and merges.txt


def write_bpe(folder: Path, specials: list[str], last: list[str]) -> None:
    """A byte-level BPE in two files, with the special tokens first and last."""
    trained = json.loads(train_tokenizer(TEXT, "bpe", 400).backend.to_str())["model"]
    inner = [token for token in trained["vocab"] if not token.startswith("[") or len(token) < 4]
    write_json(folder / "vocab.json", {token: id for id, token in enumerate([*specials, *inner, *last])})
    merges = ["#version: 0.2", *(" ".join(merge) for merge in trained["merges"])]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")


def test_gpt2_files(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_bpe(tmp_path, [], ["<|endoftext|>"])
    ours = Tokenizer.load(tmp_path)
    equal(ours, transformers.GPT2Tokenizer.from_pretrained(tmp_path))
    assert set(ours.roles) == {"bos", "eos", "unk"}
    assert ours.input_names() == ["input_ids", "attention_mask"]
    text = "The cat sat"
    encoding = ours.encode(text)
    assert text[slice(*encoding.offsets[-1])].strip() == text[slice(*encoding.offsets[-1])]


@pytest.mark.parametrize("bos", ["<|endoftext|>", {"content": "<s>"}])
def test_gpt2_files_that_ask_for_a_first_token(bos: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_bpe(tmp_path, [], ["<|endoftext|>"])
    token = {"__type": "AddedToken", **bos} if isinstance(bos, dict) else bos
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": True, "bos_token": token})
    ours = Tokenizer.load(tmp_path)
    equal(ours, transformers.GPT2Tokenizer.from_pretrained(tmp_path))
    assert ours.encode("cat", special=True).ids == [ours.id("bos"), *ours.encode("cat").ids]


def test_roberta_files(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_bpe(tmp_path, ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
    ours = Tokenizer.load(tmp_path / "merges.txt")
    equal(ours, transformers.RobertaTokenizer.from_pretrained(tmp_path))
    assert ours.encode_pair("a", "b").ids.count(2) == 3
    spaced = ours.encode("cat <mask> sat").ids
    assert spaced == ours.encode("cat<mask> sat").ids  # the mask takes the space before it


def test_deberta_files_have_berts_template(tmp_path: Path) -> None:
    write_bpe(tmp_path, ["[PAD]", "[CLS]", "[SEP]", "[UNK]"], ["[MASK]"])
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("cat", special=True).ids == [1, *ours.encode("cat").ids, 2]
    assert ours.id("mask") == len(ours) - 1


def test_broken_bpe_files(tmp_path: Path) -> None:
    write_bpe(tmp_path, [], ["<|endoftext|>"])
    with (tmp_path / "merges.txt").open("a", encoding="utf-8") as handle:
        handle.write("three parts here\n")
    lines = len((tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines())
    with pytest.raises(SesameError, match=rf"merges\.txt: line {lines} "):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(SesameError, match=r"merges\.txt: no such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_text("", encoding="utf-8")
    write_json(tmp_path / "vocab.json", {"low</w>": 0})
    with pytest.raises(SesameError, match="not a byte-level"):
        Tokenizer.load(tmp_path)


# ---- SentencePiece

ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
XLNET = {"control_symbols": "<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"}
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]"}
DEBERTA |= {"eos_piece": "[SEP]", "unk_piece": "[UNK]", "byte_fallback": True}


def spiece(path: Path, kind: str = "unigram", size: int = 130, **options: Any) -> Any:
    """Train a SentencePiece model with the real thing; returns its processor."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    size += 256 if options.get("byte_fallback") else 0
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 3),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def test_the_reader_agrees_with_sentencepiece(tmp_path: Path) -> None:
    processor = spiece(tmp_path / "spiece.model", **T5)
    model = read_sentencepiece(tmp_path / "spiece.model")
    assert [p.text for p in model.pieces] == [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    assert [p.score for p in model.pieces] == [processor.get_score(i) for i in range(processor.get_piece_size())]
    assert (model.unk_id, model.is_bpe, model.byte_fallback) == (2, False, False)
    assert model.add_dummy_prefix
    assert model.remove_extra_whitespaces
    assert len(model.charsmap) > 1000


def test_t5(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    processor = spiece(tmp_path / "spiece.model", **T5)
    ours = Tokenizer.load(tmp_path)
    equal(ours, transformers.T5Tokenizer.from_pretrained(tmp_path))
    assert len(ours) == processor.get_piece_size() + 100
    assert ours.token(len(ours) - 1) == "<extra_id_0>"
    assert ours.encode("a <extra_id_0> b").ids.count(len(ours) - 1) == 1
    for text in (*PROBES, "a </s> b <pad> <unk>"):  # what SentencePiece itself makes of control tokens in text
        assert ours.encode(text, literal=True).ids == processor.encode(text)


def test_albert(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from sentencepiece import sentencepiece_model_pb2
    from transformers import AlbertTokenizer
    from transformers.convert_slow_tokenizer import AlbertConverter

    processor = spiece(tmp_path / "spiece.model", user_defined_symbols="(,),-,.", **ALBERT)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((tmp_path / "spiece.model").read_bytes())
    vocab = AlbertConverter.vocab(None, proto)
    theirs = AlbertTokenizer(vocab=vocab, _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap)
    ours = Tokenizer.load(tmp_path)
    equal(ours, theirs)
    text = "the cat (a big one) sat-on the mat. and"
    assert ours.encode(text).ids == processor.encode(text)
    assert ours.encode("Café").ids == ours.encode("cafe").ids
    assert "token_type_ids" in ours.input_names()


def test_xlnet(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    spiece(tmp_path / "spiece.model", **XLNET)
    ours = Tokenizer.load(tmp_path)
    equal(ours, transformers.XLNetTokenizer.from_pretrained(tmp_path), [p for p in PROBES if "," not in p])
    assert ours.encode("cat", special=True).segments[-1] == 2
    assert ours.encode("cat", special=True).ids[-1] == ours.id("cls")


def test_xlm_roberta(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    spiece(tmp_path / "sentencepiece.bpe.model")
    ours = Tokenizer.load(tmp_path)
    equal(ours, transformers.XLMRobertaTokenizer.from_pretrained(tmp_path))
    assert ours.ids() == {"pad": 1, "unk": 3, "cls": 0, "sep": 2, "mask": len(ours) - 1, "bos": 0, "eos": 2}


def test_deberta_v3_keeps_the_bytes(tmp_path: Path) -> None:
    processor = spiece(tmp_path / "spm.model", **DEBERTA)
    ours = Tokenizer.load(tmp_path)
    for text in (*PROBES, "a <0x41> b"):
        assert ours.encode(text).ids == processor.encode(text), text
    assert ours.id("mask") == processor.get_piece_size()
    assert ours.encode("cat", special=True).ids[0] == 1
    assert ours.decode(ours.encode("the ☃ cat").ids) == "the ☃ cat"


@pytest.mark.parametrize(
    "extra", [{}, {"byte_fallback": True}, {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False}]
)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_of_no_family(tmp_path: Path, kind: str, extra: dict[str, Any]) -> None:
    processor = spiece(tmp_path / "own.model", kind, 200, **extra)
    ours = Tokenizer.load(tmp_path)
    for text in PROBES:
        assert ours.encode(text).ids == processor.encode(text), text
    assert ours.decode(ours.encode("the cat").ids) == "the cat"
    assert ours.encode("cat", special=True).ids == ours.encode("cat").ids
    assert {"unk", "bos", "eos"} <= set(ours.roles)


def test_spaces_behind_words_are_refused(tmp_path: Path) -> None:
    spiece(tmp_path / "own.model", treat_whitespace_as_suffix=True)
    with pytest.raises(SesameError, match=r"own\.model: its spaces stand behind words"):
        Tokenizer.load(tmp_path)


def test_the_config_names_the_family(tmp_path: Path) -> None:
    spiece(tmp_path / "spiece.model", **T5)
    write_json(tmp_path / "config.json", {"model_type": "mt5"})
    write_json(tmp_path / "tokenizer_config.json", {"extra_ids": 0})
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("cat", special=True).ids[-1] == 1
    assert "<extra_id_0>" not in ours.tokens()
    write_json(tmp_path / "config.json", {"model_type": "camembert"})
    with pytest.raises(SesameError, match="camembert renumbers"):
        Tokenizer.load(tmp_path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_model_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x.model"
    path.write_bytes(data)
    try:
        said = "" if read_sentencepiece(path).pieces else "nothing"
    except SesameError as error:
        said = str(error).partition(": ")[2]
    assert said in ("", "not a SentencePiece model, or cut short; copy the file again") or "word or char" in said


def test_a_model_cut_short(tmp_path: Path) -> None:
    spiece(tmp_path / "spiece.model", **T5)
    data = (tmp_path / "spiece.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(data[: len(data) - 7])
    with pytest.raises(SesameError, match="cut short"):
        Tokenizer.load(tmp_path)


# ---- tokenizer.json and its neighbors


def test_tokenizer_json_alone_shows_its_roles(tmp_path: Path) -> None:
    trained = train_tokenizer(TEXT, "wordpiece", 300)
    trained.backend.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.load(tmp_path).roles == trained.roles
    assert Tokenizer.load(tmp_path).max_length is None


def test_roles_from_the_companions(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<u>": 0, "a": 1, "<p>": 2}, unk_token="<u>"))
    backend.save(str(tmp_path / "tokenizer.json"))
    write_json(
        tmp_path / "special_tokens_map.json", {"unk_token": "<u>", "pad_token": {"content": "<p>", "lstrip": True}}
    )
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"})
    ours = Tokenizer.load(tmp_path)
    assert ours.ids() == {"unk": 0, "pad": 2, "eos": 3}  # a token that is missing is appended, as transformers does
    assert ours.decode([1, 2, 3]) == "a"


def test_distilbert_takes_no_segments(tmp_path: Path) -> None:
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "config.json", {"model_type": "distilbert"})
    assert Tokenizer.load(tmp_path).input_names() == ["input_ids", "attention_mask"]


def bad_folders(folder: Path) -> dict[str, str]:
    """Broken file -> a part of the sentence that must be said."""
    (folder / "json").mkdir()
    (folder / "json" / "tokenizer.json").write_text("{", encoding="utf-8")
    (folder / "model").mkdir()
    write_json(folder / "model" / "tokenizer.json", {"model": {"type": "BPE"}})
    (folder / "list").mkdir()
    write_json(folder / "list" / "tokenizer.json", [1, 2])
    (folder / "vocab").mkdir()
    write_vocab(folder / "vocab", ["just", "some", "words"])
    (folder / "latin").mkdir()
    (folder / "latin" / "vocab.txt").write_bytes("[UNK]\ncaf\xe9\n".encode("latin-1"))
    (folder / "config").mkdir()
    write_vocab(folder / "config", BERT_VOCAB)
    (folder / "config" / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    (folder / "added").mkdir()
    write_vocab(folder / "added", BERT_VOCAB)
    write_json(folder / "added" / "tokenizer_config.json", {"added_tokens_decoder": {"15": "word"}})
    (folder / "empty").mkdir()
    (folder / "many").mkdir()
    (folder / "many" / "a.model").touch()
    (folder / "many" / "b.model").touch()
    (folder / "odd.bin").touch()
    (folder / "nothing.model").touch()
    return {
        "json": "not readable as JSON",
        "model": "cannot read it",
        "list": "it has no model",
        "vocab": "not a WordPiece vocabulary",
        "latin": "not a text file in UTF-8",
        "config": "expected an object",
        "added": "added tokens is malformed",
        "empty": "no tokenizer here",
        "many": "several .model files",
        "odd.bin": "not a tokenizer file",
        "nothing.model": "not a SentencePiece model",
        "missing": "no such file or folder",
    }


def test_broken_input_gives_one_sentence(tmp_path: Path) -> None:
    for name, part in bad_folders(tmp_path).items():
        with pytest.raises(SesameError) as caught:
            Tokenizer.load(tmp_path / name)
        message = str(caught.value)
        assert part in message, message
        assert name in message
        assert "\n" not in message


def test_a_run_gives_its_models_tokenizer(tmp_path: Path) -> None:
    """MODEL is a folder or a run; `sesame doctor TEXT --tokenizer MODEL`, which finetune names, takes both."""
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(SesameError, match="no tokenizer here"):
        Tokenizer.load(tmp_path)
    for folder, size in (("tokenizer", 280), ("final", 300)):
        made = train_tokenizer(["a few words and some more of them"] * 9, kind="bpe", size=size)
        made.save(tmp_path / folder)
        assert Tokenizer.load(tmp_path).fingerprint() == made.fingerprint()
