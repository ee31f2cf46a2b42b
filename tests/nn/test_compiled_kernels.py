"""What the interpreter of our kernels cannot see: that they compile for a GPU, where threads run side by side."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def compiled(triton: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The PTX of every kernel, made where the interpreter does not stand in for the compiler."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_every_kernel_compiles_for_a_gpu(compiled: dict[str, str]) -> None:
    from sesame.nn import kernels

    names = {name for name in vars(kernels) if name.endswith("_kernel")}
    assert {name.split()[0] for name in compiled} == names


def test_the_wanted_logit_is_read_before_any_thread_writes(compiled: dict[str, str]) -> None:
    """The gradient is written over the logits. A thread reads those of its own lanes, which a condition guards, and the
    wanted one, which is another's; behind the last meeting of all threads it may be the gradient already."""
    [ptx] = [ptx for name, ptx in compiled.items() if name.startswith("softmax_gradient_kernel")]
    assert "bar.sync" in ptx
    assert "st.global" not in ptx.rpartition("bar.sync")[0]
    after = [line.strip() for line in ptx.rpartition("bar.sync")[2].splitlines()]
    assert any(line.startswith("@") and "ld.global" in line for line in after)  # one's own lanes
    assert not [line for line in after if line.startswith("ld.global")]
