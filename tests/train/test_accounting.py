"""MFU, memory and the line on the bar."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sesame.backbones import EncoderConfig
from sesame.backbones.flops import flops_per_token
from sesame.backbones.work import Work
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.pair import NextSentenceConfig
from sesame.train import accounting
from sesame.train.accounting import Account, Peak, known_peak, note, peak, peak_memory, work_of
from sesame.train.precision import Machine

CPU = Machine(torch.device("cpu"), "fp32")


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA L40", 181),
        ("NVIDIA GeForce RTX 4090", 165),
        ("Tesla T4", 65),
        ("Tesla V100-SXM2-16GB", 125),
    ],
)
def test_known_cards(name: str, tera: float) -> None:
    assert known_peak(name, "bf16") == Peak(tera * 1e12, "data sheet")
    without = "T4" in name or "V100" in name
    assert known_peak(name, "fp32") == (Peak(None, "unknown") if without else Peak(tera / 2 * 1e12, "data sheet"))


@pytest.mark.parametrize("name", ["NVIDIA GeForce GTX 1080", "NVIDIA A4000", "Quadro P400", "NVIDIA T400", ""])
def test_unknown_cards_have_no_peak(name: str) -> None:
    assert known_peak(name, "bf16") == Peak(None, "unknown")


def test_a_gpu_is_asked_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert peak(Machine(torch.device("cuda"), "bf16")) == Peak(121e12, "data sheet")


def test_a_cpu_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    accounting._measured.cache_clear()
    clock = iter(range(1000))
    monkeypatch.setattr(accounting, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    first = peak(CPU)
    assert first == Peak(2 * accounting.PROBE**3, "measured")  # every product took one second of that clock
    assert peak(CPU) == first
    assert next(clock) == 2 * accounting.TRIES
    accounting._measured.cache_clear()


def test_mfu_is_the_share_of_all_devices() -> None:
    account = Account(flops=6e8, peak=Peak(1e15, "data sheet"), device=torch.device("cpu"))
    assert account.mfu(1e6) == pytest.approx(0.6)
    assert Account(6e8, Peak(1e15, "data sheet"), torch.device("cpu"), devices=4).mfu(2e6) == pytest.approx(0.3)
    assert Account(6e8, Peak(None, "unknown"), torch.device("cpu")).mfu(1e6) is None


def test_figures_of_a_known_and_of_an_unknown_device() -> None:
    config, work = EncoderConfig(100, 16, 2, 2), Work(32, 0.15)
    account = Account.of(config, work, CPU)
    assert account.flops == flops_per_token(config, work)
    figures = account.figures(1000.0)
    assert list(figures) == ["mfu", "memory"]
    assert account.peak.flops is not None
    assert figures["mfu"] == pytest.approx(1000.0 * account.flops / account.peak.flops)
    assert list(Account(1.0, Peak(None, "unknown"), torch.device("cpu")).figures(1000.0)) == ["memory"]


@pytest.mark.skipif(sys.platform != "linux", reason="the oracle is Linux's /proc")
def test_peak_memory_of_a_process_counts_in_bytes() -> None:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (highest,) = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    assert peak_memory(torch.device("cpu")) == pytest.approx(highest, rel=0.02)


def test_work_of_a_recipe() -> None:
    assert work_of({"mlm": MaskedLMConfig()}, 64) == Work(64, 0.15, pair=False)
    both = {"mlm": MaskedLMConfig(rate=0.4, end_rate=0.2), "nsp": NextSentenceConfig()}
    assert work_of(both, 64).masked == pytest.approx(0.3)
    assert work_of(both, 64, progress=1.0).masked == pytest.approx(0.2)
    assert work_of(both, 64).pair
    assert work_of({"nsp": NextSentenceConfig()}, 64) == Work(64, 0.0, pair=True)
    assert work_of({"other": None}, 64) == Work(64, None)


def test_the_note_on_the_bar() -> None:
    figures = {"tokens_per_second": 812_345.0, "mfu": 0.551, "padding": 0.0, "wait": 0.0012, "memory": 31.2e9}
    assert note(figures) == "812 k tokens/s · 55 % MFU · 0 % padding · 0.1 % wait · 31 GB"
    assert note({"tokens_per_second": 3_340_000.0, "padding": 0.12}) == "3.34 M tokens/s · 12 % padding"
    assert note({"tokens_per_second": 4_321.0, "memory": 512e6}) == "4.3 k tokens/s · 512 MB"
