"""Ways in which probes, presets and notebooks fail without an error."""

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import engram_lab.widgets.gates as widgets
from engram_lab.figures.style import plain
from engram_lab.hooks import edit, record
from engram_lab.memory import remainder
from engram_lab.memory.config import EngramConfig, demo, qwen, v41
from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.allocation import final_loss
from engram_lab.probes.gates import gates_of_ids
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import corpus_data, vocab_size
from engram_lab.training.fit import TrainedRun
from engram_lab.training.gradients import clip_gradients
from engram_lab.training.optimizers import build_optimizers

NOTEBOOKS = sorted(
    path
    for path in (Path(__file__).resolve().parent.parent / "notebooks").rglob("*.ipynb")
    if ".ipynb_checkpoints" not in path.parts
)
TOKENS = torch.arange(4, 16).view(1, 12)


class Watcher(TorchDispatchMode):
    """Sees every tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.largest, self.dtypes = 0, set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        inputs = {id(leaf) for leaf in tree_leaves((arguments, options))}
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self.dtypes.add(made.dtype)
                if id(made) not in inputs and not made._is_view():
                    self.largest = max(self.largest, made.numel())
        return result


def hook_count(model: nn.Module) -> int:
    """Hooks of every kind on every module."""
    kinds = [name for name in vars(nn.Module()) if name.endswith("_hooks")]
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def resident_pages() -> int:
    """Memory this process holds now."""
    status = Path("/proc/self/statm")
    if not status.is_file():
        pytest.skip("needs /proc to measure memory")
    return int(status.read_text().split()[1])


# hooks on a whole model


def test_recording_twice_gives_equal_tensors_and_leaves_no_hook(tiny_model):
    before, recordings = hook_count(tiny_model), []
    for _ in range(2):
        with record(tiny_model, ["*"]) as seen:
            tiny_model(TOKENS)
        recordings.append(dict(seen))
    assert hook_count(tiny_model) == before
    assert recordings[0].keys() == recordings[1].keys()
    assert all(torch.equal(recordings[1][name], value) for name, value in recordings[0].items())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_middle_of_a_pass_leaves_no_hook(tiny_model, error):
    def fails(value: torch.Tensor) -> torch.Tensor:
        raise error("stop")

    expected, before = tiny_model(TOKENS).logits, hook_count(tiny_model)
    with (
        pytest.raises(error),
        record(tiny_model, ["*hook_*"]),
        edit(tiny_model, {"blocks.1.hook_resid_mid": fails}),
    ):
        tiny_model(TOKENS)
    assert hook_count(tiny_model) == before
    assert torch.equal(tiny_model(TOKENS).logits, expected)


def test_an_edit_whose_second_pattern_fits_nothing_leaves_no_hook(tiny_model):
    before, edits = hook_count(tiny_model), {"*hook_ffn_out": torch.zeros_like}
    with pytest.raises(KeyError), edit(tiny_model, edits | {"hook_typo": torch.zeros_like}):
        pass
    assert hook_count(tiny_model) == before


def test_recording_changes_neither_the_model_nor_what_it_computes(tiny_model):
    tiny_model.train()
    tiny_model.blocks[0].eval()
    expected = tiny_model(TOKENS).logits
    state = [(p.dtype, p.device, p.requires_grad) for p in tiny_model.parameters()]
    modes = [module.training for module in tiny_model.modules()]
    with record(tiny_model, ["*"], positions=[-1], dtype=torch.bfloat16) as seen:
        watched = tiny_model(TOKENS).logits
    for value in seen.values():
        value.zero_()  # what was kept belongs to the reader
    # a watched memory takes its steps one by one, which may round the last bit otherwise
    torch.testing.assert_close(watched, expected, rtol=0, atol=1e-6)
    assert torch.equal(tiny_model(TOKENS).logits, expected)
    assert [(p.dtype, p.device, p.requires_grad) for p in tiny_model.parameters()] == state
    assert [module.training for module in tiny_model.modules()] == modes


def test_what_is_kept_has_no_graph_and_only_the_positions_asked_for(tiny_model):
    for positions in (None, [-1], slice(2, 4)):
        with record(tiny_model, ["*hook_*"], positions=positions) as seen:
            tiny_model(TOKENS)
        for name, value in seen.items():
            assert value.grad_fn is None and not value.requires_grad
            assert value.untyped_storage().nbytes() == value.nbytes, name


def test_position_minus_one_is_the_last_and_one_too_far_is_an_error(tiny_model):
    with record(tiny_model, ["hook_embed"]) as whole:
        tiny_model(TOKENS)
    with record(tiny_model, ["hook_embed"], positions=[-1]) as last:
        tiny_model(TOKENS)
    assert torch.equal(last["hook_embed"], whole["hook_embed"][:, 11:])
    with pytest.raises(IndexError), record(tiny_model, ["hook_embed"], positions=[12]):
        tiny_model(TOKENS)


def test_fifty_recordings_do_not_pile_up(tiny_config):
    config = tiny_config.replace(hidden_size=128, num_attention_heads=4)
    model = EngramLM(config, VocabCompression.identity(config.vocab_size))
    tokens = torch.randint(4, 260, (1, 128))

    def recorded(times: int) -> int:
        for _ in range(times):
            with record(model, ["blocks.*"]) as seen:
                model(tokens)
            kept = sum(value.nbytes for value in seen.values())
        assert kept > 2e6  # fifty of them would be seen
        return resident_pages()

    before = recorded(5)
    assert recorded(50) < 1.05 * before


# probes of large and of half-precision models


def test_a_probe_copies_no_table():
    engram = EngramConfig(layer_ids=(0, 1), engram_vocab_size=(5_003, 5_003), n_embed_per_ngram=32)
    config = tiny().replace(engram=engram)
    model = EngramLM(config, VocabCompression.identity(config.vocab_size))
    table = min(memory.table.weight.numel() for memory in model.memories.values())
    with Watcher() as seen:
        frame = gates_of_ids(model, TOKENS, ["x"] * 12)
    assert len(frame) == 24
    assert 0 < seen.largest < table / 20


def test_every_parameter_stands_in_memory_and_in_the_counts_once():
    for tied in (False, True):
        config = tiny().replace(tie_word_embeddings=tied)
        model = EngramLM(config, VocabCompression.identity(config.vocab_size))
        storages = {p.untyped_storage().data_ptr(): p.numel() for p in model.parameters()}
        assert sum(storages.values()) == sum(p.numel() for p in model.parameters())


def test_the_allocation_probe_gives_float64_losses_of_a_bf16_model():
    data = DataConfig(train_tokens=600, eval_tokens=300, document_length=64)
    documents = corpus_data(data)
    model = EngramLM(tiny(vocab_size(data)), documents.compression)
    run = TrainedRun(
        model=model.bfloat16().eval(),
        config=RunConfig(model=model.config, data=data, train=TrainConfig(batch_size=2)),
        history=pd.DataFrame({"tokens": [512]}),
        validation=documents.validation,
        tokenizer=None,
        compression=documents.compression,
        seconds=0.0,
    )
    frame = final_loss(run)
    assert frame["loss_nats"].dtype == np.float64 and np.isfinite(frame["loss_nats"]).all()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


# float64 is for CPUs


@pytest.mark.parametrize(
    ("size", "memory"),
    [(presets.tiny, None), (presets.workshop, None), (presets.full, None)]
    + [(presets.tiny, published) for published in (demo, v41, qwen)],
    ids=lambda maker: getattr(maker, "__name__", "own"),
)
def test_no_model_has_a_float64_parameter_or_buffer(size, memory):
    config = size()
    if memory is not None:
        config = config.replace(engram=replace(memory(), layer_ids=(1,)))
    config = config.replace(
        canonical_vocab_size=config.vocab_size, canonical_pad_id=0, canonical_eos_id=2
    )
    with torch.device("meta"):
        model = EngramLM(config)
    found = [*model.named_parameters(), *model.named_buffers()]
    assert len(found) > 20
    assert not [name for name, value in found if value.dtype == torch.float64]


def test_no_step_of_training_makes_a_float64_tensor_off_the_cpu(monkeypatch):
    # remainders take a short cut through float64 on CPUs alone
    monkeypatch.setattr(remainder, "_LARGEST", 0)
    model = EngramLM(tiny(), VocabCompression.identity(260)).train()
    optimizers = build_optimizers(model, TrainConfig())
    with Watcher() as seen:
        model(TOKENS, labels=TOKENS, document_ids=torch.zeros_like(TOKENS)).loss.backward()
        clip_gradients(model.parameters(), 1.0)
        optimizers.step()
        optimizers.zero_grad()
        model.update_balance()
        model.eval()(TOKENS, use_cache=True)
    assert torch.float32 in seen.dtypes and torch.int64 in seen.dtypes
    assert torch.float64 not in seen.dtypes


# notebooks


def steps(statements: list[ast.stmt]) -> Iterator[list[ast.AST]]:
    """Nodes of every statement in the order they run; of a loop its head, then its body."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef) or not hasattr(statement, "body"):
            yield list(ast.walk(statement))
            continue
        parts = list(ast.iter_child_nodes(statement))
        head = [part for part in parts if not isinstance(part, ast.stmt | ast.ExceptHandler)]
        yield [node for part in head for node in ast.walk(part)]
        for part in parts:
            if isinstance(part, ast.ExceptHandler):
                yield [part]
                yield from steps(part.body)
            elif isinstance(part, ast.stmt):
                yield from steps([part])


def names_of(source: str) -> tuple[set[str], set[str]]:
    """Names a cell reads before it gives them a value, and names it gives one."""
    needed, given = set(), set()
    for nodes in steps(ast.parse(source).body):
        inner = {  # comprehensions and arguments have names of their own
            name.id
            for node in nodes
            if isinstance(node, ast.comprehension)
            for name in ast.walk(node.target)
            if isinstance(name, ast.Name)
        } | {node.arg for node in nodes if isinstance(node, ast.arg)}
        names = [node for node in nodes if isinstance(node, ast.Name) and node.id not in inner]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        grown = {
            node.target.id
            for node in nodes
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        needed |= (read | grown) - given
        given |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        named = ast.FunctionDef | ast.ExceptHandler
        given |= {node.name for node in nodes if isinstance(node, named) and node.name}
        given |= {
            alias.asname or alias.name.split(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
    return needed, given


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_name_that_cells_share_is_given_by_one_earlier_cell(path):
    # so every cell and every section can be run again after any other
    cells = nbformat.read(path, as_version=4).cells
    parts = [names_of(cell.source) for cell in cells if cell.cell_type == "code"]
    for number, (needed, given) in enumerate(parts):
        for name in needed - set(dir(builtins)):
            givers = [other for other, (_, made) in enumerate(parts) if name in made]
            assert len(givers) == 1 and givers[0] < number, (number, name, givers)
        assert not needed & given, "a cell that changes what it reads cannot be run twice"


def test_the_picture_of_every_widget_is_one_line_away_without_it(tiny_config):
    tokenizer = load_tokenizer("byte")
    config = tiny_config.replace(vocab_size=tokenizer.vocab_size)
    model = EngramLM(config, VocabCompression.from_tokenizer(tokenizer)).eval()
    makers = [
        maker
        for name, maker in vars(widgets).items()
        if inspect.isfunction(maker) and maker.__module__ == widgets.__name__ and name[0] != "_"
    ]
    assert makers
    for maker in makers:
        (line,) = re.findall(r"Without controls: `(.+)`\.", inspect.getdoc(maker))
        known = {"model": model, "tokenizer": tokenizer, "text": "one and two"}
        expected = eval(line, vars(widgets) | known)
        box = maker(model, tokenizer, "one and two")
        (shown,) = [child for child in box.children if hasattr(child, "data")]
        for one, other in zip(expected.data, shown.data, strict=True):
            drawn = plain(other.to_plotly_json())
            drawn.pop("uid", None)
            assert drawn == plain(one.to_plotly_json())
