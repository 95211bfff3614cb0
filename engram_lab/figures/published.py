"""Published allocation curves as shapes: gain over pure experts, as a share of the largest gain.

Losses of other tokenizers and data never compare with measured ones; their shapes may.
"""

from collections.abc import Sequence

import pandas as pd

PUBLISHED_OPTIMUM = (0.75, 0.80)  # range printed in arXiv:2601.07372, section 3.1


def published_shapes(published: pd.DataFrame | Sequence[pd.DataFrame] | None) -> pd.DataFrame:
    """Published points of allocation curves, each curve scaled by its own largest gain.

    Args:
        published: the tables `engram_allocation` and `qwen38_fixed_budget`, either or both.

    Returns:
        Curves of which at least one loss is printed, with columns series, ratio, delta_nats (loss
        minus that at ratio 1), shape (delta_nats over the size of the largest gain; 0 at ratio 1,
        -1 at the best), printed (False where the text says only "about equal"), kind and source.
        `attrs["left_out"]` names the curves without a printed loss.

    Raises:
        ValueError: if a table is neither of the two.
    """
    if published is None:
        return pd.DataFrame(columns=["series", "ratio", "delta_nats", "shape", "printed", "kind"])
    tables = [published] if isinstance(published, pd.DataFrame) else list(published)
    curves = [curve for table in tables for curve in _curves(table)]
    drawn = [_shaped(curve) for curve in curves if curve["printed"].any()]
    shapes = pd.concat(drawn, ignore_index=True)
    shapes.attrs["left_out"] = [
        curve["series"].iloc[0] for curve in curves if not curve["printed"].any()
    ]
    return shapes


def _curves(table: pd.DataFrame) -> list[pd.DataFrame]:
    if {"rho", "val_loss", "regime", "relation"} <= set(table):
        return [_engram(name, rows) for name, rows in table.groupby("regime", sort=True)]
    if {"ngram_param_ratio_pct", "loss"} <= set(table):
        ratio = 1 - table["ngram_param_ratio_pct"] / 100
        curve = table.assign(series="Qwen 3.8", ratio=ratio, loss=table["loss"], printed=True)
        return [curve[["series", "ratio", "loss", "printed", "kind", "source"]]]
    raise ValueError(
        "published= takes the tables engram_allocation and qwen38_fixed_budget; got columns "
        f"{', '.join(table.columns)}"
    )


def _engram(regime: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Printed losses; where a point is only said to equal pure experts it gets their loss."""
    pure = rows.loc[rows["rho"] == 1, "val_loss"].iloc[0]
    baseline = 0.0 if pd.isna(pure) else pure  # differences are all that is used
    equal = rows["relation"].str.startswith("about equal") | (rows["rho"] == 1)
    loss = rows["val_loss"].where(rows["val_loss"].notna() | ~equal, baseline)
    curve = pd.DataFrame(
        {
            "series": f"Engram {regime}",
            "ratio": rows["rho"],
            "loss": loss,
            "printed": rows["val_loss"].notna(),
            "kind": rows["kind"],
            "source": rows["source"],
        }
    )
    return curve[curve["loss"].notna()]


def _shaped(curve: pd.DataFrame) -> pd.DataFrame:
    curve = curve.sort_values("ratio", ignore_index=True)
    delta = (curve["loss"] - curve.loc[curve["ratio"] == 1, "loss"].iloc[0]).round(6)
    gain = -delta.min()
    return curve.assign(delta_nats=delta, shape=delta / gain if gain > 0 else delta)
