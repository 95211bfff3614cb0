"""Configs of the language model: `EngramLMConfig` (a `transformers` config) and `MoEConfig`."""

import copy
from dataclasses import dataclass, fields
from typing import Any, Literal, no_type_check

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from engram_lab.configs import check_keys, from_dict, to_dict
from engram_lab.memory.config import EngramConfig

Score = Literal["softmax", "sigmoid", "sqrtsoftplus"]
SCORES = ("softmax", "sigmoid", "sqrtsoftplus")


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Shape of the expert layers: a shared expert, and routed ones of which `topk` see a token.

    Attributes:
        n_routed_experts: experts the router chooses from.
        topk: experts that see one token.
        expert_width: inner width of one routed SwiGLU expert.
        shared_width: inner width of the shared expert; 0 for none.
        score: function from router logits to scores.
        norm_topk: whether the chosen scores are divided by their sum.
        route_scale: factor on the routing weights.
        bias_update_rate: step of the loss-free balancing bias after each optimiser step; 0 switches
            it off.
        sequence_loss: coefficient of the sequence-wise balance loss; 0 switches it off.
        first_dense_layers: blocks at the bottom with a dense feed-forward instead.
        clamp: limit on the expert's inner values before the product (V4.1 uses 10); None for no
            limit.

    Source: DeepSeekMoE; DeepSeek-V4.1-Flash inference/model.py; arXiv:2408.15664 (bias balancing).
    """

    n_routed_experts: int = 32
    topk: int = 2
    expert_width: int = 64
    shared_width: int = 128
    score: Score = "sigmoid"
    norm_topk: bool = True
    route_scale: float = 1.0
    bias_update_rate: float = 0.001
    sequence_loss: float = 0.0
    first_dense_layers: int = 0
    clamp: float | None = None

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ValueError(
                f"MoEConfig.score must be one of {', '.join(SCORES)}; got {self.score!r}"
            )
        if self.topk < 1 or self.n_routed_experts < self.topk:
            raise ValueError(
                f"MoEConfig.topk must lie in 1..n_routed_experts ({self.n_routed_experts}); got "
                f"{self.topk}. "
                "Lower topk or keep more experts."
            )
        for name in (
            "expert_width",
            "shared_width",
            "bias_update_rate",
            "sequence_loss",
            "first_dense_layers",
        ):
            least = 1 if name == "expert_width" else 0
            if getattr(self, name) < least:
                raise ValueError(
                    f"MoEConfig.{name} must be at least {least}; got {getattr(self, name)}"
                )
        if self.clamp is not None and self.clamp <= 0:
            raise ValueError(f"MoEConfig.clamp must be positive or None; got {self.clamp}")


# What `transformers` itself writes into config.json or hands to a config beside our own fields.
_FOREIGN_KEYS = frozenset(
    {
        "_name_or_path",
        "attn_implementation",
        "auto_map",
        "experts_implementation",
        "model_type",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "quantization_config",
        "torch_dtype",
    }
)


# `transformers` checks the fields itself; a second checker would break its keyword handling
@no_type_check
@strict
class EngramLMConfig(PreTrainedConfig):
    """Shape of an `EngramLM`: a pre-norm decoder whose blocks may read a memory or hold experts.

    Attributes:
        vocab_size: tokenizer ids, added tokens included.
        hidden_size: width of the residual stream.
        num_hidden_layers: blocks.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads shared by groups of query heads; None for as many.
        intermediate_size: inner width of a dense SwiGLU (blocks without experts).
        max_position_embeddings: longest context.
        rope_theta: base of the rotary frequencies.
        rms_norm_eps: epsilon of every RMSNorm outside the memory.
        initializer_range: standard deviation of the initial weights; matrices that write into the
            residual stream are scaled down by sqrt(2 * num_hidden_layers).
        engram: the memory, or None.
        moe: the expert layers, or None for dense blocks.
        hc_mult: residual branches; this model has 1.
        canonical_vocab_size: ids after vocabulary compression; None when ids are hashed raw. This
            and the next three are filled in from the token map when a model is built with one.
        canonical_pad_id: image of `pad_token_id`, the fill of missing history.
        canonical_eos_id: image of `eos_token_id`, where `reset="eos"` cuts.
        token_map_sha256: checksum of the token map that trained the memory; compared on load.

    Raises:
        ValueError: if a key is unknown (the nearest known one is named) or a size breaks a rule.
    """

    model_type = "engram_lm"
    keys_to_ignore_at_inference = ["cache"]

    vocab_size: int = 4096
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    intermediate_size: int = 256
    max_position_embeddings: int = 2048
    rope_theta: float | int = 10_000.0
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    engram: EngramConfig | dict | None = None
    moe: MoEConfig | dict | None = None
    hc_mult: int = 1
    canonical_vocab_size: int | None = None
    canonical_pad_id: int | None = None
    canonical_eos_id: int | None = None
    token_map_sha256: str | None = None
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill derived defaults, restore nested configs from JSON and check every rule."""
        known = [field.name for field in fields(self)]
        strangers = {k: v for k, v in kwargs.items() if k not in _FOREIGN_KEYS}
        check_keys("EngramLMConfig", strangers, known)
        if isinstance(self.engram, dict):
            self.engram = from_dict(EngramConfig, self.engram)
        if isinstance(self.moe, dict):
            self.moe = from_dict(MoEConfig, self.moe)
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        super().__post_init__(**kwargs)
        self._check_rules()

    def _check_rules(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"EngramLMConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                "EngramLMConfig.hidden_size must be a multiple of twice num_attention_heads "
                f"({self.num_attention_heads}), since rotary positions turn pairs; got "
                f"{self.hidden_size}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"EngramLMConfig.num_key_value_heads must divide num_attention_heads "
                f"({self.num_attention_heads}); got {self.num_key_value_heads}"
            )
        if self.hc_mult != 1:
            raise ValueError(
                f"EngramLMConfig.hc_mult must be 1 (one residual branch); got {self.hc_mult}. "
                "The Engram module alone takes 2 or 4 branches."
            )
        if self.engram and max(self.engram.layer_ids) >= self.num_hidden_layers:
            raise ValueError(
                f"EngramLMConfig.engram.layer_ids must lie in 0..{self.num_hidden_layers - 1} "
                f"(num_hidden_layers={self.num_hidden_layers}); got {self.engram.layer_ids}"
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def hashed_vocab_size(self) -> int:
        """Ids the memory hashes: canonical ids, or raw ids where nothing is compressed."""
        return self.canonical_vocab_size or self.vocab_size

    @property
    def fill_id(self) -> int:
        """Hashed id that stands for missing history: the image of pad, or of eos (`fill="eos"`)."""
        if self.engram is not None and self.engram.fill == "eos":
            return self.hashed_eos_id
        return (
            self.canonical_pad_id if self.canonical_pad_id is not None else self.pad_token_id or 0
        )

    @property
    def hashed_eos_id(self) -> int:
        """Hashed id of the end-of-sequence token."""
        return (
            self.canonical_eos_id if self.canonical_eos_id is not None else self.eos_token_id or 0
        )

    def has_experts(self, layer: int) -> bool:
        """Whether block `layer` (from 0) holds routed experts."""
        return self.moe is not None and layer >= self.moe.first_dense_layers

    def replace(self, **changes: Any) -> "EngramLMConfig":
        """Copy with other values; configs are copied, never changed in place."""
        return EngramLMConfig(**{**self._own_fields(), **changes})

    def canonical_dict(self) -> dict[str, Any]:
        """The fields that define the model, without what `transformers` adds."""
        return self._own_fields()

    @classmethod
    def canonical_defaults(cls) -> dict[str, Any]:
        """Default of every field of `canonical_dict`."""
        return {name: getattr(cls, name) for name in EngramLMConfig.__annotations__}

    @classmethod
    def from_canonical_dict(cls, values: dict[str, Any]) -> "EngramLMConfig":
        """Config from the plain dict that `configs.to_dict` writes."""
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain dict for config.json; nested configs become dicts."""
        shallow = copy.copy(self)
        for name in ("engram", "moe"):
            value = getattr(self, name)
            shallow.__dict__[name] = (
                to_dict(value) if value is not None and not isinstance(value, dict) else value
            )
        return super(EngramLMConfig, shallow).to_dict()

    def _own_fields(self) -> dict[str, Any]:
        own = EngramLMConfig.__annotations__
        return {name: copy.copy(getattr(self, name)) for name in own}
