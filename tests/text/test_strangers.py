"""What the files beside a bare vocabulary ask for is done as in transformers, or refused; never passed over."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer

from sesame.errors import SesameError
from sesame.text import Tokenizer
from tests.text.test_load import BERT_VOCAB, T5, equal, spiece, write_bpe, write_json, write_vocab


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "MPNetTokenizerFast", "FunnelTokenizer"])
def test_a_vocabulary_of_other_rules_is_refused(kind: str, file: str, tmp_path: Path) -> None:
    """Japanese BERTs cut words by a dictionary: BERT's rules on their vocab.txt gave other ids without a word."""
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    write_json(tmp_path / file, {"model_type": "bert", "tokenizer_class": kind, "do_lower_case": False})
    with pytest.raises(SesameError, match=r"vocab.txt: the tokenizer of \w+ has rules of its own"):
        Tokenizer.load(tmp_path)
    write_json(tmp_path / "config.json", {"model_type": "bert", "tokenizer_class": "BertTokenizerFast"})
    write_json(tmp_path / "tokenizer_config.json", {})
    assert Tokenizer.load(tmp_path).encode("the cat").ids == [6, 7]


FLAGS = {"lstrip": True, "normalized": False, "rstrip": True, "single_word": False, "__type": "AddedToken"}
NAMED: dict[str, dict[str, Any]] = {  # tokens of roles that are not the family's own
    "another unknown": {"unk_token": "c"},
    "another frame": {"cls_token": "the", "sep_token": "s"},
    "a frame of new tokens": {"cls_token": "<s>", "sep_token": "</s>"},
}


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_tokens_of_roles_beside_a_vocabulary(file: str, case: str, tmp_path: Path) -> None:
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": True})
    write_json(tmp_path / file, {"do_lower_case": True, **NAMED[case]})
    equal(Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path), ["the cats", "dog 学", ""])


@pytest.mark.parametrize(
    "named", [{"cls_token": "a", "sep_token": "b"}, {"mask_token": {"content": "<mask>", **FLAGS}}]
)
def test_tokens_of_roles_beside_merges(named: dict[str, Any], tmp_path: Path) -> None:
    write_bpe(tmp_path, ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
    write_json(tmp_path / "config.json", {"model_type": "roberta"})
    write_json(tmp_path / "tokenizer_config.json", named)
    probes = ["the cat", "a b", "Мой ёж"] + (["the <mask> cat"] if "mask_token" in named else [])
    equal(Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path), probes)


@pytest.mark.parametrize("decoder", [False, True])
def test_the_map_knows_tokens_that_were_named_later(decoder: bool, tmp_path: Path) -> None:
    """Before there was an added_tokens_decoder, tokenizer_config.json kept what a tokenizer had begun with."""
    write_vocab(tmp_path, BERT_VOCAB)
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    config: dict[str, Any] = {"do_lower_case": True, "pad_token": None, "mask_token": "[MASK]"}
    write_json(tmp_path / "tokenizer_config.json", config | ({"added_tokens_decoder": {}} if decoder else {}))
    write_json(tmp_path / "special_tokens_map.json", {"pad_token": "[PAD]", "mask_token": "[unused1]"})
    ours, theirs = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.roles.get("pad"), ours.roles["mask"]) == (theirs.pad_token, theirs.mask_token)
    assert ours.has("pad") is not decoder


ROLES = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
FLAGGED: dict[str, tuple[dict[str, Any], bool]] = {  # what tokenizer_config.json says, and whether the class follows it
    "not lower": ({"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}, True),
    "accents": ({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": False}, True),
    "characters": ({"do_lower_case": True, "tokenize_chinese_chars": False}, True),
    "any class": ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False, **ROLES}, False),
}


@pytest.mark.parametrize("case", FLAGGED)
def test_flags_go_before_tokenizer_json(case: str, tmp_path: Path) -> None:
    """A class of a family takes its settings from tokenizer_config.json, in versions 4 and 5: a cased model whose
    tokenizer.json lower-cases had other ids here."""
    write_vocab(tmp_path, [*BERT_VOCAB, "The", "é"])
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": True})
    Tokenizer.load(tmp_path).backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").unlink()
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    settings, follows = FLAGGED[case]
    write_json(tmp_path / "tokenizer_config.json", settings)
    probes = ["The cats", "é é", "学校 the"]
    ours = Tokenizer.load(tmp_path)
    equal(ours, AutoTokenizer.from_pretrained(tmp_path), probes)
    plain = Tokenizer.load(tmp_path / "tokenizer.json").backend
    plain.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    assert follows == any(plain.encode(text, add_special_tokens=False).ids != ours.encode(text).ids for text in probes)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_space_before_the_first_word_as_the_settings_say(prefix: bool, tmp_path: Path) -> None:
    write_bpe(tmp_path, [], ["<|endoftext|>"])
    write_json(tmp_path / "config.json", {"model_type": "gpt2"})
    write_json(tmp_path / "tokenizer_config.json", {"add_prefix_space": not prefix})
    Tokenizer.load(tmp_path).backend.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"add_prefix_space": prefix})
    ours = Tokenizer.load(tmp_path)
    equal(ours, AutoTokenizer.from_pretrained(tmp_path), ["the cat", " a", "don't"])
    assert ours.encode("cat").ids == ours.encode(" cat").ids or not prefix


@pytest.mark.parametrize(("kind", "file"), [("t5", "spiece.model"), ("xlm-roberta", "sentencepiece.bpe.model")])
def test_a_family_that_never_lower_cases(kind: str, file: str, tmp_path: Path) -> None:
    """Old scripts wrote the flag for every tokenizer; the classes of T5 and XLM-R take no notice."""
    spiece(tmp_path / file, **(T5 if kind == "t5" else {}))
    write_json(tmp_path / "config.json", {"model_type": kind})
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": True})
    equal(Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path), ["The Cat", "ABCDEF x"])
