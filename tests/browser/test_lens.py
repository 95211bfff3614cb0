"""The lens explorer in a real notebook: another text, another layer, another measure."""

import pytest

from engram_lab.tokens.tokenizer import load_tokenizer

pytestmark = pytest.mark.browser


@pytest.fixture
def explorer(notebook):
    notebook.need("model", "lens")
    return notebook


def columns(figure) -> int:
    return len(figure["data"][0]["x"]) if figure["data"] else 0


def test_a_typed_text_has_a_column_for_each_of_its_tokens(explorer):
    field = explorer.cell("lens").locator(".widget-text input")
    field.fill("one and two")
    field.press("Enter")
    tokens = len(load_tokenizer("bpe4k").encode_ids("one and two"))
    figure = explorer.until("lens", "has a column each", lambda shown: columns(shown) == tokens)
    assert figure["drawn"] == len(figure["data"])


def test_the_layer_slider_and_the_menu_of_measures_change_the_strip(explorer):
    handle = explorer.cell("lens").locator(".noUi-handle")
    handle.focus()
    handle.press("Home")
    lowest = explorer.until("lens", "shows layer 0", strip_is_row(0))
    explorer.cell("lens").locator("select").nth(1).select_option(index=2)
    explorer.until(
        "lens",
        "shows another measure",
        lambda shown: shown["data"] and shown["data"][0]["name"] != lowest["data"][0]["name"],
    )


def strip_is_row(layer: int):
    def holds(figure) -> bool:
        traces = figure["data"]
        return len(traces) > 1 and list(traces[1]["y"]) == list(traces[0]["z"][layer])

    return holds
