"""At which end others pad and cut: what a folder says of it outlives its way through here."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.finetuning.framing import open_start
from sesame.pretraining.tokenizer_choice import framed_for
from sesame.recipe import resolve
from sesame.text import Tokenizer
from sesame.text.template import framed
from tests.tasks.toys import toy_tokenizer

LEFT = {"padding_side": "left", "truncation_side": "left"}


def stranger(folder: Path, **sides: Any) -> Path:
    """A GPT-2 as transformers writes it; its config is then made to say `sides`."""
    tokenizer = toy_tokenizer()
    names = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    shape = GPT2Config(vocab_size=len(tokenizer), n_positions=32, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(shape).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **names).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    said = {key: value for key, value in json.loads(file.read_text()).items() if key not in LEFT}
    file.write_text(json.dumps(said | sides))
    return folder


def told(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "tokenizer_config.json").read_text())
    return {key: found[key] for key in LEFT if key in found}


@pytest.mark.parametrize(
    ("sides", "kept"),
    [
        (LEFT, LEFT),
        ({"padding_side": "left"}, {"padding_side": "left"}),
        ({"truncation_side": "left", "padding_side": "right"}, {"truncation_side": "left", "padding_side": "right"}),
        ({}, {}),
        ({"padding_side": "middle", "truncation_side": ["left"]}, {}),
        ({"padding_side": None, "truncation_side": "left"}, {"truncation_side": "left"}),
    ],
)
def test_a_folder_keeps_its_sides(sides: dict[str, Any], kept: dict[str, str], tmp_path: Path) -> None:
    start, last = stranger(tmp_path / "start", **sides), tmp_path / "start"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        save_parts(tmp_path / name, load_parts(last))
        last = tmp_path / name
        assert told(last) == kept
    if kept == sides:
        theirs, ours = (AutoTokenizer.from_pretrained(folder) for folder in (start, last))
        assert [getattr(ours, key) for key in LEFT] == [getattr(theirs, key) for key in LEFT]


def test_a_tokenizer_by_itself_keeps_its_sides(tmp_path: Path) -> None:
    found = Tokenizer.load(stranger(tmp_path / "start", **LEFT))
    (tmp_path / "again").mkdir()
    found.save(tmp_path / "again")
    assert told(tmp_path / "again") == found.sides == LEFT
    assert found.fingerprint() == toy_tokenizer().fingerprint()


def test_what_is_taught_here_is_padded_as_it_was_in_training(tmp_path: Path) -> None:
    """A head at the end of a text, positions that count from its beginning: padding before it would change the answers."""
    start = open_start(str(stranger(tmp_path / "start", **LEFT)))
    new = framed_for(Tokenizer.load(tmp_path / "start"), resolve("bert"))
    for tokenizer in (start.tokenizer, new):
        assert tokenizer is not None
        assert tokenizer.sides == {"truncation_side": "left"}


def test_a_class_token_at_the_end_is_padded_before_the_text(tmp_path: Path) -> None:
    """XLNet's side is its own, unless a folder says another."""
    tokenizer = framed(toy_tokenizer(), "xlnet")
    tokenizer.save(tmp_path)
    assert told(tmp_path) == {"padding_side": "left"}
    Tokenizer.load(tmp_path).padding_as_usual().save(tmp_path)
    assert told(tmp_path) == {"padding_side": "left"}
    tokenizer.sides = {"padding_side": "right"}
    tokenizer.save(tmp_path)
    assert told(tmp_path) == {"padding_side": "right"}
