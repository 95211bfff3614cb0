"""Attention weights of one sequence from its normalised stream, with loops and complex numbers."""

import numpy as np


def weights(hidden, qkv, *, heads, key_heads, theta, allowed):
    """Weights [head, seq, seq]; hidden [seq, width], qkv as a linear layer has it.

    allowed [seq, seq] says which key a query may see.
    """
    seq, width = hidden.shape
    size = width // heads
    projected = hidden @ qkv.T
    result = np.zeros((heads, seq, seq))
    for head in range(heads):
        key_head = heads + head * key_heads // heads
        queries = turned(projected[:, head * size : (head + 1) * size], theta)
        keys = turned(projected[:, key_head * size : (key_head + 1) * size], theta)
        for t in range(seq):
            seen = [s for s in range(seq) if allowed[t, s]]
            scores = [np.real(np.vdot(keys[s], queries[t])) / np.sqrt(size) for s in seen]
            powers = np.exp(np.array(scores) - max(scores))
            result[head, t, seen] = powers / powers.sum()
    return result


def turned(rows, theta):
    """Pairs (first half, second half) as complex numbers, turned by their position's angle."""
    half = rows.shape[1] // 2
    pairs = rows[:, :half] + 1j * rows[:, half:]
    speeds = theta ** (-np.arange(half) / half)
    return pairs * np.exp(1j * np.outer(np.arange(len(rows)), speeds))


def mass(weights, window, queries):
    """Mean over heads and queries of the weight on the newest `window` keys."""
    return np.mean([weights[:, t, max(0, t - window + 1) : t + 1].sum(1) for t in queries])
