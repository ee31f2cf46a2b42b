"""`embed` and `fill` in fewer bits, by command."""

import json
from pathlib import Path

import numpy as np
import pytest

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.objectives import MaskedLMHead
from tests.cli.calling import Cli
from tests.tasks.toys import PLAIN, encoder, noise, toy_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = toy_tokenizer()
    head = MaskedLMHead(32, 32, len(tokenizer), "gelu", 1e-12)
    noise(head, 5, 0.1)
    backbone = encoder(len(tokenizer), width=32, init=0.2)
    save_parts(tmp_path, Parts(backbone, {"mlm": head}, tokenizer))
    return tmp_path


def test_vectors_in_eight_bits(cli: Cli, folder: Path) -> None:
    lines = [" ".join(PLAIN[i % 7 : i % 7 + 3 + i % 9]) + f" w{i % 20}" for i in range(40)]
    given = "\n".join(lines).encode()
    found = {}
    for precision in ("fp32", "bf16", "int8"):
        done = cli("embed", folder, "--device", "cpu", "--precision", precision, given=given).fine()
        found[precision] = np.array([json.loads(line)["vector"] for line in done.out.splitlines()])
        assert ("against fp32 on 40 texts" in done.err) == (precision != "fp32")
    assert 0 < np.abs(found["int8"] - found["fp32"]).max() < 0.2
    assert 0 < np.abs(found["bf16"] - found["fp32"]).max() < 0.1


def test_masks_in_eight_bits(cli: Cli, folder: Path) -> None:
    words = ["fill", folder, "w1 [MASK] w3", "w2 ___", "--device", "cpu", "--precision", "int8", "--accept", "--json"]
    done = cli(*words).fine()
    assert "of tokens equal" in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in rows] == ["w1 [MASK] w3", "w2 ___"]
    assert all(len(row["masks"][0]["tokens"]) == 5 for row in rows)


@pytest.mark.parametrize("command", ["embed", "fill"])
def test_bad_wishes(cli: Cli, folder: Path, command: str) -> None:
    words = [command, folder, "w1 [MASK]", "--device", "cpu"]
    cli(*words, "--precision", "int4").refused("int4", "int8")
    cli(*words, "--engine", "tensorrt").refused("tensorrt", "onnx")
