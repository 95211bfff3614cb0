"""Footers: what a frame tells about the runs behind a figure, in words."""

import pandas as pd

EQUAL = 0.012  # budgets that differ by less count as held equal


def provenance(frame: pd.DataFrame) -> str:
    """Parameters, tokens, seeds and documents of the runs in a frame, as far as columns tell."""
    parts = [
        _range(frame, "params", "parameters"),
        _range(frame, "active_params", "active"),
        _range(frame, "train_tokens", "training tokens"),
        _range(frame, "flops", "training FLOPs", scientific=True),
        _number(frame, "seed", "seed"),
        _number(frame, "document", "held-out document"),
    ]
    return " · ".join(part for part in parts if part)


def held_equal(frame: pd.DataFrame) -> str:
    """What the arms of a comparison share and what they do not, as far as the columns tell."""
    names = {
        "params": "total parameters",
        "active_params": "active parameters",
        "train_tokens": "training tokens",
    }
    same, other = [], []
    for column, name in names.items():
        if column not in frame:
            continue
        spread = frame[column].max() / max(frame[column].min(), 1) - 1
        label = name if spread < 0.00005 else f"{name} (within {spread:.2%})"
        if spread <= EQUAL:
            same.append(label)
        else:
            other.append(f"{name} (up to {spread + 1:.2f} times)")
    if _same_documents(frame):
        same.append("held-out documents")
    sentence = f"Held equal: {', '.join(same)}." if same else ""
    if other:
        sentence += f" Not held equal: {', '.join(other)}."
    return sentence.strip()


def _same_documents(frame: pd.DataFrame) -> bool:
    """Whether every run was measured on the same documents, of the same length."""
    keys = [name for name in ("allocation_ratio", "arm", "seed") if name in frame]
    if "document" not in frame or not keys:
        return False
    columns = [name for name in ("document", "token_class", "eval_tokens") if name in frame]
    runs = [
        run[columns].sort_values(columns, ignore_index=True)
        for _, run in frame.groupby(keys, dropna=False)
    ]
    return all(run.equals(runs[0]) for run in runs)


def _range(frame: pd.DataFrame, column: str, name: str, *, scientific: bool = False) -> str:
    if column not in frame or frame[column].isna().all():
        return ""
    low, high = float(frame[column].min()), float(frame[column].max())
    show = (lambda value: f"{value:.1e}".replace("e+", "e")) if scientific else short_number
    text = show(low) if show(low) == show(high) else f"{show(low)} to {show(high)}"
    return f"{text} {name}"


def _number(frame: pd.DataFrame, column: str, name: str) -> str:
    if column not in frame:
        return ""
    count = frame[column].nunique()
    return f"{count} {name}{'s' if count != 1 else ''}"


def short_number(value: float) -> str:
    """A count with three digits and a unit: 3.62 M, 41.9 k."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
