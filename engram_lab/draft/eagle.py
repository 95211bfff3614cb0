"""`EagleDrafter`: EAGLE-3, one block over pairs of a fused target state and the next token."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.draft.chain import ChainDrafter, Row
from engram_lab.draft.chain_config import ChainConfig
from engram_lab.draft.config import check_taps
from engram_lab.draft.target import Target
from engram_lab.model.layers import RMSNorm


@dataclass(frozen=True, kw_only=True)
class EagleConfig(ChainConfig):
    """Shape of an EAGLE-3 drafter; `block_size` is also the number of steps unrolled in training.

    Attributes:
        target_layer_ids: blocks whose outputs are fused into a state, counted from 0 and rising; -1
            is the embedding. The last block is not among them.

    Raises:
        ValueError: if a rule is broken, naming both numbers.

    Source: EAGLE-3 (arXiv:2503.01840); DeepSpec config/eagle3 (7 steps).
    """

    target_layer_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        check_taps(self.target_layer_ids, self.target_depth)


class EagleDrafter(ChainDrafter):
    """EAGLE-3: tapped states are fused once, attention reads token and state side by side.

    The stream starts as the state without a norm, and the block's output, also without one, is the
    state of the next step.

    Args:
        config: its shape.
        target: the model it drafts for, reading `config.target_layer_ids`.

    Raises:
        ValueError: if vocabulary, width, depth or read blocks differ, naming both.

    Source: EAGLE-3 (arXiv:2503.01840); DeepSpec modeling/eagle3.
    """

    def __init__(self, config: EagleConfig, target: Target):
        super().__init__(config, target, inputs=2 * config.hidden_size)
        width = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * width, width, bias=False)
        self.input_layernorm = RMSNorm(width, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(width, config.rms_norm_eps)

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Blocks of the target that are read."""
        return self.config.target_layer_ids

    def states(
        self, features: Float[Tensor, "batch seq taps"] | None, final: Float[Tensor, "batch seq _"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """Tapped states, fused.

        Raises:
            ValueError: if there are none, or their width is not that of the tapped blocks.
        """
        wide = 0 if features is None else features.shape[-1]
        if wide != self.fc.in_features:
            raise ValueError(
                f"this drafter fuses the target's blocks {self.layer_ids}, "
                f"{self.fc.in_features} numbers a position; the target gave {wide}. Build it with "
                "Target(model, drafter.layer_ids)."
            )
        return self.fc(features)

    def row(
        self,
        embedded: Float[Tensor, "batch seq hidden"],
        states: Float[Tensor, "batch seq hidden"],
    ) -> Row:
        """Token and state, each normed, side by side; the stream is the state as it is."""
        inputs = torch.cat([self.input_layernorm(embedded), self.hidden_norm(states)], dim=-1)
        return Row(stream=states, inputs=inputs)

    def carried(
        self, output: Float[Tensor, "batch seq hidden"], normed: Float[Tensor, "batch seq hidden"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """The output before the final norm."""
        return output
