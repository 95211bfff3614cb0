"""How fast the memory is: addresses beside the usual NumPy way, the module beside its products.

    python benchmarks/bench_memory.py                # both, a minute on one core
    python benchmarks/bench_memory.py addresses      # one of: addresses, module
    python benchmarks/bench_memory.py addresses --engram-peft PATH/engram_peft/hashing.py

Rows go to `benchmarks/results/memory_<hardware>_<yyyymm>.csv`. `ratio` divides a case by the one
named in `against`, measured in turn with it in the same run.

The last form times the address code of the package `engram-peft` as well. It is no dependency:
unpack its wheel anywhere and name the file.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from common import append_rows, measure_together
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.hashing import NgramHash

VOCAB = 4_096
SEQ = 128


def numpy_addresses(ids: np.ndarray, multipliers: np.ndarray, primes: np.ndarray) -> np.ndarray:
    """Addresses the way of the January demo: shift, multiply, xor, one remainder per head."""
    seq = ids.shape[1]
    shifted = [np.pad(ids, ((0, 0), (lag, 0)))[:, :seq] for lag in range(len(multipliers))]
    columns = []
    for order, lengths in enumerate(primes, start=2):
        mixed = shifted[0] * multipliers[0]
        for lag in range(1, order):
            mixed = np.bitwise_xor(mixed, shifted[lag] * multipliers[lag])
        columns += [mixed % int(length) for length in lengths]
    return np.stack(columns, axis=2)


def addresses(sequences: int, rows: int, peft_file: Path | None) -> list[dict]:
    """Two layers, N = 3, K = 8: ours, NumPy's, and `engram-peft`'s where its file is named."""
    config = EngramConfig(
        layer_ids=(1, 14), engram_vocab_size=(rows, rows), n_head_per_ngram=8, n_embed_per_ngram=128
    )
    layers = {
        layer: NgramHash(config, layer, canonical_vocab_size=VOCAB, fill_id=0)
        for layer in config.layer_ids
    }
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCAB, (sequences, SEQ), generator=generator)
    array = ids.numpy()
    constants = [(h.multipliers.numpy(), h.primes.numpy()) for h in layers.values()]
    cases: dict[str, Callable[[], list]] = {
        "addresses": lambda: [layer.addresses(ids) for layer in layers.values()],
        "addresses, NumPy": lambda: [numpy_addresses(array, *numbers) for numbers in constants],
    }
    if peft_file is not None:
        mapping = _peft_module(peft_file).NgramHashMapping(
            compressed_vocab_size=VOCAB,
            engram_vocab_size_per_ngram=[8 * rows, 8 * rows],
            layer_ids=list(layers),
            pad_id=0,
        )
        cases["addresses, engram-peft"] = lambda: list(mapping.hash(ids).values())
    for ours, theirs in zip(*(case() for case in list(cases.values())[:2]), strict=True):
        assert np.array_equal(ours, theirs)  # engram-peft pairs multipliers and tokens otherwise
    sizes = {"tokens": ids.numel(), "orders": 2, "heads": 8, "layers": 2, "rows_per_head": rows}
    times = measure_together(cases, 31, warmup=3)
    return _rows(times, "addresses", sizes)


def _peft_module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location("engram_peft_hashing", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


class PerBranch(nn.Module):
    """The module written the way the demo writes it: one linear map and two norms per branch.

    It reads rows that are handed to it, as ours does here.
    """

    def __init__(self, mem_width: int, width: int, branches: int, conv: bool):
        super().__init__()
        self.width = width
        self.value = nn.Linear(mem_width, width, bias=False)
        self.keys = nn.ModuleList(nn.Linear(mem_width, width, bias=False) for _ in range(branches))
        self.key_norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(branches))
        self.query_norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(branches))
        if conv:
            channels = branches * width
            self.conv_norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(branches))
            self.conv = nn.Conv1d(
                channels, channels, 4, groups=channels, dilation=3, padding=9, bias=False
            )

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        """The update: per branch key, gate and value, then the convolution over all channels."""
        gates = []
        for branch, project in enumerate(self.keys):
            key = self.key_norms[branch](project(memory))
            query = self.query_norms[branch](hidden[:, :, branch])
            score = (key * query).sum(-1) / self.width**0.5
            gates.append(torch.sigmoid(score.abs().clamp_min(1e-6).sqrt() * score.sign()))
        gated = torch.stack(gates, 2).unsqueeze(-1) * self.value(memory).unsqueeze(2)
        if not hasattr(self, "conv"):
            return gated
        normed = [norm(gated[:, :, branch]) for branch, norm in enumerate(self.conv_norms)]
        channels = torch.cat(normed, -1).transpose(1, 2)
        mixed = F.silu(self.conv(channels)[..., :SEQ]).transpose(1, 2)
        return gated + mixed.unflatten(-1, (len(self.keys), self.width))


def module(
    branches: int, heads: int, conv: bool, *, width: int = 128, row_width: int = 16
) -> list[dict]:
    """Forward and backward of one module, beside its products and row gather alone."""
    sequences = 16 if width <= 128 else 4
    config = EngramConfig(
        layer_ids=(1,), n_head_per_ngram=heads, n_embed_per_ngram=row_width * heads, conv=conv
    )
    engram = Engram(
        config, 1, hidden_size=width, hc_mult=branches, canonical_vocab_size=VOCAB, fill_id=0
    )
    listed = PerBranch(config.mem_width, width, branches, conv)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCAB, (sequences, SEQ), generator=generator)
    shape = (sequences, SEQ, branches, width)
    hidden = torch.randn(shape, generator=generator).requires_grad_()
    pull = torch.randn(shape, generator=generator)
    pull_parts = torch.randn(sequences, SEQ, (branches + 1) * width, generator=generator)
    addresses = engram.hash.addresses(ids)

    # freed at once: as in a model, whose logits do the same, the allocator keeps memory from now on
    torch.ones(30 * 2**18)

    def clear() -> None:
        hidden.grad = None
        engram.zero_grad()
        listed.zero_grad()

    def whole() -> None:
        clear()
        engram(hidden, ids).backward(pull)

    def parts() -> None:
        clear()
        engram.projection(engram.table(addresses).flatten(2)).backward(pull_parts)

    def per_branch() -> None:
        clear()
        rows = engram.table(engram.hash.addresses(ids))
        listed(hidden, rows.flatten(2)).backward(pull)

    cases = {"module": whole, "products and gather": parts, "module, list of branches": per_branch}
    sizes = {
        "tokens": ids.numel(),
        "branches": branches,
        "heads": heads,
        "orders": 2,
        "hidden_size": width,
        "row_width": row_width,
        "conv": conv,
    }
    return _rows(measure_together(cases, 31, warmup=3), "products and gather", sizes)


def _rows(times: dict[str, dict], against: str, sizes: dict) -> list[dict]:
    base = times[against]
    return [
        {"case": case, "numpy": np.__version__, **sizes, **time}
        | {"tokens_per_s": 1e3 * sizes["tokens"] / time["median_ms"], "against": against}
        | {"ratio": time["median_ms"] / base["median_ms"]}
        | {"cpu_ratio": time["cpu_ms"] / base["cpu_ms"]}
        for case, time in times.items()
    ]


def main() -> None:
    """Run the parts asked for and append their rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["addresses", "module"])
    parser.add_argument("--engram-peft", type=Path, help="its hashing.py")
    parser.add_argument("--dry", action="store_true", help="print, but append nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if arguments.part in (None, "addresses"):
        for sequences in (16, 512):
            for budget in (5_000, 646_400):
                rows += addresses(sequences, budget, arguments.engram_peft)
    if arguments.part in (None, "module"):
        for branches in (1, 4):
            for heads in (4, 8):
                for conv in (True, False):
                    rows += module(branches, heads, conv)
            for conv in (True, False):
                rows += module(branches, 8, conv, width=512, row_width=64)
    for row in rows:
        sizes = f"{row['tokens']} tokens, {row.get('branches', '-')} branches, {row['heads']} heads"
        sizes += f", width {row.get('hidden_size', '-')}"
        print(
            f"{row['case']:26} {sizes}, conv {row.get('conv', '-')}: {row['median_ms']:.2f} ms "
            f"(best {row['best_ms']:.2f}), {row['ratio']:.2f} of {row['against']}"
        )
    if not arguments.dry:
        print(append_rows("memory", rows))


if __name__ == "__main__":
    main()
