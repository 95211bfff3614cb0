"""The purity figure: one mark for companions, one for chance, a panel for each table size."""

import pandas as pd
import pytest

from engram_lab.figures.purity import purity_figure


def tables(**columns) -> pd.DataFrame:
    frame = {"order": [2, 3], "head": [0, 1], "pairs": 500, "cosine": [0.1, 0.2]}
    return pd.DataFrame(frame | {"chance_cosine": [0.1, 0.15], "error": 0.01} | columns)


def test_companions_stand_beside_chance():
    together, chance = purity_figure(tables()).data
    assert list(together.x) == [0.1, 0.2] and list(chance.x) == [0.1, 0.15]
    assert list(together.y) == ["order 2, head 0", "order 3, head 1"]
    assert list(together.error_x.array) == [0.02, 0.02]


def test_every_table_size_has_a_panel():
    frame = pd.concat([tables(row_budget=size) for size in (100, 200)])
    figure = purity_figure(frame)
    assert len(figure.data) == 4 and figure.data[2].showlegend is False
    assert "<b>200 rows per table</b>" in [note.text for note in figure.layout.annotations]


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="missing: error"):
        purity_figure(tables().drop(columns="error"))
