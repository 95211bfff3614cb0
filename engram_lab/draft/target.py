"""`Target`: the frozen model that a drafter reads and that verifies its drafts.

Any causal language model will do whose blocks, final norm and head are found (`anatomy_of`): ours
and those of `transformers`. It is read by hooks, never changed.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.func import functional_call

from engram_lab.draft.config import Tap, check_taps
from engram_lab.draft.target_cache import TargetCache
from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.undisturbed import undisturbed


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """What one pass through the target gave.

    Attributes:
        logits: next-token logits of every position, as the model gives them.
        features: what was read of the tapped blocks, side by side, each the mean of its residual
            branches where there are several; None where none is tapped.
        final: what the head was given, normalised.
    """

    logits: Float[Tensor, "batch seq vocab"]
    features: Float[Tensor, "batch seq taps"] | None
    final: Float[Tensor, "batch seq hidden"]


class Target:
    """A frozen causal language model, seen by a drafter.

    Attributes:
        model: the model; its parameters, mode and hooks are left as they are.
        layer_ids: blocks that are read, counted from 0; -1 is the embedding.
        tap: what is read of them, as `DraftConfig.tap` names it.
        anatomy: where its parts are.
        vocab_size: ids of its embedding.
        hidden_size: width of its stream.
        depth: blocks it has.
        context: longest text it takes; None where nothing bounds it.
    """

    def __init__(
        self,
        model: nn.Module,
        layer_ids: Sequence[int] = (),
        *,
        tap: Tap = "output",
        anatomy: Anatomy | None = None,
    ):
        """Look at a model.

        Args:
            model: a causal language model with a head.
            layer_ids: blocks to read; none for drafters that read no states.
            tap: what to read of them.
            anatomy: where the parts are; None asks `anatomy_of`.

        Raises:
            ValueError: if parts are not found, or a block is out of range or the last one.
        """
        self.model = model
        self.anatomy = anatomy or anatomy_of(model)
        self.anatomy.require_head()
        self.layer_ids, self.tap = tuple(layer_ids), tap
        self.depth = len(self.anatomy.blocks)
        if self.layer_ids:
            check_taps(self.layer_ids, self.depth, tap)
        self.embedding = model.get_input_embeddings()
        self.vocab_size, self.hidden_size = self.embedding.weight.shape
        self.context = self.anatomy.context
        self._known = set(inspect.signature(model.forward).parameters)
        self._seen: dict[Any, Tensor] | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.embedding.weight.device

    def embed(self, token_ids: Int64[Tensor, "*rest"]) -> Float[Tensor, "*rest hidden"]:
        """Embeddings, without a gradient into the target."""
        return _frozen(self.embedding, token_ids)

    def head(self, hidden: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest vocab"]:
        """Logits of normalised states, scaled and capped as the model does.

        A gradient reaches the states, never the head.
        """
        return self.anatomy.finish(_frozen(self.anatomy.require_head(), hidden))

    def start(self, batch: int, *, rewind: int = 64) -> TargetCache:
        """A cache for `batch` sequences.

        Args:
            batch: how many.
            rewind: most positions that one pass may append and take back.
        """
        return TargetCache.of(self.model, batch, rewind=rewind)

    def read(
        self,
        token_ids: Int64[Tensor, "batch seq"],
        *,
        document_ids: Int64[Tensor, "batch seq"] | None = None,
    ) -> Pass:
        """One pass over whole texts, without a cache; as training needs it.

        Args:
            token_ids: texts.
            document_ids: packed documents, for models that know of them.

        Raises:
            ValueError: if the model knows of no documents and a row holds several.
        """
        arguments: dict[str, Any] = {"input_ids": token_ids}
        if document_ids is not None and bool((document_ids != document_ids[:, :1]).any()):
            if "document_ids" not in self._known:
                raise ValueError(
                    f"{type(self.model).__name__} does not tell packed documents apart; give one "
                    "document a row"
                )
            arguments["document_ids"] = document_ids
        return self._pass(arguments | {"use_cache": False})

    def forward(self, token_ids: Int64[Tensor, "batch seq"], cache: TargetCache) -> Pass:
        """Append the same number of tokens to every sequence of a cache.

        Rows that have fewer take any id behind theirs; `cache.keep` then forgets what is not
        wanted. Must be followed by `cache.keep`.
        """
        arguments = {"input_ids": token_ids, "use_cache": True, "cache": cache.states}
        return self._pass(arguments | cache.extended(token_ids.shape[1]))

    def _pass(self, arguments: dict[str, Any]) -> Pass:
        unknown = sorted(set(arguments) - self._known)
        if unknown:
            raise ValueError(
                f"a target's forward must take {', '.join(sorted(arguments))}; that of "
                f"{type(self.model).__name__} does not take {', '.join(unknown)}"
            )
        with nullcontext(self._seen) if self._seen is not None else self.settled() as seen:
            logits = self.model(**arguments).logits
            features = [seen[layer] for layer in self.layer_ids]
            return Pass(
                logits=logits,
                features=torch.cat(features, dim=-1) if features else None,
                final=seen["final"],
            )

    @contextmanager
    def settled(self) -> Iterator[dict[Any, Tensor]]:
        """Evaluation mode and taps for many passes at once, which makes each of them cheaper."""
        outer = self._seen
        with undisturbed(self.model), self.tapped() as seen:
            self._seen = seen
            try:
                yield seen
            finally:
                self._seen = outer

    @contextmanager
    def tapped(self) -> Iterator[dict[Any, Tensor]]:
        """What is read of the tapped blocks by number, and the head's input as "final".

        They are those of the newest pass inside; `head` counts as a pass of the head.
        """
        seen: dict[Any, Tensor] = {}

        def out(name: int) -> Any:
            def keep(module: nn.Module, inputs: Any, output: Any) -> None:
                seen[name] = _stream(output[0] if isinstance(output, tuple) else output)

            return keep

        def entering(name: Any) -> Any:
            def keep(module: nn.Module, inputs: Any) -> None:
                seen[name] = _stream(inputs[0])

            return keep

        blocks = self.anatomy.blocks
        handles = [self.anatomy.require_head().register_forward_pre_hook(entering("final"))]
        for layer in self.layer_ids:
            if layer == -1:
                handles.append(blocks[0].register_forward_pre_hook(entering(-1)))
            elif self.tap == "entering":
                reader = _first_reader(blocks[layer])
                handles.append(reader.register_forward_pre_hook(entering(layer)))
            else:
                handles.append(blocks[layer].register_forward_hook(out(layer)))
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


def target_for(model: nn.Module, drafter: Any, *, anatomy: Anatomy | None = None) -> Target:
    """A model, read where a drafter reads it.

    Args:
        model: a causal language model with a head.
        drafter: any `Proposer`; one that does not name a `tap` reads outputs.
        anatomy: where the parts are; None asks `anatomy_of`.

    Raises:
        ValueError: as `Target`.
    """
    return Target(model, drafter.layer_ids, tap=tap_of(drafter), anatomy=anatomy)


def tap_of(drafter: Any) -> Tap:
    """What a drafter reads of the blocks it taps: their outputs, unless it names something else."""
    return getattr(drafter, "tap", "output")


def _first_reader(block: nn.Module) -> nn.Module:
    """What first reads the stream once a memory has written: the norm of attention in our blocks.

    A block without a memory is its own first reader.
    """
    return block if getattr(block, "engram", None) is None else block.attn_norm


def _stream(value: Tensor) -> Tensor:
    """One stream: the mean of residual branches [batch seq branch hidden], where there are any."""
    return value.mean(dim=2) if value.dim() == 4 else value


def _frozen(module: nn.Module, value: Tensor) -> Tensor:
    """A module's output without a gradient to its own parameters."""
    if not torch.is_grad_enabled():
        return module(value)
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return functional_call(module, weights, (value,))
