"""What drafting does to the reads of a memory: rows read for tokens that stay, and for none.

Verifying reads the rows of the anchor and of every draft. A drafter that reads rows itself asks for
those of the anchor and of all its drafts but the last: the very addresses that verification needs,
earlier. So its reads cost nothing beside a target with a memory; they are a prefetch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from engram_lab.draft.memory_head import MemoryDrafter, MemoryRows
from engram_lab.draft.rounds import Generation
from engram_lab.draft.schedule import Threshold
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.confidence import THRESHOLDS
from engram_lab.training.draft_fit import TrainedDrafter


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Who reads rows in a round, and what a position costs.

    Attributes:
        target: whether the target has a memory, and so reads at every position it verifies.
        drafter: whether the sequential head reads before every draft.
        rows: rows of one position.
        position_bytes: bytes of these.
    """

    target: bool
    drafter: bool
    rows: int = 0
    position_bytes: int = 0

    @classmethod
    def of(cls, trained: TrainedDrafter) -> "RowReader":
        """Readers of a trained drafter and its target.

        Args:
            trained: any drafter; one without rows, for a target without a memory, reads none.
        """
        model = trained.target.model
        target = isinstance(model, EngramLM) and bool(model.memories)
        drafter = isinstance(trained.drafter, MemoryDrafter)
        if not target and not drafter:
            return cls(target=False, drafter=False)
        rows = trained.drafter.rows if drafter else MemoryRows(model)
        return cls(
            target=target, drafter=drafter, rows=rows.reads, position_bytes=rows.position_bytes
        )


def positions_read(
    drafted: Int[np.ndarray, "round"],
    verified: Int[np.ndarray, "round"],
    emitted: Int[np.ndarray, "round"],
    *,
    reader: RowReader,
) -> pd.DataFrame:
    """Positions whose rows are read in every round, and what became of them.

    A target reads `verified + 1` positions, a drafter `drafted`; what both read is read once. Of
    these the first `emitted` stay in the text (the anchor and the drafts kept), as far as they were
    read. With a whole block of K verified by a target with a memory, the share read in vain is
    `1 - tau / (K + 1)`, tau being the tokens of a round.

    Args:
        drafted: slots of each round before which the drafter read, if it reads at all.
        verified: drafts that the target read; fewer than `drafted` where a threshold cut them.
        emitted: tokens gained, correction or bonus included.
        reader: who reads.

    Returns:
        One row per round: `read` (distinct positions), `wasted` (of these, outside the text in the
        end) and `prefetched` (read by the drafter before the target needed them).
    """
    asked = drafted if reader.drafter else np.zeros_like(drafted)
    needed = verified + 1 if reader.target else np.zeros_like(verified)
    read = np.maximum(asked, needed)
    return pd.DataFrame(
        {
            "read": read,
            "wasted": read - np.minimum(emitted, read),
            "prefetched": np.minimum(asked, needed),
        }
    )


def memory_lengths(generation: Generation, reader: RowReader) -> pd.DataFrame:
    """Tokens gained and rows read by prompt, every block verified as it was drafted.

    Args:
        generation: of a drafter.
        reader: who reads rows.

    Returns:
        One row per prompt: `sequence`, `rounds`, `emitted`, `accepted_length` (tokens of a round,
        the bonus included), and the columns of reads that `read_thresholds` has.

    Raises:
        ValueError: if there was no round.
    """
    rounds = _frame(generation)
    found = positions_read(*_counts(rounds), reader=reader)
    rows = []
    for sequence, part in rounds.groupby("sequence"):
        emitted = int(part["emitted"].sum())
        gained = {"rounds": len(part), "emitted": emitted, "accepted_length": emitted / len(part)}
        reads = _per_token(found.loc[part.index], emitted, reader)
        rows.append({"sequence": int(sequence)} | gained | reads)
    return pd.DataFrame(rows)


def read_thresholds(
    generation: Generation, reader: RowReader, *, thresholds: Sequence[float] = THRESHOLDS
) -> pd.DataFrame:
    """What a static threshold on the confidence would make of the reads.

    A slot's confidence is known before its token is drawn, so a drafter that stops there has read
    one position beyond those it drafts, unless the block was at its end; verification needs that
    one too. The rounds are those that were decoded with whole blocks; a decoder with the threshold
    would start its rounds elsewhere in the same text.

    Args:
        generation: of a drafter with a confidence head.
        reader: who reads rows.
        thresholds: in 0..1; 0 verifies everything.

    Returns:
        One row per threshold: `threshold`, `rounds`, `verified_tokens` (drafts verified a round),
        `accepted_length` (tokens of a round), `row_reads_per_token`, `bytes_per_token` and
        `wasted_reads_per_token` (each per token gained), `wasted_share` (of the positions read, NaN
        where none is) and `prefetched_share` (of the positions the target reads, NaN likewise).

    Raises:
        ValueError: if there was no round or no confidence.
    """
    rounds, confidences = _frame(generation), _confidences(generation)
    block, emitted = rounds["proposed"].to_numpy(), rounds["emitted"].to_numpy()
    rows = []
    for threshold in thresholds:
        verified = Threshold(threshold=threshold)(confidences)
        gained = np.minimum(emitted, verified + 1)
        drafted = np.minimum(verified + 1, block)
        found = positions_read(drafted, verified, gained, reader=reader)
        row = {
            "threshold": threshold,
            "rounds": len(rounds),
            "verified_tokens": float(verified.mean()),
            "accepted_length": float(gained.mean()),
        }
        rows.append(row | _per_token(found, int(gained.sum()), reader))
    return pd.DataFrame(rows)


def _per_token(found: pd.DataFrame, emitted: int, reader: RowReader) -> dict[str, float]:
    """Sums of `positions_read` against the tokens gained."""
    read, wasted, prefetched = (float(found[name].sum()) for name in found)
    needed = read if reader.target else 0.0
    return {
        "row_reads_per_token": read * reader.rows / emitted,
        "bytes_per_token": read * reader.position_bytes / emitted,
        "wasted_reads_per_token": wasted * reader.rows / emitted,
        "wasted_share": wasted / read if read else float("nan"),
        "prefetched_share": prefetched / needed if needed else float("nan"),
    }


def _frame(generation: Generation) -> pd.DataFrame:
    frame = generation.frame()
    if frame.empty:
        raise ValueError("reads need at least one round; got none. Ask for more than one new token")
    return frame


def _counts(rounds: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drafts made, drafts verified and tokens gained, of whole blocks."""
    proposed = rounds["proposed"].to_numpy()
    return proposed, proposed, rounds["emitted"].to_numpy()


def _confidences(generation: Generation) -> Float[np.ndarray, "round position"]:
    """Conditional confidences in the order of `Generation.frame()`; NaN behind a block's end."""
    positions = generation.positions()
    if positions.empty or positions["logit"].isna().any():
        raise ValueError(
            "a threshold needs a drafter with a confidence head; this one gave none. Build it with "
            "DraftConfig(confidence=True)."
        )
    wide = positions.pivot(index=["sequence", "round"], columns="position", values="logit")
    order = pd.MultiIndex.from_frame(generation.frame()[["sequence", "round"]])
    return 1 / (1 + np.exp(-wide.reindex(order).to_numpy(float)))
