"""What a lens costs: 30 layers and 49,152 words, a part at a time or all logits at once.

    python benchmarks/bench_lens.py                  # two minutes on a quiet core
    python benchmarks/bench_lens.py --seq 512 --hidden 576

Rows go to `benchmarks/results/lens_<hardware>_<yyyymm>.csv`. `peak_layers` is the most memory that
tensors took at a time (beside the weights), in units of the logits of one layer; `ratio` and
`peak_ratio` divide time and memory by those of the case named in `against`, of the same run.
"""

import argparse

import torch
from common import append_rows, measure_together
from peak_bytes import PeakBytes
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from engram_lab.probes.lens import logit_lens

LAYERS, VOCAB = 30, 49_152


def all_at_once(model: GPT2LMHeadModel, ids: Tensor) -> dict[str, Tensor]:
    """The same measures, the logits of all layers in memory together."""
    with torch.no_grad():
        output = model(ids, output_hidden_states=True)
        states = torch.stack(output.hidden_states[:-1])
        logits = torch.cat([model.lm_head(model.transformer.ln_f(states)), output.logits[None]])
        logprob = logits.log_softmax(-1)
        prob, final = logprob.exp(), logprob[-1:]
        behind = final - logprob
        reached = logprob[:, :, :-1].gather(
            -1, ids[None, :, 1:, None].expand(len(logprob), *[-1] * 3)
        )
        return {
            "kl_nats": (final.exp() * behind).sum(-1),
            "reverse_kl_nats": -(prob * behind).sum(-1),
            "entropy_nats": -(prob * logprob).sum(-1),
            "top_token": logprob.argmax(-1),
            "target_rank": 1 + (logprob[:, :, :-1] > reached).sum(-1),
        }


def rows(seq: int, hidden: int, repeats: int) -> list[dict]:
    """Time and memory of a lens over a random model, both ways."""
    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=hidden,
        n_layer=LAYERS,
        n_head=hidden // 32,
        n_positions=seq,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = GPT2LMHeadModel(config).eval()
    ids = torch.randint(3, VOCAB, (1, seq), generator=torch.Generator().manual_seed(0))
    tokens = [str(token_id) for token_id in ids[0].tolist()]
    cases = {
        "lens": lambda: logit_lens(model, ids, tokens),
        "all logits at once": lambda: all_at_once(model, ids),
        "forward pass": lambda: model(ids, use_cache=False).logits,
    }
    ours = cases["lens"]()["kl_nats"].to_numpy().reshape(LAYERS + 1, seq)
    theirs = cases["all logits at once"]()["kl_nats"][:, 0].numpy()
    assert abs(ours - theirs).max() < 1e-3
    layers_worth = {}
    for name, case in cases.items():
        with torch.no_grad(), PeakBytes() as memory:
            case()
        layers_worth[name] = memory.peak / (4 * seq * VOCAB)
    with torch.no_grad():
        times = measure_together(cases, repeats)
    against = "all logits at once"
    sizes = {"layers": LAYERS, "vocab": VOCAB, "seq": seq, "hidden": hidden}
    return [
        {
            "case": name,
            **sizes,
            **time,
            "peak_layers": layers_worth[name],
            "ratio": time["median_ms"] / times[against]["median_ms"],
            "peak_ratio": layers_worth[name] / layers_worth[against],
            "against": against,
        }
        for name, time in times.items()
    ]


def main() -> None:
    """Measure and append."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found = rows(options.seq, options.hidden, options.repeats)
    for row in found:
        print(
            f"{row['case']:>20}: {row['median_ms']:9.0f} ms ({row['ratio']:.2f} of all at once), "
            f"{row['peak_layers']:6.2f} layers' worth of logits ({row['peak_ratio']:.3f})"
        )
    print(append_rows("lens", found))


if __name__ == "__main__":
    main()
