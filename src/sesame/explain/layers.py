"""What each layer knows: a linear probe on its frozen states (Alain & Bengio 2017, https://arxiv.org/abs/1610.01644;
Tenney et al. 2019, https://arxiv.org/abs/1905.05950).

    label ≈ W standard(h_j) + b, by ridge regression, for each layer j from the embeddings (0) up

h_j is the mean of a text's states, or the state of a word's first piece. A score is the mean over folds that the probe did
not see, its spread their standard deviation. Texts, not words, are dealt into folds. Beside the layers their equal mix is
probed, the plain mean of all states, Σ_j h_j / J: where ELMo's mix (`nn/scalar_mix.py`) begins. What a task made of it,
softmax(s), tells which layers it reads.

Unusual: ridge on ±1 labels and not logistic regression: its answer is one linear system, and how strongly it is held back is
chosen within the training folds without another loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sesame.backbones import Backbone
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.progress import Bar, say
from sesame.tasks import Item, Task, TaskConfig, build_task
from sesame.tasks.predict import window_length
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer

PLACES = 8192  # of a batch
STRENGTHS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # of the ridge
KINDS = ("classify", "regress", "tag")


@dataclass(frozen=True)
class Probe:
    metric: str  # accuracy, or pearson
    means: list[float]  # for each layer, from the embeddings
    spreads: list[float]
    mix: tuple[float, float]  # mean and spread for the equal mix of all layers
    least: float  # without reading: the commonest label; for numbers 0
    rows: int  # texts, or words
    folds: int

    def each(self) -> list[tuple[str, float, float]]:
        """Name, mean and spread: the layers from the embeddings up, then their mix."""
        names = ["embeddings", *(str(number) for number in range(1, len(self.means)))]
        return [*zip(names, self.means, self.spreads, strict=True), ("mix", *self.mix)]


def learnt_mixes(tasks: Mapping[str, Task]) -> dict[str, list[float]]:
    """How much of each layer, from the embeddings up, the tasks read that learnt a mix of all; they sum to 1."""
    mixes = {name: task.choice.mix for name, task in tasks.items()}
    return {name: mix.scores.detach().float().softmax(0).tolist() for name, mix in mixes.items() if mix is not None}


def probe(
    backbone: Backbone,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: str,
    folds: int = 5,
    shown: Bar | None = None,
) -> Probe:
    """How well labelled examples are told apart by the states of each layer."""
    if kind not in KINDS:
        raise SesameError(f"a probe of layers needs rows for one of {', '.join(KINDS)}, not for {kind}")
    labels = [example.label for example in examples]
    if kind == "classify" and any(not isinstance(label, str) for label in labels):
        raise SesameError("a probe tells one label of several; these rows have many labels each")
    names = (
        sorted({tag for tags in labels for tag in tags} if kind == "tag" else set(labels)) if kind != "regress" else ()
    )
    config = TaskConfig(kind, labels=tuple(names), layers="mix", pooling="mean")  # type: ignore[arg-type]
    task = build_task("probe", config, backbone, 0.0)
    inputs = Inputs(tokenizer, window_length(task, backbone), config.overlap, backbone.segment_kinds)
    items = task.items(examples, inputs)
    vectors, gold, owners = _vectors(task, backbone, items, inputs.pad, shown)
    if kind != "regress" and len(set(gold.tolist())) < 2:
        raise SesameError("all rows have the same label, so there is nothing to tell apart; give others too")
    dealt = _folds(gold, owners, folds, stratified=kind == "classify")
    scores = np.array([_scores(layer, gold, dealt, kind) for layer in (*vectors, vectors.mean(0))])
    *means, mix = scores.mean(1).tolist()
    *spreads, mix_spread = scores.std(1, ddof=1).tolist()
    least = 0.0 if kind == "regress" else float(np.unique(gold, return_counts=True)[1].max() / len(gold))
    return Probe(
        "pearson" if kind == "regress" else "accuracy", means, spreads, (mix, mix_spread), least, len(gold), len(dealt),
    )  # fmt: skip


Floats = npt.NDArray[np.float32]


@torch.no_grad()
def _vectors(
    task: Task, backbone: Backbone, items: Sequence[Item], pad: int, shown: Bar | None
) -> tuple[Floats, npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Vectors (J, N, D), labels (N,), and the text that each belongs to (N,)."""
    backbone.eval()
    device = next(backbone.parameters()).device
    found: list[tuple[Floats, Any, int]] = []
    for group in _groups(items):
        chosen = [items[number] for number in group]
        batch = task.collate(chosen, pad).to(device)
        states = task.features(backbone(batch)).float().cpu().numpy()
        row = 0
        for number, item in zip(group, chosen, strict=True):
            own = states[:, row : row + len(item.windows)]
            row += len(item.windows)
            if task.kind != "tag":
                found.append((own.mean(1), item.label, number))
                continue
            spots = [(at, word, window) for window, some in enumerate(item.extra["spots"]) for at, word in some]
            found += [(own[:, window, at], item.label[word], number) for at, word, window in spots]
        if shown is not None:
            shown.advance(len(group))
    if task.kind == "tag" and (lost := sum(len(item.extra["words"]) for item in items) - len(found)):
        say(f"{lost:,} words are no token of the model and are left out")
    vectors, labels, owners = zip(*found, strict=True)
    return np.stack(vectors, 1), np.array(labels), np.array(owners)


def _groups(items: Sequence[Item]) -> list[list[int]]:
    """Items of similar length, in batches."""
    groups: list[list[int]] = []
    rows = 0
    for index in sorted(range(len(items)), key=lambda number: max(len(w.ids) for w in items[number].windows)):
        more, width = len(items[index].windows), max(len(window.ids) for window in items[index].windows)
        if not groups or (rows + more) * width > PLACES:
            groups.append([])
            rows = 0
        groups[-1].append(index)
        rows += more
    return groups


def _folds(
    gold: npt.NDArray[Any], owners: npt.NDArray[np.int64], folds: int, stratified: bool
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Rows to learn from and rows to be asked about."""
    from sklearn.model_selection import GroupKFold, StratifiedKFold  # type: ignore[import-untyped]

    texts = len(set(owners.tolist()))
    count = min(folds, texts)
    if stratified:
        rarest = int(np.unique(gold, return_counts=True)[1].min())
        if rarest < 2:
            raise SesameError(
                "a label occurs once only; a probe needs two rows of each, to learn from and to ask about"
            )
        count = min(count, rarest)
    if count < 2:
        raise SesameError(f"{texts} texts are too few to probe with; give at least 10")
    if count < folds:
        say(f"{count} folds instead of {folds}: a label or the file has no more rows")
    if stratified:
        return list(StratifiedKFold(count, shuffle=True, random_state=0).split(gold, gold))
    return list(GroupKFold(count, shuffle=True, random_state=0).split(gold, gold, owners))


def _scores(
    vectors: Floats,
    gold: npt.NDArray[Any],
    folds: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    kind: str,
) -> list[float]:
    """One for each fold."""
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    from sesame.evaluate.regression import pearson

    found = []
    wide = vectors.astype(np.float64)
    for learn, asked in folds:
        model = make_pipeline(StandardScaler(), (RidgeCV if kind == "regress" else RidgeClassifierCV)(STRENGTHS))
        said = model.fit(wide[learn], gold[learn]).predict(wide[asked])
        found.append(pearson(gold[asked], said) if kind == "regress" else float((said == gold[asked]).mean()))
    return found
