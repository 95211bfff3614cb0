"""Claims about long context (E9): needles at equal steps and equal loss, attention, key tokens."""

import pandas as pd

from engram_lab.experiments.claims import STRICT
from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict, paired_difference
from engram_lab.probes.long_context import KEY, OTHER
from engram_lab.training.evaluate import ALL, mean_losses

FULL = 1.0  # share of the tokens of a full run


def loss_by_share(losses: pd.DataFrame) -> pd.DataFrame:
    """Held-out loss of every model before the extension.

    Args:
        losses: rows of `probes.allocation.final_loss` with columns arm, share and seed.

    Returns:
        Columns arm, share, seed and loss_nats (over all tokens).
    """
    rows = [
        {"arm": arm, "share": share, "seed": seed, "loss_nats": float(mean_losses(part)[ALL])}
        for (arm, share, seed), part in losses.groupby(["arm", "share", "seed"], sort=False)
    ]
    return pd.DataFrame(rows)


def equal_loss_share(losses: pd.DataFrame) -> float:
    """Share of the tokens at which the hybrid's loss is nearest to that of the trained experts.

    Args:
        losses: as for `loss_by_share`; means over seeds are compared.

    Raises:
        ValueError: if the experts, or hybrids on fewer tokens than all, are missing.
    """
    means = loss_by_share(losses).groupby(["arm", "share"])["loss_nats"].mean()
    arms = means.index.get_level_values("arm")
    if ("experts", FULL) not in means or "engram" not in arms or len(means["engram"]) < 2:
        raise ValueError(
            "equal_loss_share needs fully trained experts and hybrids at several shares of the "
            f"tokens; got {list(means.index)}"
        )
    return float((means["engram"] - means["experts", FULL]).abs().idxmin())


def needle_claims(
    scores: pd.DataFrame, equal_share: float, *, keys: str = "unseen keys"
) -> list[Verdict]:
    """Verdicts on "the hybrid finds more", task by task, at the longest context.

    Against experts at equal steps and at equal loss, and against a neighbour's addresses. The
    interval is that over seeds, or over items where that is wider.

    Args:
        scores: rows of `probes.long_context.needle_scores` with columns arm, share and seed.
        equal_share: share of the tokens at which the hybrid has the loss of the experts.
        keys: which keys were asked with, in words.

    Raises:
        ValueError: if a model or a seed of one is missing.
    """
    longest = scores["context"].max()
    rows = scores[scores["context"] == longest]
    pairs = {
        "equal steps: the hybrid finds more than experts": (FULL, "experts"),
        "equal loss: the hybrid finds more than experts": (equal_share, "experts"),
        "equal steps: own addresses find more than a neighbour's": (FULL, "neighbour"),
    }
    verdicts = []
    for words, (share, rival) in pairs.items():
        own, other = _of(rows, "engram", share), _of(rows, rival, FULL)
        for task in rows["task"].unique():
            first, second = _by_seed(own, task), _by_seed(other, task)
            if set(first.index) != set(second.index) or first.empty:
                raise ValueError(
                    f"needle_claims needs task {task!r} of both models with the same seeds; got "
                    f"engram at {share} with {list(first.index)}, {rival} with {list(second.index)}"
                )
            errors = (first["stderr"] ** 2 + second["stderr"] ** 2) ** 0.5
            verdicts.append(
                seed_claim(
                    (second["score"] - first["score"]).to_dict(),
                    claim=f"{task} at {longest} tokens, {keys}, {words}",
                    unit="of accuracy",
                    errors=errors.to_dict(),
                    n_items=int(first["items"].min()),
                )
            )
    return verdicts


def attention_claims(
    frame: pd.DataFrame, equal_share: float | None = None, *, corpus: str = "needles"
) -> list[Verdict]:
    """Verdicts on "the hybrid's attention reaches further": less mass near, the mean over layers.

    Args:
        frame: rows of `probes.long_context.attention_reach` with columns arm and seed, and share
            where there are hybrids on fewer tokens.
        equal_share: share of the tokens at which the hybrid has the loss of the experts; None for
            no claim at equal loss.
        corpus: name that opens each claim.
    """
    frame = frame if "share" in frame else frame.assign(share=FULL)
    pairs = {"equal steps: less than experts": (FULL, "experts")}
    if equal_share is not None:
        pairs["equal loss: less than experts"] = (equal_share, "experts")
    if (frame["arm"] == "neighbour").any():
        pairs["equal steps: less than with a neighbour's addresses"] = (FULL, "neighbour")
    verdicts = []
    for window in sorted(frame["window"].unique()):
        near = frame[frame["window"] == window]
        for words, (share, rival) in pairs.items():
            first, second = (
                _of(near, *model).groupby("seed")["mass"].mean()
                for model in (("engram", share), (rival, FULL))
            )
            verdicts.append(
                seed_claim(
                    (first - second).to_dict(),
                    claim=f"{corpus}: attention of the hybrid on the newest {window} tokens, "
                    f"{words}",
                    unit="of attention",
                    n_items=int(near["texts"].min()),
                )
            )
    return verdicts


def key_token_claims(frame: pd.DataFrame, *, bootstrap: Bootstrap = STRICT) -> list[Verdict]:
    """Verdicts on real text: the hybrid gains on key tokens, and more there than elsewhere.

    Where the grader found no key token there is only the claim about the others.

    Args:
        frame: rows of `probes.long_context.key_token_losses` with columns arm and seed.
        bootstrap: how intervals are made.
    """
    found = [name for name in (KEY, OTHER) if (frame["token_class"] == name).any()]
    verdicts = [
        paired_difference(
            frame,
            "engram",
            "experts",
            token_class=name,
            claim=f"text, {name} tokens: the hybrid beats experts alone",
            bootstrap=bootstrap,
        )
        for name in found
    ]
    if len(found) == 1:
        return verdicts
    excess = {}
    for (arm, seed), part in frame.groupby(["arm", "seed"]):
        losses = mean_losses(part)
        excess[arm, seed] = float(losses[KEY] - losses[OTHER])
    by_seed = pd.Series(excess).unstack(0)
    more = seed_claim(
        (by_seed["engram"] - by_seed["experts"]).to_dict(),
        claim="text: the hybrid gains more on key tokens than on others",
        unit="nats per token",
        n_items=frame["document"].nunique(),
    )
    return [*verdicts, more]


def _of(frame: pd.DataFrame, arm: str, share: float) -> pd.DataFrame:
    return frame[(frame["arm"] == arm) & (frame["share"] == share)]


def _by_seed(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    return rows[rows["task"] == task].set_index("seed")
