"""Losses by document to losses by seed, and to differences from a reference arm."""

from collections.abc import Sequence
from typing import Any

import pandas as pd


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
