"""The commands' twins in Python: `sesame.pretrain(...)` and `sesame.finetune(...)`. Each gives what it made, opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sesame.config import check_options, several
from sesame.loaded import Loaded
from sesame.opening import load


def pretrain(
    recipe: str, text: Sequence[str | Path] | str | Path = (), out: str | Path | None = None, **wishes: Any
) -> Loaded:
    """`sesame pretrain` from Python; the keywords are the command's options, but `settings` is --set, and `budget` is in
    seconds. Gives the finished model.

    Translation learns from pairs alone: `pretrain("transformer", pairs=["en-de=train.tsv"], out="runs/en-de")`.
    """
    from sesame.pretraining.run import pretrain as run
    from sesame.pretraining.wishes import wishes_of

    return load(run(wishes_of(recipe, text, out, **wishes)))


def finetune(model: str | Path, task: str, train: str | Path, out: str | Path, **wishes: Any) -> Loaded:
    """`sesame finetune` from Python; the keywords are the command's options, but `settings` is --set, and `text_budget` is in
    seconds. Gives the best seed's model.

    Task "seq2seq" has options of its own: those of `sesame.finetuning.answering_wishes.Wishes`.

    Several tasks, one encoder: `finetune(..., also=["tag:names.conll", "mood=regress:scores.tsv"])`.
    """
    from sesame.finetuning.run import finetune as run
    from sesame.finetuning.wishes import wishes_of

    if task == "seq2seq":
        from sesame.finetuning.answering import finetune as answer
        from sesame.finetuning.answering_wishes import Wishes

        check_options(Wishes, wishes, "sesame.finetune for seq2seq")
        wishes |= {name: several(wishes[name]) for name in ("also", "settings") if name in wishes}
        asked = Wishes(model=str(model), train=str(train), out=Path(out), **wishes)
        return load(answer(asked))
    return load(run(wishes_of(model, task, train, out, **wishes)))
