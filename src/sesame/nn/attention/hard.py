"""The gradient of choices that were drawn: REINFORCE (Williams 1992), as Xu et al. 2015 have it for hard attention.

Paper: Xu et al. 2015, "Show, Attend and Tell" (https://arxiv.org/abs/1502.03044), section 4.1, equations 10 to 12.
Idea: the loss l(s) of draws s ~ p has E[∇ l + (l - b) ∇ log p(s)] as the gradient of its mean, for any b that does not depend
on the draw. A draw at step t can only change the losses from t on, so each draw answers for those alone:
    ∇ = Σ_k ∇ l_k + Σ_t (Σ_{k >= t} l_k - b_t) ∇ log p(s_t)
Unusual: the paper's baseline is a running mean of earlier batches, which would be a hidden memory between steps. Here it is
the mean loss per token of the other rows of this batch, times the tokens that follow: as unbiased, and resumable. The paper's
two further tricks, an entropy term and the expected instead of the drawn place half of the time, make the estimate biased;
they are left out. The value of what is returned is 0: it carries a gradient and does not change the loss that people read.
"""

from torch import Tensor


def reinforce(losses: Tensor, chosen: Tensor, told: Tensor) -> Tensor:
    """A scalar 0 whose gradient is that of the draws. Shape: (B, K): losses, log p of draws, True where a token is told."""
    losses = (losses * told).detach().to(chosen.dtype)
    left = told.to(chosen.dtype).flip(1).cumsum(1).flip(1)  # tokens from here on
    ahead = losses.flip(1).cumsum(1).flip(1)
    others = losses.sum() - losses.sum(1, keepdim=True)
    counts = told.sum() - told.sum(1, keepdim=True)
    baseline = left * others / counts.clamp(min=1)
    mended = ((ahead - baseline) * told * chosen).sum()
    return mended - mended.detach()
