"""What a single checkpoint hides: the training loss over the last part of a training."""

import numpy as np
import pandas as pd

from engram_lab.model.budget import budget
from engram_lab.probes.allocation import rounded
from engram_lab.training.fit import TrainedRun


def late_losses(trained_run: TrainedRun, *, share: float = 0.2, windows: int = 10) -> pd.DataFrame:
    """Training loss in equal windows over the last part of a training.

    Runs of one seed and corpus read the same batches in the same order, so their windows can be
    compared one by one. The losses are those of the updates' own batches, before each update: they
    are not held out, but on a corpus read once no batch was seen before.

    Args:
        trained_run: a run with a history.
        share: of the updates, counted from the end.
        windows: how many; fewer where there are fewer updates.

    Returns:
        One row per window, with columns window (from 0), tokens (positions read at its end),
        updates, loss_nats (mean over its updates), and, the same in all rows, train_tokens, params
        and active_params.

    Raises:
        ValueError: if `share` does not lie in (0, 1], `windows` is below 1, or no update was made.

    Source: Engram paper, figure 8 (scores over the last part of the training).
    """
    if not 0 < share <= 1 or windows < 1:
        raise ValueError(
            f"share must lie in (0, 1] and windows be at least 1; got {share} and {windows}"
        )
    history = trained_run.history
    if history.empty:
        raise ValueError("late_losses needs a run with updates; its history is empty. Train it.")
    late = history.tail(max(1, round(share * len(history))))
    window = np.arange(len(late)) * min(windows, len(late)) // len(late)
    grouped = late.assign(window=window).groupby("window", as_index=False)
    frame = grouped.agg(
        tokens=("tokens", "last"), updates=("step", "size"), loss_nats=("loss_nats", "mean")
    )
    counts = budget(trained_run.config.model)
    return rounded(frame).assign(
        train_tokens=trained_run.train_tokens,
        params=counts.total,
        active_params=counts.active,
    )
