"""How fast training is: the sparse table update, the step of a hybrid model, the loop around it.

    python benchmarks/bench_training.py            # all three, some minutes on one core
    python benchmarks/bench_training.py table      # one of: table, step, loop

Rows go to `benchmarks/results/training_<hardware>_<yyyymm>.csv`. `ratio` divides a case by the one
named in `against`, measured in turn with it in the same run.
"""

import itertools
import sys
from collections.abc import Callable

import torch
from common import append_rows, measure_together
from torch import Tensor, nn

from engram_lab.model.budget import budget
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import workshop
from engram_lab.tokens.compression import VocabCompression
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import corpus_data, vocab_size
from engram_lab.training.lazy_adam import LazyAdam
from engram_lab.training.loop import Loop
from engram_lab.training.objective import NextToken

ROWS, WIDTH, TOUCHED, CHUNK = 2_000_000, 128, 32_768, 512
REPEATS = 11
DATA = DataConfig(corpus="d8", train_tokens=200_000, eval_tokens=1_000)
TRAIN = TrainConfig(batch_size=16, seq_len=128, device="cpu", steps=10_000)


def table_update() -> list[dict]:
    """Lazy Adam on 32k random rows of a 2M x 128 table, beside moving the same rows and state."""
    generator = torch.Generator().manual_seed(0)
    table = nn.Parameter(torch.randn(ROWS, WIDTH, generator=generator))
    values = torch.randn(TOUCHED, WIDTH, generator=generator)
    drawn = [torch.randperm(ROWS, generator=generator)[:TOUCHED] for _ in range(REPEATS + 1)]
    optimizer = LazyAdam([table], lr=1e-3)
    table.grad = _sparse(drawn[0], values)
    optimizer.step()
    state = optimizer.state[table]
    operands = [table.detach(), state["exp_avg"], state["exp_avg_sq"]]

    def bare(rows: Tensor, chunk: int) -> None:
        for part in rows.split(chunk):
            for operand in operands:
                operand.index_copy_(0, part, operand.index_select(0, part))

    def lazy(rows: Tensor) -> None:
        table.grad = _sparse(rows, values)  # sorted and summed inside the step
        optimizer.step()

    cases = {
        "gather and scatter": lambda rows: bare(rows, TOUCHED),
        "gather and scatter, in cached parts": lambda rows: bare(rows, CHUNK),
        "sum duplicates": lambda rows: _sparse(rows, values).coalesce(),
        "lazy Adam": lazy,
    }
    timings = measure_together({n: _each(drawn, case) for n, case in cases.items()}, REPEATS)
    sizes = {"rows": ROWS, "row_width": WIDTH, "touched_rows": TOUCHED}
    return _rows(timings, sizes, against="gather and scatter")


def training_step() -> list[dict]:
    """A whole update of the hybrid, beside a dense model that computes with as many parameters."""
    vocab = vocab_size(DATA)
    hybrid = workshop(vocab)
    experts = hybrid.replace(engram=None)
    active = budget(hybrid).active
    dense = min(
        (EngramLMConfig(vocab_size=vocab, intermediate_size=width) for width in range(64, 1024)),
        key=lambda config: abs(budget(config).active - active),
    )
    configs = {"dense": dense, "experts": experts, "hybrid": hybrid}
    loops = {name: _loop(config) for name, config in configs.items()}
    cases = {name: _updates(loop) for name, loop in loops.items()}
    tokens = TRAIN.batch_size * TRAIN.seq_len
    rows = _rows(measure_together(cases, REPEATS, warmup=2), {"tokens": tokens}, against="dense")
    for row in rows:
        row["active_params"] = budget(configs[row["case"]]).active
        row["tokens_per_s"] = 1e3 * tokens / row["median_ms"]
    return rows


def loop_overhead() -> list[dict]:
    """The loop's update beside forward, backward and optimiser alone, on a small model."""
    config = EngramLMConfig(
        vocab_size=vocab_size(DATA), hidden_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    loop = _loop(config)
    share = loop.objective.share(0)
    (part,) = share.parts

    def bare() -> None:
        loss, _ = loop.objective.loss(loop.model, part, share)
        loss.backward()
        loop.optimizers.step()
        loop.optimizers.zero_grad()

    cases = {"bare step": bare, "loop": _updates(loop)}
    return _rows(measure_together(cases, 4 * REPEATS, warmup=3), {}, against="bare step")


def _loop(config: EngramLMConfig) -> Loop:
    run = RunConfig(model=config, data=DATA, train=TRAIN)
    torch.manual_seed(0)
    model = EngramLM(run.model, VocabCompression.identity(run.model.vocab_size))
    objective = NextToken(corpus_data(DATA).train, TRAIN, 0)
    loop = Loop(model, objective, TRAIN, steps=run.steps, identity="")
    loop.model.train()
    return loop


def _updates(loop: Loop) -> Callable[[], None]:
    return lambda: loop._update()["loss_nats"].item()


def _each(drawn: list[Tensor], case: Callable[[Tensor], object]) -> Callable[[], object]:
    """`case` on other rows every time, so that none of them is still in a cache."""
    rows = itertools.cycle(drawn)
    return lambda: case(next(rows))


def _sparse(rows: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(rows[None], values, (ROWS, WIDTH), check_invariants=False)


def _rows(timings: dict[str, dict], sizes: dict, *, against: str) -> list[dict]:
    """One row per case, with its median wall and processor time as multiples of another case's."""
    other = timings[against]
    return [
        {
            "case": case,
            **sizes,
            **timing,
            "against": against,
            "ratio": timing["median_ms"] / other["median_ms"],
            "cpu_ratio": timing["cpu_ms"] / other["cpu_ms"],
        }
        for case, timing in timings.items()
    ]


BENCHMARKS = {"table": table_update, "step": training_step, "loop": loop_overhead}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        found = BENCHMARKS[name]()
        for row in found:
            print(
                f"{name:6} {row['case']:36} {row['median_ms']:9.2f} ms "
                f"(cpu {row['cpu_ms']:.2f})  ratio {row['ratio']:.2f} (cpu {row['cpu_ratio']:.2f})"
            )
        print(append_rows("training", [{"benchmark": name, **row} for row in found]))
