"""The claims of the experiment on the token map: exact counts, and losses with and without it."""

import math
from collections.abc import Iterator

import pandas as pd

from engram_lab.experiments.claims import STRICT
from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.verdict import Verdict, paired_difference

CANONICAL_IDS = "compressed vocabulary"  # how the table of offload reports names V4.1's map
V41 = "deepseek_v4"
HARMED = {"space": "with other white space", "case": "in another case"}
"""Classes behind which the map could harm, and that text holds often enough to hear."""


def count_checks(
    kinds: pd.DataFrame,
    groups: pd.DataFrame,
    *,
    table6: pd.DataFrame,
    reports: pd.DataFrame,
    tokenizers: tuple[str, ...] = ("deepseek_v4", "deepseek_v3"),
) -> pd.DataFrame:
    """Published counts beside those of a tokenizer.

    The published share belongs to "the 128k tokenizer", which may be any of the releases.

    Args:
        kinds: rows of `probes.compression.kind_frame`.
        groups: rows of `probes.compression.group_frame`.
        table6: the published table `engram_table6_tokenizer_compression`.
        reports: the published table `community_offload`, with the size of V4.1's map.
        tokenizers: to compare with.

    Returns:
        Columns tokenizer, claim, published, measured, kind (grade of the published value), outcome
        ("exact" where they agree in the digits that are published, else "differs") and ids_off (ids
        more or fewer that the map would have to remove to agree).

    Raises:
        ValueError: if a tokenizer is missing from the frames.
    """
    absent = set(tokenizers) - (set(kinds["tokenizer"]) & set(groups["tokenizer"]))
    if absent:
        raise ValueError(f"no rows of tokenizer {', '.join(sorted(absent))} in one of the frames")
    rows = []
    for tokenizer in tokenizers:
        own = kinds[(kinds["tokenizer"] == tokenizer) & (kinds["kind"] == "all")].iloc[0]
        sizes = groups[groups["tokenizer"] == tokenizer].set_index("rank")["size"]
        for check in (*_reduction(own, table6), *_canonical(own, reports), *_sizes(sizes, table6)):
            rows.append({"tokenizer": tokenizer} | check)
    columns = ["tokenizer", "claim", "published", "measured", "kind", "ids_off"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(outcome=["differs" if off else "exact" for off in frame["ids_off"]])


def map_claims(frame: pd.DataFrame, *, bootstrap: Bootstrap = STRICT) -> list[Verdict]:
    """Verdicts on "hashing canonical ids lowers the loss", and on whom it harms.

    Args:
        frame: rows of `probes.compression_loss.spelling_loss` with columns arm, allocation_ratio
            and seed; the arms canonical and raw.
        bootstrap: how intervals are made.

    Raises:
        ValueError: if an arm or a class is missing, or arms do not share documents and seeds.

    Source: Engram paper, section 6.2.
    """
    verdicts = []
    for ratio, part in frame[frame["arm"] != "experts"].groupby("allocation_ratio", sort=False):
        where = f"text, {ratio:.0%} experts"
        options = {"by": "arm", "bootstrap": bootstrap}
        claim = f"{where}: canonical ids beat raw ones"
        verdicts.append(paired_difference(part, "canonical", "raw", claim=claim, **options))
        for name, words in HARMED.items():
            claim = f"{where}, behind a token {words} than usual: raw ids beat canonical ones"
            verdicts.append(
                paired_difference(
                    part, "raw", "canonical", token_class=name, claim=claim, **options
                )
            )
    return verdicts


def share_of_gain(frame: pd.DataFrame) -> pd.DataFrame:
    """What part of the memory's gain is the map's: (L_raw - L_canonical) / (L_none - L_canonical).

    Args:
        frame: as for `map_claims`, with the arm experts.

    Returns:
        Columns allocation_ratio, seed, gain_nats (of the memory with the map over experts alone),
        map_nats (lost without the map) and map_share.
    """
    rows = frame[frame["token_class"] == "all"]
    totals = rows.assign(total=rows["loss_nats"] * rows["eval_tokens"])
    sums = totals.groupby(["arm", "allocation_ratio", "seed"])[["total", "eval_tokens"]].sum()
    loss = sums["total"] / sums["eval_tokens"]
    canonical, raw = loss["canonical"], loss["raw"]
    none = loss["experts"].droplevel("allocation_ratio")
    gain = none.reindex(canonical.index, level="seed") - canonical
    parts = pd.DataFrame({"gain_nats": gain, "map_nats": raw - canonical})
    return parts.assign(map_share=parts["map_nats"] / parts["gain_nats"]).reset_index()


def _reduction(own: pd.Series, table6: pd.DataFrame) -> Iterator[dict[str, object]]:
    first = table6.iloc[0]
    published = float(first["overall_reduction_pct"])
    low, high = (own["ids"] * (published + digit) / 100 for digit in (-0.005, 0.005))
    yield {
        "claim": "ids removed (%)",
        "published": published,
        "measured": 100 * own["alone_share"],
        "kind": first["kind"],
        "ids_off": _off(int(own["alone"]), low, high),
    }


def _canonical(own: pd.Series, reports: pd.DataFrame) -> Iterator[dict[str, object]]:
    if own["tokenizer"] != V41:
        return
    for row in reports[reports["metric"] == CANONICAL_IDS].itertuples():
        yield {
            "claim": "canonical ids",
            "published": float(row.offloaded),
            "measured": float(own["canonical_ids"]),
            "kind": row.kind,
            "ids_off": int(own["canonical_ids"] - float(row.offloaded)),
        }


def _sizes(sizes: pd.Series, table6: pd.DataFrame) -> Iterator[dict[str, object]]:
    for row in table6.itertuples():
        yield {
            "claim": f"group {row.rank} ({row.canonical_token})",
            "published": float(row.merge_count),
            "measured": float(sizes.get(row.rank, 0)),
            "kind": row.kind,
            "ids_off": int(row.merge_count - sizes.get(row.rank, 0)),
        }


def _off(removed: int, low: float, high: float) -> int:
    """Ids by which a count misses the range that rounds to the published share."""
    lowest, highest = math.ceil(low), math.ceil(high) - 1
    return lowest - removed if removed < lowest else min(highest - removed, 0)
