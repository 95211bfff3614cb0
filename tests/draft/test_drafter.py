"""The block drafter: golden outputs, one result in training and in decoding, what a block sees."""

import pytest
import torch

from engram_lab.draft.blocks import slot_positions
from engram_lab.draft.drafter import Drafter, DraftState
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from tests.draft.tiny import FAMILIES, TAPS, drafter_for, family, golden_pair, some_ids

GREEDY = Sampling(temperature=0.0)
LAYOUTS = {
    "plain": {},
    "slot more": {"sample_from_anchor": False},
    "window": {"sliding_window": 5},
    "causal block": {"causal_block": True, "num_hidden_layers": 2},
    "window, causal": {"sliding_window": 3, "causal_block": True},
    "gated": {"markov_head_type": "gated"},
    "recurrent": {"markov_head_type": "rnn", "num_hidden_layers": 2},
    "no markov": {"markov_rank": 0},
    "grouped": {"num_attention_heads": 4, "num_key_value_heads": 2},
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def pair(**changes: object) -> tuple[Target, Drafter]:
    target = Target(family("qwen3"), TAPS)
    return target, drafter_for(target, **changes)


def kept(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bool)


def absorbed(drafter: Drafter, read, ids: torch.Tensor, lengths: list[int]) -> DraftState:
    """State of a drafter that was told of the first tokens of every row."""
    state, counts = drafter.begin(len(lengths)), torch.tensor(lengths)
    drafter.absorb(
        state,
        Committed(
            token_ids=ids,
            counts=counts,
            features=read.features,
            final=read.final,
            anchor=ids.gather(1, counts[:, None])[:, 0],
        ),
    )
    return state


def test_one_training_pass_is_golden():
    target, drafter, file = golden_pair()
    wanted = file["training_forward"]
    ids, anchors = torch.tensor(wanted["input_ids"]), torch.tensor(wanted["anchors"])
    keep = torch.tensor(wanted["block_keep"]).bool()
    read = target.read(ids)
    drafted = drafter(ids, read.features, anchors, keep)
    logits, confidence = torch.tensor(wanted["draft_logits"]), wanted["confidence_logits"]
    assert torch.allclose(drafted.logits[keep], logits[keep], atol=2e-4)
    assert torch.allclose(drafted.confidence[keep], torch.tensor(confidence)[keep], atol=2e-4)


@pytest.mark.parametrize("trace", range(4))
def test_the_first_block_of_a_golden_trace_has_its_states_and_confidences(trace: int):
    target, drafter, file = golden_pair()
    wanted = file["greedy_decoding"][trace]
    prompt, first = torch.tensor([wanted["prompt"]]), wanted["rounds"][0]
    ids = torch.cat([prompt, torch.tensor([[first["anchor"]]])], dim=1)
    state = absorbed(drafter, target.read(ids), ids, [prompt.shape[1]])
    hidden, _ = drafter.block(state)
    assert torch.allclose(hidden[0], torch.tensor(first["block_hidden"]), atol=2e-4)
    proposal = drafter.propose(state, 4, GREEDY, Noise(1, 0))
    assert proposal.tokens[0].tolist() == first["draft_tokens_full_block"]
    confidence = torch.tensor(first["confidence_logits_full_block"])
    assert torch.allclose(proposal.confidence[0], confidence, atol=2e-4)


@each_layout
def test_decoding_drafts_what_training_scores(layout: str):
    # rows at three lengths; block k of training is told the tokens that decoding drew
    target, drafter = pair(**LAYOUTS[layout])
    ids, lengths = some_ids(61, 3, 14), [4, 9, 7]
    read = target.read(ids)
    state = absorbed(drafter, read, ids, lengths)
    proposal = drafter.propose(state, 4, Sampling(), Noise(3, 0))
    told = ids.clone()
    for row, length in enumerate(lengths):
        told[row, length + 1 : length + 5] = proposal.tokens[row]
    drafted = drafter(told, read.features, torch.tensor(lengths)[:, None], kept(3, 1))
    probs = torch.softmax(drafted.logits[:, 0], dim=-1)
    assert torch.allclose(proposal.probs, probs, atol=1e-5)
    assert torch.allclose(proposal.confidence, drafted.confidence[:, 0], atol=1e-5)


@each_layout
def test_context_in_pieces_is_context_at_once(layout: str):
    target, drafter = pair(**LAYOUTS[layout])
    ids = some_ids(61, 2, 13)
    read = target.read(ids)
    whole = drafter.block(absorbed(drafter, read, ids, [12, 9]))[1]
    state = drafter.begin(2)
    for first, counts in ((0, (4, 2)), (0, (3, 3)), (0, (5, 4))):
        starts = state.context.lengths + first
        rows = (starts[:, None] + torch.arange(5)).clamp_max(12)
        features = read.features.gather(1, rows[..., None].expand(-1, -1, 32))
        counts = torch.tensor(counts)
        anchor = ids.gather(1, (starts + counts)[:, None])[:, 0]
        drafter.absorb(
            state,
            Committed(
                token_ids=ids.gather(1, rows),
                counts=counts,
                features=features,  # five rows, of which the last are rejected drafts
                final=read.final[:, :5],
                anchor=anchor,
            ),
        )
    assert state.context.lengths.tolist() == [12, 9]
    assert torch.allclose(drafter.block(state)[1], whole, atol=1e-5)


def test_rank_zero_is_dflash_bit_for_bit():
    target, dspark = pair()
    dflash = drafter_for(target, markov_rank=0, confidence=False)
    shared = {k: v for k, v in dspark.state_dict().items() if "head" not in k}
    dflash.load_state_dict(shared)
    ids, anchors = some_ids(61, 2, 12), torch.tensor([[2, 5], [3, 7]])
    features = target.read(ids).features
    ours, theirs = (d(ids, features, anchors, kept(2, 2)) for d in (dspark, dflash))
    assert torch.equal(theirs.logits, theirs.base)
    assert torch.equal(theirs.base, ours.base)
    assert torch.equal(theirs.hidden, ours.hidden)
    assert not torch.equal(ours.logits, ours.base)
    with torch.no_grad():
        dspark.markov_head.markov_w2.weight.zero_()
    assert torch.equal(dspark(ids, features, anchors, kept(2, 2)).logits, theirs.logits)
    assert theirs.confidence is None


def test_a_confidence_head_needs_no_markov_head():
    target, drafter = pair(markov_rank=0)
    ids = some_ids(61, 1, 8)
    state = absorbed(drafter, target.read(ids), ids, [5])
    assert drafter.propose(state, 4, GREEDY, Noise(1, 0)).confidence.shape == (1, 4)


def test_the_longer_layout_gives_as_many_drafts_and_its_anchor_slot_predicts_nothing():
    target, drafter = pair(sample_from_anchor=False, markov_rank=0)
    ids = some_ids(61, 1, 12)
    features, anchors = target.read(ids).features, torch.tensor([[5]])
    drafted = drafter(ids, features, anchors, kept(1, 1))
    assert drafted.logits.shape == (1, 1, 4, 61)
    # draft k comes from slot k + 1, which the shorter layout has too in a block one longer
    _, other = pair(markov_rank=0, block_size=5)
    other.load_state_dict(drafter.state_dict())
    assert torch.equal(drafted.base, other(ids, features, anchors, kept(1, 1)).base[:, :, 1:])


def test_shuffled_anchors_shuffle_the_blocks_and_change_nothing():
    target, drafter = pair()
    ids, anchors = some_ids(61, 2, 16), torch.tensor([[1, 4, 6, 9], [2, 3, 8, 11]])
    features, order = target.read(ids).features, torch.tensor([2, 0, 3, 1])
    straight = drafter(ids, features, anchors, kept(2, 4))
    shuffled = drafter(ids, features, anchors[:, order], kept(2, 4))
    assert torch.allclose(shuffled.logits, straight.logits[:, order], atol=1e-5)
    assert torch.allclose(shuffled.confidence, straight.confidence[:, order], atol=1e-5)


@each_layout
def test_kept_blocks_do_not_know_of_dropped_ones_nor_of_text_behind_them(layout: str):
    target, drafter = pair(**LAYOUTS[layout])
    ids, anchors = some_ids(61, 1, 16), torch.tensor([[4, 7, 9]])
    features = target.read(ids).features
    keep = torch.tensor([[True, False, True]])
    alone = drafter(ids, features, anchors[:, ::2], kept(1, 2))
    beside = drafter(ids, features, anchors, keep)
    assert torch.allclose(beside.logits[:, ::2], alone.logits, atol=1e-5)
    spoilt, other = features.clone(), ids.clone()
    spoilt[:, 9:] = 1e3  # the newest anchor's own state and all behind it
    other[:, 13:] = 0
    assert torch.allclose(drafter(other, spoilt, anchors, keep).base[:, ::2], alone.base, atol=1e-5)


@each_layout
def test_a_masked_position_changes_no_block_in_decoding(layout: str):
    target, drafter = pair(**LAYOUTS[layout])
    ids, lengths = some_ids(61, 2, 12), [4, 10]
    read = target.read(ids)
    clean = drafter.block(absorbed(drafter, read, ids, lengths))[1]
    spoilt = read.features.clone()
    spoilt[0, 4:] = 1e3  # the padding of the shorter row
    read.__dict__["features"] = spoilt
    assert torch.equal(drafter.block(absorbed(drafter, read, ids, lengths))[1], clean)
    alone = drafter.begin(1)
    drafter.absorb(
        alone,
        Committed(
            token_ids=ids[:1, :4],
            counts=torch.tensor([4]),
            features=read.features[:1, :4],
            final=read.final[:1, :4],
            anchor=ids[:1, 4],
        ),
    )
    assert torch.allclose(drafter.block(alone)[1], clean[:1], atol=1e-5)


def test_every_row_of_the_context_matters():
    target, drafter = pair()
    ids = some_ids(61, 1, 8)
    features, anchors = target.read(ids).features, torch.tensor([[6]])
    clean = drafter(ids, features, anchors, kept(1, 1)).base
    for row in range(6):
        spoilt = features.clone()
        spoilt[:, row] += 1.0
        assert not torch.allclose(drafter(ids, spoilt, anchors, kept(1, 1)).base, clean)


def test_a_window_forgets_what_lies_before_it():
    target, drafter = pair(sliding_window=3)
    ids = some_ids(61, 1, 12)
    features, anchors = target.read(ids).features, torch.tensor([[8]])
    clean = drafter(ids, features, anchors, kept(1, 1)).base
    for row, seen in ((4, False), (5, True), (7, True)):
        spoilt = features.clone()
        spoilt[:, row] += 1.0
        moved = not torch.allclose(drafter(ids, spoilt, anchors, kept(1, 1)).base, clean)
        assert moved == seen


def test_slots_of_a_causal_block_do_not_see_later_ones():
    target, drafter = pair(causal_block=True, markov_rank=0)
    short = drafter_for(target, causal_block=True, markov_rank=0, block_size=2)
    short.load_state_dict(drafter.state_dict())
    ids = some_ids(61, 1, 10)
    features, anchors = target.read(ids).features, torch.tensor([[5]])
    long, cut = (d(ids, features, anchors, kept(1, 1)).base for d in (drafter, short))
    assert torch.allclose(long[:, :, :2], cut, atol=1e-6)


def test_blocks_of_packed_documents_see_their_own():
    model = family("memory")
    target = Target(model, TAPS)
    drafter = drafter_for(target)
    ids, documents = some_ids(61, 1, 16), torch.tensor([[0] * 7 + [1] * 9])
    packed = target.read(ids, document_ids=documents).features
    alone = target.read(ids[:, 7:]).features
    together = drafter(ids, packed, torch.tensor([[11]]), kept(1, 1), documents)
    apart = drafter(ids[:, 7:], alone, torch.tensor([[4]]), kept(1, 1))
    assert torch.allclose(together.logits, apart.logits, atol=1e-4)


def test_a_block_at_position_400_is_that_block_at_position_20():
    # attention is relative: 380 strange rows in front, cut off by the window, change nothing
    target = Target(family("qwen3", context=512), TAPS)
    drafter = drafter_for(target, sliding_window=16, num_hidden_layers=2)
    ids = some_ids(61, 1, 30)
    features = target.read(ids).features
    front = torch.randn(1, 380, features.shape[-1])
    near = drafter(ids, features, torch.tensor([[20]]), kept(1, 1))
    far_ids = torch.cat([some_ids(61, 1, 380, seed=5), ids], dim=1)
    far_features = torch.cat([front, features], dim=1)
    far = drafter(far_ids, far_features, torch.tensor([[400]]), kept(1, 1))
    assert torch.allclose(far.logits, near.logits, atol=1e-3)  # angles of 400 in float32
    state = drafter.begin(1)
    drafter.absorb(
        state,
        Committed(
            token_ids=far_ids[:, :400],
            counts=torch.tensor([400]),
            features=far_features[:, :400],
            final=far_features[:, :400, :16],
            anchor=far_ids[:, 400],
        ),
    )
    assert torch.allclose(drafter.block(state)[1], near.base[:, 0], atol=1e-3)


def test_a_document_far_back_in_a_packed_row_drafts_as_at_its_start(monkeypatch):
    target, drafter = pair(num_hidden_layers=2)
    ids = some_ids(61, 1, 30)
    features = target.read(ids).features
    near = drafter(ids, features, torch.tensor([[20]]), kept(1, 1)).logits
    far_ids = torch.cat([some_ids(61, 1, 380, seed=5), ids], dim=1)
    far_features = torch.cat([torch.randn(1, 380, 32), features], dim=1)
    documents = torch.tensor([[0] * 380 + [1] * 30])
    packed = (far_ids, far_features, torch.tensor([[400]]), kept(1, 1), documents)
    assert torch.allclose(drafter(*packed).logits, near, atol=1e-3)
    early = "engram_lab.draft.drafter.slot_positions"
    monkeypatch.setattr(early, lambda anchors, config: slot_positions(anchors, config) - 1)
    assert not torch.allclose(drafter(*packed).logits, near, atol=1e-1)  # one position off is seen


def test_drafts_are_a_prefix_of_the_whole_block():
    target, drafter = pair()
    ids = some_ids(61, 2, 9)
    read = target.read(ids)
    whole = drafter.propose(absorbed(drafter, read, ids, [5, 8]), 4, GREEDY, Noise(2, 0))
    for length in (1, 2, 3):
        state = absorbed(drafter, read, ids, [5, 8])
        part = drafter.propose(state, length, GREEDY, Noise(2, 0))
        assert torch.equal(part.tokens, whole.tokens[:, :length])
        assert torch.allclose(part.confidence, whole.confidence[:, :length], atol=1e-5)


@pytest.mark.parametrize("length", [0, 5])
def test_no_more_drafts_than_the_block_it_was_built_for(length: int):
    target, drafter = pair()
    ids = some_ids(61, 1, 6)
    state = absorbed(drafter, target.read(ids), ids, [4])
    with pytest.raises(ValueError, match=rf"block_size=4\); asked for {length}"):
        drafter.propose(state, length, GREEDY, Noise(1, 0))


def test_greedy_drafts_are_certain_and_sampled_ones_come_with_their_law():
    target, drafter = pair()
    ids = some_ids(61, 1, 6)
    read = target.read(ids)
    assert drafter.propose(absorbed(drafter, read, ids, [4]), 4, GREEDY, Noise(1, 0)).probs is None
    sampling = Sampling(temperature=0.7, top_k=5)
    proposal = drafter.propose(absorbed(drafter, read, ids, [4]), 4, sampling, Noise(1, 0))
    assert torch.allclose(proposal.probs.sum(-1), torch.ones(1, 4))
    assert ((proposal.probs > 0).sum(-1) <= 5).all()
    assert (proposal.probs.gather(-1, proposal.tokens[..., None]) > 0).all()


def test_the_drafter_trains_and_the_target_does_not():
    target, drafter = pair()
    ids, anchors = some_ids(61, 1, 10), torch.tensor([[3, 6]])
    drafted = drafter(ids, target.read(ids).features, anchors, kept(1, 2))
    (drafted.logits.square().mean() + drafted.confidence.sum()).backward()
    assert all(p.grad is not None and p.grad.any() for p in drafter.parameters())
    assert all(p.grad is None for p in target.model.parameters())
    assert not [name for name in drafter.state_dict() if "embed" in name or "lm_head" in name]


@pytest.mark.parametrize("name", ["qwen3", "memory"])
def test_a_drafter_in_full_precision_drafts_for_a_target_in_half(name: str):
    target = Target(family(name).to(torch.bfloat16), TAPS)
    drafter = drafter_for(target)
    ids = some_ids(61, 1, 9)
    read = target.read(ids)
    drafted = drafter(ids, read.features, torch.tensor([[5]]), kept(1, 1))
    proposal = drafter.propose(absorbed(drafter, read, ids, [5]), 4, Sampling(), Noise(1, 0))
    assert drafted.logits.dtype == proposal.probs.dtype == torch.float32
    config = GenerationConfig(max_new_tokens=5)
    assert len(speculative_generate(target, drafter, ids, config).token_ids[0]) == 5


@pytest.mark.parametrize("name", FAMILIES)
def test_it_drafts_for_every_kind_of_target(name: str):
    target = Target(family(name), TAPS)
    drafter = drafter_for(target)
    ids = some_ids(61, 2, 8)
    state = absorbed(drafter, target.read(ids), ids, [5, 7])
    assert drafter.propose(state, 4, Sampling(), Noise(2, 0)).tokens.shape == (2, 4)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vocab_size": 62}, "vocabulary.* 62, the target has 61"),
        ({"hidden_size": 20}, "width.* 20, the target has 16"),
        ({"target_depth": 5}, "number of blocks.* 5, the target has 3"),
        ({"target_layer_ids": (0,)}, r"tapped blocks.* \(0,\), the target has \(0, 1\)"),
    ],
)
def test_a_target_of_another_shape_is_refused_with_both_numbers(changes: dict, told: str):
    with pytest.raises(ValueError, match=told):
        pair(**changes)


def test_features_of_another_width_and_none_at_all_are_refused():
    target, drafter = pair()
    with pytest.raises(ValueError, match="2 tapped blocks are 32 wide; got 16"):
        drafter.inject(torch.zeros(1, 3, 16))
    committed = Committed(
        token_ids=some_ids(61, 1, 3),
        counts=torch.tensor([3]),
        features=None,
        final=torch.zeros(1, 3, 16),
        anchor=torch.tensor([1]),
    )
    with pytest.raises(ValueError, match=r"blocks \(0, 1\).*Target\(model, drafter.layer_ids\)"):
        drafter.absorb(drafter.begin(1), committed)
