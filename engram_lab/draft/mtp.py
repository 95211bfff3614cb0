"""`MtpDrafter`: multi-token prediction, one block that continues the target's own last state."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.draft.chain import ChainDrafter, Row
from engram_lab.draft.chain_config import ChainConfig
from engram_lab.draft.target import Target
from engram_lab.model.layers import RMSNorm


@dataclass(frozen=True, kw_only=True)
class MtpConfig(ChainConfig):
    """Shape of a head for multi-token prediction; with `block_size` 1 it is MTP-1.

    Attributes:
        block_size: steps for which the one block is used again, in training and in drafting.

    Raises:
        ValueError: if a rule is broken, naming both numbers.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2; vllm-project/speculators models/mtp.
    """

    block_size: int = 3

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Blocks of the target that are tapped: none."""
        return ()


class MtpDrafter(ChainDrafter):
    """MTP of depth 1, used again for later steps.

    The first step reads `Pass.final`, the state behind the target's final norm, and later steps the
    output behind their own. DeepSeek-V3 reads the state before that norm; after the norm that
    follows here, the two differ by the weights of the target's norm and a scale. Token and state
    are normed, put side by side and projected to the width of the stream; one block follows.

    Args:
        config: its shape.
        target: the model it drafts for, read without taps.

    Raises:
        ValueError: if vocabulary, width, depth or read blocks differ, naming both.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2; vllm-project/speculators models/mtp.
    """

    def __init__(self, config: MtpConfig, target: Target):
        super().__init__(config, target, inputs=config.hidden_size)
        width = config.hidden_size
        self.token_layernorm = RMSNorm(width, config.rms_norm_eps)
        self.hidden_layernorm = RMSNorm(width, config.rms_norm_eps)
        self.input_proj = nn.Linear(2 * width, width, bias=False)
        self.input_layernorm = RMSNorm(width, config.rms_norm_eps)

    def states(
        self, features: Float[Tensor, "batch seq taps"] | None, final: Float[Tensor, "batch seq _"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """What the target's head was given."""
        return final

    def row(
        self,
        embedded: Float[Tensor, "batch seq hidden"],
        states: Float[Tensor, "batch seq hidden"],
    ) -> Row:
        """Token and state, each normed, side by side and projected; attention norms that again."""
        pair = torch.cat([self.token_layernorm(embedded), self.hidden_layernorm(states)], dim=-1)
        stream = self.input_proj(pair)
        return Row(stream=stream, inputs=self.input_layernorm(stream))

    def carried(
        self, output: Float[Tensor, "batch seq hidden"], normed: Float[Tensor, "batch seq hidden"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """The output behind the final norm, as the first step's state is."""
        return normed
