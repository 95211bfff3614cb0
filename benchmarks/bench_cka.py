"""CKA of 12 x 12 layers from products of features against both n-by-n kernels for every pair."""

import argparse

import torch
from common import append_rows, measure_together
from peak_bytes import PeakBytes

from engram_lab.probes.cka_layers import layer_similarity


def debiased_hsic(kernel: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The unbiased estimator from two kernels whose diagonals are zero."""
    n = len(kernel)
    total = (kernel * other).sum() - 2 / (n - 2) * kernel.sum(0) @ other.sum(0)
    return (total + kernel.sum() * other.sum() / ((n - 1) * (n - 2))) / (n * (n - 3))


def cka_of_kernels(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """CKA of one pair of layers as it is defined."""
    kernels = [(features @ features.T).fill_diagonal_(0) for features in (x, y)]
    between, one, other = (
        debiased_hsic(kernels[i], kernels[j]) for i, j in ((0, 1), (0, 0), (1, 1))
    )
    return between / (one * other).sqrt()


def compare(layers: int, samples: int, width: int, repeats: int) -> list[dict]:
    """Rows for both ways; the kernels are timed on one pair and multiplied by the pairs."""
    shared = torch.randn(samples, width)
    x, y = (
        torch.stack([shared + torch.randn(samples, width) for _ in range(layers)]) for _ in "xy"
    )
    with PeakBytes() as memory:
        found = layer_similarity(x, y).values
    torch.testing.assert_close(
        float(cka_of_kernels(x[0], y[0])), float(found[0, 0]), atol=1e-4, rtol=0
    )
    times = measure_together(
        {
            "features": lambda: layer_similarity(x, y),
            "minibatch": lambda: layer_similarity(x, y, estimator="minibatch"),
            "kernels, one pair": lambda: cka_of_kernels(x[0], y[0]),
        },
        repeats,
    )
    pairs = layers * layers
    size = {"layers": layers, "samples": samples, "width": width, "pairs": pairs}
    rows = [{"case": name, **size, **time} for name, time in times.items()]
    for row in rows[:2]:
        for key in ("median_ms", "cpu_ms"):
            slow = pairs * times["kernels, one pair"][key]
            row[f"kernels_over_this_{key.removesuffix('_ms')}"] = slow / row[key]
    rows[0]["peak_mib"] = (memory.peak + 2 * x.nbytes) / 2**20
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = compare(options.layers, options.samples, options.width, options.repeats)
    for row in rows:
        print(
            {
                key: round(value, 2) if isinstance(value, float) else value
                for key, value in row.items()
            }
        )
    if not options.dry:
        append_rows("cka", rows)
