"""Engram: the memory of one block: look up, gate, convolve."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.hooks import HookPoint
from engram_lab.memory.config import EngramConfig
from engram_lab.memory.conv import rms_norm, short_conv
from engram_lab.memory.fused import UpdateRule, fused_update
from engram_lab.memory.gate import context_gate
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import History, MemoryContext, segment_numbers
from engram_lab.memory.state import MemoryState
from engram_lab.memory.table import MemoryTable


class Engram(nn.Module):
    """Memory of one block.

    The keys of all branches and the one value they share come out of a single matrix: rows `branch
    * hidden` to `(branch + 1) * hidden - 1` are the key of a branch, the last `hidden` rows are the
    value.

    Attributes:
        hash: canonical ids to addresses.
        table: addresses to rows.
        projection: memory to keys and value.
        query_gain: gain of the stream's norm inside the gate, `[branch, hidden]`; `key_gain`
            likewise.
        conv_gain: gain of the norm before the convolution; absent without one, as is `conv_weight`.
        conv_weight: taps, `[branch, hidden, kernel]`; the last one is the position itself.
    """

    def __init__(
        self,
        config: EngramConfig,
        layer_id: int,
        *,
        hidden_size: int,
        hc_mult: int = 1,
        canonical_vocab_size: int,
        fill_id: int,
        eos_id: int | None = None,
    ):
        """Memory of block `layer_id`.

        Args:
            hidden_size: width of one residual branch.
            hc_mult: residual branches.
            canonical_vocab_size: ids that may come in.
            fill_id: canonical id where a window has no token.
            eos_id: canonical id that ends a window, for the `eos` rules.

        Raises:
            ValueError: if `layer_id` has no memory in `config`, or an id lies outside the
                vocabulary.
        """
        super().__init__()
        self.config, self.layer_id = config, layer_id
        self.hidden_size, self.hc_mult = hidden_size, hc_mult
        self.hash = NgramHash(
            config,
            layer_id,
            canonical_vocab_size=canonical_vocab_size,
            fill_id=fill_id,
            eos_id=eos_id,
        )
        self.table = MemoryTable(config, layer_id)
        self.projection = nn.Linear(config.mem_width, (hc_mult + 1) * hidden_size, bias=config.bias)
        self.query_gain = nn.Parameter(torch.empty(hc_mult, hidden_size))
        self.key_gain = nn.Parameter(torch.empty(hc_mult, hidden_size))
        if config.conv:
            self.conv_gain = nn.Parameter(torch.empty(hc_mult, hidden_size))
            self.conv_weight = nn.Parameter(torch.empty(hc_mult, hidden_size, config.kernel_size))
        self.hook_addresses = HookPoint()  # batch seq table
        self.hook_rows = HookPoint()  # batch seq table row
        self.hook_key = HookPoint()  # batch seq branch hidden
        self.hook_gate = HookPoint()  # batch seq branch
        self.hook_value = HookPoint()  # batch seq hidden, before the gate
        self.hook_out = HookPoint()  # batch seq branch hidden
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all parameters; the convolution starts at 0, so it adds nothing at first."""
        self.table.reset_parameters()
        if self.projection.weight.is_meta:
            return
        nn.init.normal_(self.projection.weight, std=self.config.init_std)
        if self.config.bias:
            nn.init.zeros_(self.projection.bias)
        if self.config.zero_value_init:
            nn.init.zeros_(self.projection.weight[-self.hidden_size :])
        one = 0.0 if self.config.zero_centred_gain else 1.0
        nn.init.constant_(self.query_gain, one)
        nn.init.constant_(self.key_gain, one)
        if self.config.conv:
            nn.init.constant_(self.conv_gain, one)
            nn.init.zeros_(self.conv_weight)

    def reset_buffers(self) -> None:
        """Write all constants that follow from the config, after a build on the meta device."""
        self.hash.reset_buffers()
        self.table.reset_buffers()

    def check_constants(self) -> None:
        """Compare the constants with the rule, after a checkpoint was loaded.

        Raises:
            ValueError: if they are not those of the config and the vocabulary size.
        """
        self.hash.check_constants()
        self.table.check_constants()

    def forward(
        self,
        hidden: Float[Tensor, "batch seq branch hidden"],
        canonical_ids: Int64[Tensor, "batch seq"],
        *,
        context: MemoryContext | None = None,
        state: MemoryState | None = None,
    ) -> Float[Tensor, "batch seq branch hidden"]:
        """The update this memory adds to the residual stream; the caller adds it.

        Args:
            hidden: residual stream before this block's attention.
            canonical_ids: ids of the same positions; the model compresses them once for all layers.
            context: documents, mask and rows at hand of these positions.
            state: what decoding remembers, already extended by these positions.

        Raises:
            ValueError: if shapes do not fit the module, an id is outside the vocabulary, or the
                state lags behind.
        """
        if hidden.shape[2:] != (self.hc_mult, self.hidden_size):
            raise ValueError(
                f"hidden must end in [branch, hidden] = {(self.hc_mult, self.hidden_size)}; "
                f"got {tuple(hidden.shape)}"
            )
        reach = self.config.reach
        history = self.hash.history(canonical_ids, reach, context=context, state=state)
        rows = self._read(history, context)
        memory = rearrange(rows, "batch seq table row -> batch seq (table row)")
        if state is None and self._may_fuse(hidden, memory):
            update = self._fused_update(hidden, memory, history)
        else:
            update = self._update(hidden, memory, history, state)
        return self.hook_out(update)

    def _read(self, history: History, context: MemoryContext | None) -> Tensor:
        """Rows of the chunk, in the dtype of the projection."""
        at_hand = context.rows.get(self.layer_id) if context is not None and context.rows else None
        if at_hand is None:
            addresses = self.hash.addresses_of(history)
            if self.config.addresses == "neighbour":
                addresses = _of_neighbour(addresses)
            at_hand = self.table(self.hook_addresses(addresses))
        return self.hook_rows(at_hand.to(self.projection.weight.dtype))

    def _may_fuse(self, hidden: Tensor, memory: Tensor) -> bool:
        """Whether nobody watches the values in between and the numbers are wide enough."""
        watched = self.hook_key.watched or self.hook_gate.watched or self.hook_value.watched
        projection = self.projection  # the fused pass multiplies by its weight alone
        watched |= type(projection) is not nn.Linear or bool(projection._forward_hooks)
        wide = hidden.dtype == memory.dtype and hidden.dtype in (torch.float32, torch.float64)
        cast = torch.is_autocast_enabled(hidden.device.type)
        return wide and not watched and not cast and not torch.compiler.is_compiling()

    def _fused_update(self, hidden: Tensor, memory: Tensor, history: History) -> Tensor:
        """The same as `_update` for a full pass, in one autograd function."""
        config, taps, connected = self.config, None, None
        if config.conv:
            gain = self._gain(self.conv_gain)[..., None]
            taps = rearrange(
                self.conv_weight * gain, "branch hidden kernel -> kernel branch hidden"
            ).contiguous()
            connected = self._connected(history)
        rule = UpdateRule(
            transform=config.gate_transform,
            zero_rule=config.gate_zero_rule,
            eps=config.norm_eps,
            conv_eps=config.conv_norm_eps,
            dilation=config.max_ngram_size,
            silent=self._silent(history),
            mute=config.padding == "dead",
            connected=connected,
        )
        projection = (self.projection.weight, self.projection.bias)
        return fused_update(hidden, memory, projection, self._gate_gain(), taps, rule)

    def _connected(self, history: History) -> list[Tensor] | None:
        """Per tap before the last, whether it reads within the segment; None where all do."""
        segments = self._segments(history)
        if segments is None:
            return None
        chunk = history.chunk(segments)
        lags = range(self.config.conv_reach, 0, -self.config.max_ngram_size)
        return [chunk[:, lag:] == chunk[:, :-lag] for lag in lags]

    def _update(
        self, hidden: Tensor, memory: Tensor, history: History, state: MemoryState | None
    ) -> Tensor:
        """Gate, value and convolution, step by step."""
        keys, value = self.projection(memory).split(
            (self.hc_mult * self.hidden_size, self.hidden_size), dim=-1
        )
        key = rearrange(
            keys, "batch seq (branch hidden) -> batch seq branch hidden", branch=self.hc_mult
        )
        gate = context_gate(
            hidden,
            self.hook_key(key),
            gain=self._gate_gain(),
            transform=self.config.gate_transform,
            zero_rule=self.config.gate_zero_rule,
            eps=self.config.norm_eps,
        )
        silent, mute = self._silent(history), self.config.padding == "dead"
        if silent is not None and mute:
            gate = gate.masked_fill(silent[..., None], 0)
        gate = self.hook_gate(gate).to(value.dtype)
        update = gate[..., None] * self.hook_value(value)[..., None, :]
        if silent is not None:
            update = update.masked_fill(silent[..., None, None], 0)
        if self.config.conv:
            update = update + F.silu(self._convolve(update, history, state))
        if silent is not None and mute:
            update = update.masked_fill(silent[..., None, None], 0)
        return update.to(hidden.dtype)

    def _convolve(self, gated: Tensor, history: History, state: MemoryState | None) -> Tensor:
        """Convolution of the normalised gated values; the norm undoes the scale of the gate."""
        normed = rms_norm(gated, self._gain(self.conv_gain), eps=self.config.conv_norm_eps)
        if state is not None:
            window = state.tail_window(self.layer_id, normed)
        else:
            window = F.pad(normed, (0, 0, 0, 0, self.config.conv_reach, 0))
        segments = self._segments(history)
        if segments is not None:
            segments = segments[:, history.back - self.config.conv_reach :]
        return short_conv(
            window, self.conv_weight, dilation=self.config.max_ngram_size, segments=segments
        )

    def _segments(self, history: History) -> Tensor | None:
        """Segment numbers that the convolution respects; None where it respects none."""
        if not self.config.conv_reset:
            return None
        return segment_numbers(history, self.config, self.hash.prepared.special_ids)

    def _silent(self, history: History) -> Tensor | None:
        """Positions of the chunk that hand no value on; None where a mask is absent or ignored."""
        if history.live is None or self.config.padding == "hashed":
            return None
        return ~history.chunk(history.live)

    def _gain(self, gain: Tensor) -> Tensor:
        return gain + 1 if self.config.zero_centred_gain else gain

    def _gate_gain(self) -> Tensor:
        """Only the product of the two gains enters the gate."""
        return self._gain(self.query_gain) * self._gain(self.key_gain)


def _of_neighbour(addresses: Tensor) -> Tensor:
    """Addresses of the next sequence of the batch: all counts stay, the content does not fit."""
    if addresses.shape[0] < 2:
        raise ValueError(
            "EngramConfig.addresses='neighbour' needs at least 2 sequences in a batch; got "
            f"{addresses.shape[0]}. Evaluate in larger batches."
        )
    return addresses.roll(-1, dims=0)
