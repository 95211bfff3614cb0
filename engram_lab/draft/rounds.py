"""What happened in a generation, round by round, and the counts that describe a drafter."""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from engram_lab.draft.verify import Proposal


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """One round of a batch.

    Attributes:
        sequences: which prompts took part.
        proposal: what was drafted, cut to what was verified.
        accepted: drafts kept of each, on the CPU.
        emitted: tokens each gained.
        stopped: whether a kept draft ended the sequence; then no token is drawn behind it.
        expected: chance that each verified draft would be kept, given those before it.
        draft_seconds: time of drafting.
        verify_seconds: time of the target's pass and of acceptance.
    """

    sequences: list[int]
    proposal: Proposal
    accepted: Int64[Tensor, "batch"]
    emitted: list[int]
    stopped: list[bool]
    expected: Float[Tensor, "batch block"]
    draft_seconds: float
    verify_seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """New tokens of every prompt, and the rounds that gave them.

    Attributes:
        token_ids: the new tokens, a stop token included, at most `max_new_tokens` of a prompt.
        rounds: in order; the first token of a prompt comes from prefill and from no round.
        block_size: drafts a round was to have; 0 without a drafter.
        seconds: from the start of prefill to the end.
        prefill_seconds: of that, until the first token.
    """

    token_ids: list[Int64[Tensor, "_"]]
    rounds: list[Round]
    block_size: int
    seconds: float
    prefill_seconds: float

    def frame(self) -> pd.DataFrame:
        """One row per sequence and round.

        Returns:
            Columns `sequence round proposed accepted emitted stopped`: drafts verified (up to the
            stop token, if a kept draft was one), drafts kept and tokens gained.
        """
        rows = []
        seen = [0] * len(self.token_ids)
        for entry in self.rounds:
            lengths = entry.proposal.lengths
            full = entry.proposal.tokens.shape[1]
            verified = [full] * len(entry.sequences) if lengths is None else lengths.tolist()
            for index, sequence in enumerate(entry.sequences):
                stopped, emitted = entry.stopped[index], entry.emitted[index]
                rows.append(
                    {
                        "sequence": sequence,
                        "round": seen[sequence],
                        "proposed": emitted if stopped else verified[index],
                        "accepted": emitted if stopped else int(entry.accepted[index]),
                        "emitted": emitted,
                        "stopped": stopped,
                    }
                )
                seen[sequence] += 1
        columns = ["sequence", "round", "proposed", "accepted", "emitted", "stopped"]
        return pd.DataFrame(rows, columns=columns)

    def positions(self) -> pd.DataFrame:
        """One row per sequence, round and verified draft.

        Returns:
            Columns `sequence round position token accepted expected logit`: position from 1,
            whether it was kept, the chance that it would be (given that all before it were), and
            the confidence's logit (NaN without such a head). Drafts behind a kept stop token are
            left out.
        """
        rows = []
        frame = self.frame().itertuples()
        for entry in self.rounds:
            confidence = entry.proposal.confidence
            for index in range(len(entry.sequences)):
                outcome = next(frame)
                for slot in range(outcome.proposed):
                    logit = float("nan") if confidence is None else float(confidence[index, slot])
                    rows.append(
                        {
                            "sequence": outcome.sequence,
                            "round": outcome.round,
                            "position": slot + 1,
                            "token": int(entry.proposal.tokens[index, slot]),
                            "accepted": slot < outcome.accepted,
                            "expected": float(entry.expected[index, slot]),
                            "logit": logit,
                        }
                    )
        columns = ["sequence", "round", "position", "token", "accepted", "expected", "logit"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def accepted_length(self) -> float:
        """Mean tokens gained in a round, the bonus included (tau); NaN without rounds."""
        gained = [emitted for entry in self.rounds for emitted in entry.emitted]
        return float(torch.tensor(gained, dtype=torch.float64).mean()) if gained else float("nan")

    @property
    def tokens_per_s(self) -> float:
        """New tokens a second, prefill left out; NaN where nothing came after it."""
        gained = sum(emitted for entry in self.rounds for emitted in entry.emitted)
        spent = self.seconds - self.prefill_seconds
        return gained / spent if gained and spent > 0 else float("nan")
