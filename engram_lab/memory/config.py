"""EngramConfig: shape and rules of one model's n-gram memory; the published rules as presets."""

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin

FLOAT32_EPS = 1.1920928955078125e-07
"""What `nn.RMSNorm` means by no epsilon, for float32 and for bfloat16 inputs alike."""


@dataclass(frozen=True, kw_only=True)
class EngramConfig:
    """Shape and rules of the n-gram memory of one model.

    Three kinds of memory are in use (the January demo, V4.1-Flash, Qwen's n-gram embedding). They
    differ in the switches below and in nothing else; `demo()`, `v41()` and `qwen()` set them.

    Attributes:
        layer_ids: blocks that read memory, counted from 0. Their order fixes the primes, their
            numbers the multipliers.
        max_ngram_size: longest suffix n-gram hashed; orders run from 2 to this.
        engram_vocab_size: rows wished per table, one number per order; each head takes the next
            unused prime.
        n_head_per_ngram: hash heads per order.
        n_embed_per_ngram: width read per order and token; a row is this divided by the heads.
        compress: whether the model folds its token ids to canonical ids before hashing.
        multiplier_rule: "pcg64" seeds NumPy's generator by layer number, "splitmix64" counts by
            position in `layer_ids`.
        make_ngram_vocab_size_divisible_by: the rows of a layer are padded to a multiple of this.
        fill: which token stands before the text, the canonical "pad" id or the "eos" id.
        reset: where a window starts anew: "none" (only where the sequence does), "segments" (at
            every document of the context), "eos" (after every eos token).
        padding: what a mask of 0 means. "dead": no window passes, no update. "hashed": the mask is
            ignored. "fill": the position is read as the fill token and hands no value on.
        conv: whether a short causal convolution follows the gate.
        conv_reset: whether the convolution, too, stops where `reset` starts a window anew.
        kernel_size: taps of the convolution; they lie `max_ngram_size` positions apart.
        bias: whether the key and value projections have a bias.
        gate_transform: "signed_sqrt" squashes the agreement before the sigmoid; "identity" is the
            paper's formula.
        gate_zero_rule: sign of the square root at agreement 0: "sign" gives gate 0.5, "copysign"
            follows the zero's sign.
        zero_centred_gain: norm gains are stored as w and used as 1 + w.
        norm_eps: epsilon of the two norms inside the gate.
        conv_norm_eps: epsilon of the norm before the convolution.
        seed: of the multipliers.
        sparse_grad: give the table a sparse gradient (rows read), not a dense one.
        row_dtype: storage of the rows; they are computed with in the dtype of the projections.
        init_std: standard deviation of the initial rows and projections.
        zero_value_init: start the value projection at 0, so that the module starts as the identity.
        addresses: "own", or "neighbour", a control in which each sequence reads what the next one
            in the batch addresses.

    Raises:
        ValueError: if a size or a switch breaks a rule.
    """

    layer_ids: tuple[int, ...]
    max_ngram_size: int = 3
    engram_vocab_size: tuple[int, ...] = (5_000, 5_000)
    n_head_per_ngram: int = 4
    n_embed_per_ngram: int = 64
    compress: bool = True
    multiplier_rule: Literal["pcg64", "splitmix64"] = "pcg64"
    make_ngram_vocab_size_divisible_by: int = 1
    fill: Literal["pad", "eos"] = "pad"
    reset: Literal["none", "segments", "eos"] = "segments"
    padding: Literal["dead", "hashed", "fill"] = "dead"
    conv: bool = True
    conv_reset: bool = True
    kernel_size: int = 4
    bias: bool = False
    gate_transform: Literal["signed_sqrt", "identity"] = "signed_sqrt"
    gate_zero_rule: Literal["sign", "copysign"] = "sign"
    zero_centred_gain: bool = False
    norm_eps: float = FLOAT32_EPS
    conv_norm_eps: float = 1e-5
    seed: int = 0
    sparse_grad: bool = True
    row_dtype: Literal["float32", "bfloat16"] = "float32"
    init_std: float = 0.02
    zero_value_init: bool = False
    addresses: Literal["own", "neighbour"] = "own"

    def __post_init__(self) -> None:
        """Check every rule."""
        self._check_choices()
        ids = self.layer_ids
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
            raise ValueError(
                f"EngramConfig.layer_ids needs distinct block numbers, counted from 0; got {ids}"
            )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(
                    f"EngramConfig.{name} must be at least {least}; got {getattr(self, name)}"
                )
        for name in ("norm_eps", "conv_norm_eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"EngramConfig.{name} must be above 0; got {getattr(self, name)}")
        if (
            len(self.engram_vocab_size) != self.max_ngram_size - 1
            or min(self.engram_vocab_size) < 1
        ):
            raise ValueError(
                "EngramConfig.engram_vocab_size needs one positive size per order "
                f"2..{self.max_ngram_size}; got {self.engram_vocab_size}"
            )
        if self.n_embed_per_ngram % self.n_head_per_ngram:
            raise ValueError(
                f"EngramConfig.n_embed_per_ngram must be a multiple of n_head_per_ngram "
                f"({self.n_head_per_ngram}); got {self.n_embed_per_ngram}"
            )

    def _check_choices(self) -> None:
        for field in fields(self):
            if get_origin(field.type) is Literal and getattr(self, field.name) not in get_args(
                field.type
            ):
                raise ValueError(
                    f"EngramConfig.{field.name} must be one of {get_args(field.type)}; "
                    f"got {getattr(self, field.name)!r}"
                )

    @property
    def table_count(self) -> int:
        """Tables per layer, and so rows read per token and layer: orders times heads."""
        return (self.max_ngram_size - 1) * self.n_head_per_ngram

    @property
    def row_width(self) -> int:
        """Numbers in one row of one table."""
        return self.n_embed_per_ngram // self.n_head_per_ngram

    @property
    def mem_width(self) -> int:
        """Numbers in the concatenated rows of one position."""
        return self.table_count * self.row_width

    @property
    def conv_reach(self) -> int:
        """Positions the convolution looks back; 0 without one."""
        return (self.kernel_size - 1) * self.max_ngram_size if self.conv else 0

    @property
    def reach(self) -> int:
        """Positions before a token that hashing or convolution may look at."""
        return max(self.max_ngram_size - 1, self.conv_reach)


_LEAST = {
    "max_ngram_size": 2,
    "n_head_per_ngram": 1,
    "n_embed_per_ngram": 1,
    "make_ngram_vocab_size_divisible_by": 1,
    "kernel_size": 1,
    "seed": 0,
    "init_std": 0,
}


def demo() -> EngramConfig:
    """The January demo at its default sizes: biases, convolution, nothing masked or reset.

    Source: deepseek-ai/Engram engram_demo_v1.py.
    """
    return EngramConfig(
        layer_ids=(1, 15),
        engram_vocab_size=(646_400, 646_400),
        n_head_per_ngram=8,
        n_embed_per_ngram=512,
        reset="none",
        padding="hashed",
        conv_reset=False,
        bias=True,
    )


def v41() -> EngramConfig:
    """DeepSeek-V4.1-Flash: 4-grams, no convolution, no bias, a mask that closes the gate.

    Its tables hold 393 GB in bfloat16; the layout alone costs nothing.

    Source: deepseek-ai/DeepSeek-V4.1-Flash config.json and inference/engram.py.
    """
    return EngramConfig(
        layer_ids=(1, 14),
        max_ngram_size=4,
        engram_vocab_size=(16_000_000,) * 3,
        n_head_per_ngram=8,
        n_embed_per_ngram=2048,
        conv=False,
        gate_zero_rule="copysign",
        norm_eps=1e-20,
        row_dtype="bfloat16",
    )


def qwen() -> EngramConfig:
    """Qwen3.8-Flash-Next's n-gram embedding: raw ids, SplitMix64, windows that end at eos.

    Source: huggingface/transformers models/qwen4_exp.
    """
    return EngramConfig(
        layer_ids=(1,),
        engram_vocab_size=(20_000_000, 20_000_000),
        n_head_per_ngram=8,
        n_embed_per_ngram=1280,
        compress=False,
        multiplier_rule="splitmix64",
        make_ngram_vocab_size_divisible_by=128,
        fill="eos",
        reset="eos",
        padding="fill",
        conv_reset=False,
        zero_centred_gain=True,
        norm_eps=1e-6,
        conv_norm_eps=1e-6,
        seed=1234,
        row_dtype="bfloat16",
    )
