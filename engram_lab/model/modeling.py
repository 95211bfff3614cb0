"""`EngramLM`: a decoder whose blocks may read an n-gram memory and may hold experts.

What is unusual about it, beside an ordinary pre-norm transformer:

- the memory's update is added to the residual stream before attention, and is addressed by token
  ids, so embeddings alone do not do;
- ids are compressed once for the whole model, and each memory layer hashes them with its own
  constants;
- packed documents see each other neither in attention nor in the n-grams nor in the convolution;
- hash constants and the token map are buffers of the checkpoint, compared with the rule on load.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Cache,
    DynamicCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from engram_lab.hooks import HookPoint
from engram_lab.memory.engram import Engram
from engram_lab.memory.history import MemoryContext
from engram_lab.model.attention_mask import attention_bias, check_padding_mask, several_documents
from engram_lab.model.block import Block, Stream
from engram_lab.model.cache import EngramCache
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.initialise import initialise
from engram_lab.model.layers import RMSNorm, rotary_angles
from engram_lab.model.loss import last_positions, next_token_loss
from engram_lab.model.moe import Router
from engram_lab.model.vocabulary import with_compression
from engram_lab.tokens.compression import VocabCompression


@dataclass
class EngramLMOutput(CausalLMOutputWithPast):
    """Output of `EngramLM`.

    Attributes:
        loss: mean cross-entropy in nats over the labelled tokens, without any balance loss.
        balance_loss: sequence balance loss times its coefficient, summed over blocks; None when
            off.
    """

    balance_loss: torch.FloatTensor | None = None


class EngramLM(PreTrainedModel, GenerationMixin):
    """Causal language model with optional n-gram memory and optional experts.

    Args:
        config: shape of the model; copied, never changed.
        compression: token map of the tokenizer, needed when `config.engram.compress` is on and the
            config does not carry the map's constants yet (a loaded config does).

    Raises:
        ValueError: if a map is needed and missing, or does not fit `config.vocab_size`.
    """

    config_class = EngramLMConfig
    main_input_name = "input_ids"
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _tied_weights_keys = {"lm_head.weight": "embed_tokens.weight"}

    def __init__(self, config: EngramLMConfig, compression: VocabCompression | None = None):
        super().__init__(with_compression(config, compression))
        config = self.config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(
            Block(config, layer) for layer in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.hook_embed = HookPoint()
        if config.engram and config.engram.compress:
            table = (
                torch.arange(config.vocab_size)
                if compression is None
                else compression.table.clone()
            )
            self.register_buffer("token_map", table)
        self.post_init()

    @property
    def compression(self) -> VocabCompression:
        """The token map this model hashes through (the identity where ids are hashed raw)."""
        if not hasattr(self, "token_map"):
            return VocabCompression.identity(self.config.vocab_size)
        return VocabCompression.from_table(self.token_map.cpu())

    @property
    def memories(self) -> dict[int, Engram]:
        """Memory modules by block, counted from 0."""
        return {i: block.engram for i, block in enumerate(self.blocks) if block.engram is not None}

    def forward(
        self,
        input_ids: Int64[Tensor, "batch seq"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int64[Tensor, "rows seq"] | None = None,
        cache: Cache | None = None,
        labels: Int64[Tensor, "batch seq"] | None = None,
        document_ids: Int64[Tensor, "batch seq"] | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool = False,
        logits_to_keep: int = 0,
        num_items_in_batch: int | Tensor | None = None,
        **kwargs: Any,
    ) -> EngramLMOutput:
        """Next-token logits, and the loss where labels are given.

        Args:
            attention_mask: 0 at padding; one entry per cached and new position.
            position_ids: positions for the rotary angles; counted on from the cache by default.
            cache: an `EngramCache`, extended in place.
            labels: like `input_ids`; shifted inside; -100 and the first token of a packed document
                are left out.
            document_ids: one number per packed document; documents never see each other.
            use_cache: whether to return a cache (made where none is given).
            logits_to_keep: 0 for all positions, else the last so many.
            num_items_in_batch: divisor of the summed loss, in place of the labelled tokens here.

        Raises:
            ValueError: on ids outside the vocabulary, a mask of the wrong shape, no ids at all or a
                negative `logits_to_keep`.
            TypeError: on a cache without the memory's history, or an unknown argument.
        """
        self._check_inputs(input_ids, cache, kwargs)
        if use_cache and cache is None:
            cache = EngramCache(self.config)
        if cache is None:
            document_ids = several_documents(document_ids)
        stream = self._stream(input_ids, attention_mask, position_ids, document_ids, cache)
        states, balance = self._run_blocks(input_ids, stream)
        logits = self.lm_head(last_positions(states[-1], logits_to_keep))
        loss = None
        if labels is not None:
            loss = next_token_loss(logits, labels, document_ids, divisor=num_items_in_batch)
        return EngramLMOutput(
            loss=loss,
            logits=logits,
            cache=cache,
            hidden_states=states if output_hidden_states else None,
            balance_loss=balance,
        )

    def update_balance(self) -> None:
        """Move every router's balancing bias one step; call it after each optimiser step."""
        for module in self.modules():
            if isinstance(module, Router) and module.config.bias_update_rate:
                module.update_balance()

    def check_constants(self) -> None:
        """Compare hash constants and token map with what the config says.

        Raises:
            ValueError: if they differ; the rows of such a checkpoint belong to other n-grams.
        """
        for memory in self.memories.values():
            memory.check_constants()
        if hasattr(self, "token_map"):
            found, stated = self.compression.sha256, self.config.token_map_sha256
            if found != stated:
                raise ValueError(
                    f"the checkpoint's token map has SHA-256 {found}, its config says {stated}; "
                    "every n-gram would read another row. Use the tokenizer the memory was trained "
                    "with."
                )

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> "EngramLM":
        """Load a saved model and check that its memory is the one its config describes.

        Raises:
            ValueError: if memory weights are missing from the checkpoint or its constants do not
            fit.
        """
        wanted = kwargs.pop("output_loading_info", False)
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        missing = sorted(
            key for key in info["missing_keys"] if ".engram." in key or key == "token_map"
        )
        if missing:
            raise ValueError(
                f"the checkpoint has no weights for the memory its config asks for ({len(missing)} "
                f"missing, "
                f"first {missing[0]}). Set engram=None in the config to load it without memory."
            )
        model.check_constants()
        return (model, info) if wanted else model

    def _run_blocks(
        self, input_ids: Tensor, stream: Stream
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Stream before each block and normalised at the end; summed balance loss."""
        hidden = self.hook_embed(self.embed_tokens(input_ids))
        states, balance = [], None
        for block in self.blocks:
            states.append(hidden)
            hidden, block_balance = block(hidden, stream)
            if block_balance is not None:
                balance = block_balance if balance is None else balance + block_balance
        return (*states, self.norm(hidden)), balance

    def _stream(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        document_ids: Tensor | None,
        cache: EngramCache | None,
    ) -> Stream:
        batch, seq = input_ids.shape
        past = cache.get_seq_length() if cache is not None else 0
        mask = check_padding_mask(attention_mask, batch, past + seq)
        chunk_mask = None if mask is None else mask[:, past:]
        context = MemoryContext(document_ids=document_ids, attention_mask=chunk_mask)
        canonical_ids = self.token_map[input_ids] if hasattr(self, "token_map") else input_ids
        documents = cache.extend_documents(document_ids, seq) if cache is not None else document_ids
        if cache is not None and cache.memory is not None:
            cache.memory.extend(canonical_ids, context)
        if position_ids is None:
            position_ids = torch.arange(past, past + seq, device=input_ids.device)[None]
        rotary = rotary_angles(position_ids, self.config.head_size, self.config.rope_theta)
        bias = attention_bias(mask, documents, seq=seq, total=past + seq, device=input_ids.device)
        return Stream(canonical_ids, context, rotary, bias, chunk_mask, cache)

    def _check_inputs(self, input_ids: Tensor | None, cache: object, extra: dict[str, Any]) -> None:
        given = sorted(
            key for key, value in extra.items() if value is not None and key not in _IGNORED
        )
        if given:
            raise TypeError(f"EngramLM.forward does not know {', '.join(given)}")
        if input_ids is None:
            raise ValueError(
                "EngramLM needs input_ids: the memory is addressed by token ids, embeddings do not "
                "do"
            )
        if cache is not None and not isinstance(cache, EngramCache):
            raise TypeError(
                f"EngramLM needs an EngramCache, which also keeps the memory's history; got "
                f"{type(cache).__name__}. "
                "Pass use_cache=True and take the cache of the output."
            )
        if input_ids.numel() == 0:
            raise ValueError(
                f"input_ids must hold at least one token; got shape {tuple(input_ids.shape)}"
            )
        low, high = input_ids.aminmax() if input_ids.device.type == "cpu" else (0, 0)
        if low < 0 or high >= self.config.vocab_size:
            raise ValueError(
                f"input_ids must lie in 0..{self.config.vocab_size - 1} "
                f"(vocab_size={self.config.vocab_size}); "
                f"got {int(low)}..{int(high)}. Encode the text with the tokenizer this model was "
                f"trained with."
            )
        past = cache.get_seq_length() if cache is not None else 0
        if past + input_ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"the context holds at most {self.config.max_position_embeddings} positions "
                f"(max_position_embeddings); got {past + input_ids.shape[1]}. Shorten the text."
            )

    def _init_weights(self, module: nn.Module) -> None:
        initialise(module, self.config)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Give `generate` a cache that also keeps the memory's history."""
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("cache")
        if cache is None or isinstance(cache, EngramCache):
            return
        if type(cache) is not DynamicCache:
            raise ValueError(
                f"EngramLM generates with a dynamic cache; got {type(cache).__name__}. "
                "Leave cache_implementation unset."
            )
        model_kwargs["cache"] = EngramCache(self.config)


# What `transformers` hands to every model's forward; no meaning here.
_IGNORED = frozenset(
    {"return_dict", "output_attentions", "next_sequence_length", "is_first_iteration"}
)


AutoConfig.register("engram_lm", EngramLMConfig, exist_ok=True)
AutoModelForCausalLM.register(EngramLMConfig, EngramLM, exist_ok=True)
