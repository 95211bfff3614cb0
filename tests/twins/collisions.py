"""Keys and collisions in plain Python: dictionaries and loops, nothing shared with the library."""

from collections import Counter, defaultdict

from tests.twins import hashing


def keys(texts, order, *, fill, **rules) -> Counter:
    """How often each n-gram, newest token first, is looked up in some texts."""
    found = Counter()
    for ids in texts:
        for position in range(len(ids)):
            lags = range(order)
            found[tuple(hashing.window(ids, position, k, fill=fill, **rules) for k in lags)] += 1
    return found


def row_of(key, multipliers, length) -> int:
    mixed = 0
    for token, multiplier in zip(key, multipliers, strict=False):
        mixed ^= token * multiplier
    return mixed % length


def table(counted: Counter, multipliers, length) -> dict[int, list]:
    """Keys of every row that is read."""
    rows = defaultdict(list)
    for key in counted:
        rows[row_of(key, multipliers, length)].append(key)
    return rows


def shares(counted: Counter, multipliers, length) -> dict[str, float]:
    """Collided share of keys, of look-ups, and the foreign part of the average look-up's row."""
    rows = table(counted, multipliers, length)
    company = {key for held in rows.values() if len(held) > 1 for key in held}
    total = sum(counted.values())
    foreign = 0.0
    for held in rows.values():
        traffic = sum(counted[key] for key in held)
        foreign += sum(counted[key] * (1 - counted[key] / traffic) for key in held)
    return {
        "collided_share": len(company) / len(counted),
        "traffic_share": sum(counted[key] for key in company) / total,
        "interference": foreign / total,
    }
