"""`sesame serve` as people start it: a process of its own, asked over a socket."""

import os
import re
import signal
import subprocess
import sys


class Process:
    def __init__(self, *words: object) -> None:
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "sesame", "serve", *map(str, words), "--port", "0"]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        self.said = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if found := re.search(r"ready: (http://\S+)", line):
                self.address = found[1]
                return
        raise AssertionError(self.said)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
