"""Initial weights of every module a model is made of."""

from torch import nn

from engram_lab.memory.engram import Engram
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.layers import Attention, RMSNorm, SwiGLU
from engram_lab.model.moe import Experts, Router


def initialise(module: nn.Module, config: EngramLMConfig) -> None:
    """Set one module's own parameters: normal weights, gains of 1, memory by its own rule.

    Matrices that write into the residual stream are narrower by sqrt(2 * layers), so that the
    stream's scale does not grow with depth (as in GPT-2).
    """
    std = config.initializer_range
    narrow = std / (2 * config.num_hidden_layers) ** 0.5
    if isinstance(module, Engram):
        module.reset_parameters()
    elif isinstance(module, Router):
        nn.init.normal_(module.weight, std=std)
        nn.init.zeros_(module.bias)
        nn.init.zeros_(module.load)
    elif isinstance(module, Experts):
        nn.init.normal_(module.gate_up, std=std)
        nn.init.normal_(module.down, std=narrow)
    elif isinstance(module, Attention):
        nn.init.normal_(module.out.weight, std=narrow)
    elif isinstance(module, SwiGLU):
        nn.init.normal_(module.down.weight, std=narrow)
    elif isinstance(module, RMSNorm):
        nn.init.ones_(module.weight)
    elif isinstance(module, (nn.Embedding, nn.Linear)):
        nn.init.normal_(module.weight, std=std)
