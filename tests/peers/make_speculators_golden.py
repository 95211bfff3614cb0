"""What the `speculators` library makes of our checkpoints, stored so that tests need it no more.

Two steps, since that library wants an older `transformers` than we do:

    python -m tests.peers.make_speculators_golden save FOLDER          # in our environment
    python tests/peers/make_speculators_golden.py compute FOLDER       # in one that has speculators

The second writes `tests/golden/speculators_checkpoints.json`: for every case the config we wrote,
logits, confidences and loss of that library's own class on states it took from the target itself,
and the config and tensor names with which it saves the drafter again. An environment for it:
`pip install speculators==0.9.0 torch==2.13.0`.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import torch

GOLDEN = Path(__file__).parents[1] / "golden" / "speculators_checkpoints.json"
WEIGHTS = {"ce": 0.1, "tv": 0.9}


def save(folder: Path) -> None:
    """Write target and drafters."""
    from engram_lab.draft.interchange import save_speculators
    from tests.draft.interchange_cases import CASES, MASKED_IN, TEXT, case

    verifier = folder / "target"
    for name in CASES:
        target, drafter = case(name)
        save_speculators(drafter, folder / name, verifier=str(verifier))
    target.model.save_pretrained(verifier)
    cases = {"names": list(CASES), "text": TEXT, "masked_in": MASKED_IN}
    (folder / "cases.json").write_text(json.dumps(cases))


def compute(folder: Path) -> None:
    """Load each with that library, run it, save it again."""
    import transformers

    cases = json.loads((folder / "cases.json").read_text())
    ids = torch.tensor([cases["text"]])
    mask = torch.zeros_like(ids)
    mask[0, cases["masked_in"]] = 1
    target = transformers.AutoModelForCausalLM.from_pretrained(folder / "target").eval()
    raw = {}  # the last entry of hidden_states is normalised, so the last block is hooked
    target.model.layers[-1].register_forward_hook(lambda m, i, out: raw.update(out=_first(out)))
    with torch.no_grad():
        states = target(ids, output_hidden_states=True).hidden_states
    found = {
        "versions": {name: version(name) for name in ("speculators", "transformers", "torch")},
        "text": cases["text"],
        "masked_in": cases["masked_in"],
        "loss_weights": WEIGHTS,
        "cases": {
            name: _one(folder, name, ids, mask, states, raw["out"]) for name in cases["names"]
        },
    }
    GOLDEN.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n")
    print(GOLDEN, GOLDEN.stat().st_size)


def _one(folder, name, ids, mask, states, last) -> dict:
    from speculators import SpeculatorModel, SpeculatorModelConfig
    from speculators.losses import resolve_loss_config
    from speculators.losses.eager import tv_loss
    from speculators.models.dflash import core as dflash
    from speculators.models.dspark import core as dspark

    written = json.loads((folder / name / "config.json").read_text())
    config = SpeculatorModelConfig.from_pretrained(folder / name)
    config.transformer_layer_config._attn_implementation = "eager"
    model = SpeculatorModel.from_pretrained(folder / name, config=config).eval()
    features = torch.cat([states[layer] for layer in model.target_layer_ids], dim=-1)
    seen = {}
    core = dspark if isinstance(model, dspark.DSparkDraftModel) else dflash
    plain, core.compute_metrics = core.compute_metrics, _watching(core.compute_metrics, seen)
    with torch.no_grad():
        terms = ",".join(f'"{term}": {weight}' for term, weight in WEIGHTS.items())
        _, loss, metrics = model(
            hidden_states=features,
            input_ids=ids,
            loss_mask=mask,
            verifier_last_hidden_states=last,
            document_ids=torch.zeros_like(ids),
            loss_config=resolve_loss_config("{" + terms + "}", "eager"),
            max_anchors=int(mask.sum()),
            **({"tv_loss_fn": tv_loss} if core is dspark else {}),
        )
    core.compute_metrics = plain
    slots = config.block_size
    again = folder / f"{name}_again"
    model.save_pretrained(again)
    from safetensors.torch import load_file

    resaved = json.loads((again / "config.json").read_text())
    resaved["speculators_config"]["verifier"]["name_or_path"] = None
    written["speculators_config"]["verifier"]["name_or_path"] = None
    return {
        "class": type(model).__name__,
        "written": written,
        "resaved": resaved,
        "resaved_tensors": sorted(load_file(again / "model.safetensors")),
        "logits": _rounded(seen["logits"].view(-1, slots, seen["logits"].shape[-1])),
        "confidence": None
        if seen.get("confidence") is None
        else _rounded(seen["confidence"].view(-1, slots)),
        "loss_mask": seen["mask"].view(-1, slots).int().tolist(),
        "loss": round(float(loss), 6),
        "accepted_length": round(float(metrics["accept_len_sum"] / metrics["accept_len_total"]), 6)
        if "accept_len_sum" in metrics
        else None,
    }


def _watching(compute_metrics, seen):
    def watched(logits, targets, *rest, **options):
        *confidence, mask, _ = rest  # a DFlash passes no confidences
        seen.update(logits=logits, mask=mask, confidence=confidence[0] if confidence else None)
        return compute_metrics(logits, targets, *rest, **options)

    return watched


def _first(output):
    return output[0] if isinstance(output, tuple) else output


def _rounded(values: torch.Tensor) -> list:
    return json.loads(json.dumps(values.tolist()), parse_float=lambda text: round(float(text), 5))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("save", "compute"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    {"save": save, "compute": compute}[options.step](options.folder)
