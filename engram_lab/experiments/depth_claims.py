"""Claims about depth: lens (E5), resemblance of layers (E6), entities (E11), seed by seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict

PLAIN = "experts"
RIVALS = {
    "experts": "experts alone",
    "neighbour": "a neighbour's addresses",
    "deeper": "experts with one more block",
}
NATS, NAMES, LAYERS = "nats of KL", "of names told right", "layers"
INTERVAL = 2 * 1.96  # standard errors in an interval of 95 %
MEMORY_BLOCK = 1  # of the hybrids in catalog.engram_depth


def early_layers(frame: pd.DataFrame) -> list[int]:
    """Layers behind the block that reads the memory, up to the middle of the plain model.

    What differs at or before that block cannot be the memory's doing within a text.

    Args:
        frame: rows with columns model and layer.

    Raises:
        ValueError: if there are no rows of the plain model.
    """
    last = frame.loc[frame["model"] == PLAIN, "layer"].max()
    if not last >= 2 * (MEMORY_BLOCK + 1):
        raise ValueError(
            f"claims about depth need rows of {PLAIN!r} with at least {2 * (MEMORY_BLOCK + 1)} "
            f"blocks, so that a layer lies between memory and middle; the last layer is {last}"
        )
    return list(range(MEMORY_BLOCK + 1, int(last) // 2 + 1))


def lens_numbers(frame: pd.DataFrame, *, token_class: str = "all") -> pd.DataFrame:
    """Divergence over early and over all layers, and where it has halved, run by run.

    Args:
        frame: rows of `probes.trained_depth.trained_lens` with columns model and seed.
        token_class: class of the token that comes next.

    Returns:
        Columns model, memory, seed, early_nats (mean KL of the early layers), area_nats (under the
        KL over the relative depth), half_layer (the first with less than half of layer 0's KL) and
        positions.
    """
    early, rows = early_layers(frame), []
    chosen = frame[frame["token_class"] == token_class]
    for (model, memory, seed), run in chosen.groupby(["model", "memory", "seed"], sort=False):
        kl = run.set_index("layer")["kl_nats"].sort_index()
        halved = kl.index[kl < 0.5 * kl.iloc[0]]
        rows.append(
            {
                "model": model,
                "memory": memory,
                "seed": seed,
                "early_nats": kl[early].mean(),
                "area_nats": np.trapezoid(kl, kl.index / kl.index.max()),
                "half_layer": float(halved[0]) if len(halved) else float("nan"),
                "positions": int(run["positions"].max()),
            }
        )
    return pd.DataFrame(rows)


def lens_claims(frame: pd.DataFrame, *, token_class: str = "all") -> list[Verdict]:
    """Verdicts on "with memory, early layers are nearer to the final prediction".

    The early claim is repeated without what the memory added to the stream, since a direct path to
    the output makes layers agree without any deeper reasoning. The last claim takes the later layer
    at which the hybrid is worst, so one layer above the plain model is enough to lose it.

    Args:
        frame: rows of `probes.trained_depth.trained_lens` with columns model and seed.
        token_class: class of the token that comes next.

    Raises:
        ValueError: if pure experts or the hybrid are missing.

    Source: Engram paper, section 6.1 and figure 4a; experiment catalogue, E5.
    """
    numbers = lens_numbers(frame, token_class=token_class)
    kept, removed = (_wide(numbers[numbers["memory"] == how]) for how in ("kept", "removed"))
    _require(kept, ("engram", PLAIN))
    items = int(numbers["positions"].max())
    differences = {
        f"early layers are nearer to the end than those of {name}": kept["engram"] - kept[rival]
        for rival, name in RIVALS.items()
        if rival in kept
    }
    words = "without what the memory added, early layers are nearer than those of experts alone"
    differences[words] = removed["engram"] - kept[PLAIN]
    if "deeper" in kept:
        differences["one more block does the same for experts"] = kept["deeper"] - kept[PLAIN]
    words = "later layers are nowhere farther than those of experts alone"
    differences[words] = _worst_later(frame[frame["token_class"] == token_class])
    return [
        seed_claim(values.to_dict(), claim=_of_class(words, token_class), unit=NATS, n_items=items)
        for words, values in differences.items()
    ]


def gain_claims(frame: pd.DataFrame, *, estimator: str = "debiased") -> list[Verdict]:
    """Verdicts on "early layers stand for deeper ones of the plain model", against its own seeds.

    Args:
        frame: rows of `probes.trained_depth.pair_gain` with columns comparison and seed;
            "seed" compares pure experts with those of another seed, which is the null.
        estimator: of the CKA.

    Raises:
        ValueError: if the null or a gain is missing.

    Source: Engram paper, section 6.1 and figure 4b; experiment catalogue, E6.
    """
    verdicts = []
    for removed, part in frame[frame["estimator"] == estimator].groupby("removed"):
        rows = part.assign(error=(part["high"] - part["low"]) / INTERVAL)
        gain = rows.pivot(index="seed", columns="comparison", values="gain")
        error = rows.pivot(index="seed", columns="comparison", values="error")
        _require(gain, ("engram", "seed"))
        pairs = {("engram", "seed"): "the hybrid gains more depth than another seed of experts"}
        pairs["engram", "neighbour"] = "the hybrid gains more depth than with strange addresses"
        pairs["deeper", "seed"] = "one more block gains more depth than another seed of experts"
        for (one, other), words in pairs.items():
            if not {one, other} <= set(gain):
                continue
            spread = np.hypot(error[one], error[other]).fillna(0.0)  # seeds alone where unknown
            verdicts.append(
                seed_claim(
                    (gain[other] - gain[one]).to_dict(),
                    claim=words + (f", first {removed} directions removed" if removed else ""),
                    unit=LAYERS,
                    errors=spread.to_dict(),
                    n_items=int(part["samples"].max()),
                )
            )
    return verdicts


def entity_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Early accuracy and the depth at which a name is known, run by run.

    Args:
        frame: rows of `probes.entity_sets.trained_entities` with columns model and seed.

    Returns:
        Columns model, seed, names, probe, early (mean accuracy of the early layers), error (its
        standard error over entities), rise_layer (where accuracy first is halfway from what the
        last word tells to 1, between layers by straight lines; NaN where it never is) and mentions.
    """
    early, rows = early_layers(frame), []
    keys = ["model", "seed", "names", "probe"]
    for run_keys, run in frame[frame["probe"] != "with_row"].groupby(keys, sort=False):
        run = run.set_index("layer").sort_index()
        part = run.loc[run.index.isin(early)]
        alone = run["last_token_accuracy"].fillna(run["control_accuracy"]).iloc[0]
        rows.append(
            dict(zip(keys, run_keys, strict=True))
            | {
                "early": part["accuracy"].mean(),
                "error": ((part["high"] - part["low"]) / INTERVAL).mean(),
                "rise_layer": rise_layer(run["accuracy"], (1 + alone) / 2),
                "mentions": int(run["mentions"].max()),
            }
        )
    return pd.DataFrame(rows)


def rise_layer(accuracy: pd.Series, level: float) -> float:
    """Depth at which a curve first reaches a level, by straight lines between layers.

    Args:
        accuracy: by layer, in order.
        level: to reach.

    Returns:
        A depth; the first layer if the curve starts above the level, NaN if it never reaches it.
    """
    reached = np.flatnonzero(accuracy.to_numpy() >= level)
    if not len(reached):
        return float("nan")
    place = int(reached[0])
    if place == 0:
        return float(accuracy.index[0])
    low, high = accuracy.iloc[place - 1], accuracy.iloc[place]
    start, end = accuracy.index[place - 1], accuracy.index[place]
    return float(start + (level - low) / (high - low) * (end - start))


def entity_claims(frame: pd.DataFrame) -> list[Verdict]:
    """Verdicts on "with memory, a name is known at an earlier layer".

    Args:
        frame: rows of `probes.entity_sets.trained_entities` with columns model and seed.

    Raises:
        ValueError: if pure experts or the hybrid are missing.

    Source: Engram paper, section 6.2 and table 3; experiment catalogue, E11.
    """
    numbers = entity_numbers(frame)
    stream = numbers[(numbers["names"] == "book") & (numbers["probe"] == "stream")]
    _require(_wide(stream, "early"), ("engram", PLAIN))
    items = int(stream["mentions"].max())
    verdicts = []
    for words, terms in _contrasts(stream).items():
        parts = [_pick(numbers, *term) for term, _ in terms]
        if any(part.empty for part in parts):
            continue
        signs = [sign for _, sign in terms]
        values = sum(sign * part["early"] for sign, part in zip(signs, parts, strict=True))
        errors = np.sqrt(sum(part["error"] ** 2 for part in parts))
        how = {"unit": NAMES, "errors": errors.to_dict(), "n_items": items}
        verdicts.append(seed_claim(values.to_dict(), claim=words, **how))
    rise = _wide(stream, "rise_layer")
    for rival, name in RIVALS.items():
        if rival in rise and rise[["engram", rival]].notna().all(axis=None):
            words = f"names are known at an earlier layer than by {name}"
            earlier = (rise["engram"] - rise[rival]).to_dict()
            verdicts.append(seed_claim(earlier, claim=words, unit=LAYERS, n_items=items))
    return verdicts


Term = tuple[tuple[str, str, str], int]
"""Model, names and probe of a run, and the sign it counts with."""


def _contrasts(stream: pd.DataFrame) -> dict[str, list[Term]]:
    """Sums of early accuracies that are below 0 where the claim holds."""
    own, plain = ("engram", "book", "stream"), (PLAIN, "book", "stream")
    claims: dict[str, list[Term]] = {
        f"early layers tell more names than those of {name}": [
            ((rival, "book", "stream"), 1),
            (own, -1),
        ]
        for rival, name in RIVALS.items()
        if rival in set(stream["model"])
    }
    words = "without the rows, early layers tell more names than those of experts alone"
    claims[words] = [(plain, 1), (("engram", "book", "without_rows"), -1)]
    words = "the lead over experts alone is larger for names of the book than for nobody's"
    claims[words] = [
        (plain, 1),
        ((PLAIN, "nobody", "stream"), -1),
        (own, -1),
        (("engram", "nobody", "stream"), 1),
    ]
    words = "patched from early layers, more facts are told than by experts alone"
    claims[words] = [((PLAIN, "book", "patch"), 1), (("engram", "book", "patch"), -1)]
    return claims


def _pick(numbers: pd.DataFrame, model: str, names: str, probe: str) -> pd.DataFrame:
    """Runs of one model by seed."""
    keys = ("model", "names", "probe")
    chosen = np.logical_and.reduce(
        [numbers[key] == value for key, value in zip(keys, (model, names, probe), strict=True)]
    )
    return numbers[chosen].set_index("seed")


def _wide(numbers: pd.DataFrame, column: str = "early_nats") -> pd.DataFrame:
    """A column of numbers, seeds down and models across."""
    return numbers.pivot(index="seed", columns="model", values=column)


def _worst_later(frame: pd.DataFrame) -> pd.Series:
    """The largest lead of pure experts over the hybrid behind the middle, by seed."""
    kept = frame[(frame["memory"] == "kept") & (frame["layer"] > max(early_layers(frame)))]
    kl = kept.pivot(index=["seed", "layer"], columns="model", values="kl_nats")
    last = kept.loc[kept["model"] == PLAIN, "layer"].max()
    lead = (kl["engram"] - kl[PLAIN]).dropna()
    return lead[lead.index.get_level_values("layer") < last].groupby("seed").max()


def _of_class(words: str, token_class: str) -> str:
    return words if token_class == "all" else f"{token_class} tokens: {words}"


def _require(wide: pd.DataFrame, models: Sequence[str]) -> None:
    missing = [name for name in models if name not in wide]
    if missing or wide[list(models)].isna().any(axis=None):
        raise ValueError(
            f"this claim compares {' and '.join(models)} at the same seeds; missing: "
            f"{', '.join(missing) or 'some seeds'}. The sweeps of catalog.engram_depth have them"
        )
