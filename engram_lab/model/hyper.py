"""Hyper-connections: several residual branches, read and written by mixtures of their own choice.

Every token has `branch` streams in place of one. A sublayer reads a weighted sum of them; its
update is added to each with a weight, and the streams themselves are mixed by a doubly stochastic
matrix, so that no depth makes them larger.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

_SPREAD = 0.1  # of the first mixing scores: branches start nearly alike, yet not quite


class HyperConnection(nn.Module):
    """How one sublayer reads and writes several residual branches.

    Attributes:
        fn: from all branches of a token to its scores: reading, writing, mixing.
        base: added to the scores.
        scale: factors on them, one for each of the three.

    Source: mHC (arXiv:2512.24880); DeepSeek-V4 as in transformers, modeling_deepseek_v4.py.
    """

    def __init__(
        self,
        hidden_size: int,
        hc_mult: int,
        *,
        sinkhorn_iters: int = 20,
        eps: float = 1e-6,
        norm_eps: float = 1e-6,
    ):
        """A fresh connection, that reads half of every branch and mixes them evenly.

        Args:
            hidden_size: width of one branch.
            hc_mult: branches.
            sinkhorn_iters: rounds that make the mixture doubly stochastic.
            eps: added where those rounds divide, and to the weights of reading.
            norm_eps: added to the mean square of a token's branches.
        """
        super().__init__()
        self.hc_mult, self.sinkhorn_iters = hc_mult, sinkhorn_iters
        self.eps, self.norm_eps = eps, norm_eps
        scores, width = (2 + hc_mult) * hc_mult, hc_mult * hidden_size
        self.fn = nn.Parameter(torch.empty(scores, width))
        self.base = nn.Parameter(torch.zeros(scores))
        self.scale = nn.Parameter(torch.ones(3))
        nn.init.normal_(self.fn, std=_SPREAD * width**-0.5)

    def forward(
        self,
        branches: Float[Tensor, "batch seq branch hidden"],
        sublayer: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "batch seq branch hidden"]:
        """Branches after a sublayer.

        Args:
            branches: before it.
            sublayer: makes its update [batch seq hidden] out of the one stream it is given.
        """
        reading, writing, mixing = self.weights(branches)
        update = sublayer(_collapsed(branches, reading))
        mixed = torch.einsum("bsij,bsih->bsjh", mixing.to(branches.dtype), branches)
        return mixed + writing.to(branches.dtype)[..., None] * update[..., None, :]

    def weights(
        self, branches: Float[Tensor, "batch seq branch hidden"]
    ) -> tuple[
        Float[Tensor, "batch seq branch"],
        Float[Tensor, "batch seq branch"],
        Float[Tensor, "batch seq branch out"],
    ]:
        """Weights of reading and writing, and the mixture (row: from, column: to), in float32."""
        count = self.hc_mult
        sizes = [count, count, count * count]
        scores = _scores(branches, self.fn, self.norm_eps).split(sizes, dim=-1)
        bases, scale = self.base.float().split(sizes), self.scale.float()
        read, write, mix = (part * scale[i] + bases[i] for i, part in enumerate(scores))
        mixture = doubly_stochastic(
            mix.unflatten(-1, (count, count)), self.sinkhorn_iters, eps=self.eps
        )
        return torch.sigmoid(read) + self.eps, 2 * torch.sigmoid(write), mixture


class HyperHead(nn.Module):
    """Collapses the branches of a token into the one stream that the final norm reads.

    Attributes:
        fn: from all branches of a token to a score for each.
        base: added to the scores.
        scale: factor on them.

    Source: DeepSeek-V4 as in transformers, modeling_deepseek_v4.py.
    """

    def __init__(
        self, hidden_size: int, hc_mult: int, *, eps: float = 1e-6, norm_eps: float = 1e-6
    ):
        """A fresh head, that reads half of every branch.

        Args:
            hidden_size: width of one branch.
            hc_mult: branches.
            eps: added to the weights.
            norm_eps: added to the mean square of a token's branches.
        """
        super().__init__()
        self.eps, self.norm_eps = eps, norm_eps
        width = hc_mult * hidden_size
        self.fn = nn.Parameter(torch.empty(hc_mult, width))
        self.base = nn.Parameter(torch.zeros(hc_mult))
        self.scale = nn.Parameter(torch.ones(1))
        nn.init.normal_(self.fn, std=_SPREAD * width**-0.5)

    def forward(
        self, branches: Float[Tensor, "batch seq branch hidden"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """Weighted sum of the branches."""
        scores = _scores(branches, self.fn, self.norm_eps) * self.scale.float() + self.base.float()
        return _collapsed(branches, torch.sigmoid(scores) + self.eps)


def doubly_stochastic(
    scores: Float[Tensor, "*rest branch out"], rounds: int, *, eps: float = 1e-6
) -> Float[Tensor, "*rest branch out"]:
    """Matrices whose rows and columns sum to 1: softmax, then Sinkhorn's rounds.

    Args:
        scores: logits of the entries.
        rounds: how often columns are normalised; rows are between.
        eps: added to every entry once and to every sum.

    Source: mHC (arXiv:2512.24880).
    """
    matrix = scores.softmax(dim=-1) + eps
    for step in range(rounds):
        if step:
            matrix = matrix / (matrix.sum(dim=-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(dim=-2, keepdim=True) + eps)
    return matrix


def _scores(branches: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What the branches of a token, normalised together, say; float32 by rule."""
    with torch.autocast(branches.device.type, enabled=False):
        flat = branches.flatten(-2).float()
        return F.linear(F.rms_norm(flat, flat.shape[-1:], None, eps), weight.float())


def _collapsed(branches: Tensor, weights: Tensor) -> Tensor:
    return (weights[..., None] * branches).sum(dim=-2).to(branches.dtype)
