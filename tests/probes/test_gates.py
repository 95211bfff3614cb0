"""The gate probe: one row per layer, branch and position, and a model left as it was."""

import pytest
import torch
from torch import nn

from engram_lab.hooks import HookPoint, edit
from engram_lab.memory.config import EngramConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.gates import gate_frame, gates_of_ids
from engram_lab.tokens.compression import VocabCompression

TEXT = "the Princess of Wales"
COLUMNS = ["layer", "branch", "position", "token", "gate", "value_norm"]


class ByteTokenizer:
    """One id per byte, shifted past four reserved ids."""

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([[byte + 4 for byte in text.encode()]], dtype=torch.int64).reshape(
            1, -1
        )

    def tokens(self, ids: torch.Tensor) -> list[str]:
        return [chr(token_id - 4) for token_id in ids.flatten().tolist()]


@pytest.fixture
def model() -> EngramLM:
    torch.manual_seed(0)
    engram = EngramConfig(layer_ids=(0, 1), engram_vocab_size=(97, 97), n_embed_per_ngram=16)
    config = tiny().replace(engram=engram, max_position_embeddings=32)
    return EngramLM(config, VocabCompression.identity(config.vocab_size))


def test_there_is_one_row_per_layer_branch_and_position(model):
    frame = gate_frame(model, TEXT, ByteTokenizer())
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 2 * len(TEXT)
    assert frame["layer"].unique().tolist() == [0, 1]
    assert "".join(frame.loc[frame["layer"] == 1, "token"]) == TEXT
    assert frame["gate"].between(0, 1).all()


def test_value_norm_is_the_length_of_the_gated_value(model):
    ids = ByteTokenizer().encode(TEXT)
    written = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        written["value"] = value.detach()
        return value

    with edit(model, {"blocks.1.engram.hook_value": keep}):
        frame = gate_frame(model, TEXT, ByteTokenizer())
    rows = frame[frame["layer"] == 1]
    expected = rows["gate"].to_numpy() * written["value"][0].norm(dim=-1).numpy()
    assert rows["value_norm"].to_numpy() == pytest.approx(expected)
    assert ids.shape[1] == len(rows)


def test_a_gate_edited_to_a_half_reads_a_half(model):
    with edit(model, {"blocks.*.engram.hook_gate": lambda gate: torch.full_like(gate, 0.5)}):
        assert (gate_frame(model, TEXT, ByteTokenizer())["gate"] == 0.5).all()


def test_branches_come_one_after_the_other():
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.hook_gate, self.hook_value = HookPoint(), HookPoint()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, ids):
            self.hook_gate(torch.tensor([[[0.1, 0.2], [0.3, 0.4]]]))
            self.hook_value(torch.ones(1, 2, 4))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            block = nn.Module()
            block.engram = Memory()
            self.blocks = nn.ModuleList([block])

        def forward(self, ids):
            self.blocks[0].engram(ids)

    frame = gates_of_ids(Model(), torch.zeros(1, 2, dtype=torch.int64), ["a", "b"])
    assert frame["branch"].tolist() == [0, 0, 1, 1]
    assert frame["token"].tolist() == ["a", "b"] * 2
    assert frame["gate"].tolist() == pytest.approx([0.1, 0.3, 0.2, 0.4])
    assert frame["value_norm"].tolist() == pytest.approx([0.2, 0.6, 0.4, 0.8])


def test_the_model_is_left_as_it_was(model):
    model.train()
    model.blocks[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    gate_frame(model, TEXT, ByteTokenizer())
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_model_is_left_as_it_was_after_an_error(model):
    model.train()
    with pytest.raises(ValueError, match="at most 32 positions"):
        gate_frame(model, "x" * 33, ByteTokenizer())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_bf16_model_gives_a_float32_frame(model):
    frame = gate_frame(model.bfloat16(), TEXT, ByteTokenizer())
    assert frame["gate"].dtype == "float32" and frame["value_norm"].dtype == "float32"
    assert frame["gate"].notna().all()


def test_a_later_token_changes_nothing_earlier(model):
    short = gate_frame(model, TEXT[:9], ByteTokenizer())
    long = gate_frame(model, TEXT, ByteTokenizer())
    shared = long[long["position"] < 9]
    assert shared["gate"].to_numpy() == pytest.approx(short["gate"].to_numpy(), abs=1e-6)


def test_an_empty_text_is_refused(model):
    with pytest.raises(ValueError, match="at least one token; got ''"):
        gate_frame(model, "", ByteTokenizer())


def test_a_model_without_memory_is_refused():
    model = EngramLM(tiny().replace(engram=None))
    with pytest.raises(ValueError, match="this EngramLM has none"):
        gate_frame(model, TEXT, ByteTokenizer())


def test_ids_need_one_text_each(model):
    with pytest.raises(ValueError, match=r"shape \(1, 3\) and 2 texts"):
        gates_of_ids(model, torch.zeros(1, 3, dtype=torch.int64), ["a", "b"])
