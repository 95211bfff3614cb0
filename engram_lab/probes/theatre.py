"""What happens in every round of drafting, slot by slot, for one text and several drafters."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, LengthRule, speculative_generate
from engram_lab.draft.proposer import Committed, Proposer, pick
from engram_lab.draft.rounds import Generation, Round
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target, tap_of, target_for
from engram_lab.draft.verify import Proposal
from engram_lab.probes.gates import Encoder

OUTCOMES = ("accepted", "rejected", "discarded", "not verified", "correction", "bonus")
"""What becomes of a slot: of a draft, or of the target's own token behind the kept ones."""
COLUMNS = (
    "drafter",
    "round",
    "position",
    "outcome",
    "token",
    "token_text",
    "base_token",
    "base_text",
    "corrected",
    "confidence",
    "expected",
    "verified",
    "accepted",
    "emitted",
    "anchor",
    "anchor_text",
    "temperature",
    "prompt",
)


def theatre_frame(
    target: Target,
    drafters: Mapping[str, Proposer],
    text: str,
    tokenizer: Encoder,
    *,
    config: GenerationConfig | None = None,
    schedule: LengthRule | None = None,
) -> pd.DataFrame:
    """Continue a text once with every drafter, and keep what each round proposed and lost.

    Args:
        target: the model drafted for; left as it was, like the drafters. Drafters may read other
            blocks of it than this one shows.
        drafters: by the name that the frame gives them.
        text: the prompt.
        tokenizer: the one the target was trained with.
        config: how to generate; None takes the defaults of `GenerationConfig`. Whole blocks are
            verified to the end, whatever it says.
        schedule: how many drafts to verify; None for all.

    Returns:
        One row per drafter, round (from 0) and slot: the drafts at positions 1, 2, ... and, behind
        the kept ones, the token that the target adds (none where a kept draft ended the text).
        Columns: `outcome` (of `OUTCOMES`; "discarded" stands behind a rejected draft, or behind a
        stop token), `token`, `token_text`; `base_token`, `base_text` (what the drafter's base
        logits alone would have drawn with the same random number; missing where a drafter has no
        such logits, and at the target's own token), `corrected` (the two differ), `confidence` (of
        surviving, in 0..1; NaN without that head), `expected` (chance that the target keeps the
        draft, given those before it; NaN where it was not verified), `verified`, `accepted`,
        `emitted` (it became text), `anchor`, `anchor_text` (the newest token before the round),
        `temperature` and `prompt`. The last round may go beyond `max_new_tokens`.

    Raises:
        ValueError: without text or drafter, or as `speculative_generate`.
    """
    if not drafters:
        raise ValueError("theatre_frame needs at least one drafter, as of load_theatre(); got none")
    ids = tokenizer.encode(text)
    if ids.numel() == 0:
        raise ValueError(f"theatre_frame needs a prompt of at least one token; got {text!r}")
    config = replace(config or GenerationConfig(), whole_blocks=True)
    rows = []
    for name, drafter in drafters.items():
        watched = _Watched(drafter)
        seen = target_for(target.model, drafter, anatomy=target.anatomy)
        found = speculative_generate(seen, watched, [ids[0]], config, schedule=schedule)
        rows += _played(name, watched, found)
    frame = pd.DataFrame(rows).assign(temperature=config.sampling.temperature, prompt=text)
    return _named(frame, tokenizer) if rows else pd.DataFrame(columns=list(COLUMNS))


def _played(name: str, watched: "_Watched", found: Generation) -> list[dict[str, object]]:
    """Slots of every round of one drafter."""
    return [
        {"drafter": name, "round": number, **slot}
        for number, entry in enumerate(found.rounds)
        for slot in _slots(watched, number, entry)
    ]


class _Drafted(NamedTuple):
    """What a drafter proposed in a round, and what its base logits would have."""

    proposal: Proposal
    base: list[int] | None


class _Overheard(Noise):
    """The noise of a generation, which remembers the numbers last drawn for drafts."""

    def __init__(self, noise: Noise):
        self._noise = noise
        self.draft: Tensor | None = None

    def uniform(self, purpose: str, count: int, *, used: Tensor | None = None) -> Tensor:
        numbers = self._noise.uniform(purpose, count, used=used)
        if purpose == "draft":
            self.draft = numbers
        return numbers


class _Watched:
    """A drafter that does as another and remembers anchors and proposals, for one sequence.

    Attributes:
        anchors: newest token before each round, and behind the last.
        drafted: proposals by round; a round without room for a draft has none.
    """

    def __init__(self, drafter: Proposer):
        self._drafter = drafter
        self.block_size, self.layer_ids = drafter.block_size, drafter.layer_ids
        self.tap = tap_of(drafter)
        self.anchors: list[int] = []
        self.drafted: dict[int, _Drafted] = {}

    def begin(self, batch: int) -> Any:
        return self._drafter.begin(batch)

    def absorb(self, state: Any, committed: Committed) -> None:
        self.anchors.append(int(committed.anchor[0]))
        self._drafter.absorb(state, committed)

    def propose(self, state: Any, length: int, sampling: Sampling, noise: Noise) -> Proposal:
        overheard = _Overheard(noise)
        logits = self._drafter.block(state)[1] if isinstance(self._drafter, Drafter) else None
        proposal = self._drafter.propose(state, length, sampling, overheard)
        base = None
        if logits is not None:
            uniform = overheard.draft
            base = [
                int(pick(logits[:, slot], sampling, uniform[:, slot])[0][0])
                for slot in range(length)
            ]
        self.drafted[len(self.anchors) - 1] = _Drafted(proposal, base)
        return proposal

    def select(self, state: Any, rows: list[int]) -> None:
        self._drafter.select(state, rows)


def _slots(watched: _Watched, number: int, entry: Round) -> Iterator[dict[str, Any]]:
    """Rows of one round: its drafts, then the target's own token."""
    anchor, closing = watched.anchors[number], watched.anchors[number + 1]
    kept, stopped = int(entry.accepted[0]), entry.stopped[0]
    kept = entry.emitted[0] if stopped else kept
    verified = _verified(entry)
    if number in watched.drafted:
        drafted = watched.drafted[number]
        for slot, row in enumerate(_drafts(drafted)):
            outcome = "accepted" if slot < kept else "discarded"
            if slot == kept and not stopped and slot < verified:
                outcome = "rejected"
            checked = slot < verified
            yield row | {
                "anchor": anchor,
                "outcome": outcome if checked else "not verified",
                "expected": float(entry.expected[0, slot]) if checked else float("nan"),
                "verified": checked,
                "accepted": slot < kept,
                "emitted": slot < kept,
            }
    if not stopped:
        yield {
            "anchor": anchor,
            "position": kept + 1,
            "token": closing,
            "base_token": None,
            "outcome": "correction" if kept < verified else "bonus",
            "confidence": float("nan"),
            "expected": float("nan"),
            "verified": False,
            "accepted": False,
            "emitted": True,
        }


def _drafts(drafted: _Drafted) -> Iterator[dict[str, Any]]:
    """Drafts of a round, with what the base logits and the confidence head said of them."""
    proposal, base = drafted
    lengths = proposal.lengths
    count = proposal.tokens.shape[1] if lengths is None else int(lengths[0])
    for slot in range(count):
        logits = proposal.confidence
        said = float("nan") if logits is None else float(torch.sigmoid(logits[0, slot].float()))
        yield {
            "position": slot + 1,
            "token": int(proposal.tokens[0, slot]),
            "base_token": None if base is None else base[slot],
            "confidence": said,
        }


def _verified(entry: Round) -> int:
    """Drafts that the target read."""
    lengths = entry.proposal.lengths
    return entry.proposal.tokens.shape[1] if lengths is None else int(lengths[0])


def _named(frame: pd.DataFrame, tokenizer: Encoder) -> pd.DataFrame:
    """The frame with its texts, and whether the sequential head changed a draft."""
    frame["base_token"] = frame["base_token"].astype("Int64")
    texts = {"token": "token_text", "base_token": "base_text", "anchor": "anchor_text"}
    for name, text in texts.items():
        ids = frame[name].dropna().astype("int64")
        named = tokenizer.tokens(torch.tensor(ids.to_list(), dtype=torch.int64))
        frame[text] = pd.Series(named, ids.index, dtype=object)
    frame["corrected"] = (frame["base_token"] != frame["token"]).fillna(False).astype(bool)
    return frame[list(COLUMNS)]
