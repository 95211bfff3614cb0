"""What a trained model of the allocation experiment is worth, and what it costs."""

import pandas as pd

from engram_lab.model.budget import budget
from engram_lab.training.evaluate import document_losses
from engram_lab.training.fit import TrainedRun

TRAINING_COST = 3  # a training step costs three forward passes


def final_loss(trained_run: TrainedRun) -> pd.DataFrame:
    """Held-out loss of every validation document by token class, beside the model's budget.

    Losses are rounded to six significant digits, so that stored results stay small.

    Returns:
        One row per document and token class ("all" among them), with columns document, token_class,
        loss_nats (mean over the document's tokens), eval_tokens, and, the same in all rows,
        train_tokens, params, active_params, sparse_params (embedding and head left out), flops (of
        the whole training) and realised_ratio (share of the sparse parameters that experts have;
        empty for a model without sparse parameters).

    Source: Engram paper, section 3.1 (budgets, allocation ratio).
    """
    config = trained_run.config
    frame = document_losses(
        trained_run.model,
        trained_run.validation,
        seq_len=config.train.seq_len,
        batch_size=config.train.batch_size,
    )
    counts = budget(config.model)
    per_token = counts.flops_per_token(config.model, config.train.seq_len)
    return frame.assign(
        loss_nats=[significant(loss) for loss in frame["loss_nats"]],
        train_tokens=trained_run.train_tokens,
        params=counts.total,
        active_params=counts.active,
        sparse_params=counts.sparse,
        flops=significant(TRAINING_COST * per_token * trained_run.train_tokens),
        realised_ratio=significant(counts.allocation_ratio),
    )


def significant(value: float, digits: int = 6) -> float:
    """A number rounded to so many significant digits."""
    return float(f"{value:.{digits}g}")


def rounded(frame: pd.DataFrame, digits: int = 6) -> pd.DataFrame:
    """A frame whose fractions have so many significant digits; stored results stay small."""
    numbers = frame.select_dtypes("floating").columns
    return frame.assign(
        **{name: [significant(float(value), digits) for value in frame[name]] for name in numbers}
    )
