"""Loss frames with a planted answer."""

import numpy as np
import pandas as pd


def loss_frame(arms, *, by="arm", seeds=3, documents=60, seed_noise=0.0, noise=0.02, seed=0):
    """Losses of arms whose true means are given; documents differ far more than arms do.

    Args:
        arms: from the value of `by` to its true mean loss.
        seed_noise: spread of what a seed adds to every arm alike.
        noise: spread of what is neither document, seed nor arm.
    """
    draw = np.random.default_rng(seed)
    document = draw.normal(0, 1, documents)
    tokens = draw.integers(20, 200, documents)
    rows = []
    for run in range(seeds):
        shift = draw.normal(0, seed_noise)
        for arm, mean in arms.items():
            loss = 4 + mean + document + shift + draw.normal(0, noise, documents)
            rows.append(
                pd.DataFrame(
                    {
                        by: arm,
                        "seed": run,
                        "document": range(documents),
                        "token_class": "all",
                        "loss_nats": loss,
                        "eval_tokens": tokens,
                    }
                )
            )
    return pd.concat(rows, ignore_index=True)
