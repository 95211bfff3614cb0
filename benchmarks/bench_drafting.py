"""Decoding with a drafter: ours, the loop of `transformers`, and both without drafts, in turn.

    python benchmarks/bench_drafting.py                       # a toy pair, not stored: seconds
    python benchmarks/bench_drafting.py --trained dspark      # trained here if it is not yet
    python benchmarks/bench_drafting.py --target T --drafter D --prompts P.json

Rows go to `benchmarks/results/drafting_<hardware>_<yyyymm>.csv`. Trained drafters are those of
`catalog.dspark_speed`, at the scale of ENGRAM_LAB_SCALE; their prompts are texts that neither they
nor the target have seen. Otherwise T is a folder of `save_pretrained`, D one of `save_drafter`, P a
list of lists of token ids. One sequence is decoded at a time, greedily, always to the full length;
every case gives the same tokens, or the script stops. `ratio` is how much faster than our own plain
decoding, `cpu_ratio` the same by processor time, which other programs disturb less. `foreseen` is
what `draft.breakeven` says beforehand: from the acceptance of half of the prompts, which are not
timed, and from a cost table of the target measured here.

What `transformers` can do with the same drafts is among the cases: its own DFlash where the drafter
is one (a drafter without heads whose anchor predicts nothing), and its own look-up beside ours.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from common import append_rows, measure_together
from torch import Tensor
from transformers import AutoModelForCausalLM

import engram_lab.model.modeling  # noqa: F401 - AutoModelForCausalLM then knows our models
from engram_lab.configs import fingerprint
from engram_lab.draft.assistant import dflash_assistant
from engram_lab.draft.breakeven import length_table
from engram_lab.draft.candidates import DrafterCandidates
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.interchange import checkpoint_taps, load_drafter
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.rounds import Generation
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.target_costs import target_cost_table
from engram_lab.experiments.catalog.dspark_speed import (
    SHAPES,
    SpeedDrafter,
    greedy_answers,
    speed_run,
)
from engram_lab.probes.acceptance import acceptance_frame
from engram_lab.training.draft_data import load_answers
from engram_lab.training.draft_fit import load_or_fit_drafter

GREEDY = Sampling(temperature=0.0)
Decode = Callable[[], list[list[int]]]


def analyse(
    target: Target, drafter: Proposer, prompts: list[Tensor], tokens: int, repeats: int
) -> list[dict]:
    """Time every way to decode the first half of the prompts; the other half is to foresee by."""
    lookup = NgramLookup(block_size=drafter.block_size)
    plain = Target(target.model)
    half = (len(prompts) + 1) // 2
    prompts, others = prompts[:half], prompts[half:] or prompts
    plans = {
        "drafter, ours": foreseen(target, drafter, others, tokens),
        "look-up, ours": foreseen(plain, lookup, others, tokens),
    }
    best = plans["drafter, ours"].speed_up.idxmax()
    print(plans["drafter, ours"].round(2).to_string(index=False))
    cases = ways(target, drafter, lookup, prompts, tokens, planned=int(best))
    check(cases)
    timed = measure_together(cases, repeats)
    base = timed["plain, ours"]
    size = {
        "target": type(target.model).__name__,
        "parameters": sum(p.numel() for p in target.model.parameters()),
        "drafter": type(drafter).__name__,
        "block_size": drafter.block_size,
        "sequences": len(prompts),
        "tokens": tokens,
    }
    accepted = {
        "drafter, ours": accepted_length(target, drafter, prompts, tokens),
        "look-up, ours": accepted_length(plain, lookup, prompts, tokens),
    }
    whole = {name: plan.speed_up.iloc[-1] for name, plan in plans.items()}
    whole["drafter as planned, ours"] = plans["drafter, ours"].speed_up.max()
    return [
        {"case": name, **size, "accepted_length": accepted.get(name), "foreseen": whole.get(name)}
        | times
        | {
            "tokens_per_s": 1e3 * tokens * len(prompts) / times["median_ms"],
            "ratio": base["median_ms"] / times["median_ms"],
            "cpu_ratio": base["cpu_ms"] / times["cpu_ms"],
        }
        for name, times in timed.items()
    ]


def ways(
    target: Target,
    drafter: Proposer,
    lookup: NgramLookup,
    prompts: list[Tensor],
    tokens: int,
    *,
    planned: int,
) -> dict[str, Decode]:
    """Every way to decode the prompts, by name."""
    plain = Target(target.model)
    cases = {
        "plain, ours": partial(ours, target, None, prompts, tokens),
        "plain, transformers": partial(library, target, prompts, tokens),
        "drafter, ours": partial(ours, target, drafter, prompts, tokens),
        "drafter as planned, ours": partial(ours, target, drafter, prompts, tokens, length=planned),
        "drafter, transformers": partial(plugged, target, drafter, prompts, tokens),
        "look-up, ours": partial(ours, plain, lookup, prompts, tokens),
        "look-up of ours, transformers": partial(plugged, plain, lookup, prompts, tokens),
        "look-up of transformers": partial(
            library, target, prompts, tokens, prompt_lookup_num_tokens=drafter.block_size
        ),
    }
    try:
        options = {"assistant_model": dflash_assistant(drafter), "speculation_type": "dflash"}
        cases["dflash of transformers"] = partial(library, target, prompts, tokens, **options)
    except (ValueError, AttributeError) as error:
        print(f"no dflash of transformers: {error}")
    return cases


def foreseen(target: Target, drafter: Proposer, prompts: list[Tensor], tokens: int) -> pd.DataFrame:
    """The `length_table` of a drafter: what each number of drafts should bring."""
    config = GenerationConfig(max_new_tokens=tokens, sampling=GREEDY, whole_blocks=True)
    made = [speculative_generate(target, drafter, prompt[None], config) for prompt in prompts]
    rates = acceptance_frame(made).set_index("position").conditional_rate
    rates = rates.reindex(range(1, drafter.block_size + 1)).fillna(0.0)
    drafting = [_drafting_seconds(one) for one in made]
    costs = target_cost_table(
        target,
        range(1, drafter.block_size + 2),
        context=len(prompts[0]) + tokens // 2,
        block=drafter.block_size + 1,
        repeats=15,
    )
    return length_table(rates.to_numpy(), costs, draft=statistics.median(drafting))


def _drafting_seconds(one: Generation) -> float:
    """Seconds of a round beside verification: drafting, and taking over what was accepted."""
    verifying = sum(entry.verify_seconds for entry in one.rounds)
    return (one.seconds - one.prefill_seconds - verifying) / len(one.rounds)


def ours(
    target: Target,
    drafter: Proposer | None,
    prompts: list[Tensor],
    tokens: int,
    length: int | None = None,
) -> list[list[int]]:
    """Our loop, one prompt after the other."""
    config = GenerationConfig(max_new_tokens=tokens, sampling=GREEDY, length=length)
    made = [speculative_generate(target, drafter, prompt[None], config) for prompt in prompts]
    return [one.token_ids[0].tolist() for one in made]


def library(
    target: Target, prompts: list[Tensor], tokens: int, **options: object
) -> list[list[int]]:
    """The library's loop, with its own drafts or none."""
    decode = partial(target.model.generate, **fixed(tokens), **options)
    return [decode(prompt[None])[0, len(prompt) :].tolist() for prompt in prompts]


def plugged(
    target: Target, drafter: Proposer, prompts: list[Tensor], tokens: int
) -> list[list[int]]:
    """The library's loop, with drafts of ours."""
    candidates = DrafterCandidates(target, drafter)
    decode = partial(candidates.generate, **fixed(tokens))
    return [decode(prompt[None])[0, len(prompt) :].tolist() for prompt in prompts]


def fixed(tokens: int) -> dict:
    """Options of `generate`: greedy, and no token ends a text."""
    return {"max_new_tokens": tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def check(cases: dict[str, Decode]) -> None:
    """Refuse to time what does not give the same tokens."""
    texts = {name: decode() for name, decode in cases.items()}
    wrong = [name for name, text in texts.items() if text != texts["plain, ours"]]
    if wrong:
        raise SystemExit(f"greedy decoding must not depend on the drafts; not so: {wrong}")


def accepted_length(target: Target, drafter: Proposer, prompts: list[Tensor], tokens: int) -> float:
    """Tokens a round gains, the bonus included."""
    config = GenerationConfig(max_new_tokens=tokens, sampling=GREEDY, whole_blocks=True)
    gained = [
        emitted
        for prompt in prompts
        for entry in speculative_generate(target, drafter, prompt[None], config).rounds
        for emitted in entry.emitted
    ]
    return sum(gained) / len(gained)


def golden() -> tuple[Target, Proposer, list[Tensor]]:
    """The toy pair of the tests: a dry run, whose speed says nothing."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.draft.tiny import golden_pair

    target, drafter, file = golden_pair()
    return target, drafter, [torch.tensor(trace["prompt"]) for trace in file["greedy_decoding"]]


def trained(
    kind: SpeedDrafter, seed: int, count: int, tokens: int
) -> tuple[Target, Proposer, list[Tensor], str]:
    """A trained drafter, prompts that it has not seen, and the name of its run."""
    config = speed_run(kind, seed)
    found = load_or_fit_drafter(config)
    unseen = greedy_answers(rows=count, answer_tokens=tokens, source="corpus")
    answers = load_answers(found.target_run, unseen, progress=False)
    return found.target, found.drafter, list(answers.prompts), fingerprint(config)


def stored(options: argparse.Namespace) -> tuple[Target, Proposer, list[Tensor]]:
    """Target, drafter and prompts out of files."""
    model = AutoModelForCausalLM.from_pretrained(options.target).eval()
    target = Target(model, checkpoint_taps(options.drafter))
    prompts = [torch.tensor(ids) for ids in json.loads(options.prompts.read_text())]
    return target, load_drafter(options.drafter, target), prompts[: options.sequences]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trained", choices=SHAPES, help="a drafter of catalog.dspark_speed")
    parser.add_argument("--seed", type=int, default=0, help="of the trained drafter")
    parser.add_argument("--target", type=Path, help="folder of save_pretrained")
    parser.add_argument("--drafter", type=Path, help="folder of save_drafter")
    parser.add_argument("--prompts", type=Path, help="JSON: lists of token ids")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    run = {}
    if options.trained:
        *parts, name = trained(options.trained, options.seed, options.sequences, options.tokens)
        run = {"run": name, "kind": options.trained, "seed": options.seed}
    else:
        parts = stored(options) if options.target else golden()
    rows = [run | row for row in analyse(*parts, options.tokens, options.repeats)]
    for row in rows:
        print({name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()})
    if not options.dry and (options.trained or options.target):  # a toy's speed is no result
        append_rows("drafting", rows)
