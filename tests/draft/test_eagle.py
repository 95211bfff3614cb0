"""EAGLE-3: what its rows are made of, and that decoding comes to what training saw."""

import json
from pathlib import Path

import pytest
import torch

from engram_lab.draft.chain import ChainDrafter, unroll_mask
from engram_lab.draft.eagle import EagleConfig, EagleDrafter
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from tests.draft.drafters import BLOCK, VOCAB, eagle, mtp, tiny_lm

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/dspark_metrics.json").read_text(encoding="utf-8")
)["eagle3_ttt"]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_masks_of_the_unrolled_steps_are_the_golden_ones(step: int) -> None:
    expected = torch.tensor(GOLDEN["ttt_attention_masks_q4"][f"step{step}"])
    assert torch.equal(unroll_mask(4, step).long(), expected)


def told(drafter: ChainDrafter, rows: list[torch.Tensor], chunks: list[list[int]]) -> object:
    """State behind rows whose tokens are committed in chunks, with the next token as anchor."""
    state, done = drafter.begin(len(rows)), [0] * len(rows)
    for chunk in chunks:
        width = max(chunk)
        ids, features, final = [], [], []
        for row, start in zip(rows, done, strict=True):
            read = drafter.target.read(row[None])
            part = slice(start, start + width)
            pad = width - len(row[part])
            ids.append(torch.nn.functional.pad(row[part], (0, pad)))
            for found, values in ((features, read.features), (final, read.final)):
                if values is not None:
                    found.append(torch.nn.functional.pad(values[0, part], (0, 0, 0, pad)))
        done = [start + count for start, count in zip(done, chunk, strict=True)]
        committed = Committed(
            token_ids=torch.stack(ids),
            counts=torch.tensor(chunk),
            features=torch.stack(features) if features else None,
            final=torch.stack(final),
            anchor=torch.stack([row[end] for row, end in zip(rows, done, strict=True)]),
        )
        drafter.absorb(state, committed)
    return state


@pytest.mark.parametrize("make", [eagle, mtp])
def test_decoding_draws_from_the_distributions_that_training_unrolls(make: object) -> None:
    drafter = make(tiny_lm())
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randint(VOCAB, (length,), generator=generator) for length in (9, 6)]
    # anchors at 7 and 5, committed in pieces of unequal length
    state = told(drafter, rows, [[4, 1], [2, 3], [1, 1]])
    drafted = drafter.propose(state, BLOCK, Sampling(), Noise(2, 0))
    for row, anchor, drafts, probs in zip(rows, (7, 5), drafted.tokens, drafted.probs, strict=True):
        text = torch.cat([row[: anchor + 1], drafts])[None]
        read = drafter.target.read(text)
        states = drafter.states(read.features, read.final)
        steps = drafter.unroll(states, drafter.target.embed(text))
        logits = torch.stack([drafter.target.head(step)[0, anchor - 1] for step in steps])
        torch.testing.assert_close(logits.softmax(-1), probs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("make", [eagle, mtp])
def test_packed_documents_unroll_like_documents_apart(make: object) -> None:
    drafter = make(tiny_lm(memory=False))
    ids = torch.randint(VOCAB, (1, 12), generator=torch.Generator().manual_seed(4))
    documents = torch.tensor([[0] * 7 + [1] * 5])
    read = drafter.target.read(ids, document_ids=documents)
    states = drafter.states(read.features, read.final)
    embedded = drafter.target.embed(ids)
    packed = list(drafter.unroll(states, embedded, documents))
    apart = list(drafter.unroll(states[:, :7], embedded[:, :7]))
    for step, (whole, part) in enumerate(zip(packed, apart, strict=True)):
        valid = slice(0, 7 - 1 - step)  # whose tokens lie in the document
        torch.testing.assert_close(whole[:, valid], part[:, valid], atol=1e-5, rtol=1e-4)


def test_the_stream_starts_as_the_fused_state_without_a_norm() -> None:
    drafter = eagle(tiny_lm())
    features = torch.randn(1, 2, 64)
    states = drafter.states(features, torch.zeros(1, 2, 32))
    torch.testing.assert_close(states, features @ drafter.fc.weight.T)
    row = drafter.row(torch.ones(1, 2, 32), states)
    assert torch.equal(row.stream, states)
    assert row.inputs.shape == (1, 2, 64)


def test_a_target_read_without_taps_is_refused() -> None:
    model = tiny_lm()
    with pytest.raises(ValueError, match=r"tapped blocks.*\(-1, 0\).*\(\)"):
        EagleDrafter(eagle(model).config, Target(model))
    with pytest.raises(ValueError, match="64 numbers a position; the target gave 0"):
        eagle(model).states(None, torch.zeros(1, 2, 32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_layer_ids": (0, 1)}, "leave out the last block"),
        ({"block_size": 0}, "EagleConfig.block_size must be at least 1; got 0"),
        ({"head_size": 7}, "EagleConfig.head_size must be even; got 7"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes: dict, message: str) -> None:
    shape = {"vocab_size": 8, "hidden_size": 8, "target_depth": 2, "target_layer_ids": (0,)}
    with pytest.raises(ValueError, match=message):
        EagleConfig(**shape | changes)
