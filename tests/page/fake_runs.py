"""Canned runs as `GET /v1/runs` tells them, which grow when a test says so; see `serve/runs.py`."""

import math
from typing import Any

Json = dict[str, Any]


def loss_at(step: int, seed: int) -> float:
    return round(2 + seed / 4 + 6 * math.exp(-step / 90) + 0.25 * math.sin(step * (1.3 + seed)), 4)


class FakeRuns:
    def __init__(self, folder: str = "runs") -> None:
        self.folder, self.stamp = folder, 100
        self.runs: list[tuple[int, Json]] = []
        self.asked: list[int] = []  # every `since`

    def add(self, name: str, points: int, state: str = "done", task: bool = False, **more: Any) -> Json:
        """A pre-training, or a fine-tuning, whose log counts no tokens; the newest stands first."""
        recipe, size, kind, tokens = (
            ("frozen", "from mine", "valid", None) if task else ("electra", "4 × 256", "mlm", [])
        )
        run = {
            "name": name, "recipe": recipe, "size": size, "state": state,
            "step": 0, "steps": None if task else 1000, "tokens": 0, "seconds": 0.0, "last": {}, "kept": None,
            "broken": 0, "age": 42.0,
            "train": {"step": [], "tokens": tokens, "seconds": [], "loss": [], "smooth": [], "rate": []},
            "held_out": {kind: {"step": [], "tokens": None if task else [], "seconds": [], "value": []}},
            **more,
        }  # fmt: skip
        self.stamp += 1
        self.runs.insert(0, (self.stamp, run))
        self.grow(name, points)
        return run

    def grow(self, name: str, points: int) -> None:
        at, run = next((at, run) for at, (_, run) in enumerate(self.runs) if run["name"] == name)
        task = run["tokens"] == 0 and run["train"]["tokens"] is None
        for _ in range(points):
            run["step"] += 10
            run["seconds"] = run["step"] / 20
            run["tokens"] = 0 if task else run["step"] * 4096
            self._log(run["train"], run)
            loss = loss_at(run["step"], len(name) % 5)
            run["train"]["loss"].append(loss)
            smooth = run["train"]["smooth"]
            smooth.append(round(0.75 * smooth[-1] + 0.25 * loss, 4) if smooth else loss)
            run["train"]["rate"].append(round(1e-3 * min(1, run["step"] / 100), 7))
            for kind, curve in run["held_out"].items():
                if run["step"] % 50 == 0:
                    self._log(curve, run)
                    curve["value"].append(round(1 - 1 / (2 + run["step"] / 100), 4) if task else loss + 0.1)
                    run["last"][kind] = curve["value"][-1]
        self.stamp += 1
        self.runs[at] = (self.stamp, run)

    def _log(self, curve: Json, run: Json) -> None:
        for name in ("step", "tokens", "seconds"):
            if curve[name] is not None:
                curve[name].append(run[name])

    def tell(self, since: int) -> Json:
        self.asked.append(since)
        told = [run if changed > since else {"name": run["name"], "age": run["age"]} for changed, run in self.runs]
        return {"folder": self.folder, "stamp": self.stamp, "found": len(self.runs), "runs": told}
