"""Where a causal language model keeps its blocks, its final norm and its head."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

BLOCKS = ("blocks", "layers", "h", "block")
NORMS = (
    "norm",
    "ln_f",
    "final_layer_norm",
    "final_layernorm",
    "norm_f",
    "final_norm",
    "ln_final",
    "layer_norm",
    "embedding_norm",
)
HEADS = ("lm_head", "embed_out", "output")
FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
READ_OUTS = {"attn_hc": -1, "attn_hyper_connection": 0}
"""Modules by which a block of several residual branches reads its input, and where in their output
the collapsed stream stands."""


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """The parts of a causal language model that a view of its residual stream needs.

    `anatomy_of` finds them; a model it does not know can be described by hand.

    Attributes:
        blocks: the modules that the stream passes, in order.
        norm: the norm between the last block and the head; None in a model without one.
        head: the map from a normalised stream to logits; None in a model without one.
        factor: number by which the model multiplies what the head gives.
        cap: the model squashes logits to `cap * tanh(logits / cap)`; None where it does not.
        context: longest text in tokens; None where nothing bounds it.
        vocab_size: ids the embedding knows; None where that is not to be seen.

    Raises:
        ValueError: if there is no block, or the cap is not positive.
    """

    blocks: tuple[nn.Module, ...]
    norm: nn.Module | None
    head: nn.Module | None
    factor: float = 1.0
    cap: float | None = None
    context: int | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("Anatomy.blocks must hold at least one block; got none")
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"Anatomy.cap must be positive or None; got {self.cap}")

    def logits(self, stream: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest vocab"]:
        """What the model would predict if its blocks ended here, in at least float32.

        Args:
            stream: the residual stream at any depth, not normalised.

        Raises:
            ValueError: if the model has no head.
        """
        logits = self.finish(self.require_head()(self.head_input(stream)))
        return logits if logits.dtype == torch.float64 else logits.float()

    def head_input(self, stream: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest hidden"]:
        """The stream, normalised, in the head's dtype (some models keep norms in float32)."""
        normed = stream if self.norm is None else self.norm(stream)
        weight = getattr(self.head, "weight", None)
        floating = isinstance(weight, Tensor) and weight.is_floating_point()
        return normed.to(weight.dtype) if floating else normed

    def finish(self, logits: Tensor) -> Tensor:
        """Scale and soft-cap as the model does after its head."""
        if self.factor != 1:
            logits = logits * self.factor
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def require_head(self) -> nn.Module:
        """The head.

        Raises:
            ValueError: if there is none.
        """
        if self.head is None:
            raise ValueError(
                "a lens needs the head that turns a stream into logits, and this model has none; "
                "load it with AutoModelForCausalLM"
            )
        return self.head


def anatomy_of(model: nn.Module) -> Anatomy:
    """Blocks, final norm and head of our models and of decoders from `transformers`.

    Parts are found by the names that decoders use (`BLOCKS`, `NORMS`, `HEADS`), scale and
    soft-capping of the logits by the names in the config. Whether they are the real ones is seen by
    running them: `probes.lens` compares the last layer with the model's own logits.

    Raises:
        ValueError: if blocks or norm are not found, naming what is missing, or the model has an
            encoder.
    """
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"a residual stream is read from a decoder alone; {type(model).__name__} has an "
            "encoder. Describe its decoder with Anatomy(...) to read that."
        )
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    depth = getattr(text, "num_hidden_layers", None)
    found = next(_trunks(model, depth), None)
    if found is None:
        wanted = f" of {depth} blocks (num_hidden_layers)" if depth else ""
        raise _unknown(model, f"no ModuleList{wanted} called {', '.join(BLOCKS)}")
    trunk, blocks = found
    norm = _child(trunk, NORMS) or _child(model, NORMS)
    if norm is None:
        raise _unknown(model, f"its blocks, but beside them no norm called {', '.join(NORMS)}")
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    return Anatomy(
        blocks=blocks,
        norm=norm,
        head=_head(model),
        factor=_factor(text),
        cap=getattr(text, "final_logit_softcapping", None),
        context=getattr(text, "max_position_embeddings", None)
        or getattr(text, "max_seq_len", None),
        vocab_size=getattr(embedding, "num_embeddings", None),
    )


def _trunks(
    model: nn.Module, depth: int | None
) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Modules that hold a list of blocks, the text decoder first."""
    start = model.get_decoder() if hasattr(model, "get_decoder") else model
    for module in [*start.modules(), *model.modules()]:
        for name in BLOCKS:
            blocks = getattr(module, name, None)
            if isinstance(blocks, nn.ModuleList) and len(blocks) == (depth or len(blocks) or 1):
                yield module, tuple(blocks)


def _child(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    found = (getattr(module, name, None) for name in names)
    return next((child for child in found if isinstance(child, nn.Module)), None)


def _head(model: nn.Module) -> nn.Module | None:
    given = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return given if isinstance(given, nn.Module) else _child(model, HEADS)


def _factor(config: object) -> float:
    """By what the config says the logits are multiplied."""
    factor = 1.0
    for name in FACTORS:
        factor *= getattr(config, name, None) or 1.0
    scaling = getattr(config, "logits_scaling", None) or 1.0
    # Granite and MiniCPM divide by this number, HyperCLOVA X multiplies with it
    multiplies = getattr(config, "model_type", "").startswith("hyperclovax")
    return factor * scaling if multiplies else factor / scaling


def _unknown(model: nn.Module, missing: str) -> ValueError:
    return ValueError(
        f"the residual stream of a {type(model).__name__} is not known: found {missing}. Describe "
        "it with Anatomy(blocks=..., norm=..., head=...) and pass that as anatomy=."
    )
