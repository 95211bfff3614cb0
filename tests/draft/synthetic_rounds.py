"""Made-up rounds of drafting for tests of scheduling and serving, calibrated by construction."""

import numpy as np
import pandas as pd

from engram_lab.draft.serving_records import AcceptanceRecords


def made_up(
    rounds: int = 4_000, block: int = 5, *, mean: float = 0.75, spread: float = 4.0, seed: int = 0
) -> AcceptanceRecords:
    """Rounds whose drafts survive with exactly the chance that their confidences state.

    Args:
        rounds: how many, half of them in each of the domains "chat" and "code".
        block: drafts of a round.
        mean: of the confidences; 0.1 more for code and less for chat.
        spread: concentration of their beta distribution; more is narrower.
        seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    domain = np.where(np.arange(rounds) % 2, "code", "chat").astype(object)
    centre = np.where(domain == "code", min(mean + 0.1, 0.99), max(mean - 0.1, 0.01))[:, None]
    shape = (rounds, block)
    confidences = generator.beta(spread * centre, spread * (1 - centre), shape)
    kept = generator.random(shape) < confidences
    return AcceptanceRecords(
        confidences=confidences, accepted=kept.cumprod(axis=1).sum(axis=1), domain=domain
    )


def constant(accepted: int, block: int = 5, *, rounds: int = 10) -> AcceptanceRecords:
    """Rounds that all accept the same number of drafts, and say so.

    Args:
        accepted: drafts kept in every round.
        block: drafts of a round.
        rounds: how many.
    """
    return AcceptanceRecords(
        confidences=np.tile((np.arange(block) < accepted).astype(float), (rounds, 1)),
        accepted=np.full(rounds, accepted),
        domain=np.full(rounds, "chat", dtype=object),
    )


def as_frame(records: AcceptanceRecords) -> pd.DataFrame:
    """The records as rows of draft positions, shuffled.

    Args:
        records: what to write out.
    """
    rounds, block = records.confidences.shape
    odds = records.confidences.clip(1e-9, 1 - 1e-9)
    frame = pd.DataFrame(
        {
            "domain": np.repeat(records.domain, block),
            "round": np.repeat(np.arange(rounds), block),
            "position": np.tile(np.arange(1, block + 1), rounds),
            "logit": np.log(odds / (1 - odds)).ravel(),
            "accepted": np.repeat(records.accepted, block),
        }
    )
    return frame.sample(frac=1, random_state=0)
