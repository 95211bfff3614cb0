"""Claims about drafters: which gains more tokens a round, and how acceptance moves in the block."""

import numpy as np
import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict

UNIT = "tokens a round"


def length_claims(
    frame: pd.DataFrame, first: str, second: str, *, by: str = "drafter"
) -> list[Verdict]:
    """Verdicts on "drafter A gains more tokens a round than B", by kind of text and temperature.

    Prompts are the same for both, and so is the target of a seed. The interval is Student's t over
    seeds, or that over prompts where it is wider.

    Args:
        frame: rows by prompt with columns `by`, seed, domain, temperature, sequence, rounds and
            emitted.
        first: value of `by` that the claim favours.
        second: the other.
        by: column that tells drafters apart.

    Raises:
        ValueError: if one of them is missing or has other seeds or prompts.
    """
    verdicts = []
    for (domain, temperature), part in frame.groupby(["domain", "temperature"], sort=False):
        gains, errors, prompts = {}, {}, 0
        ours, theirs = (part[part[by] == name] for name in (first, second))
        if ours.empty or set(ours["seed"]) != set(theirs["seed"]):
            raise ValueError(
                f"length_claims needs {by} {first!r} and {second!r} with the same seeds on "
                f"{domain}; got {sorted(set(ours['seed']))} and {sorted(set(theirs['seed']))}"
            )
        for seed, own in ours.groupby("seed"):
            other = theirs[theirs["seed"] == seed]
            gains[seed], errors[seed] = _difference(own, other)
            prompts = len(own)
        verdicts.append(
            seed_claim(
                {seed: -gain for seed, gain in gains.items()},
                claim=f"{domain}, temperature {temperature:g}: {first} gains more than {second}",
                unit=UNIT,
                errors=errors,
                n_items=prompts,
            )
        )
    return verdicts


def decay_claims(frame: pd.DataFrame, drafter: str, rival: str) -> list[Verdict]:
    """Verdicts on "acceptance falls less along the block than the rival's", by kind of text.

    The fall is the conditional rate at position 1 minus the mean of those behind it, each weighted
    by how often it was reached.

    Args:
        frame: rows of `catalog.DSPARK_POSITIONS`.
        drafter: the one that should fall less.
        rival: the other.

    Raises:
        ValueError: if one of them is missing.
    """
    verdicts = []
    for (domain, temperature), part in frame.groupby(["domain", "temperature"], sort=False):
        falls = {name: _falls(part[part["drafter"] == name]) for name in (drafter, rival)}
        if falls[drafter].empty or set(falls[drafter].index) != set(falls[rival].index):
            raise ValueError(
                f"decay_claims needs {drafter!r} and {rival!r} with the same seeds on {domain}"
            )
        verdicts.append(
            seed_claim(
                (falls[drafter] - falls[rival]).to_dict(),
                claim=f"{domain}, temperature {temperature:g}: {drafter} falls less than {rival}",
                unit="of conditional acceptance",
                n_items=int(part["offered"].max()),
            )
        )
    return verdicts


def mode_claims(frame: pd.DataFrame) -> list[Verdict]:
    """Verdicts on what sequential heads keep of a reply, by number of replies.

    A Markov head keeps the mode right behind the token that chose it, only a recurrent head across
    a bridge; the Markov head is no better there than none.

    Args:
        frame: rows of `probes.modes.mode_frame` with columns drafter, modes and seed.

    Raises:
        ValueError: if a drafter or a seed of one is missing.
    """
    claims = (
        ("ask", 2, "dspark", "parallel_same", "Markov keeps the mode better than no head"),
        ("tell", 3, "dspark", "parallel_same", "across a bridge, Markov is better than no head"),
        ("tell", 3, "dspark_rnn", "dspark", "across a bridge, RNN is better than Markov"),
    )
    verdicts = []
    for modes, part in frame.groupby("modes"):
        for kind, position, first, second, words in claims:
            rows = part[(part["kind"] == kind) & (part["position"] == position)]
            kept = rows.pivot(index="seed", columns="drafter", values="acceptance")
            if not {first, second} <= set(kept) or kept[[first, second]].isna().any().any():
                raise ValueError(f"mode_claims needs {first} and {second} with the same seeds")
            verdicts.append(
                seed_claim(
                    (kept[second] - kept[first]).to_dict(),
                    claim=f"{modes} replies: {words}",
                    unit="of acceptance",
                    n_items=int(rows["blocks"].min()),
                )
            )
    return verdicts


def expected_lengths(positions: pd.DataFrame, lengths: pd.DataFrame) -> pd.DataFrame:
    """Accepted length from the chances that drafts are kept, beside the sampled one.

    Mean chances by position are multiplied along the block, 1 + sum_j prod_{i<=j} c_i a_i; c_i is
    the share of rounds that came so far in which a draft was offered there, 1 for whole blocks.

    Args:
        positions: rows of `catalog.DSPARK_POSITIONS`.
        lengths: rows of `catalog.DSPARK_DRAFTERS`, of the same decodings.

    Returns:
        One row per `drafter seed domain temperature`: rounds, sampled, analytic.

    Raises:
        ValueError: if a decoding is in one frame alone.
    """
    keys = ["drafter", "seed", "domain", "temperature"]
    sums = lengths.groupby(keys, sort=False)[["rounds", "emitted"]].sum()
    blocks = dict(list(positions.groupby(keys, sort=False)))
    other = set(sums.index).symmetric_difference(blocks)
    if other:
        raise ValueError(
            f"expected_lengths needs lengths and positions of the same decodings; {len(other)} are "
            f"in one frame alone, for instance {min(other)}"
        )
    analytic = [_expected(blocks[key], rounds) for key, rounds in sums["rounds"].items()]
    sums["sampled"] = sums["emitted"] / sums["rounds"]
    return sums.assign(analytic=analytic).drop(columns="emitted").reset_index()


def _expected(block: pd.DataFrame, rounds: int) -> float:
    """Tokens a round of one decoding, by the chances of its positions."""
    block = block[block["reached"] > 0].sort_values("position")
    came = np.r_[rounds, block["accepted"].to_numpy(float)[:-1]][: len(block)]
    steps = block["reached"].to_numpy(float) / came * block["expected_rate"].to_numpy(float)
    return 1.0 + float(np.cumprod(steps).sum())


def _difference(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float]:
    """Difference of tokens a round, and its standard error over prompts (jackknife)."""
    both = ours.merge(theirs, on="sequence", suffixes=("", "_other"))
    if len(both) != len(ours) or len(both) != len(theirs):
        raise ValueError(
            f"length_claims needs the same prompts for both drafters; got {len(ours)} and "
            f"{len(theirs)}, of which {len(both)} are shared"
        )
    sums = {name: both[name].to_numpy(float) for name in _COUNTS}
    whole = _rate(sums, np.ones(len(both), bool))
    count = len(both)
    if count < 2:
        return whole, float("inf")
    left_out = np.array([_rate(sums, np.arange(count) != i) for i in range(count)])
    spread = (count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()
    return whole, float(np.sqrt(spread))


_COUNTS = ("emitted", "rounds", "emitted_other", "rounds_other")


def _rate(sums: dict[str, np.ndarray], kept: np.ndarray) -> float:
    emitted, rounds, other_emitted, other_rounds = (sums[name][kept].sum() for name in _COUNTS)
    return float(emitted / rounds - other_emitted / other_rounds)


def _falls(rows: pd.DataFrame) -> pd.Series:
    """By seed: rate at the first position minus the mean behind it."""
    found = {}
    for seed, part in rows.groupby("seed"):
        behind = part[(part["position"] > 1) & (part["reached"] > 0)]
        first = float(part.loc[part["position"] == 1, "conditional_rate"].iloc[0])
        mean = np.average(behind["conditional_rate"], weights=behind["reached"])
        found[seed] = first - float(mean)
    return pd.Series(found, dtype=float)
