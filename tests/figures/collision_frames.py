"""Small frames of collisions and of the hot tier for the figure tests."""

import itertools
import math

import pandas as pd


def collision_rows(budgets=(100, 1_000), orders=(2, 3), heads=2, keys=500) -> pd.DataFrame:
    """Counts that lie one standard deviation above what even spreading gives."""
    rows = []
    for budget, order, head in itertools.product(budgets, orders, range(heads)):
        length = budget + head
        share = 1 - math.exp(-keys / length)
        rows.append(
            {
                "row_budget": budget,
                "layer": 1,
                "order": order,
                "head": head,
                "keys": keys,
                "rows": length,
                "load": keys / length,
                "predicted_share": share,
                "collided_share": share + 0.01,
                "share_error": 0.01,
                "traffic_share": share - 0.02,
                "traffic_error": 0.02,
                "interference": share / 2,
                "tokenizer": "bpe4k",
                "tokens": 2_000_000,
            }
        )
    return pd.DataFrame(rows)


def head_rows(heads=(1, 2, 4)) -> pd.DataFrame:
    rows = [
        {
            "split": split,
            "heads": number,
            "order": order,
            "keys": 500,
            "rows": 1_000 if split == "width" else 1_000 // number,
            "predicted_share": 0.4**number,
            "collided_share": 0.4**number + 0.001,
            "mean_interference": 0.3,
            "cleanest_interference": 0.3 / number,
        }
        for split, number, order in itertools.product(("width", "rows"), heads, (2, 3))
        if split == "width" or number > 1
    ]
    return pd.DataFrame(rows)


def frequency_rows(**columns) -> pd.DataFrame:
    rows = [
        {
            "order": order,
            "heads": heads,
            "frequency": frequency,
            "keys": 100,
            "traffic_share": 0.25,
            "mean_interference": 0.8 / frequency,
            "cleanest_interference": 0.8 / frequency / heads,
        }
        for order, heads, frequency in itertools.product((2, 3), (1, 2), (1, 2, 4, 8))
    ]
    return pd.DataFrame(rows).assign(**columns)


def load_rows(deviation=1.0, **columns) -> pd.DataFrame:
    shares = (0.5, 0.3, 0.15, 0.05)
    rows = [
        {
            "order": 2,
            "head": head,
            "held": held,
            "row_share": share,
            "predicted_share": share,
            "deviation": deviation,
        }
        for head in (0, 1)
        for held, share in enumerate(shares)
    ]
    return pd.DataFrame(rows).assign(**columns)


def race_rows(heads=3) -> pd.DataFrame:
    rows = [
        {
            "order": 2,
            "heads": number,
            "keys": 200,
            "rows": 499,
            "predicted_share": 0.33**number,
            "collided_share": 0.34**number,
            "predicted_twins": 0.0,
            "twin_share": 0.34 if number == 1 else 0.0,
            "cleanest_interference": 0.1**number,
        }
        for number in range(1, heads + 1)
    ]
    return pd.DataFrame(rows)


def arm_rows(sizes=(100, 400), seeds=(0, 1, 2)) -> pd.DataFrame:
    """Losses of 4 nats, plus the shift of an arm and a seed."""
    shifts = {"hash": 0.0, "hot_cold": -0.02, "random_keys": 0.03}
    others = {"smaller": 0.05, "larger": -0.05}
    rows = [
        {
            "rows": size,
            "arm": arm,
            "seed": seed,
            "document": document,
            "token_class": "all",
            "loss_nats": 4 + shift + 0.1 * seed,
            "eval_tokens": 100,
            "train_tokens": 8_000,
            "params": 50_000,
            "keys_2": 1_000,
            "keys_3": 4_000,
        }
        for size in sizes
        for arm, shift in (shifts | (others if size == sizes[0] else {})).items()
        for seed, document in itertools.product(seeds, (0, 1))
    ]
    return pd.DataFrame(rows)


def coverage_rows(**columns) -> pd.DataFrame:
    rows = [
        {
            "order": order,
            "hot_keys": hot,
            "keys": 500,
            "coverage": 0.1 * place / order + 0.1,
            "heard_coverage": 0.1 * place / order,
        }
        for order in (2, 3)
        for place, hot in enumerate((10, 100, 1_000))
    ]
    return pd.DataFrame(rows).assign(**columns)


def speed_rows() -> pd.DataFrame:
    speeds = {"hash": 1_000, "hot_cold": 900, "hot_cold_perfect": 600}
    rows = [
        {
            "rows": size,
            "arm": arm,
            "part": part,
            "repeat": repeat,
            "tokens_per_s": speed * (1 + repeat),
        }
        for size in (100, 400)
        for arm, speed in speeds.items()
        for part in ("addresses", "forward and backward")
        for repeat in range(3)
    ]
    return pd.DataFrame(rows)
