"""A sequential head that reads memory rows: what a table says of the n-gram before every slot.

The address of a slot needs the token before it, so of all parts of a block drafter only the
sequential head can read a table. Rows hang on token ids alone, so any model's table will do.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter, DraftState
from engram_lab.draft.heads import MarkovHead
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from engram_lab.memory.history import MemoryContext
from engram_lab.memory.state import MemoryState
from engram_lab.model.modeling import EngramLM


class MemoryRows:
    """The frozen rows of all memories of a model, read by token ids.

    Rows are divided by the root mean square of their table, so that a head starts alike however
    far the table was trained. The model is not touched, and nothing here is a parameter.

    Attributes:
        vocab_size: ids the model knows.
        width: numbers read at one position, all memories together.
        reads: rows read at one position.
        position_bytes: bytes of these rows as they are stored.
    """

    def __init__(self, model: EngramLM):
        """Look at a model's tables.

        Args:
            model: one with a memory.

        Raises:
            ValueError: if it has none.
        """
        self._memories = list(model.memories.values()) if isinstance(model, EngramLM) else []
        if not self._memories:
            raise ValueError(
                f"rows are read from an EngramLM with a memory; {type(model).__name__} has none. "
                "Build it with EngramLMConfig(engram=EngramConfig(...))."
            )
        self._model = model
        config = model.config.engram
        self.vocab_size: int = model.config.vocab_size
        self.width = len(self._memories) * config.mem_width
        self.reads = len(self._memories) * config.table_count
        size = torch.finfo(getattr(torch, config.row_dtype)).bits // 8
        self.position_bytes = self.width * size
        self._scales = [1 / _root_mean_square(memory.table.weight) for memory in self._memories]

    def start(self) -> MemoryState:
        """What a decoding remembers of its tokens; nothing yet."""
        return MemoryState(self._model.config.engram, rewind=0)

    def append(
        self, state: MemoryState, token_ids: Int64[Tensor, "batch seq"]
    ) -> Int64[Tensor, "batch seq address"]:
        """Put tokens behind every sequence of a decoding.

        Args:
            state: of this decoding; extended in place.
            token_ids: as many for every sequence; `state.crop` takes back what is not wanted.

        Returns:
            Addresses of the n-grams that end at these tokens.
        """
        canonical = self._canonical(token_ids)
        state.extend(canonical)
        found = [memory.hash.addresses(canonical, state=state) for memory in self._memories]
        return torch.cat(found, dim=-1)

    def addresses(
        self,
        token_ids: Int64[Tensor, "batch seq"],
        document_ids: Int64[Tensor, "batch seq"] | None = None,
    ) -> Int64[Tensor, "batch seq address"]:
        """Addresses of the n-grams that end at every token of whole texts.

        Args:
            token_ids: the texts.
            document_ids: packed documents; None where each row is one.
        """
        canonical, context = self._canonical(token_ids), MemoryContext(document_ids=document_ids)
        found = [memory.hash.addresses(canonical, context=context) for memory in self._memories]
        return torch.cat(found, dim=-1)

    @torch.no_grad()
    def read(self, addresses: Int64[Tensor, "*rest address"]) -> Float[Tensor, "*rest width"]:
        """Rows at addresses, one memory's behind the other's, without a gradient.

        Args:
            addresses: of `append` or `addresses`.
        """
        parts = addresses.flatten(0, -2)[None].chunk(len(self._memories), dim=-1)
        rows = [
            scale * memory.table(part).float().flatten(2)[0]
            for memory, part, scale in zip(self._memories, parts, self._scales, strict=True)
        ]
        return torch.cat(rows, dim=-1).view(*addresses.shape[:-1], self.width)

    def _canonical(self, token_ids: Tensor) -> Tensor:
        model = self._model
        return model.token_map[token_ids] if hasattr(model, "token_map") else token_ids


class MemoryMarkovHead(MarkovHead):
    """Bias of a slot by the token before it and the rows of the n-gram that ends there.

    The latent is `W1[previous] + Wm rows`. Where a plain head is given a token, this one is given
    the token and, behind it, the addresses of its rows.
    """

    def __init__(self, config: DraftConfig, rows: MemoryRows):
        """A fresh head, which leaves the base logits alone as a plain one does.

        Args:
            config: shape of the drafter; a vanilla head.
            rows: what is read; no part of the head's parameters.

        Raises:
            ValueError: if the head is of another kind or of rank 0.
        """
        if config.markov_head_type != "vanilla" or not config.markov_rank:
            raise ValueError(
                "a head that reads rows needs markov_head_type='vanilla' and markov_rank of at "
                f"least 1; got {config.markov_head_type!r} and {config.markov_rank}"
            )
        super().__init__(config)
        self.rows = rows
        self.memory_proj = nn.Linear(rows.width, self.rank, bias=False)
        nn.init.normal_(self.memory_proj.weight, std=(rows.width * self.rank) ** -0.5)

    def embed(self, previous: Int64[Tensor, "*rest read"]) -> Float[Tensor, "*rest rank"]:
        """The latent; the confidence head reads it as well."""
        rows = self.rows.read(previous[..., 1:]).to(self.memory_proj.weight.dtype)
        return self.markov_w1(previous[..., 0]) + self.memory_proj(rows)

    def step(
        self,
        previous: Int64[Tensor, "*rest read"],
        hidden: Float[Tensor, "*rest hidden"],
        state: None,
    ) -> tuple[Float[Tensor, "*rest vocab"], None]:
        """Bias of one slot; there is no state to carry."""
        return self(previous, hidden), None

    def forward(
        self, previous: Int64[Tensor, "*rest read"], hidden: Float[Tensor, "*rest hidden"]
    ) -> Float[Tensor, "*rest vocab"]:
        """Biases behind known tokens."""
        return self.markov_w2(self.embed(previous))


@dataclass(eq=False)
class MemoryDraftState(DraftState):
    """What a drafter with rows remembers: also the tokens, for the addresses of the next ones."""

    memory: MemoryState | None = None


class MemoryDrafter(Drafter):
    """A DSpark drafter whose sequential head reads the rows of the tokens it has drafted.

    All other parameters start as those of a `Drafter` of the same seed.
    """

    def __init__(self, config: DraftConfig, target: Target, rows: MemoryRows):
        """A fresh drafter.

        Args:
            config: its shape; a vanilla sequential head.
            target: the model it drafts for.
            rows: the table it reads, of the target or of any model with the same tokens.

        Raises:
            ValueError: as `Drafter` and `MemoryMarkovHead`, or if the table knows other tokens.
        """
        super().__init__(config, target)
        if rows.vocab_size != config.vocab_size:
            raise ValueError(
                f"rows and drafter must share a vocabulary; the table's model knows "
                f"{rows.vocab_size} ids, the drafter {config.vocab_size}"
            )
        plain, self.markov_head = self.markov_head, MemoryMarkovHead(config, rows)
        self.markov_head.load_state_dict(plain.state_dict(), strict=False)
        self.rows = rows

    def begin(self, batch: int) -> MemoryDraftState:
        """State of a fresh batch."""
        return MemoryDraftState(context=super().begin(batch).context, memory=self.rows.start())

    @torch.no_grad()
    def absorb(self, state: MemoryDraftState, committed: Committed) -> None:
        """Take over the target's new states, and the tokens they belong to."""
        super().absorb(state, committed)
        self.rows.append(state.memory, committed.token_ids)
        state.memory.crop(state.context.lengths)

    @torch.no_grad()
    def propose(
        self, state: MemoryDraftState, length: int, sampling: Sampling, noise: Noise
    ) -> Proposal:
        """Draft `length` tokens, and forget them again until they are accepted.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        try:
            return super().propose(state, length, sampling, noise)
        finally:
            state.memory.crop(state.context.lengths)

    def select(self, state: MemoryDraftState, rows: list[int]) -> None:
        """Keep only these sequences."""
        super().select(state, rows)
        state.memory.select(torch.tensor(rows, dtype=torch.int64))

    def _known(self, token_ids: Tensor, ahead: Tensor, document_ids: Tensor | None) -> Tensor:
        """Tokens and the addresses of their rows."""
        read = torch.cat([token_ids[..., None], self.rows.addresses(token_ids, document_ids)], -1)
        batch = torch.arange(len(ahead), device=ahead.device)[:, None, None]
        return read[batch, ahead]

    def _seen(self, state: MemoryDraftState, previous: Tensor) -> Tensor:
        """The token, remembered, and the addresses of its rows."""
        addresses = self.rows.append(state.memory, previous[:, None])[:, 0]
        return torch.cat([previous[:, None], addresses], dim=-1)


def _root_mean_square(weight: Tensor) -> float:
    norm = torch.linalg.vector_norm(weight.detach(), dtype=torch.float32)
    return max(float(norm) / weight.numel() ** 0.5, 1e-12)
