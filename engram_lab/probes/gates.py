"""When memory speaks: the gate of every memory layer and branch, token by token."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.hooks import record

GATE, VALUE = "blocks.*.engram.hook_gate", "blocks.*.engram.hook_value"


@runtime_checkable
class Encoder(Protocol):
    """What a probe needs of a tokenizer."""

    def encode(self, text: str) -> Tensor:
        """Ids of a text as a batch of one."""

    def tokens(self, ids: Tensor) -> list[str]:
        """Readable text of every id."""


def gate_frame(model: nn.Module, text: str, tokenizer: Encoder) -> pd.DataFrame:
    """Gate of every memory layer and branch at every token of a text.

    Args:
        model: a model with memory, on any device, in any dtype; left as it was.
        text: what it reads, from the beginning of a document.
        tokenizer: the one the model was trained with.

    Returns:
        Columns layer (block, counted from 0), branch, position, token, gate (in (0, 1), one half
        says nothing either way) and value_norm (gate times the Euclidean length of the memory's
        value at that position: what is really written, before the convolution).

    Raises:
        ValueError: if the text is empty, the model has no memory or the text is longer than the
            model's context.
    """
    token_ids = tokenizer.encode(text)
    if token_ids.numel() == 0:
        raise ValueError(f"gate_frame needs a text of at least one token; got {text!r}")
    return gates_of_ids(model, token_ids, tokenizer.tokens(token_ids))


def gates_of_ids(
    model: nn.Module, token_ids: Int64[Tensor, "one seq"], tokens: Sequence[str]
) -> pd.DataFrame:
    """`gate_frame` for ids at hand, for instance of a generated corpus.

    Args:
        token_ids: one sequence.
        tokens: readable text of every id.

    Raises:
        ValueError: if there is not exactly one sequence and one text per id, the model has no
            memory or the sequence is longer than its context.
    """
    if token_ids.shape[0] != 1 or token_ids.shape[1] != len(tokens) or not len(tokens):
        raise ValueError(
            f"gates_of_ids needs one sequence and one text per id; got ids of shape "
            f"{tuple(token_ids.shape)} and {len(tokens)} texts"
        )
    if not any(name.endswith("engram.hook_gate") for name, _ in model.named_modules()):
        raise ValueError(
            f"gates are read from a model with memory; this {type(model).__name__} has none. "
            "Give its config an EngramConfig and train it again."
        )
    device = next(model.parameters()).device
    with _as_found(model), record(model, [GATE, VALUE], dtype=torch.float32) as seen:
        model(token_ids.to(device))
    gates = [name for name in seen.names if name.endswith("hook_gate")]
    values = [name.replace("hook_gate", "hook_value") for name in gates]
    parts = [
        _layer_rows(int(gate.split(".")[1]), seen[gate], seen[value], tokens)
        for gate, value in zip(gates, values, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def _layer_rows(
    layer: int,
    gate: Float[Tensor, "one seq branch"],
    value: Float[Tensor, "one seq hidden"],
    tokens: Sequence[str],
) -> pd.DataFrame:
    """Rows of one layer, branch by branch."""
    by_branch = gate[0].T.cpu()  # branch seq
    written = by_branch * value[0].norm(dim=-1).cpu()
    branches, seq = by_branch.shape
    return pd.DataFrame(
        {
            "layer": layer,
            "branch": np.repeat(np.arange(branches), seq),
            "position": np.tile(np.arange(seq), branches),
            "token": list(tokens) * branches,
            "gate": by_branch.flatten().numpy(),
            "value_norm": written.flatten().numpy(),
        }
    )


@contextmanager
def _as_found(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
