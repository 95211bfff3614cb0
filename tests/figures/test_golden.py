"""One figure a stem, stored as JSON; `python -m tests.figures.test_golden` writes them anew.

A difference means that the look has changed: look at the figure, then store it.
"""

import json
from pathlib import Path

import pytest

from engram_lab.figures.allocation import allocation_curve
from engram_lab.figures.gates import gate_strip
from engram_lab.figures.lens import lens_curve
from engram_lab.figures.style import plain
from engram_lab.published import load_published
from tests.figures.frames import allocation_frame, gate_rows, lens_arms

FOLDER = Path(__file__).parents[1] / "golden"
FIGURES = {
    "allocation": lambda: allocation_curve(
        allocation_frame(), published=load_published("engram_allocation"), verdict="So it is."
    ),
    "gates": lambda: gate_strip(gate_rows(layers=(1, 6), branches=2)),
    "lens": lambda: lens_curve(lens_arms(), memory_layers=(1,), verdict="So it is."),
}


def drawn(stem: str) -> dict:
    """The figure as `save` would store it, without the template, which has tests of its own."""
    content = plain(FIGURES[stem]().to_plotly_json())
    content["layout"].pop("template")
    return content


@pytest.mark.parametrize("stem", FIGURES)
def test_figures_look_as_they_did(stem):
    stored = json.loads((FOLDER / f"figure_{stem}.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(drawn(stem))) == stored


if __name__ == "__main__":
    for name in FIGURES:
        text = json.dumps(drawn(name), sort_keys=True, indent=1, ensure_ascii=False)
        (FOLDER / f"figure_{name}.json").write_text(text + "\n", encoding="utf-8")
