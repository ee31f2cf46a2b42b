"""Which look at the held-out text was the best: a small text that is read many times is learnt by heart in the end.

    loss of a look = sum over objectives of weight * loss on held-out text;  the best look has the lowest

With `evaluation.best` the weights of that look become the finished model. They are a checkpoint like any other, which is kept
beside the newest ones, so that a killed run knows them too. Without it the run says at its end what it has passed by.
Replaced tokens are not judged: the better the generator becomes, the harder they are to tell.
"""

import math

from sesame.errors import SesameError
from sesame.files import read_json
from sesame.pretraining.prepared import Prepared
from sesame.pretraining.stages import lengthen
from sesame.progress import say
from sesame.recipe import Recipe
from sesame.train.health import Look
from sesame.train.state import State

AGAIN = 3  # times that a text has been read before it can be known by heart
WORSE = 1.01  # times the best loss; less is no news


def check_measure(recipe: Recipe, held_out: bool, sharded: bool) -> None:
    """Refuse `evaluation.best` where nothing can be judged or brought back."""
    if "rtd" in recipe.objectives:
        raise SesameError("evaluation.best: replaced tokens become harder as the generator learns; leave it out")
    if recipe.optimizer.ema:
        raise SesameError(
            "evaluation.best judges the weights, not the mean that optimizer.ema makes of them; take one of them"
        )
    if not held_out:
        raise SesameError("evaluation.best: no text is held out to judge by; give some with --valid, or leave it out")
    if sharded:
        raise SesameError("evaluation.best goes with --parallel ddp; with shares of weights leave it out")


def judge(look: Look, state: State, recipe: Recipe) -> bool:
    """Note the loss of a look; whether it is the lowest so far."""
    losses = [weight * state.held_out[name] for name, weight in look.weights.items() if name in state.held_out]
    if not losses or "rtd" in recipe.objectives:
        return False
    state.look = {"step": state.step, "loss": sum(losses)}
    if not state.look["loss"] < state.best.get("loss", math.inf):
        return False
    state.best = dict(state.look)
    return True


def bring_back(parts: Prepared, ended: State) -> State:
    """The weights of the best look, and where the run stood then."""
    run = parts.run
    step = int(run.world.tell(f"{ended.best['step']:.0f}"))
    best = run.find(step)
    if best is None:
        say(
            f"warning: the checkpoint of step {step:,}, the best, is damaged or gone; the finished model is the last one"
        )
        return ended
    parts.written.take(best)
    state = State.from_json(read_json(best / "train" / "state.json"))
    lengthen(parts, state.stage + 1)
    run.log({"step": ended.step, "kept": step})
    say(f"held-out loss was lowest at step {step:,} of {ended.step:,}; the finished model is that one")
    return state


def passed_by(state: State, tokens: int) -> str:
    """What to say of a run that ends worse than it has been; `tokens` are those of its text. Empty: nothing."""
    passes, now, best = state.tokens / max(1, tokens), state.look.get("loss", 0.0), state.best.get("loss", 0.0)
    if passes < AGAIN or now <= WORSE * best:
        return ""
    return (
        f"held-out loss was lowest at step {state.best['step']:,.0f} ({best:.3f}, now {now:.3f}): the text was read "
        f"{passes:,.0f} times and is being learnt by heart; --set evaluation.best=true keeps the best moment, and more "
        "dropout, a smaller model or a shorter run may be better than that"
    )
