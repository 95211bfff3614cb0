"""Addresses in plain Python: loops, and whole numbers that never overflow.

Nothing here shares code with the library, so that agreement means something.
"""

import numpy as np

MASK = 2**64 - 1


def prime_layout(layers: int, budgets: list[int], heads: int) -> list[list[list[int]]]:
    """Lengths `[layer][order][head]`: the next unused prime, from one below the budget on."""
    used, layout = set(), []
    for _ in range(layers):
        orders = []
        for budget in budgets:
            lengths, current = [], budget - 1
            while len(lengths) < heads:
                current += 1
                if current not in used and _divides_nothing(current):
                    used.add(current)
                    lengths.append(current)
            orders.append(lengths)
        layout.append(orders)
    return layout


def pcg_multipliers(vocab: int, seed: int, layer: int, count: int) -> list[int]:
    half_bound = max(1, (2**63 - 1) // vocab // 2)
    drawn = np.random.default_rng(seed + 10007 * layer).integers(
        0, half_bound, size=count, dtype=np.int64
    )
    return [2 * int(number) + 1 for number in drawn]


def splitmix_multipliers(vocab: int, seed: int, index: int, count: int) -> list[int]:
    half_bound = max(1, (2**63 - 1) // vocab // 2)
    gamma, out = 0x9E3779B97F4A7C15, []
    for k in range(count):
        v = (seed + 10007 * index + gamma * (k + 1) + gamma) & MASK
        v = ((v ^ (v >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        v = ((v ^ (v >> 27)) * 0x94D049BB133111EB) & MASK
        out.append(2 * ((v ^ (v >> 31)) % half_bound) + 1)
    return out


def window(ids, position, lag, *, fill, dead=None, documents=None, eos=None) -> int:
    """Token `lag` before `position`, or the fill where the way to it is blocked."""
    for step in range(lag + 1):
        at = position - step
        if at < 0 or (dead is not None and dead[at]):
            return fill
        if step and documents is not None and documents[at] != documents[at + 1]:
            return fill
        if step and eos is not None and ids[at] == eos:
            return fill
    return ids[position - lag]


def addresses(ids, multipliers, primes, **rules) -> list[list[int]]:
    """Addresses `[seq][table]` of one sequence."""
    rows = []
    for position in range(len(ids)):
        row = []
        for order, lengths in enumerate(primes, start=2):
            mixed = 0
            for lag in range(order):
                product = window(ids, position, lag, **rules) * multipliers[lag]
                assert 0 <= product < 2**63
                mixed ^= product
            row += [mixed % length for length in lengths]
        rows.append(row)
    return rows


def _divides_nothing(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
