"""Made-up rounds whose confidence says too much by a known factor."""

import numpy as np


def drafted(count: int = 2000, *, positions: int = 3, heat: float = 2.5, seed: int = 0):
    """Confidence logits, too large by `heat`, and the drafts accepted of every round."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(1.5, 2.0, (count, positions))
    kept = generator.random(logits.shape) < 1 / (1 + np.exp(-logits / heat))
    return logits, np.cumprod(kept, axis=1).sum(1)
