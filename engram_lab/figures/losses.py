"""Losses by document to losses by seed, and to differences from a reference arm."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

CONDITIONS = {"corpus": "corpus", "static_share": "static share"}


def losses_by_seed(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Loss per token of every arm, seed and token class.

    Args:
        frame: columns `by`, seed, loss_nats, and, where there are several documents, eval_tokens
            (weights) and token_class.
        by: columns that tell the arms apart.

    Returns:
        Columns `by`, seed, token_class and loss_nats.
    """
    rows = frame if "token_class" in frame else frame.assign(token_class="all")
    tokens = rows.get("eval_tokens", 1)
    rows = rows.assign(_total=rows["loss_nats"] * tokens, _tokens=tokens)
    keys = [*by, "seed", "token_class"]
    sums = rows.groupby(keys, as_index=False, sort=True)[["_total", "_tokens"]].sum()
    return sums[keys].assign(loss_nats=sums["_total"] / sums["_tokens"])


def minus_reference(
    losses: pd.DataFrame, column: str, reference: Any, *, within: Sequence[str] = ()
) -> pd.DataFrame:
    """Every loss minus the loss at `column == reference` with the same seed and token class.

    Args:
        losses: from `losses_by_seed`.
        within: further columns that must agree (corpus, static_share).

    Returns:
        The rows with a reference, with the column delta_nats.

    Raises:
        ValueError: if no row has the reference.
    """
    keys = [*within, "seed", "token_class"]
    base = losses[losses[column] == reference]
    if base.empty:
        known = ", ".join(str(value) for value in losses[column].unique())
        raise ValueError(
            f"losses are drawn as differences from {column} = {reference}, which no row has; "
            f"the frame has {known}. Run the sweep with that point."
        )
    base = base[[*keys, "loss_nats"]].rename(columns={"loss_nats": "_base"})
    joined = losses.merge(base, on=keys)
    return joined.assign(delta_nats=joined["loss_nats"] - joined["_base"]).drop(columns="_base")


def over_seeds(deltas: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean, lowest and highest delta_nats over seeds, and how many seeds there are."""
    grouped = deltas.groupby(list(by), as_index=False, sort=True)["delta_nats"]
    return grouped.agg(mean="mean", low="min", high="max", seeds="count")


def allocation_deltas(frame: pd.DataFrame) -> pd.DataFrame:
    """Losses minus those at ratio 1: a row for each point, seed and class; x is the realised ratio.

    Raises:
        ValueError: if no row has the ratio 1.
    """
    conditions = [name for name in CONDITIONS if name in frame]
    losses = losses_by_seed(frame, ["allocation_ratio", *conditions])
    deltas = minus_reference(losses, "allocation_ratio", 1.0, within=conditions)
    if "realised_ratio" not in frame:
        return deltas.assign(x=deltas["allocation_ratio"])
    realised = frame.groupby("allocation_ratio")["realised_ratio"].mean()
    return deltas.assign(x=deltas["allocation_ratio"].map(realised))


def split_by_condition(deltas: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows of one corpus and share each, with a label that says which if there are several."""
    varying = [name for name in CONDITIONS if name in deltas and deltas[name].nunique() > 1]
    if not varying:
        return [("", deltas)]
    return [
        (
            ", " + ", ".join(f"{CONDITIONS[n]} {v}" for n, v in zip(varying, values, strict=True)),
            part,
        )
        for values, part in deltas.groupby(varying)
    ]


def class_names(frame: pd.DataFrame) -> list[str]:
    """Token classes of a frame in the order in which they first stand there."""
    return list(frame["token_class"].unique()) if "token_class" in frame else ["all"]
