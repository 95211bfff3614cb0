"""Reading rows: one written by hand is named, and switching it off undoes what it does."""

import pandas as pd
import pytest
import torch

from engram_lab.hooks import edit
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.rows import KeyUse, RowUse, next_token_frame, part_frame, row_frame
from engram_lab.probes.sayings import saying_frame
from engram_lab.probes.switches import Switch, addresses_read, switched_logits
from tests.probes.planted_row import HEAD, LAYER, ORDER, PATH, PROMPT, TARGET, planted_row

COLUMNS = ["layer", "order", "head", "row", "key", "keys", "key_count", "times_trained"]
COLUMNS += ["top_token", "value_norm", "token", "logit_change"]
COLUMNS += ["probability", "probability_without"]


@pytest.fixture(scope="module")
def made():
    return planted_row()


def the_row(frame: pd.DataFrame) -> pd.Series:
    (found,) = [
        row
        for _, row in frame.iterrows()
        if (row["order"], row["head"]) == (ORDER, HEAD) and row["layer"] == LAYER
    ]
    return found


def test_a_row_written_by_hand_is_named_with_what_it_says_and_does(made):
    model, tokenizer, row = made
    frame = row_frame(model, PROMPT, tokenizer)
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 4
    found = the_row(frame)
    assert (found["row"], found["key"], found["top_token"]) == (row, "of ", TARGET)
    assert found["token"] == TARGET and found["value_norm"] == pytest.approx(30, rel=1e-5)
    assert found["probability"] > 0.9 and found["probability_without"] < 0.1
    assert found["logit_change"] < -1
    others = frame[frame["top_token"] != TARGET]
    assert len(others) == 3  # rows of zeros say nothing and change nothing
    assert (others["top_token"] == "").all() and (others["value_norm"] == 0).all()
    assert others["logit_change"].to_numpy() == pytest.approx([0, 0, 0], abs=1e-5)


def test_the_change_is_that_of_a_table_without_the_row(made):
    model, tokenizer, row = planted_row()
    found = the_row(row_frame(model, PROMPT, tokenizer))
    ids = tokenizer.encode(PROMPT)
    with torch.no_grad():
        model.blocks[LAYER].engram.table.weight.zero_()
        probability = model(ids).logits[0, -1].softmax(-1)[tokenizer.encode_ids(TARGET)[0]]
    assert found["probability_without"] == pytest.approx(float(probability), abs=1e-6)


def test_without_an_index_what_trained_a_row_is_missing(made):
    frame = row_frame(made.model, PROMPT, made.tokenizer)
    assert frame["times_trained"].isna().all() and frame["key_count"].isna().all()
    assert (frame["keys"] == "").all()


def test_an_index_tells_who_shares_a_row_and_how_often_it_was_trained(made):
    class Index:
        def use(self, layer, order, head, row):
            assert layer == LAYER
            return RowUse(12, 5, [KeyUse((1, 2), key, len(key)) for key in ("of ", "xy", "z", "u")])

    found = the_row(row_frame(made.model, PROMPT, made.tokenizer, index=Index()))
    assert found["keys"] == "of  ×3, xy ×2, z ×1 and 2 more"
    assert (found["times_trained"], found["key_count"]) == (12, 5)


def test_a_window_that_reaches_before_the_text_shows_it(made):
    frame = row_frame(made.model, PROMPT, made.tokenizer, position=0)
    assert frame["key"].tolist() == ["⊢t", "⊢t", "⊢⊢t", "⊢⊢t"]


def test_another_target_can_be_watched(made):
    found = the_row(row_frame(made.model, PROMPT, made.tokenizer, target="x"))
    assert found["token"] == "x" and found["probability_without"] > found["probability"]


def test_each_part_that_holds_the_row_takes_the_token_away(made):
    model, tokenizer, row = made
    frame = part_frame(model, PROMPT, tokenizer)
    assert frame["part"].tolist() == ["module", *["order"] * 2, *["head"] * 2, *["row"] * 4]
    gone = frame[frame["probability_without"] < 0.1]
    assert gone["part"].tolist() == ["module", "order", "head", "row"]
    assert gone["order"].fillna(ORDER).eq(ORDER).all() and gone["head"].fillna(HEAD).eq(HEAD).all()
    assert gone["row"].dropna().tolist() == [row]
    assert (gone["kl_nats"] > 1).all() and (gone["top_token_without"] != TARGET).all()


def test_the_next_token_list_moves_when_the_row_is_off(made):
    model, tokenizer, row = made
    off = Switch(layer=LAYER, order=ORDER, head=HEAD, row=row)
    frame = next_token_frame(model, PROMPT, tokenizer, off=[off], top=3)
    assert frame["switched_off"].unique().tolist() == ["block 1, order 3, head 1, row " + str(row)]
    assert frame.loc[0, "token"] == TARGET and 4 <= len(frame) <= 6
    assert frame.loc[0, "probability"] > 0.9 > 0.1 > frame.loc[0, "probability_without"]
    largest = frame[["probability", "probability_without"]].max(axis=1)
    assert largest.is_monotonic_decreasing


def test_nothing_off_changes_nothing(made):
    frame = next_token_frame(made.model, PROMPT, made.tokenizer)
    assert (frame["switched_off"] == "nothing").all() and len(frame) == 10
    assert (frame["probability"] == frame["probability_without"]).all()


def test_a_prediction_is_that_of_the_prefix(made):
    model, tokenizer, _ = made
    frame = next_token_frame(model, PROMPT + "Wales", tokenizer, position=len(PROMPT) - 1)
    alone = next_token_frame(model, PROMPT, tokenizer)
    pd.testing.assert_frame_equal(frame, alone)


def test_silence_of_the_whole_memory_is_a_module_that_adds_nothing(made):
    model, tokenizer, _ = made
    ids = tokenizer.encode(PROMPT)
    (logits,) = switched_logits(model, ids, [[Switch()]])
    with edit(model, {f"{PATH}.hook_out": torch.zeros_like}), torch.no_grad():
        expected = model(ids).logits[0, -1]
    assert torch.allclose(logits, expected, atol=1e-5)


def test_more_states_than_fit_in_one_pass_are_computed_all_the_same(made):
    model, tokenizer, row = made
    off = Switch(layer=LAYER, order=ORDER, head=HEAD, row=row)
    states = [[off] if number % 3 else [] for number in range(20)]
    logits = switched_logits(model, tokenizer.encode(PROMPT), states)
    assert logits.shape == (20, tokenizer.vocab_size)
    assert torch.allclose(logits[::3], logits[:1], atol=1e-5)
    assert torch.allclose(logits[1::3], logits[1:2], atol=1e-5)


def test_what_a_row_says_is_its_value_through_norm_and_head(made):
    model, tokenizer, row = made
    rows = pd.DataFrame({"layer": [LAYER], "order": [ORDER], "head": [HEAD], "row": [row]})
    frame = saying_frame(model, rows, tokenizer, top=4)
    assert frame["rank"].tolist() == [0, 1, 2, 3] and frame["logit"].is_monotonic_decreasing
    memory = model.blocks[LAYER].engram
    alone = torch.zeros(4, 8)
    alone[3] = memory.table.weight[row + memory.table.offsets[3]]
    value = memory.projection.weight[-32:] @ alone.flatten()
    expected = model.lm_head(model.norm(value)).detach()
    assert frame["token_id"].tolist() == expected.topk(4).indices.tolist()
    best = (expected - expected.mean()).topk(4).values
    assert frame["logit"].tolist() == pytest.approx(best.tolist(), rel=1e-4)


def test_a_bias_is_no_part_of_what_a_row_says():
    made = planted_row()
    memory = made.model.blocks[LAYER].engram
    memory.projection.bias = torch.nn.Parameter(torch.full((64,), 50.0))
    rows = row_frame(made.model, PROMPT, made.tokenizer)[["layer", "order", "head", "row"]]
    frame = saying_frame(made.model, rows, made.tokenizer, top=1)
    assert frame["token"].tolist() == [TARGET]  # the three rows of zeros still say nothing


def test_the_model_is_left_as_it_was():
    model, tokenizer, row = planted_row()
    model.train()
    model.blocks[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    row_frame(model, PROMPT, tokenizer)
    part_frame(model, PROMPT, tokenizer)
    with pytest.raises(ValueError):
        row_frame(model, "x" * 300, tokenizer)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_bf16_model_gives_float_columns():
    model, tokenizer, _ = planted_row()
    found = the_row(row_frame(model.bfloat16(), PROMPT, tokenizer))
    assert found["top_token"] == TARGET and found["probability"] > 0.9


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ({"layer": 0}, "Switch.layer must be a block with memory"),
        ({"order": 4}, r"Switch.order must lie in 2..3; got 4"),
        ({"head": -1}, r"Switch.head must lie in 0..1; got -1"),
        ({"layer": 1, "order": 2, "head": 0, "row": 97}, r"Switch.row must lie in 0..96; got 97"),
    ],
)
def test_a_switch_of_a_part_that_is_not_there_is_refused(made, switch, message):
    with pytest.raises(ValueError, match=message):
        next_token_frame(made.model, PROMPT, made.tokenizer, off=[Switch(**switch)])


def test_a_row_switch_names_its_table():
    with pytest.raises(ValueError, match="needs layer, order and head"):
        Switch(layer=1, row=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ""}, "at least one token; got ''"),
        ({"text": "abc", "position": 3}, r"position must lie in -3..2.*got 3"),
        ({"text": "abc", "target": "xy"}, "must be one token; 'xy' is 2"),
        ({"text": "abc", "target": ""}, "must be one token; '' is 0: none"),
    ],
)
def test_bad_input_is_refused(made, arguments, message):
    with pytest.raises(ValueError, match=message):
        row_frame(made.model, tokenizer=made.tokenizer, **arguments)


def test_rows_that_do_not_exist_say_so(made):
    model, tokenizer, _ = made
    rows = pd.DataFrame({"layer": [1], "order": [2], "head": [0], "row": [97]})
    with pytest.raises(ValueError, match="no row 97 in the table of order 2 and head 0"):
        saying_frame(model, rows, tokenizer)
    with pytest.raises(ValueError, match=r"layer must be a block with memory \(1\); got 0"):
        saying_frame(model, rows.assign(layer=0), tokenizer)
    with pytest.raises(ValueError, match="top of at least 1"):
        saying_frame(model, rows, tokenizer, top=0)


def test_a_model_without_memory_is_refused(made):
    model = EngramLM(tiny().replace(engram=None))
    with pytest.raises(ValueError, match="this EngramLM has none"):
        row_frame(model, PROMPT, made.tokenizer)


def test_the_control_that_reads_its_neighbour_is_refused():
    model, tokenizer, _ = planted_row()
    memory = model.blocks[LAYER].engram
    memory.config = type(memory.config)(**{**vars(memory.config), "addresses": "neighbour"})
    with pytest.raises(ValueError, match="a text alone has no rows"):
        row_frame(model, PROMPT, tokenizer)


def test_two_texts_at_once_are_refused(made):
    with pytest.raises(
        ValueError, match=r"one text of at least one token; got ids of shape \(2, 3"
    ):
        addresses_read(made.model, torch.zeros(2, 3, dtype=torch.int64))
