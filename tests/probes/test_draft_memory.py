"""Reads of a memory while drafting: the closed form, who reads what, and thresholds."""

import numpy as np
import pandas as pd
import pytest
import torch

from engram_lab.draft.rounds import Generation, Round
from engram_lab.draft.verify import Proposal
from engram_lab.probes.draft_memory import (
    RowReader,
    memory_lengths,
    positions_read,
    read_thresholds,
)

BLOCK = 4
TARGET = RowReader(target=True, drafter=False, rows=8, position_bytes=256)
BOTH = RowReader(target=True, drafter=True, rows=8, position_bytes=256)
DRAFTER = RowReader(target=False, drafter=True, rows=8, position_bytes=256)
NOBODY = RowReader(target=False, drafter=False)


def generation(accepted: list[list[int]], confidence: list[float] | None) -> Generation:
    """Rounds of a batch; in each, how many drafts every sequence kept of a block of four."""
    rounds = []
    for kept in accepted:
        logit = None
        if confidence is not None:
            logit = torch.logit(torch.tensor([confidence] * len(kept)))
        rounds.append(
            Round(
                sequences=list(range(len(kept))),
                proposal=Proposal(
                    tokens=torch.zeros(len(kept), BLOCK, dtype=torch.int64), confidence=logit
                ),
                accepted=torch.tensor(kept),
                emitted=[count + 1 for count in kept],
                stopped=[False] * len(kept),
                expected=torch.full((len(kept), BLOCK), 0.5),
                draft_seconds=0.0,
                verify_seconds=0.0,
            )
        )
    tokens = [torch.zeros(9, dtype=torch.int64) for _ in accepted[0]]
    return Generation(
        token_ids=tokens, rounds=rounds, block_size=BLOCK, seconds=1.0, prefill_seconds=0.0
    )


def counts(*values: int) -> np.ndarray:
    return np.array(values)


@pytest.mark.parametrize("reader", [TARGET, BOTH])
def test_whole_blocks_waste_what_the_closed_form_says(reader: RowReader) -> None:
    kept = np.random.default_rng(0).integers(0, BLOCK + 1, 200)
    whole = np.full(200, BLOCK)
    found = positions_read(whole, whole, kept + 1, reader=reader)
    tau = (kept + 1).mean()
    assert found["wasted"].sum() / found["read"].sum() == pytest.approx(1 - tau / (BLOCK + 1))


def test_a_drafter_beside_a_memory_reads_early_and_never_more() -> None:
    drafted, verified, emitted = counts(4, 3, 1, 4), counts(4, 2, 0, 4), counts(5, 2, 1, 1)
    alone = positions_read(drafted, verified, emitted, reader=TARGET)
    both = positions_read(drafted, verified, emitted, reader=BOTH)
    assert both["read"].tolist() == alone["read"].tolist() == [5, 3, 1, 5]
    assert both["wasted"].tolist() == [0, 1, 0, 4]
    assert both["prefetched"].tolist() == [4, 3, 1, 4] and not alone["prefetched"].any()


def test_a_drafter_that_drafts_on_behind_the_cut_reads_more() -> None:
    found = positions_read(counts(4), counts(1), counts(2), reader=BOTH)
    assert found.iloc[0].tolist() == [4, 2, 2]


def test_a_drafter_alone_never_reads_its_last_draft() -> None:
    found = positions_read(counts(4, 4), counts(4, 4), counts(5, 2), reader=DRAFTER)
    assert found["read"].tolist() == [4, 4] and found["wasted"].tolist() == [0, 2]
    assert not found["prefetched"].any()  # nobody comes later


def test_prompts_are_counted_by_themselves() -> None:
    frame = memory_lengths(generation([[4, 0], [1, 0]], None), TARGET)
    assert frame["emitted"].tolist() == [7, 2] and frame["rounds"].tolist() == [2, 2]
    assert frame["accepted_length"].tolist() == [3.5, 1.0]
    assert frame["row_reads_per_token"].tolist() == pytest.approx([80 / 7, 40])
    assert frame["bytes_per_token"].tolist() == pytest.approx([2_560 / 7, 1_280])
    assert frame["wasted_reads_per_token"].tolist() == pytest.approx([24 / 7, 32])
    assert frame["wasted_share"].tolist() == pytest.approx([0.3, 0.8])
    assert frame["prefetched_share"].tolist() == [0, 0]


def test_a_threshold_cuts_reads_and_tokens() -> None:
    rounds = generation([[4, 0], [1, 2]], [0.9, 0.7, 0.4, 0.9])
    frame = read_thresholds(rounds, BOTH, thresholds=(0.0, 0.5, 0.95)).set_index("threshold")
    assert frame["verified_tokens"].tolist() == [4, 2, 0]
    assert frame["accepted_length"].tolist() == pytest.approx([2.75, 2.25, 1.0])
    assert frame["wasted_share"].tolist() == pytest.approx([1 - 2.75 / 5, 1 - 2.25 / 3, 0])
    assert frame["prefetched_share"].tolist() == pytest.approx([0.8, 1.0, 1.0])
    assert frame["bytes_per_token"].tolist() == pytest.approx([20 / 11 * 256, 12 / 9 * 256, 256])
    plain = memory_lengths(rounds, BOTH)
    whole = (plain["row_reads_per_token"] * plain["emitted"]).sum() / plain["emitted"].sum()
    assert frame.loc[0.0, "row_reads_per_token"] == pytest.approx(whole)


def test_confidences_belong_to_their_rounds_in_a_batch() -> None:
    rounds = generation([[0, 4], [0, 4], [0, 4]], [0.6] * BLOCK)
    for number, entry in enumerate(rounds.rounds):  # the sequence that accepts is the sure one
        entry.proposal.confidence[0] = torch.logit(torch.tensor(0.1 + 0.05 * number))
    frame = read_thresholds(rounds, TARGET, thresholds=(0.5,))
    assert frame["verified_tokens"].item() == 2 and frame["wasted_share"].item() == 0


def test_where_nobody_reads_there_is_nothing_to_waste() -> None:
    rounds = generation([[4, 0]], [0.5] * BLOCK)
    for frame in (memory_lengths(rounds, NOBODY), read_thresholds(rounds, NOBODY)):
        assert not frame[["row_reads_per_token", "bytes_per_token"]].any(axis=None)
        assert frame[["wasted_share", "prefetched_share"]].isna().all(axis=None)


def test_what_cannot_be_measured_is_refused() -> None:
    empty = Generation(
        token_ids=[torch.zeros(1, dtype=torch.int64)],
        rounds=[],
        block_size=BLOCK,
        seconds=1.0,
        prefill_seconds=1.0,
    )
    with pytest.raises(ValueError, match="at least one round; got none"):
        memory_lengths(empty, TARGET)
    with pytest.raises(ValueError, match="a confidence head; this one gave none"):
        read_thresholds(generation([[1]], None), TARGET)
    assert isinstance(memory_lengths(generation([[1]], None), TARGET), pd.DataFrame)
