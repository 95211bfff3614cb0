"""The figure of objectives: differences seed by seed, against a reference that must be there."""

import pandas as pd
import pytest

from engram_lab.figures.draft_objective import objective_differences
from tests.figures.frames import footer, traces


def objective_rows() -> pd.DataFrame:
    gained = {"reference": 30, "kl": 32, "corpus_text": 24}
    return pd.DataFrame(
        [
            {
                "objective": objective,
                "seed": seed,
                "domain": domain,
                "temperature": 1.0,
                "sequence": sequence,
                "rounds": 10,
                "emitted": tokens + seed,
            }
            for objective, tokens in gained.items()
            for seed in (0, 1)
            for domain in ("structured", "prose")
            for sequence in (0, 1)
        ]
    )


def test_each_objective_stands_against_the_reference_of_its_seed():
    figure = objective_differences(objective_rows())
    kl = traces(figure, "KL divergence alone")
    assert [trace.x[0] for trace in kl] == pytest.approx([0.2, 0.2])
    seeds = traces(figure, "texts as written, not the target's, seeds")[0]
    assert list(seeds.x) == pytest.approx([-0.6, -0.6]) and list(seeds.customdata) == [0, 1]


def test_panels_name_the_references_length_and_the_footer_what_it_is():
    figure = objective_differences(objective_rows())
    titles = [note.text for note in figure.layout.annotations if note.name != "footer"]
    assert titles == ["<b>structured: reference 3.05</b>", "<b>prose: reference 3.05</b>"]
    assert "0.1 cross-entropy, 0.9 L1" in footer(figure) and "2 seeds" in footer(figure)


def test_a_missing_reference_or_temperature_is_named():
    rows = objective_rows()
    with pytest.raises(ValueError, match="objective 'reference'; got kl, corpus_text"):
        objective_differences(rows[rows["objective"] != "reference"])
    with pytest.raises(ValueError, match=r"no rows at temperature 0.5; there are \[1.0\]"):
        objective_differences(rows, temperature=0.5)
