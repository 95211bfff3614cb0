"""Row surgery: the target follows, nothing but the prompt's rows moves, and it can be undone."""

import numpy as np
import pytest
import torch

from engram_lab.memory.hot import KeyDictionary, add_hot_tier, share_rows
from engram_lab.memory.keys import KeyCounter
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.collateral import collateral_frame, random_prompts, sharing_prompts
from engram_lab.probes.rows import KeyUse, RowUse, row_frame
from engram_lab.probes.surgery import SurgeryConfig, edit_fact
from engram_lab.probes.switches import addresses_read
from engram_lab.tokens.documents import Documents
from tests.probes.planted_row import LAYER, PATH, PROMPT, planted_row

CONFIG = SurgeryConfig(target="Q", steps=40, lr=2.0, stop_at=0.7)


@pytest.fixture
def made():
    return planted_row()


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def probability(model, ids, target):
    with torch.no_grad():
        return float(model(ids).logits[0, -1].softmax(-1)[target])


def test_the_target_follows_the_prompt_while_the_edit_is_in_force(made):
    model, tokenizer, row = made
    ids, (target,) = tokenizer.encode(PROMPT), tokenizer.encode_ids("Q")
    before = probability(model, ids, target)
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        assert probability(model, ids, target) > 0.69
        history = surgery.history
        assert history["probability"].iloc[0] == pytest.approx(before, abs=1e-6)
        assert history["step"].tolist() == list(range(len(history)))
        assert history["probability"].iloc[-1] == pytest.approx(
            probability(model, ids, target), abs=1e-5
        )
        assert len(surgery.rows) == 4 and (surgery.rows["layer"] == LAYER).all()
        assert row in surgery.rows.loc[surgery.rows["order"] == 3, "row"].tolist()
        with surgery.undone():
            assert probability(model, ids, target) == pytest.approx(before, abs=1e-6)
        assert probability(model, ids, target) > 0.69
    assert probability(model, ids, target) == pytest.approx(before, abs=1e-6)


def test_only_the_rows_of_the_prompt_move_and_they_come_back_bit_for_bit(made):
    model, tokenizer, _ = made
    before = weights(model)
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        during = weights(model)
        moved = [name for name, value in during.items() if not torch.equal(value, before[name])]
        assert moved == [f"{PATH}.table.weight"]
        rows = (during[moved[0]] != before[moved[0]]).any(-1).nonzero().flatten().tolist()
        table = model.blocks[LAYER].engram.table
        read = addresses_read(model, surgery.prompt_ids)[LAYER][-1] + table.offsets
        assert set(rows) <= set(read.tolist())
        assert (surgery.rows["moved"] > 0).sum() == len(rows) > 0
    after = weights(model)
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def test_an_edit_that_is_kept_stays(made):
    model, tokenizer, _ = made
    ids, (target,) = tokenizer.encode(PROMPT), tokenizer.encode_ids("Q")
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        surgery.keep()
    assert surgery.kept and probability(model, ids, target) > 0.69


def test_an_error_inside_the_block_undoes_the_edit(made):
    model, tokenizer, _ = made
    before = weights(model)
    with pytest.raises(RuntimeError, match="mine"), edit_fact(model, PROMPT, tokenizer, CONFIG):
        raise RuntimeError("mine")
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_modes_flags_gradients_and_hooks_are_left_as_they_were(made):
    model, tokenizer, _ = made
    model.train()
    model.norm.weight.requires_grad_(False)
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    with torch.no_grad(), edit_fact(model, PROMPT, tokenizer, CONFIG):
        assert [module.training for module in model.modules()] == modes
        assert not torch.is_grad_enabled()
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_orders_and_positions_choose_the_rows(made):
    model, tokenizer, _ = made
    only = SurgeryConfig(target="Q", steps=1, orders=(3,))
    with edit_fact(model, PROMPT, tokenizer, only) as surgery:
        assert surgery.rows["order"].tolist() == [3, 3]
    more = SurgeryConfig(target="Q", steps=1, last_positions=3)
    with edit_fact(model, PROMPT, tokenizer, more) as surgery:
        assert len(surgery.rows) == 12 and surgery.rows["head"].nunique() == 2


def test_descent_stops_when_the_target_is_probable_enough(made):
    model, tokenizer, _ = made
    easy = SurgeryConfig(target="W", stop_at=0.5)
    with edit_fact(model, PROMPT, tokenizer, easy) as surgery:
        assert surgery.history["step"].tolist() == [0] and (surgery.rows["moved"] == 0).all()
    with edit_fact(model, PROMPT, tokenizer, SurgeryConfig(target="Q", steps=3)) as surgery:
        assert surgery.history["step"].tolist() == [0, 1, 2, 3]
        assert surgery.history["loss_nats"].is_monotonic_decreasing


def test_a_bf16_model_is_edited_in_bf16(made):
    model, tokenizer, _ = made
    model.bfloat16()
    before = weights(model)
    ids, (target,) = tokenizer.encode(PROMPT), tokenizer.encode_ids("Q")
    with edit_fact(model, PROMPT, tokenizer, CONFIG):
        assert probability(model, ids, target) > 0.6
        assert model.blocks[LAYER].engram.table.weight.dtype == torch.bfloat16
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_modules_that_share_a_table_are_edited_together():
    model, tokenizer, _ = planted_row(layers=(0, LAYER))
    share_rows(model.memories.values())
    before = weights(model)
    ids, (target,) = tokenizer.encode(PROMPT), tokenizer.encode_ids("Q")
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        assert len(surgery.rows) == 4 and surgery.shared(ids)[-1] == 8  # both modules read them
        assert surgery.history["probability"].iloc[-1] == pytest.approx(
            probability(model, ids, target), abs=1e-5
        )
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_a_row_of_the_hot_tier_can_be_edited():
    model, tokenizer, _ = planted_row()
    memory = model.blocks[LAYER].engram
    counter = KeyCounter(memory.hash)
    counter.add(tokenizer.encode("of "))
    add_hot_tier([memory], {3: KeyDictionary(counter.counts()[3])})
    frame = row_frame(model, PROMPT, tokenizer)
    assert (frame.loc[frame["order"] == 3, "row"] >= 97).all()
    with edit_fact(model, PROMPT, tokenizer, SurgeryConfig(target="Q", steps=2)) as surgery:
        assert surgery.rows["row"].tolist() == frame["row"].tolist()


class Companions:
    """An index in which every row is read by the prompt's n-gram and by some others."""

    def __init__(self, *texts, tokenizer):
        self.keys = [KeyUse(tuple(tokenizer.encode_ids(text)), text, 1) for text in texts]

    def use(self, layer, order, head, row):
        keys = [key for key in self.keys if len(key.token_ids) == order]
        return RowUse(len(keys), len(keys), keys)


def find_company(model, tokenizer):
    """A trigram that shares the planted row, and one that shares none of the prompt's rows."""
    own = addresses_read(model, tokenizer.encode(PROMPT))[LAYER][-1]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    texts = [a + b + c for a in letters[:12] for b in letters for c in letters]
    ids = torch.tensor([tokenizer.encode_ids(text) for text in texts])
    rows = model.blocks[LAYER].engram.hash.addresses(ids)[:, -1]
    shares = rows == own
    sharing = (shares[:, 3] & ~shares[:, :3].any(-1)).nonzero()[0]
    return texts[int(sharing)], texts[int((~shares.any(-1)).nonzero()[0])]


def test_collateral_is_where_rows_are_shared(made):
    model, tokenizer, _ = made
    company, stranger = find_company(model, tokenizer)
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        groups = {"share a row": [company], "strangers": [stranger]}
        frame = collateral_frame(surgery, groups, tokenizer).set_index("group")
    assert frame.index.tolist() == ["edited prompt", "share a row", "strangers"]
    edited, sharing, strange = (frame.loc[name] for name in frame.index)
    assert (edited["token"], edited["shared_last"]) == ("W", 4)
    assert edited["target_before"] < 0.1 and edited["target_after"] > 0.69
    assert edited["before"] > 0.9 > 0.3 > edited["after"] and edited["kl_nats"] > 1
    assert (sharing["prompt"], sharing["shared_last"]) == (company, 1)
    assert sharing["kl_nats"] > 1e-3
    assert strange["shared_rows"] == 0 and strange["kl_nats"] == pytest.approx(0, abs=1e-6)
    assert strange["before"] == pytest.approx(strange["after"], abs=1e-6)


def test_prompts_that_share_a_row_come_from_the_index(made):
    model, tokenizer, _ = made
    company, _ = find_company(model, tokenizer)
    index = Companions("of ", company, tokenizer=tokenizer)  # the prompt ends in "of " itself
    with edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery:
        prompts = sharing_prompts(surgery, index)
    assert [tokenizer.decode(ids) for ids in prompts] == [company]


def test_random_prompts_are_drawn_from_long_documents():
    texts = [np.arange(4, 9), np.arange(4, 7), np.arange(10, 20)]
    documents = Documents.from_lists(texts, vocab_size=20)
    prompts = random_prompts(documents, 5, length=4)
    assert sorted(ids[0, 0].item() for ids in prompts) == [4, 10]
    assert all(ids.shape == (1, 4) for ids in prompts)
    with pytest.raises(ValueError, match="at least 11 tokens; the longest of documents has 10"):
        random_prompts(documents, length=11)
    with pytest.raises(ValueError, match="count and length of at least 1; got 0 and 8"):
        random_prompts(documents, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"lr": 0.0}, "lr must be above 0; got 0.0"),
        ({"stop_at": 1.5}, r"stop_at must lie in \(0, 1\]; got 1.5"),
        ({"orders": ()}, "orders needs at least one order"),
        ({"last_positions": 0}, "last_positions must be at least 1; got 0"),
    ],
)
def test_a_config_that_breaks_a_rule_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SurgeryConfig(target="x", **changes)


@pytest.mark.parametrize(
    ("prompt", "changes", "message"),
    [
        ("", {}, "at least one token; got ''"),
        ("abc", {"target": "two"}, "must be one token; 'two' is 3"),
        ("abc", {"orders": (4,)}, r"among the orders of this memory, \(2, 3\); got \(4,\)"),
        ("x" * 300, {}, "at most 256 positions"),
    ],
)
def test_bad_input_is_refused_and_nothing_changes(made, prompt, changes, message):
    model, tokenizer, _ = made
    before = weights(model)
    config = SurgeryConfig(**{"target": "Q", **changes})
    with pytest.raises(ValueError, match=message), edit_fact(model, prompt, tokenizer, config):
        pass
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_an_empty_prompt_has_no_collateral(made):
    model, tokenizer, _ = made
    with (
        edit_fact(model, PROMPT, tokenizer, CONFIG) as surgery,
        pytest.raises(ValueError, match="a prompt must hold at least one token; got ''"),
    ):
        collateral_frame(surgery, {"empty": [""]}, tokenizer)


def test_a_model_without_memory_is_refused(made):
    model = EngramLM(tiny().replace(engram=None))
    with (
        pytest.raises(ValueError, match="this EngramLM has none"),
        edit_fact(model, PROMPT, made.tokenizer, CONFIG),
    ):
        pass
