"""A head that reads rows: the same addresses in training and decoding, frozen rows, no losses."""

from dataclasses import replace

import pytest
import torch

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.interchange import save_drafter
from engram_lab.draft.memory_head import MemoryDrafter, MemoryMarkovHead, MemoryRows
from engram_lab.draft.proposer import Committed, Proposer
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from tests.draft.tiny import TAPS, drafter_for, family, ruffled, some_ids

GREEDY = Sampling(temperature=0.0)
KEPT = torch.ones(3, 1, dtype=torch.bool)


def owner() -> EngramLM:
    """A model with two memories whose token map merges ids."""
    config = presets.tiny(61).replace(num_hidden_layers=3, moe=None)
    engram = replace(config.engram, layer_ids=(0, 2), max_ngram_size=3)
    torch.manual_seed(0)
    table = [min(i, 30 + i % 7) for i in range(61)]
    return ruffled(EngramLM(config.replace(engram=engram), VocabCompression.from_table(table)))


def pair(model: EngramLM | None = None, *, table: EngramLM | None = None, **changes: object):
    """A target and a drafter with the rows of `table`, else of the target."""
    model = model or owner().eval()
    target = Target(model, TAPS)
    plain = drafter_for(target, **changes)
    torch.manual_seed(5)
    drafter = MemoryDrafter(plain.config, target, MemoryRows(table or model))
    drafter.load_state_dict(plain.state_dict(), strict=False)
    return target, drafter.eval(), plain


def told(ids: torch.Tensor, read, lengths: list[int]) -> Committed:
    counts = torch.tensor(lengths)
    return Committed(
        token_ids=ids,
        counts=counts,
        features=read.features,
        final=read.final,
        anchor=ids.gather(1, counts[:, None])[:, 0],
    )


@pytest.mark.parametrize("first", [[0, 3, 1], [2, 2, 2], [4, 9, 7]])
def test_decoding_drafts_what_training_scores_at_unequal_lengths(first: list[int]):
    target, drafter, _ = pair()
    ids, lengths = some_ids(61, 3, 14), [4, 9, 7]
    read, state = target.read(ids), drafter.begin(3)
    drafter.absorb(state, told(ids, read, first))  # in two pieces, with junk behind the first
    rest = (torch.tensor(first)[:, None] + torch.arange(14)).clamp_max(13)
    left = torch.tensor(lengths) - torch.tensor(first)
    shifted = read.features.gather(1, rest[..., None].expand(-1, -1, read.features.shape[-1]))
    read_on = type(read)(logits=read.logits, features=shifted, final=read.final)
    drafter.absorb(state, told(ids.gather(1, rest), read_on, left.tolist()))
    for _ in range(2):  # a proposal leaves no trace
        proposal = drafter.propose(state, 4, Sampling(), Noise(3, 0))
        known = ids.clone()
        for row, length in enumerate(lengths):
            known[row, length + 1 : length + 5] = proposal.tokens[row]
        drafted = drafter(known, read.features, torch.tensor(lengths)[:, None], KEPT)
        probs = torch.softmax(drafted.logits[:, 0], dim=-1)
        assert torch.allclose(proposal.probs, probs, atol=1e-5)
        assert torch.allclose(proposal.confidence, drafted.confidence[:, 0], atol=1e-5)


def test_sequences_that_leave_a_batch_take_their_tokens_along():
    target, drafter, _ = pair()
    ids = some_ids(61, 3, 12)
    read, state, alone = target.read(ids), drafter.begin(3), drafter.begin(1)
    drafter.absorb(state, told(ids, read, [4, 9, 7]))
    drafter.select(state, [2])
    drafter.absorb(alone, told(ids[2:], target.read(ids[2:]), [7]))
    left, single = (drafter.propose(s, 4, GREEDY, Noise(1, 0)) for s in (state, alone))
    assert torch.equal(left.tokens, single.tokens)
    assert torch.allclose(left.confidence, single.confidence, atol=1e-5)


def test_rows_are_those_that_the_target_itself_reads():
    model, seen = owner().eval(), {}
    for layer, memory in model.memories.items():
        memory.hook_rows.register_forward_hook(
            lambda module, inputs, out, layer=layer: seen.update({layer: out.flatten(2)})
        )
    ids, documents = some_ids(61, 2, 9), torch.tensor([[0] * 4 + [1] * 5, [0] * 9])
    model(ids, document_ids=documents)
    rows = MemoryRows(model)
    found = rows.read(rows.addresses(ids, documents)).chunk(2, dim=-1)
    for part, layer in zip(found, (0, 2), strict=True):
        table = model.memories[layer].table.weight
        assert torch.allclose(part * table.pow(2).mean().sqrt(), seen[layer], rtol=1e-4)
    assert (rows.reads, rows.width) == (8, 64)
    assert rows.position_bytes == 64 * 4


def test_the_bias_hangs_on_two_tokens_before_the_slot_and_on_no_third():
    target, drafter, _ = pair()
    ids, anchors = some_ids(61, 1, 12), torch.tensor([[6]])
    features = target.read(ids).features

    def bias(position: int) -> torch.Tensor:
        other = ids.clone()
        other[0, position] = (other[0, position] + 1) % 30
        drafted = drafter(other, features, anchors, KEPT[:1])
        return (drafted.logits - drafted.base)[0, 0, 0]

    clean = bias(0)  # too far back to matter
    assert torch.equal(bias(3), clean)
    assert not torch.allclose(bias(4), clean) and not torch.allclose(bias(5), clean)


def test_without_a_word_from_the_rows_it_is_dspark_bit_for_bit():
    target, drafter, plain = pair()
    torch.nn.init.zeros_(drafter.markov_head.memory_proj.weight)
    ids, anchors = some_ids(61, 3, 12), torch.tensor([[4], [5], [2]])
    read = target.read(ids)
    ours, theirs = (d(ids, read.features, anchors, KEPT) for d in (drafter, plain))
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.confidence, theirs.confidence)
    proposals = []
    for each in (drafter, plain):
        state = each.begin(3)
        each.absorb(state, told(ids, read, [4, 9, 7]))
        proposals.append(each.propose(state, 4, Sampling(), Noise(3, 0)))
    assert torch.equal(proposals[0].probs, proposals[1].probs)
    assert torch.equal(proposals[0].confidence, proposals[1].confidence)


def test_a_fresh_drafter_starts_where_one_without_rows_starts():
    target = Target(owner().eval(), TAPS)
    config = drafter_for(target).config
    torch.manual_seed(7)
    plain = Drafter(config, target)
    torch.manual_seed(7)
    fresh = MemoryDrafter(config, target, MemoryRows(target.model)).state_dict()
    assert all(torch.equal(fresh.pop(name), value) for name, value in plain.state_dict().items())
    assert list(fresh) == ["markov_head.memory_proj.weight"]


def test_rows_get_no_gradient_and_the_head_does():
    target, drafter, _ = pair()
    ids = some_ids(61, 3, 12)
    features = target.read(ids).features.detach()
    drafter(ids, features, torch.tensor([[4], [5], [2]]), KEPT).logits.square().sum().backward()
    assert all(parameter.grad is None for parameter in target.model.parameters())
    assert drafter.markov_head.memory_proj.weight.grad.abs().sum() > 0
    assert not any("table" in name for name in drafter.state_dict())


@pytest.mark.parametrize("own", [True, False])
def test_greedy_output_is_that_of_plain_decoding(own: bool):
    model = owner().eval() if own else family("plain")
    target, drafter, _ = pair(model, table=None if own else owner().eval())
    prompts = [some_ids(61, length, seed=length) for length in (3, 8, 5)]
    config = GenerationConfig(max_new_tokens=12, sampling=GREEDY, stop_ids=(7,))
    plain = speculative_generate(target, None, prompts, config)
    drafted = speculative_generate(target, drafter, prompts, config)
    assert isinstance(drafter, Proposer)
    for ours, theirs in zip(drafted.token_ids, plain.token_ids, strict=True):
        assert torch.equal(ours, theirs)


def test_wrong_parts_are_refused():
    model = owner().eval()
    target, drafter, plain = pair(model)
    with pytest.raises(ValueError, match=r"EngramLM with a memory; EngramLM has none"):
        MemoryRows(family("plain"))
    for changes in ({"markov_head_type": "rnn"}, {"markov_rank": 0}):
        config = DraftConfig(**vars(plain.config) | changes)
        with pytest.raises(ValueError, match=r"markov_head_type='vanilla' and markov_rank"):
            MemoryMarkovHead(config, drafter.rows)
    other = EngramLM(presets.tiny(40), VocabCompression.identity(40))
    with pytest.raises(ValueError, match=r"knows 40 ids, the drafter 61"):
        MemoryDrafter(plain.config, target, MemoryRows(other))


def test_files_that_know_no_table_refuse_a_drafter_with_rows(tmp_path):
    _, drafter, _ = pair()
    with pytest.raises(ValueError, match="class Drafter .* got a MemoryDrafter"):
        save_drafter(drafter, tmp_path / "drafter")
