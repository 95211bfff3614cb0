"""The expert layer against a loop over experts, forward and backward, in one run."""

import argparse

import torch
from common import append_rows, measure_together

from engram_lab.model.config import MoEConfig
from engram_lab.model.layers import swiglu
from engram_lab.model.moe import MoE


def loop_over_experts(layer: MoE, hidden: torch.Tensor) -> torch.Tensor:
    """The same layer, one expert at a time: pick its tokens, run it, add its outputs back."""
    tokens = hidden.flatten(0, 1)
    chosen, weights, _ = layer.router(tokens)
    output = layer.shared(tokens)
    for expert in range(layer.config.n_routed_experts):
        rows, slot = torch.where(chosen == expert)
        if not len(rows):
            continue
        inner = swiglu(tokens[rows] @ layer.experts.gate_up[expert])
        update = (inner @ layer.experts.down[expert]) * weights[rows, slot, None]
        output = output.index_add(0, rows, update)
    return output.view_as(hidden)


def compare(experts: int, expert_width: int, hidden_size: int, repeats: int) -> list[dict]:
    """Rows for both ways at one size."""
    config = MoEConfig(
        n_routed_experts=experts, topk=2, expert_width=expert_width, shared_width=128
    )
    layer = MoE(hidden_size, config)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    hidden = torch.randn(16, 128, hidden_size, requires_grad=True)
    probe = torch.randn_like(hidden)

    def grouped() -> None:
        layer(hidden)[0].backward(probe)

    def looped() -> None:
        loop_over_experts(layer, hidden).backward(probe)

    times = measure_together({"grouped": grouped, "loop": looped}, repeats, warmup=2)
    size = {
        "experts": experts,
        "expert_width": expert_width,
        "hidden_size": hidden_size,
        "tokens": 16 * 128,
    }
    ratio = times["loop"]["median_ms"] / times["grouped"]["median_ms"]
    return [
        {"case": name, **size, **time, "loop_over_grouped": ratio} for name, time in times.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    torch.manual_seed(0)
    for size in ((64, 64, 128), (32, 64, 128), (64, 16, 96)):
        rows = compare(*size, options.repeats)
        print(
            f"{size}: loop / grouped = {rows[0]['loop_over_grouped']:.2f} "
            f"({rows[0]['median_ms']:.1f} ms)"
        )
        if not options.dry:
            append_rows("moe", rows)
