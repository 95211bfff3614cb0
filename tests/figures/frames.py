"""Small frames for the figure tests, with values that can be checked by hand."""

import itertools

import numpy as np
import pandas as pd

SHAPES = {
    "all": {0.0: 0.10, 0.5: -0.06, 0.75: -0.04, 1.0: 0.0},
    "static": {0.0: -0.30, 0.5: -0.20, 0.75: -0.10, 1.0: 0.0},
    "computed": {0.0: 0.50, 0.5: 0.10, 0.75: 0.02, 1.0: 0.0},
}


def allocation_frame(*, seeds=(0, 1), shapes=SHAPES, **columns) -> pd.DataFrame:
    """Two documents, losses of 3 nats plus shape plus a seed and a document offset."""
    rows = [
        {
            "allocation_ratio": ratio,
            "seed": seed,
            "document": document,
            "token_class": name,
            "loss_nats": 3 + shape + 0.1 * seed + 0.2 * document,
            "eval_tokens": 100,
            "train_tokens": 2_000_000,
            "params": 3_620_000,
            "active_params": 673_000,
            "sparse_params": 2_949_000,
            "flops": 1.2e13,
            "realised_ratio": {0.75: 0.7334}.get(ratio, ratio),
        }
        for name, curve in shapes.items()
        for (ratio, shape), seed, document in itertools.product(curve.items(), seeds, (0, 1))
    ]
    return pd.DataFrame(rows).assign(**columns)


SENTENCE = ("the", "Princess", "of", "Wales")


def gate_rows(tokens=SENTENCE, *, layers=(1,), branches=1) -> pd.DataFrame:
    rows = [
        {
            "layer": layer,
            "branch": branch,
            "position": position,
            "token": token,
            "gate": (position + 1) / (len(tokens) + 1),
            "value_norm": 2.0 * (position + 1) / (len(tokens) + 1),
        }
        for layer in layers
        for branch in range(branches)
        for position, token in enumerate(tokens)
    ]
    return pd.DataFrame(rows)


LENS_VALUES = (4.0, 1.0, 0.5, 0.0)


def lens_rows(tokens=SENTENCE, *, values=LENS_VALUES, **columns) -> pd.DataFrame:
    """Divergence halves from layer to layer; the right token is on top from layer 2."""
    following = [*tokens[1:], "end"]
    rows = [
        {
            "layer": layer,
            "position": position,
            "token": token,
            "kl_nats": value * (1 + position),
            "reverse_kl_nats": 2 * value,
            "entropy_nats": 1.0 + layer,
            "top_token": following[position] if layer >= 2 else "other",
            "target_rank": np.nan if position == len(tokens) - 1 else 10.0 ** (3 - layer),
        }
        for layer, value in enumerate(values)
        for position, token in enumerate(tokens)
    ]
    return pd.DataFrame(rows).assign(**columns)


def lens_arms() -> pd.DataFrame:
    parts = [
        lens_rows(
            values=[scale * (1 + 0.1 * seed) * value for value in LENS_VALUES], arm=arm, seed=seed
        )
        for arm, scale in (("engram", 1.0), ("experts", 2.0))
        for seed in (0, 1)
    ]
    return pd.concat(parts, ignore_index=True)


def traces(figure, name) -> list:
    return [trace for trace in figure.data if trace.name == name]


def footer(figure) -> str:
    notes = [note.text for note in figure.layout.annotations if note.name == "footer"]
    assert len(notes) == 1
    return notes[0].replace("<br>", " ")
