"""config.json in other words: names that transformers takes for a type's own, and sizes that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from sesame.checkpoint.hf import ALIASES, FAMILIES, SAYINGS, native
from sesame.checkpoint.loading import load_parts
from sesame.errors import SesameError
from tests.checkpoint.test_bert_parity import noisy

SIZES = (24, 3, 2)  # width, heads, layers: as `SAYINGS`
MORE: dict[str, dict[str, Any]] = {
    "t5": {"d_kv": 5, "d_ff": 40, "decoder_start_token_id": 0},
    "xlnet": {"d_inner": 40},
    "marian": {"pad_token_id": 6, "decoder_start_token_id": 6, "decoder_attention_heads": 4},
    "bart": {"decoder_attention_heads": 4},
    "mbart": {"decoder_attention_heads": 4},
    "pegasus": {"decoder_attention_heads": 4},
}


def bert_names(folder: Path, kind: str, both: bool) -> Any:
    """A model saved under BERT's names of its sizes; with `both` its own stand beside them and say something else."""
    sizes: dict[str, Any] = dict(zip(ALIASES[kind], SIZES, strict=True))
    config = transformers.AutoConfig.for_model(kind, vocab_size=97, **sizes, **MORE.get(kind, {}))
    noisy(transformers.AutoModel.from_config(config)).save_pretrained(folder)
    said = json.loads((folder / "config.json").read_text())
    for theirs, own, value in zip(SAYINGS, ALIASES[kind], SIZES, strict=True):
        said[theirs] = value
        if not both:
            del said[own]
        elif "head" in own:
            said[own] = 1
    (folder / "config.json").write_text(json.dumps(said))
    return transformers.AutoConfig.from_pretrained(folder)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ALIASES)
def test_names_of_bert(kind: str, both: bool, tmp_path: Path) -> None:
    """The weights tell the width and the layers, but nobody else tells the number of heads."""
    config = bert_names(tmp_path, kind, both)
    found: Any = load_parts(tmp_path).backbone.config
    assert (found.width, found.heads, found.depth) == SIZES
    assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers) == SIZES


@pytest.mark.parametrize("kind", sorted(set(FAMILIES) - {"esm"}))  # ESM's sizes are never left out
def test_what_a_config_leaves_out(kind: str) -> None:
    """A key that is missing means what it means in the type's own class."""
    module = FAMILIES[kind]
    whole = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
    assert module.read_config(native({"model_type": kind}, kind), "x") == module.read_config(native(whole, kind), "x")


def test_what_only_training_or_a_batch_would_tell_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, key, value in (("xlnet", "bi_data", True), ("modernbert", "embedding_dropout", 0.2)):
        found = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
        FAMILIES[kind].read_config(found, "x")
        assert capsys.readouterr().err == ""
        FAMILIES[kind].read_config(found | {key: value}, "x/config.json")
        assert f"x/config.json: {key} " in capsys.readouterr().err


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "buckets": ("t5", {"relative_attention_num_buckets": 6}, "backbone.buckets must be a multiple of 4"),
    "heads": ("bert", {"hidden_size": 25, "num_attention_heads": 4}, "backbone.width 25 does not divide by 4 heads"),
    "layers": ("gpt2", {"n_layer": 0}, "backbone.depth is 0; it must be at least 1"),
    "null": ("bert", {"type_vocab_size": None}, "type_vocab_size = None is not a number"),
    "words": ("albert", {"hidden_size": "large"}, "hidden_size = 'large' is not a number"),
    "not whole": ("bert", {"num_attention_heads": 4.7}, "num_attention_heads = 4.7 is not a whole number"),
    "in quotes": ("bert", {"num_hidden_layers": "1.5"}, "num_hidden_layers = '1.5' is not a whole number"),
    "no half": ("t5", {"num_layers": 2.5}, "num_layers = 2.5 is not a whole number"),
    "infinite": ("gpt2", {"n_positions": float("inf")}, "n_positions = inf is not a whole number"),
    "no rate": ("ernie", {"hidden_dropout_prob": None}, "hidden_dropout_prob = None is not a number"),
}


@pytest.mark.parametrize("named", [True, False])
def test_a_file_without_a_type_is_bert_only_if_it_looks_so(named: bool, tmp_path: Path) -> None:
    """A bare RoBERTa has BERT's names, and was opened as one: each token stood two places too early."""
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 8}
    config = transformers.RobertaConfig(vocab_size=97, type_vocab_size=2 if named else 1, **sizes)
    noisy(transformers.RobertaModel(config)).save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    left = ("model_type",) if named else ("model_type", "architectures")
    (tmp_path / "config.json").write_text(json.dumps({key: value for key, value in said.items() if key not in left}))
    with pytest.raises(SesameError, match="names no model_type; add one"):
        load_parts(tmp_path)


def test_a_folder_for_ctranslate2_is_told_as_such(tmp_path: Path) -> None:
    """Its config.json names no type either; a type would not make it one of ours."""
    (tmp_path / "config.json").write_text('{"bos_token": "[BOS]"}')
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(SesameError, match="for CTranslate2, which Sesame writes but does not read"):
        load_parts(tmp_path)


@pytest.mark.parametrize("case", WRONG)
def test_sizes_that_cannot_be_name_their_file(case: str, tmp_path: Path) -> None:
    kind, more, message = WRONG[case]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **more}))
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(SesameError) as error:
        load_parts(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'config.json'}: {message}")
