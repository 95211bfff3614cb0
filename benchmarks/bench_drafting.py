"""Decoding with a drafter: ours, the loop of `transformers`, and both without drafts, in turn.

    python benchmarks/bench_drafting.py --dry                       # the golden toy pair: seconds
    python benchmarks/bench_drafting.py --run 0123456789ab          # a trained drafter, by name
    python benchmarks/bench_drafting.py --target T --drafter D --prompts P.json

Rows go to `benchmarks/results/drafting_<hardware>_<yyyymm>.csv`. A run is named by the folder of
`fit_drafter` below `data/checkpoints`; its prompts are texts it has not seen. Otherwise T is a
folder of `save_pretrained`, D one of `save_drafter`, P a list of lists of token ids. One sequence
is decoded at a time, greedily, always to the full length; every case gives the same tokens, or the
script stops. `ratio` is how much faster than our own plain decoding, `cpu_ratio` the same by
processor time, which other programs disturb less.

What `transformers` can do with the same drafts is among the cases: its own DFlash where the drafter
is one (a drafter without heads whose anchor predicts nothing), and its own look-up beside ours.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from common import append_rows, measure_together
from torch import Tensor
from transformers import AutoModelForCausalLM

import engram_lab.model.modeling  # noqa: F401 - AutoModelForCausalLM then knows our models
from engram_lab import paths
from engram_lab.configs import from_dict
from engram_lab.draft.assistant import dflash_assistant
from engram_lab.draft.candidates import DrafterCandidates
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.interchange import checkpoint_taps, load_drafter
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target

GREEDY = Sampling(temperature=0.0)
Decode = Callable[[], list[list[int]]]


def analyse(
    target: Target, drafter: Proposer, prompts: list[Tensor], tokens: int, repeats: int
) -> list[dict]:
    """Time every way to decode the prompts."""
    lookup = NgramLookup(block_size=drafter.block_size)
    plain = Target(target.model)
    cases = {
        "plain, ours": partial(ours, target, None, prompts, tokens),
        "plain, transformers": partial(library, target, prompts, tokens),
        "drafter, ours": partial(ours, target, drafter, prompts, tokens),
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
    return [
        {"case": name, **size, "accepted_length": accepted.get(name)}
        | times
        | {
            "tokens_per_s": 1e3 * tokens * len(prompts) / times["median_ms"],
            "ratio": base["median_ms"] / times["median_ms"],
            "cpu_ratio": base["cpu_ms"] / times["cpu_ms"],
        }
        for name, times in timed.items()
    ]


def ours(
    target: Target, drafter: Proposer | None, prompts: list[Tensor], tokens: int
) -> list[list[int]]:
    """Our loop, one prompt after the other."""
    config = GenerationConfig(max_new_tokens=tokens, sampling=GREEDY)
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
    config = GenerationConfig(max_new_tokens=tokens, sampling=GREEDY)
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


def trained(name: str, count: int) -> tuple[Target, Proposer, list[Tensor]]:
    """A trained drafter by the name of its run, and prompts that it has not seen."""
    from engram_lab.training.draft_config import DraftRunConfig
    from engram_lab.training.draft_data import load_answers
    from engram_lab.training.draft_fit import load_or_fit_drafter

    record = json.loads((paths.checkpoints_dir() / name / "run.json").read_text())
    config = from_dict(DraftRunConfig, record["config"])
    found = load_or_fit_drafter(config, progress=False)
    unseen = replace(config.answers, rows=count, source="corpus", split="validation", seed=1)
    answers = load_answers(found.target_run, unseen, progress=False)
    return found.target, found.drafter, list(answers.prompts)


def stored(options: argparse.Namespace) -> tuple[Target, Proposer, list[Tensor]]:
    """Target, drafter and prompts out of files."""
    model = AutoModelForCausalLM.from_pretrained(options.target).eval()
    target = Target(model, checkpoint_taps(options.drafter))
    prompts = [torch.tensor(ids) for ids in json.loads(options.prompts.read_text())]
    return target, load_drafter(options.drafter, target), prompts[: options.sequences]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="name of a drafter's run below data/checkpoints")
    parser.add_argument("--target", type=Path, help="folder of save_pretrained")
    parser.add_argument("--drafter", type=Path, help="folder of save_drafter")
    parser.add_argument("--prompts", type=Path, help="JSON: lists of token ids")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    if options.run:
        parts = trained(options.run, options.sequences)
    else:
        parts = stored(options) if options.target else golden()
    rows = analyse(*parts, options.tokens, options.repeats)
    for row in rows:
        print({name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()})
    if not options.dry:
        append_rows("drafting", rows)
