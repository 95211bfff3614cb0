"""Our drafters inside `model.generate` of `transformers`, as its generator of candidates.

`generate` has no public place for a generator of candidates: it makes one itself, of kinds that it
knows, in the model's private `_get_candidate_generator`. While a `DrafterCandidates` generates,
that method of the one model gives it out instead. What the library hands to a generator depends on
the model, so the target's states are read by hooks, as everywhere in this folder.

The library decodes one sequence at a time with candidates; `speculative_generate` takes batches.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers.generation.candidate_generator import CandidateGenerator

from engram_lab.draft.generate import LengthRule
from engram_lab.draft.proposer import Committed, Proposer
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target, tap_of, target_for
from engram_lab.draft.verify import Proposal
from engram_lab.model.cache import EngramCache
from engram_lab.model.modeling import EngramLM
from engram_lab.model.undisturbed import undisturbed

OURS = ("assistant_model", "custom_generate", "prompt_lookup_num_tokens", "use_mtp")
"""Arguments of `generate` that ask for other drafts."""


def generate_with(
    model: nn.Module,
    drafter: Proposer,
    input_ids: Int64[Tensor, "one seq"],
    *,
    schedule: LengthRule | None = None,
    **generate_kwargs: Any,
) -> Any:
    """What `model.generate(input_ids, ...)` returns, decoded with a drafter of ours.

    Greedy output is the same token for token; sampled output has the same law.

    Args:
        model: any causal language model of `transformers`, or ours.
        drafter: any drafter made for it.
        input_ids: one prompt.
        schedule: chooses from the confidences how many drafts to verify; must be causal.
        generate_kwargs: for `generate`, streamers and stopping criteria included.

    Raises:
        ValueError: if more than one sequence, padding, a cache with earlier text, other drafts or
            beam search is asked for, or a schedule is not causal.

    Example:
        >>> generate_with(model, drafter, ids, max_new_tokens=50, do_sample=False)  # doctest: +SKIP
    """
    target = target_for(model, drafter)
    candidates = DrafterCandidates(target, drafter, schedule=schedule)
    return candidates.generate(input_ids, **generate_kwargs)


class DrafterCandidates(CandidateGenerator):
    """A drafter as `generate` sees it, and the counts of its last generation.

    Drafts are drawn at the temperature and truncation of the generation config, and the logarithms
    of the very distributions they were drawn from are handed over; so the library's own speculative
    sampling leaves the target's law alone. Logits processors beyond these (penalties, bans) apply
    to the target only, which costs acceptance, never exactness.

    The whole prompt's logits are computed in prefill, since drafters may read the head's input at
    every position.

    Attributes:
        target: the model, read at the drafter's blocks.
        drafter: who drafts.
        schedule: chooses how many drafts are verified; None for all.
    """

    requires_model_outputs = True

    def __init__(
        self, target: Target, drafter: Proposer, *, schedule: LengthRule | None = None
    ) -> None:
        """Nothing is done to the model before `generate`.

        Raises:
            ValueError: if the drafter reads other blocks than the target shows, or a schedule is
                not causal.
        """
        if (drafter.layer_ids, tap_of(drafter)) != (target.layer_ids, target.tap):
            raise ValueError(
                f"the drafter reads the target's blocks {drafter.layer_ids} ({tap_of(drafter)}), "
                f"the target shows {target.layer_ids} ({target.tap}). Build it with "
                "target_for(model, drafter)."
            )
        if schedule is not None and not getattr(schedule, "causal", True):
            raise ValueError(
                f"{type(schedule).__name__} lets later drafts decide about earlier ones, which "
                "changes the output's distribution; use a causal rule, such as PrefixScheduler"
            )
        self.target, self.drafter, self.schedule = target, drafter, schedule
        known = inspect.signature(target.model.forward).parameters
        self.model_kwargs_overrides = {"logits_to_keep": 0} if "logits_to_keep" in known else {}
        self._seen: dict[Any, Tensor] = {}
        self._rounds: list[tuple[int, int]] = []

    def generate(self, input_ids: Int64[Tensor, "one seq"], **generate_kwargs: Any) -> Any:
        """What `model.generate` returns, decoded with these candidates.

        Args:
            input_ids: one prompt.
            generate_kwargs: for `generate`.

        Raises:
            ValueError: as for `generate_with`.
        """
        other = [name for name in OURS if generate_kwargs.get(name) is not None]
        if other or generate_kwargs.get("num_beams", 1) != 1:
            raise ValueError(
                "drafts come from the drafter and one beam is decoded; got "
                f"{', '.join(other) or 'num_beams'}. Leave it out, or call model.generate."
            )
        model = self.target.model
        if isinstance(model, EngramLM) and generate_kwargs.get("cache") is None:
            rewind = self.drafter.block_size + 1
            generate_kwargs["cache"] = EngramCache(model.config, rewind=max(16, rewind))
        with undisturbed(model), self._plugged():
            return model.generate(
                input_ids, prompt_lookup_num_tokens=self.drafter.block_size, **generate_kwargs
            )

    def get_candidates(
        self,
        input_ids: Int64[Tensor, "one seq"],
        model_kwargs: dict[str, Any] | None = None,
        model_outputs: Any = None,
        is_first_iteration: bool = False,
        n_last_matches: int = 0,
        **kwargs: Any,
    ) -> tuple[Int64[Tensor, "one longer"], Float[Tensor, "one block vocab"] | None]:
        """The text with drafts behind it, and their logits where they were sampled.

        Args:
            input_ids: the text; its last token is in no cache yet.
            model_kwargs: not looked at.
            model_outputs: not looked at; the hooks have seen more.
            is_first_iteration: whether the model has read nothing yet; then nothing is drafted.
            n_last_matches: drafts kept of the last round.
            kwargs: not looked at.
        """
        self._proposed = 0
        if is_first_iteration:
            return input_ids, None
        self._absorb(input_ids, int(n_last_matches))
        proposal = self._propose(input_ids.shape[1])
        if proposal is None or not proposal.tokens.shape[1]:
            return input_ids, None
        self._proposed = proposal.tokens.shape[1]
        drafted = torch.cat([input_ids, proposal.tokens.to(input_ids.device)], dim=1)
        return drafted, None if self._sampling.greedy else self._logits(proposal)

    def update_candidate_strategy(
        self, input_ids: Int64[Tensor, "one seq"], scores: Tensor, num_matches: int
    ) -> None:
        """Note how many drafts were kept.

        Args:
            input_ids: the text now.
            scores: the target's, not looked at.
            num_matches: drafts kept.
        """
        if self._begun:
            self._rounds.append((self._proposed, int(num_matches)))

    def frame(self) -> pd.DataFrame:
        """One row per round of the last generation; prefill is none.

        Returns:
            Columns `round proposed accepted emitted`. A stop token or the length limit cuts what
            the last round is said to have accepted.
        """
        rows = [
            {"round": index, "proposed": proposed, "accepted": kept, "emitted": kept + 1}
            for index, (proposed, kept) in enumerate(self._rounds)
        ]
        return pd.DataFrame(rows, columns=["round", "proposed", "accepted", "emitted"])

    @contextmanager
    def _plugged(self) -> Iterator[None]:
        """The model gives these candidates out, and its states are seen."""
        model = self.target.model
        with self.target.tapped() as self._seen:
            model._get_candidate_generator = self._begin
            try:
                yield
            finally:
                del model._get_candidate_generator
                self._seen = {}

    def _begin(self, **prepared: Any) -> "DrafterCandidates":
        """Start over, for what `generate` has prepared."""
        config, arguments = prepared["generation_config"], prepared["model_kwargs"]
        _check(prepared["input_ids"], arguments)
        self._sampling = _sampling(config)
        self._max_length = config.max_length
        self._noise = Noise(1, int(torch.randint(2**62, (1,))))  # follows torch.manual_seed
        self._state = self.drafter.begin(1)
        self._begun = False
        self._proposed = 0
        self._rounds = []
        if hasattr(self.schedule, "reset"):
            self.schedule.reset()  # what a rule remembers is of another text
        return self

    def _absorb(self, input_ids: Tensor, matches: int) -> None:
        """Tell the drafter what the last pass has read, as far as it was kept."""
        count = matches + 1 if self._begun else input_ids.shape[1] - 1
        self._begun = True
        features = [self._seen[layer][:, :count] for layer in self.target.layer_ids]
        committed = Committed(
            token_ids=input_ids[:, -count - 1 : -1],
            counts=torch.tensor([count]),
            features=torch.cat(features, dim=-1) if features else None,
            final=self._seen["final"][:, :count],
            anchor=input_ids[:, -1],
        )
        self.drafter.absorb(self._state, committed)

    def _propose(self, length: int) -> Proposal | None:
        """Drafts behind a text of `length` tokens; None where there is no room for any."""
        room = self._max_length - length - 1  # the pass adds a token of its own
        if self.target.context is not None:
            room = min(room, self.target.context - length)
        wanted = min(room, self.drafter.block_size)
        if wanted < 1:
            return None
        proposal = self.drafter.propose(self._state, wanted, self._sampling, self._noise)
        if self.schedule is None:
            return proposal if proposal.lengths is None else proposal.cut(proposal.lengths)
        if proposal.confidence is None:
            raise ValueError(
                f"a schedule goes by confidences, and {type(self.drafter).__name__} gives none; "
                "use a drafter with a confidence head, or no schedule"
            )
        lengths = self.schedule(torch.sigmoid(proposal.confidence.float()))
        return proposal.cut(torch.as_tensor(lengths, device=proposal.tokens.device))

    def _logits(self, proposal: Proposal) -> Tensor:
        """Logits whose softmax is the distribution each draft was drawn from."""
        if proposal.probs is not None:
            return proposal.probs.log()
        certain = torch.full((*proposal.tokens.shape, self.target.vocab_size), -torch.inf)
        return certain.to(proposal.tokens.device).scatter(-1, proposal.tokens[..., None], 0.0)


def _sampling(config: Any) -> Sampling:
    """Temperature and truncation of a generation config of `transformers`."""
    if not config.do_sample:
        return Sampling(temperature=0.0)
    return Sampling(
        temperature=1.0 if config.temperature is None else config.temperature,
        top_k=config.top_k or None,
        top_p=1.0 if config.top_p is None else config.top_p,
    )


def _check(input_ids: Tensor, arguments: dict[str, Any]) -> None:
    if len(input_ids) != 1:
        raise ValueError(
            f"generate decodes one sequence at a time with candidates; got {len(input_ids)}. "
            "speculative_generate takes batches."
        )
    mask = arguments.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise ValueError(
            f"a drafter counts positions from the first token; got {int((mask == 0).sum())} of "
            "padding. Cut it off: one prompt needs none."
        )
    cache = arguments.get("cache")
    if cache is not None and cache.get_seq_length():
        raise ValueError(
            "a drafter needs the target's states at every position; the cache already holds "
            f"{cache.get_seq_length()} whose states are gone. Start without a cache."
        )
