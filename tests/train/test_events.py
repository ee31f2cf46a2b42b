"""TensorBoard's events are a present beside the log: a disk that takes no more of them ends no run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")

# No file grows beyond `size` bytes: the first event, a later one, or the last flush meets that.
SCRIPT = """
import resource, sys, threading, time
from pathlib import Path
from sesame.train.events import Events
hook = threading.excepthook
for size, count in ((10, 0), (10, 3), (150, 1), (150, 300), (5000, 300)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    with Events(Path(sys.argv[1]) / f"{size}-{count}", 0) as events:
        for step in range(count):
            events.add(step, {"loss": 1.0, "rate": 0.1})
            time.sleep(0.001)
    assert threading.excepthook is hook
    print("gone on", file=sys.stderr)
"""


def test_events_that_cannot_be_written_are_told_once(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stderr=subprocess.PIPE, text=True, check=False
    )
    told = "TensorBoard's events cannot be written (File too large); metrics.jsonl has everything"
    assert process.stderr.splitlines() == [told, "gone on"] * 5, process.stderr
    assert process.returncode == 0
