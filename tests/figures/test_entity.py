"""Accuracy of probes and patches by layer, and the table of what states say."""

import pandas as pd
import pytest

from engram_lab.figures.entity import decoded_table, entity_depth
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

LAYERS = 5


def row(model: str, seed: int, names: str, probe: str, layer: int) -> dict:
    early = 1 if model == "engram" else 3
    accuracy = 0.9 if layer > early else 0.4
    accuracy += 0.01 * seed - (0.2 if names == "nobody" else 0.0)
    known = {"names": names, "layer": layer, "probe": probe, "accuracy": accuracy}
    bounds = {"low": accuracy - 0.05, "high": accuracy + 0.05, "control_accuracy": 0.01}
    if probe == "patch":
        example = {"asked": "n1 n2 r0 = v3", "said": f"v{layer}"}
        return {"model": model, "seed": seed} | known | bounds | example
    return {"model": model, "seed": seed} | known | bounds | {"last_token_accuracy": 0.4}


def rows(seeds: tuple[int, ...] = (0, 1, 2)) -> pd.DataFrame:
    found = []
    for model in ("experts", "engram"):
        for seed in seeds:
            for names in ("book", "nobody"):
                found += [row(model, seed, names, "stream", layer) for layer in range(LAYERS)]
                if model == "engram":
                    found += [row(model, seed, names, "without_rows", layer) for layer in (2, 3, 4)]
                    found.append(row(model, seed, names, "with_row", 1))
            found += [row(model, seed, "book", "patch", layer) for layer in range(1, LAYERS)]
    return pd.DataFrame(found).assign(params=3_000_000, train_tokens=1_500_000)


def test_a_panel_for_book_nobody_and_patches():
    figure = entity_depth(rows(), memory_layers=(1,))
    titles = [note.text for note in figure.layout.annotations]
    assert [title for title in titles if title.startswith("<b>probe")] == [
        "<b>probe, names of the book</b>",
        "<b>probe, names of nobody</b>",
    ]
    assert "<b>patched into a prompt</b>" in titles
    assert len(traces(figure, "experts only")) == len(traces(figure, "hybrid")) == 3
    assert [trace.showlegend for trace in traces(figure, "hybrid")] == [True, False, False]


def test_lines_are_means_of_seeds_and_bands_their_range():
    figure = entity_depth(rows())
    line = traces(figure, "hybrid")[0]
    assert list(line.y) == pytest.approx([0.41, 0.41, 0.91, 0.91, 0.91])
    band = traces(figure, "hybrid, band")[0]
    assert list(band.y[:LAYERS]) == pytest.approx([0.42, 0.42, 0.92, 0.92, 0.92])
    assert "mean of seeds" in footer(figure)


def test_one_seed_shows_the_interval_over_entities():
    figure = entity_depth(rows(seeds=(0,)))
    band = traces(figure, "experts only, band")[0]
    assert list(band.y[:LAYERS]) == pytest.approx([0.45] * 4 + [0.95])
    assert "over entities" in footer(figure)


def test_the_row_just_read_stands_between_two_layers():
    (diamond, other) = traces(entity_depth(rows()), "hybrid, row just read")
    assert list(diamond.x) == list(other.x) == [1.5]


def test_what_the_memory_added_is_dashed():
    dashed = traces(entity_depth(rows()), "hybrid, without its rows")
    assert {trace.line.dash for trace in dashed} == {"dash"}
    assert not any(trace.showlegend for trace in dashed)


def test_memory_blocks_are_shaded_and_the_last_word_is_dotted():
    figure = entity_depth(rows(), memory_layers=(1,))
    boxes = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [(box.x0, box.x1) for box in boxes] == [(1, 2)] * 3
    levels = [shape.y0 for shape in figure.layout.shapes if shape.type == "line"]
    assert levels == pytest.approx([0.4, 0.4, 0.01])


def test_a_frame_of_one_model_has_one_line():
    frame = rows(seeds=(0,)).query("model == 'engram' and names == 'book' and probe == 'stream'")
    figure = entity_depth(frame.drop(columns=["model", "names", "seed"]))
    assert len(traces(figure, "model")) == 1


def test_what_states_say_stands_beside_the_published_example():
    frame = rows().query("probe == 'patch' and seed == 0")
    figure = decoded_table(frame, published=load_published("engram_table3_entity_depth"))
    ours, theirs = figure.data
    assert list(ours.header.values) == [
        "<b>blocks passed</b>",
        "<b>experts only</b>",
        "<b>hybrid</b>",
    ]
    assert list(ours.cells.values[1]) == ["v1", "v2", "v3", "v4"]
    assert "Diana" in theirs.cells.values[1][-1]
    assert "n1 n2 r0 = v3" in footer(figure) and "2601.07372" in footer(figure)


def test_a_frame_without_its_columns_is_refused():
    with pytest.raises(ValueError, match="accuracy"):
        entity_depth(rows().drop(columns="accuracy"))
    with pytest.raises(ValueError, match="said"):
        decoded_table(rows().drop(columns="said"))
