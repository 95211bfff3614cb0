"""Gate credit: utility by hand where memory is right, wrong or silent."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engram_lab.hooks import edit
from engram_lab.memory.config import EngramConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.gate_credit import credit_frame, credit_table, oracle_auc, route_losses
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from tests.probes.planted import Follower, copies, plant, silent_model

TEXT = Documents.from_lists(
    [[5, 6, 7, 5], [8, 9, 7, 5], [9, 5, 8, 9]] * 4,
    vocab_size=12,
    classes=[[0, 0, 1, 0]] * 12,
    class_names=("a", "b"),
)


@pytest.fixture
def model() -> EngramLM:
    """Memory says 7 after 5 6, which is right, and 10 after 8 9, which is wrong."""
    model = silent_model(12, layers=(1,))
    plant(model, (5, 6), 7, layer=1)
    plant(model, (8, 9), 10, layer=1)
    return model


@pytest.fixture
def random_model() -> EngramLM:
    torch.manual_seed(0)
    memory = EngramConfig(layer_ids=(1,), engram_vocab_size=(97, 97), n_embed_per_ngram=16)
    model = EngramLM(tiny(12).replace(engram=memory), VocabCompression.identity(12)).eval()
    with torch.no_grad():
        model.memories[1].table.weight.mul_(50)
        model.memories[1].conv_weight.normal_()
    return model


def test_utility_is_positive_where_memory_is_right_and_negative_where_it_is_wrong(model):
    frame = credit_frame(model, TEXT, stride=4)
    assert list(frame.columns) == [
        "layer", "document", "position", "place", "token_class",
        "gate", "loss_nats", "loss_off", "loss_on", "utility_nats",
    ]  # fmt: skip
    assert len(frame) == 12 * 3 and (frame["layer"] == 1).all()
    by_place = frame[frame["document"] < 2].set_index(["document", "position"])
    right, wrong = by_place.loc[(0, 1)], by_place.loc[(1, 1)]
    assert right["utility_nats"] > 1 and wrong["utility_nats"] < -1
    assert right["token_class"] == "b" and right["loss_off"] > right["loss_on"]
    silent = frame[~frame["place"].isin([1, 5, 13, 17, 25, 29, 37, 41])]
    assert silent["utility_nats"].abs().max() == 0 and silent["gate"].max() <= 0.51


def test_a_gate_that_opens_where_memory_helps_gets_the_credit(model):
    frame = credit_frame(model, TEXT, stride=4)
    both_open = oracle_auc(frame, resamples=50)
    assert both_open["helped"] == pytest.approx(4 / 36)
    assert 0.5 < both_open["auc"] < 1  # open at right and wrong rows alike
    honest = frame.assign(gate=(frame["utility_nats"] > 0).astype(float))
    assert oracle_auc(honest, resamples=50) == {
        "auc": 1.0, "auc_low": 1.0, "auc_high": 1.0, "helped": both_open["helped"]
    }  # fmt: skip
    assert oracle_auc(frame.assign(gate=-honest["gate"]), resamples=50)["auc"] == 0


def test_every_position_alone_is_the_slow_way_by_hand(random_model):
    documents = TEXT.select([0, 1])
    frame = credit_frame(random_model, documents, stride=4).set_index(["document", "position"])
    ids = torch.tensor(documents.ids.reshape(2, 4).astype(np.int64))
    for position in range(3):
        for name, value in (("loss_off", 0.0), ("loss_on", 1.0)):

            def force(gate, position=position, value=value):
                gate = gate.clone()
                gate[:, position] = value
                return gate

            with torch.no_grad(), edit(random_model, {"blocks.1.engram.hook_gate": force}):
                logits = random_model(input_ids=ids).logits
            losses = F.cross_entropy(logits[:, position], ids[:, position + 1], reduction="none")
            for document in (0, 1):
                found = frame.loc[(document, position), name]
                assert found == pytest.approx(losses[document].item(), abs=1e-5)


def test_a_stride_of_one_forces_all_positions_together(random_model):
    frame = credit_frame(random_model, TEXT, stride=1)
    ids = torch.tensor(TEXT.ids.reshape(12, 4).astype(np.int64))
    with torch.no_grad(), edit(random_model, {"blocks.1.engram.hook_gate": torch.zeros_like}):
        logits = random_model(input_ids=ids).logits[:, :-1]
    losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    assert frame["loss_off"].to_numpy() == pytest.approx(losses.numpy(), abs=1e-5)


def test_the_table_adds_up_to_the_frame(random_model):
    frame = credit_frame(random_model, TEXT)
    hot = np.arange(TEXT.token_count) % 2 == 0
    table = credit_table(frame, hot)
    assert table["tokens"].sum() == len(frame)
    for column in ("gate", "loss_nats", "utility_nats"):
        total = (table[column] * table["tokens"]).sum()
        assert total == pytest.approx(frame[column].sum(), abs=1e-6)
    hot_tokens = table.loc[table["route"] == "hot", "tokens"].sum()
    assert hot_tokens == hot[frame["place"]].sum()
    assert table["gate_bin"].between(0, 19).all() and set(table["helped"]) <= {0, 1}
    assert ((table["gate"] * 20).astype(int) == table["gate_bin"]).all()


def test_losses_by_route_need_no_memory_and_agree_with_the_credit_frame(random_model):
    hot = np.arange(TEXT.token_count) % 3 == 0
    table = credit_table(credit_frame(random_model, TEXT), hot)
    routes = route_losses(random_model, TEXT, hot).set_index("route")
    for route, part in table.groupby("route"):
        mean = (part["loss_nats"] * part["tokens"]).sum() / part["tokens"].sum()
        assert routes.loc[route, "loss_nats"] == pytest.approx(mean, abs=1e-5)
        assert routes.loc[route, "tokens"] == part["tokens"].sum()
    assert set(route_losses(Follower(12, copies(1)), TEXT, hot)["route"]) == {"hot", "cold"}


def test_the_model_is_left_as_it_was(model):
    model.train()
    credit_frame(model, TEXT)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_memory_has_to_be_there_and_named(model):
    with pytest.raises(ValueError, match="has none"):
        credit_frame(EngramLM(tiny(12).replace(engram=None)), TEXT)
    with pytest.raises(ValueError, match=r"block with a memory \(1\); got 0"):
        credit_frame(model, TEXT, layer=0)
    with pytest.raises(ValueError, match="which are in blocks 0, 1"):
        credit_frame(silent_model(12, layers=(0, 1)), TEXT)
    with pytest.raises(ValueError, match="stride must be at least 1 position; got 0"):
        credit_frame(model, TEXT, stride=0)
