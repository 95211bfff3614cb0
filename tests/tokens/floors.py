"""A floor against what a reader pays, token by token."""

import pandas as pd
import pytest

from engram_lab.tokens.synthetic import CLASS_NAMES, entropy_floor

SIGMAS = 4.5  # a right floor fails by luck once in 150,000 comparisons; the seeds are fixed


def assert_floor_is_paid(config, documents, read: list[list[tuple[str, float]]]) -> None:
    """Classes as the documents have them; nats and shares as the floor says, first token or not."""
    frame = pd.DataFrame(
        [(number, *token) for number, tokens in enumerate(read) for token in tokens],
        columns=["document", "token_class", "nats"],
    )
    assert [CLASS_NAMES[i] for i in documents.classes] == frame["token_class"].tolist()
    for first_token in (False, True):
        floor = entropy_floor(config, first_token=first_token)
        rows = frame if first_token else frame[frame["document"].duplicated()]
        assert set(floor["token_class"]) == set(rows["token_class"])
        assert floor["share"].sum() == pytest.approx(1) and floor["exact"].all()
        for row in floor.itertuples():
            _compare(rows, row, len(documents), config.document_length - (not first_token))


def _compare(rows: pd.DataFrame, row, count: int, length: int) -> None:
    one = rows[rows["token_class"] == row.token_class].groupby("document")["nats"]
    nats, tokens = (
        values.reindex(range(count), fill_value=0).to_numpy(float)
        for values in (one.sum(), one.count())
    )
    mean = nats.sum() / tokens.sum()
    error = (nats - tokens * mean).std() / tokens.mean() / count**0.5
    assert mean == pytest.approx(row.floor_nats, abs=SIGMAS * error + 1e-9)
    error = tokens.std() / length / count**0.5
    assert tokens.mean() / length == pytest.approx(row.share, abs=SIGMAS * error + 1e-9)
