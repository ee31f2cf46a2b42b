"""Scores of attention against their formulas in float64 and by finite differences; windows; the gradient of draws."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from sesame.errors import SesameError
from sesame.nn.attention.hard import reinforce
from sesame.nn.attention.looking import Looking
from sesame.nn.attention.scores import SCORES, Additive

D = 5
SEEDS = [0, 1, 2]


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def made(seed: int, module: Any) -> Any:
    """The module in float64, its weights drawn by the seed."""
    module = module.double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data = numbers(1000 + 17 * seed + number, *parameter.shape)
    return module


def by_hand(name: str, score: Any, q: Tensor, k: Tensor) -> float:
    """One query and one key, number by number."""
    score = deepcopy(score).requires_grad_(False)
    product = sum(float(a) * float(b) for a, b in zip(q, k, strict=False))
    if name == "dot":
        return product
    if name == "scaled":
        return product / math.sqrt(D)
    if name == "general":
        w = score.weight.weight
        return sum(float(q[i]) * float(w[i, j]) * float(k[j]) for i in range(len(q)) for j in range(len(k)))
    if name == "cosine":
        norms = math.sqrt(sum(float(a) ** 2 for a in q)) * math.sqrt(sum(float(a) ** 2 for a in k))
        return math.log1p(math.exp(float(score.sharpness))) * product / norms
    w, u, b, v = score.query.weight, score.keys.weight, score.keys.bias, score.out.weight[0]
    found = 0.0
    for i in range(len(v)):
        inside = sum(float(w[i, j]) * float(q[j]) for j in range(len(q))) + float(b[i])
        inside += sum(float(u[i, j]) * float(k[j]) for j in range(len(k)))
        found += float(v[i]) * math.tanh(inside)
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(SCORES))
def test_score_is_its_formula(name: str, seed: int) -> None:
    wide = 7 if name in ("general", "additive") else D
    score = made(seed, SCORES[name](D, wide))
    query, keys = numbers(seed, 2, 3, D), numbers(seed + 50, 2, 4, wide)
    found = score(query, keys)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                assert float(found[b, i, j].detach()) == pytest.approx(
                    by_hand(name, score, query[b, i], keys[b, j]), abs=1e-12
                )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(SCORES))
def test_score_has_the_gradient_of_finite_differences(name: str, seed: int) -> None:
    score = made(seed, SCORES[name](D, D))
    query, keys = numbers(seed, 2, 2, D).requires_grad_(), numbers(seed + 50, 2, 3, D).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k, *_: score(q, k), (query, keys, *score.parameters()))


def test_coverage_enters_the_additive_score() -> None:
    score = made(3, Additive(D, D, coverage=True))
    query, keys, covered = numbers(3, 1, 2, D), numbers(4, 1, 3, D), numbers(5, 1, 2, 3).abs().requires_grad_()
    inside = score.query(query)[0, 1] + score.keys(keys)[0, 2] + covered[0, 1, 2] * score.covered
    found = score.compare(query, score.read(keys), covered)
    assert float(found[0, 1, 2].detach()) == pytest.approx(float((score.out.weight[0] @ torch.tanh(inside)).detach()))
    assert torch.autograd.gradcheck(lambda c, w: score.compare(query, score.read(keys), c), (covered, score.covered))


@pytest.mark.parametrize("name", ["dot", "scaled", "cosine"])
def test_scores_without_a_matrix_want_equal_widths(name: str) -> None:
    with pytest.raises(SesameError, match="take general or additive"):
        SCORES[name](4, 5)


# ---- windows ---------------------------------------------------------------------------------------------------------

LENGTHS = torch.tensor([9, 4])
REAL = torch.arange(9) < LENGTHS[:, None]


def look(span: Any, seed: int, window: int = 2, **more: Any) -> tuple[Looking, Any, Tensor, Tensor]:
    looking = made(seed, Looking(span, "general", D, D, window, **more)).eval()
    query, values = numbers(seed, 2, 6, D), numbers(seed + 9, 2, 9, D)
    return looking, looking.read(values, REAL), query, values


@pytest.mark.parametrize("span", ["global", "local-m", "local-p", "hard"])
def test_padding_is_never_looked_at(span: str) -> None:
    looking, source, query, values = look(span, 0)
    found = looking(query, source, torch.arange(6))
    assert bool((found.weights[1, :, 4:] == 0).all())
    torch.testing.assert_close(found.context, found.weights @ values)
    if span in ("global", "local-m", "hard"):
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 6, dtype=torch.float64))


def test_local_m_sees_its_window_only() -> None:
    looking, source, query, _ = look("local-m", 1)
    weights = looking(query, source, torch.arange(6)).weights
    scores = looking.score(query, source.values)
    for row, length in enumerate(LENGTHS.tolist()):
        for step in range(6):
            middle = min(step, length - 1)
            inside = [s for s in range(length) if abs(s - middle) <= 2]
            wanted = torch.zeros(9, dtype=torch.float64)
            wanted[inside] = scores[row, step, inside].softmax(0)
            torch.testing.assert_close(weights[row, step], wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", SEEDS)
def test_local_p_has_its_window_and_its_gaussian(seed: int) -> None:
    looking, source, query, _ = look("local-p", seed, window=3)
    weights = looking(query, source, torch.arange(6)).weights
    scores = looking.score(query, source.values)
    centers = []
    for row, length in enumerate(LENGTHS.tolist()):
        for step in range(6):
            inner = torch.tanh(looking.places.weight @ query[row, step])
            p = length / (1 + math.exp(-float((looking.place.weight[0] @ inner).detach())))
            centers.append(p)
            inside = [s for s in range(length) if p - 3 <= s <= p + 3]
            wanted = torch.zeros(9, dtype=torch.float64)
            wanted[inside] = scores[row, step, inside].softmax(0)
            for s in inside:
                wanted[s] *= math.exp(-((s - p) ** 2) / (2 * 1.5**2))  # σ = D / 2
            torch.testing.assert_close(weights[row, step], wanted, rtol=0, atol=1e-14)
    assert max(centers) - min(centers) > 2


def test_local_p_learns_where_to_look() -> None:
    """The position has a gradient, by finite differences too."""
    looking, _, query, values = look("local-p", 2, window=20)  # no place falls out of the window by a small step
    source = looking.read(values, REAL)

    def context(q: Tensor, *_: Tensor) -> Tensor:
        return looking(q, source, torch.arange(6)).context

    assert torch.autograd.gradcheck(context, (query.requires_grad_(), looking.places.weight, looking.place.weight))


# ---- hard attention --------------------------------------------------------------------------------------------------


def test_hard_attention_draws_from_its_weights_and_takes_the_likeliest_else() -> None:
    looking, source, query, _ = look("hard", 4)
    sure = looking(query, source, torch.arange(6))
    logs = looking.score(query, source.values).masked_fill(~REAL[:, None], -torch.inf).log_softmax(-1)
    assert torch.equal(sure.weights.argmax(-1), logs.argmax(-1))
    looking.train()
    with torch.random.fork_rng():
        torch.manual_seed(4)
        drawn = torch.stack([looking(query, source, torch.arange(6)).weights for _ in range(4000)])
        one = looking(query, source, torch.arange(6))
    p = logs.exp()
    deviation = (p * (1 - p) / 4000).sqrt()
    assert bool(((drawn.mean(0) - p).abs() <= 4.5 * deviation + 1e-12).all())
    torch.testing.assert_close(one.chosen, (one.weights * logs.clamp(min=-1e9)).sum(-1))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_draws_is_unbiased(seed: int) -> None:
    """Two steps, three places: E[loss] and its gradient are sums over all 9 paths; the estimate must meet them.

    The second step's loss depends on both draws, so that a draw which answered for its own step only would be wrong.
    """
    rows = 4
    logits = numbers(seed, rows, 2, 3).requires_grad_()
    first, second = numbers(seed + 7, rows, 3), 2 * numbers(seed + 8, rows, 3, 3) + 3
    logs = logits.log_softmax(-1)
    p = logs.exp()
    mean = (p[:, 0] * first).sum() + torch.einsum("bi,bj,bij->", p[:, 0], p[:, 1], second)
    (truth,) = torch.autograd.grad(mean, logits, retain_graph=True)

    rounds = 20_000
    draws = torch.multinomial(
        p.detach().reshape(-1, 3), rounds, replacement=True, generator=torch.Generator().manual_seed(seed)
    ).view(rows, 2, rounds)
    probe = logits.detach().repeat(rounds, 1, 1, 1).requires_grad_()  # (rounds, B, 2, 3): one gradient for each round
    chosen = probe.log_softmax(-1).gather(-1, draws.permute(2, 0, 1)[..., None])[..., 0]
    at = torch.arange(rows)[:, None]
    i, j = draws[:, 0], draws[:, 1]
    losses = torch.stack([first[at, i], second[at, i, j]], -1).permute(1, 0, 2)  # (rounds, B, 2)
    told = torch.ones(rows, 2, dtype=torch.bool)
    total = torch.vmap(reinforce, in_dims=(0, 0, None))(losses, chosen, told).sum()
    assert float(total.detach()) == 0.0
    (each,) = torch.autograd.grad(total, probe)
    error = each.std(0) / math.sqrt(rounds)
    assert bool(((each.mean(0) - truth).abs() <= 4.5 * error).all())
    assert float(truth.abs().max()) > 20 * float(error.max())  # the error is small enough to say something


def test_the_baseline_lowers_the_spread() -> None:
    """Losses far from 0: without the others' mean, the estimate would be far noisier."""
    losses = 100 + numbers(1, 8, 5)
    told = torch.ones(8, 5, dtype=torch.bool)
    chosen = numbers(2, 8, 5).requires_grad_()
    (grad,) = torch.autograd.grad(reinforce(losses, chosen, told), chosen)
    assert float(grad.abs().max()) < 20  # against up to 500 of losses ahead


def test_padding_of_answers_has_no_part_in_draws() -> None:
    losses, chosen = numbers(3, 3, 4), numbers(4, 3, 4).requires_grad_()
    told = torch.arange(4) < torch.tensor([4, 2, 1])[:, None]
    (grad,) = torch.autograd.grad(reinforce(losses, chosen, told), chosen)
    (other,) = torch.autograd.grad(reinforce(torch.where(told, losses, 1e6), chosen, told), chosen)
    assert torch.equal(grad, other)
    assert bool((grad[~told] == 0).all())
