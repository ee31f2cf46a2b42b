"""Special tokens without a role, such as "[E1]" before an entity: found in texts as in transformers, and kept in a folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertConfig, BertModel

from sesame.checkpoint.loading import load_parts
from sesame.text import Tokenizer
from tests.text.test_load import BERT_VOCAB, write_json, write_vocab

MARKS = ["[E1]", "[/E1]", "[free]"]
FLAGS = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
FIRST = len(BERT_VOCAB) + 1
NUMBERS = {"[E1]": FIRST, "[/E1]": FIRST + 1}
DECODER = {str(id): {"content": token, **FLAGS} for token, id in NUMBERS.items()}
FORMS: dict[str, dict[str, Any]] = {  # as versions 3, 4 and 5 of transformers write it
    "3": {"special_tokens_map.json": {"additional_special_tokens": MARKS}, "added_tokens.json": NUMBERS},
    "4": {"tokenizer_config.json": {"additional_special_tokens": MARKS, "added_tokens_decoder": DECODER}},
    "4 with flags": {
        "tokenizer_config.json": {
            "additional_special_tokens": [{"content": mark, **FLAGS, "__type": "AddedToken"} for mark in MARKS],
            "added_tokens_decoder": DECODER,
        }
    },
    "5": {"tokenizer_config.json": {"extra_special_tokens": MARKS, "added_tokens_decoder": DECODER}},
    "named": {
        "tokenizer_config.json": {
            "extra_special_tokens": {"begin": "[E1]", "end": "[/E1]", "free": "[free]"},
            "added_tokens_decoder": DECODER,
        }
    },
}
TEXT = "the [E1] THE [/E1]the [free]"


def stranger(folder: Path, form: str) -> Path:
    write_vocab(folder, [*BERT_VOCAB, "[free]"])
    write_json(folder / "config.json", {"model_type": "bert"})
    for name, content in FORMS[form].items():
        more = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"} if name == "tokenizer_config.json" else {}
        write_json(folder / name, content | more)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_marks_are_found_in_texts_as_there(form: str, tmp_path: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(stranger(tmp_path, form))
    ours = Tokenizer.load(tmp_path)
    wanted = theirs(TEXT, add_special_tokens=False)["input_ids"]
    assert {*NUMBERS.values(), FIRST - 1} < set(wanted)
    assert ours.encode(TEXT).ids == ours.encode(TEXT, literal=True).ids == wanted
    controls = {ours.id(role) for role in ("cls", "sep", "mask", "pad")}
    assert not controls & set(ours.encode("the [SEP] [MASK]", literal=True).ids)

    folder = tmp_path / "saved"
    folder.mkdir()
    ours.save(folder)
    back, again = AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    assert back(TEXT, add_special_tokens=False)["input_ids"] == wanted
    assert set(back.all_special_tokens) == set(theirs.all_special_tokens)
    assert again.fingerprint() == ours.fingerprint()
    assert again.encode(TEXT, literal=True).ids == wanted


def test_those_of_pre_training_stay_characters(tmp_path: Path) -> None:
    """T5's and XLNet's lists name what no text is meant to hold."""
    write_vocab(tmp_path, [*BERT_VOCAB, "<extra_id_0>", "<eop>"])
    listed = {"additional_special_tokens": ["<extra_id_0>", "<eop>"]}
    write_json(tmp_path / "tokenizer_config.json", listed)
    ours = Tokenizer.load(tmp_path)
    first = len(BERT_VOCAB)
    assert ours.encode("<extra_id_0> <eop>").ids == [first, first + 1]
    assert not {first, first + 1} & set(ours.encode("<extra_id_0> <eop>", literal=True).ids)
    ours.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/tokenizer_config.json").read_text()).items() >= listed.items()


LISTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # tokenizer_config.json, special_tokens_map.json
    "in the settings": ({"additional_special_tokens": ["[E9]", "[SEP]", "[E8]"]}, {}),
    "in the map": ({}, {"additional_special_tokens": ["[E9]"]}),
    "in both": ({"additional_special_tokens": ["[E9]"]}, {"additional_special_tokens": ["[E8]"]}),
    "under both names": ({"additional_special_tokens": ["[E9]"], "extra_special_tokens": ["[E8]"]}, {}),
    "under both names in the map": ({}, {"additional_special_tokens": ["[E9]"], "extra_special_tokens": ["[E8]"]}),
    "named": ({"extra_special_tokens": {"a": "[E9]", "b": "[E8]"}}, {}),
    "behind a role": ({"additional_special_tokens": ["[E9]"], "mask_token": "[M]"}, {}),
    "in an old map beside new settings": ({"added_tokens_decoder": {}}, {"additional_special_tokens": ["[E9]"]}),
}


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize("lists", LISTS)
def test_tokens_that_are_listed_alone_are_appended_as_there(lists: str, form: str, tmp_path: Path) -> None:
    """They were characters here, each an [UNK], and one token there."""
    write_vocab(tmp_path, BERT_VOCAB)
    if form == "tokenizer.json":
        Tokenizer.load(tmp_path).save(tmp_path)
        (tmp_path / "vocab.txt").unlink()
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    settings, listed = LISTS[lists]
    write_json(
        tmp_path / "tokenizer_config.json", {"do_lower_case": True, "tokenizer_class": "BertTokenizer", **settings}
    )
    write_json(tmp_path / "special_tokens_map.json", listed)
    theirs, text = AutoTokenizer.from_pretrained(tmp_path), "the [E9] the [E8]the [M]"
    for rows in (None, len(BERT_VOCAB) + 2):
        ours = Tokenizer.load(tmp_path, rows)
        assert len(ours) == len(theirs)
        assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]
    ours.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved", len(BERT_VOCAB)).encode(text).ids == ours.encode(text).ids


def test_a_model_without_rows_for_them_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There such an id falls off the table."""
    write_vocab(tmp_path, BERT_VOCAB)
    marks = [f"[E{number}]" for number in range(4)]
    write_json(tmp_path / "tokenizer_config.json", {"additional_special_tokens": marks})
    ours = Tokenizer.load(tmp_path, len(BERT_VOCAB) + 3)
    assert len(ours) == len(BERT_VOCAB)
    said = capsys.readouterr().err
    assert "lacks are listed ([E0], [E1], [E2] ...), and the model has no rows for them" in said
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(BERT_VOCAB), **shape)
    BertModel(config).save_pretrained(tmp_path)
    parts = load_parts(tmp_path)  # it opened before, and does so still
    assert parts.tokenizer is not None
    assert len(parts.tokenizer) == len(BERT_VOCAB)
    assert "no rows for them" in capsys.readouterr().err
