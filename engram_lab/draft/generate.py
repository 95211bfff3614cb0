"""`speculative_generate`: decode with drafts, for batches whose sequences advance unequally.

Invariants: the target's cache and the drafter's context hold the tokens before the anchor, never a
rejected one; greedy output is that of plain greedy decoding; sampled output has the target's law.
"""

import inspect
import time
from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from engram_lab.draft.generation_config import GenerationConfig, LengthRule, check_generation
from engram_lab.draft.proposer import Committed, Proposer
from engram_lab.draft.rounds import Generation, Round
from engram_lab.draft.sampling import Noise, draw
from engram_lab.draft.target import Target
from engram_lab.draft.target_cache import TargetCache
from engram_lab.draft.verify import Acceptance, Proposal, verify, verify_greedy


def speculative_generate(
    target: Target,
    drafter: Proposer | None,
    prompts: Sequence[Int64[Tensor, "_"]] | Int64[Tensor, "batch seq"],
    config: GenerationConfig | None = None,
    *,
    schedule: LengthRule | None = None,
) -> Generation:
    """Decode prompts with drafts; without a drafter, one token a round.

    Args:
        target: the model whose distribution the output has.
        drafter: any drafter; None for plain decoding with the same caches and draws.
        prompts: token ids, of equal length or not.
        config: how.
        schedule: chooses how many drafts to verify from the confidences alone; it must be causal,
            as the rules of `draft.schedule` say of themselves. None verifies all.

    Returns:
        The new tokens, and what happened in every round.

    Raises:
        ValueError: if a prompt is empty or fills the context, the drafter reads other blocks than
            the target shows, or a schedule is not causal, was calibrated at another temperature or
            has no drafter or no confidences to go by.

    Source: DSpark paper, section 2.1; DeepSpec deepspec/eval/base_evaluator.py.
    """
    config = config or GenerationConfig()
    rows = [torch.as_tensor(prompt, dtype=torch.int64).to(target.device) for prompt in prompts]
    check_generation(target, drafter, rows, config, schedule)
    decoding = _Decoding(target, drafter, rows, config, schedule)
    with target.settled():
        decoding.prefill()
        while decoding.active:
            decoding.round()
    return decoding.finished()


class _Decoding:
    """One generation in progress."""

    def __init__(
        self,
        target: Target,
        drafter: Proposer | None,
        prompts: list[Tensor],
        config: GenerationConfig,
        schedule: LengthRule | None,
    ):
        self.target, self.drafter, self.config, self.schedule = target, drafter, config, schedule
        self.prompts = prompts
        self.new: list[list[int]] = [[] for _ in prompts]
        self.active = list(range(len(prompts)))
        self.noise = Noise(len(prompts), config.seed)
        self.length = 0
        if drafter is not None:
            self.length = drafter.block_size if config.length is None else config.length
        rewind = max(config.prefill_chunk, self.length + 1)
        self.cache: TargetCache = target.start(len(prompts), rewind=rewind)
        self.state = None if drafter is None else drafter.begin(len(prompts))
        self.stops = frozenset(config.stop_ids)
        self.rounds: list[Round] = []
        self.named = schedule is not None and "requests" in inspect.signature(schedule).parameters
        if hasattr(schedule, "reset"):
            schedule.reset()  # what a rule remembers of another generation is not of these prompts
        self.started = time.perf_counter()
        self.prefill_seconds = 0.0

    def prefill(self) -> None:
        """Read the prompts, draw the first tokens."""
        lengths = torch.tensor([len(prompt) for prompt in self.prompts])
        ids = torch.nn.utils.rnn.pad_sequence(self.prompts, batch_first=True)
        passes, last = [], None
        for start in range(0, ids.shape[1], self.config.prefill_chunk):
            chunk = ids[:, start : start + self.config.prefill_chunk]
            counts = (lengths - start).clamp(0, chunk.shape[1])
            found = self.target.forward(chunk, self.cache)
            self.cache.keep(counts)
            newest = _row(found.logits, (counts - 1).clamp_min(0))
            ended = (counts > 0).to(newest.device)[:, None]
            last = newest if last is None else torch.where(ended, newest, last)
            passes.append((found.features, found.final))
        uniform = self.noise.uniform("correct", 1)[:, 0].to(ids.device)
        anchor = draw(self.config.sampling.probs(last), uniform)
        features = None if passes[0][0] is None else torch.cat([p[0] for p in passes], dim=1)
        final = torch.cat([p[1] for p in passes], dim=1)
        self.prefill_seconds = time.perf_counter() - self.started
        self._commit(ids, lengths, features, final, anchor)
        self._emit([[token] for token in anchor.tolist()])

    def round(self) -> None:
        """Draft, verify, commit."""
        begun = time.perf_counter()
        proposal = self._propose()
        drafted = time.perf_counter()
        ids = torch.cat([self.anchor[:, None], proposal.tokens], dim=1)
        found = self.target.forward(ids, self.cache)
        acceptance = self._verify(found.logits, proposal)
        accepted = acceptance.accepted.cpu()
        self.cache.keep(accepted + 1)
        verified = time.perf_counter()
        emitted, stopped = self._tokens(proposal, acceptance)
        self.rounds.append(
            Round(
                sequences=list(self.active),
                proposal=proposal,
                accepted=accepted,
                emitted=[len(tokens) for tokens in emitted],
                stopped=stopped,
                expected=acceptance.expected,
                draft_seconds=drafted - begun,
                verify_seconds=verified - drafted,
            )
        )
        self._commit(ids, accepted + 1, found.features, found.final, acceptance.next_token)
        self._emit(emitted)

    def finished(self) -> Generation:
        """What came of it."""
        limit = self.config.max_new_tokens
        return Generation(
            token_ids=[torch.tensor(tokens[:limit]) for tokens in self.new],
            rounds=self.rounds,
            block_size=self.length,
            seconds=time.perf_counter() - self.started,
            prefill_seconds=self.prefill_seconds,
        )

    def _propose(self) -> Proposal:
        length = self.length
        if self.target.context is not None:  # the anchor and the drafts must fit
            length = min(length, self.target.context - self.cache.total - 1)
        room = self._room()
        if self.drafter is None or length < 1 or max(room) < 1:
            return Proposal(tokens=self.anchor.new_zeros(len(self.active), 0))
        proposal = self.drafter.propose(self.state, length, self.config.sampling, self.noise)
        drafted = proposal.tokens.shape[1]
        if min(room) < drafted:
            room = torch.tensor(room, device=self.anchor.device)
            proposal = proposal.cut(room.clamp_max(drafted))
        if self.schedule is None:
            return proposal
        if proposal.confidence is None:
            raise ValueError(
                f"a schedule goes by confidences, and {type(self.drafter).__name__} gives none; "
                "use a drafter with a confidence head, or config.length for a fixed length"
            )
        who = {"requests": self.active} if self.named else {}
        lengths = self.schedule(torch.sigmoid(proposal.confidence.float()), **who)
        return proposal.cut(torch.as_tensor(lengths, device=self.anchor.device))

    def _room(self) -> list[int]:
        """Most drafts worth verifying of every sequence: one token comes behind them."""
        if self.config.whole_blocks:
            return [self.length] * len(self.active)
        limit = self.config.max_new_tokens - 1
        return [min(self.length, limit - len(self.new[i])) for i in self.active]

    def _verify(self, logits: Tensor, proposal: Proposal) -> Acceptance:
        if self.config.sampling.greedy and proposal.probs is None:
            return verify_greedy(logits, proposal)
        return verify(self.config.sampling.probs(logits), proposal, noise=self.noise)

    def _tokens(
        self, proposal: Proposal, acceptance: Acceptance
    ) -> tuple[list[list[int]], list[bool]]:
        """Tokens each sequence gains, cut behind a stop token, and whether a draft was one."""
        accepted, ends = acceptance.accepted.tolist(), acceptance.next_token.tolist()
        emitted, stopped = [], []
        for drafts, count, end in zip(proposal.tokens.tolist(), accepted, ends, strict=True):
            kept = drafts[:count]
            at = next((i for i, token in enumerate(kept) if token in self.stops), None)
            emitted.append([*kept, end] if at is None else kept[: at + 1])
            stopped.append(at is not None)
        return emitted, stopped

    def _commit(
        self, ids: Tensor, counts: Tensor, features: Tensor | None, final: Tensor, anchor: Tensor
    ) -> None:
        self.anchor = anchor
        if self.drafter is None:
            return
        committed = Committed(
            token_ids=ids, counts=counts, features=features, final=final, anchor=anchor
        )
        self.drafter.absorb(self.state, committed)

    def _emit(self, emitted: list[list[int]]) -> None:
        """Append tokens, and let go of sequences that are done."""
        going = []
        for index, (sequence, tokens) in enumerate(zip(self.active, emitted, strict=True)):
            self.new[sequence] += tokens
            full = len(self.new[sequence]) >= self.config.max_new_tokens
            room = (
                self.target.context is None or int(self.cache.lengths[index]) < self.target.context
            )
            if room and not full and tokens[-1] not in self.stops:
                going.append(index)
        if len(going) == len(self.active):
            return
        self.active = [self.active[index] for index in going]
        if not going:
            return
        self.cache.select(going)
        self.noise.select(going)
        self.anchor = self.anchor[going]
        if self.drafter is not None:
            self.drafter.select(self.state, going)


def _row(values: Tensor, index: Tensor) -> Tensor:
    return values[torch.arange(len(values), device=values.device), index.to(values.device)]
