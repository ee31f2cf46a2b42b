"""R-Drop: two passes with other dropout must say the same.

Paper: Liang, Wu, Li et al. 2021, "R-Drop: Regularized Dropout for Neural Networks" (https://arxiv.org/abs/2106.14448);
authors' code: dropreg/R-Drop.
Idea: dropout trains many small networks and asks the whole one. A row that is passed twice meets two of them, p and q; what
they disagree in is a loss of its own:
    loss = nll(p) + nll(q) + alpha (KL(p | q) + KL(q | p)) / 2
    KL(p | q) + KL(q | p) = sum over v of (p_v - q_v) (log p_v - log q_v)
Here half of it, (nll(p) + nll(q)) / 2 + alpha / 4 (KL(p | q) + KL(q | p)), so that a loss keeps its size whatever alpha is.
Needs: dropout, and twice the work a step. Worth it where texts are few and would be learnt by heart.
"""

import torch
from torch import Tensor

from sesame.data.batch import IGNORE, Batch


def twice(batch: Batch) -> Batch:
    """Every row a second time, behind all others."""
    assert batch.real is None, "rows that lie end to end cannot be passed twice"
    return batch.map(lambda tensor: torch.cat([tensor, tensor]))


def agreed(logits: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
    """The loss of rows passed twice, summed over places of one pass. Shape: (2 N, V), (2 N,) -> scalar."""
    told = labels != IGNORE
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)
    losses = -log_p.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    if smoothing:
        losses = (1 - smoothing) * losses - smoothing * log_p.mean(1)
    one, other = log_p.chunk(2)
    apart = ((one.exp() - other.exp()) * (one - other)).sum(1)
    return torch.where(told, losses, 0.0).sum() / 2 + alpha / 4 * torch.where(told.chunk(2)[0], apart, 0.0).sum()
