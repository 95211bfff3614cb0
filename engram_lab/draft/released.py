"""`ReleasedDrafter`: DSpark's drafter in production form, as DeepSeek-V4 and V4.1 ship it.

What is unusual about it, beside a `Drafter`:

- every slot has several residual branches, collapsed by a learned head at the end;
- attention reads one latent a row, key and value at once, within a window of context;
- the feed-forward is a mixture of experts;
- the confidence reads the collapsed state before the final norm;
- the target is read where its last blocks read, or at what they leave (`ReleasedConfig.tap`).
"""

from torch import Tensor

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.released_config import ReleasedConfig
from engram_lab.draft.released_layers import ReleasedBlock, ReleasedConfidence
from engram_lab.draft.target import Target
from engram_lab.model.hyper import HyperHead
from engram_lab.model.layers import rotary_angles


class ReleasedDrafter(Drafter):
    """A block drafter in production form.

    Training and decoding are those of `Drafter`: only real tokens become context, the latents of a
    block are not stored, and all its slots see the same window and each other. Of the target's
    residual branches the mean is read. All rows of the context are kept and the window is read of
    them, where an engine would keep a ring.

    Args:
        config: its shape.
        target: the model it drafts for, reading `config.tap` of `config.target_layer_ids`.

    Raises:
        ValueError: if vocabulary, width, depth, read blocks or tap differ, naming both.

    Source: DSpark paper, section 5.1; what else is known of it says `ReleasedConfig`.
    """

    block_type = ReleasedBlock
    confidence_type = ReleasedConfidence
    config: ReleasedConfig

    def __init__(self, config: ReleasedConfig, target: Target):
        super().__init__(config, target)
        self.collapse = HyperHead(config.hidden_size, config.hc_mult, norm_eps=config.rms_norm_eps)

    def update_balance(self) -> None:
        """Move every router's balancing bias one step; call it after each optimiser step."""
        if self.config.bias_update_rate:
            for layer in self.layers:
                layer.moe.router.update_balance()

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_angles(positions, self.config.rotary_size, self.config.rope_theta)

    def _enter(self, embedded: Tensor) -> Tensor:
        return embedded[:, :, None].expand(-1, -1, self.config.hc_mult, -1)

    def _leave(self, hidden: Tensor) -> Tensor:
        return self.collapse(hidden)

    def _head(self, hidden: Tensor) -> Tensor:
        return super()._head(self.norm(hidden))

    def _confidence(self, hidden: Tensor, before: Tensor) -> Tensor | None:
        read = hidden if self.config.confidence_reads == "collapsed" else self.norm(hidden)
        return super()._confidence(read, before)
