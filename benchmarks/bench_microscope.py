"""How long the memory microscope takes to open, and to answer a click, a switch and a sentence.

The model is the one that ships, with its row index. A click is answered when the rows of the token
and the next-token list are on the page; the browser's own drawing is not in it.
"""

import argparse
from collections.abc import Callable
from types import SimpleNamespace

from common import append_rows, measure
from plotly.callbacks import Points

from engram_lab.probes.rows import next_token_frame, row_frame
from engram_lab.probes.shipped import load_shipped
from engram_lab.widgets.microscope import SENTENCE, memory_microscope

LONG = " ".join([SENTENCE] * 4)
MOST_MS = 500  # what a click may take


def parts_of(board: object) -> SimpleNamespace:
    """The controls that the cases turn."""
    field, _, strip, token, _, boxes, _, _ = board.children
    return SimpleNamespace(field=field, strip=strip, token=token, box=boxes.children[1].children[0])


def cases(shipped: object) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    model, tokenizer, index = shipped.model, shipped.tokenizer, shipped.index
    scope = parts_of(memory_microscope(model, tokenizer, LONG, index=index))
    length = len(scope.token.options)
    turn = iter(range(10**6))

    def click() -> None:
        place = next(turn) % (length - 1)
        scope.strip.data[0]._dispatch_on_click(Points(point_inds=[place]), None)

    def switch() -> None:
        scope.box.value = not scope.box.value

    def sentence() -> None:
        scope.field.value = LONG if scope.field.value == SENTENCE else SENTENCE

    return {
        "load the model and its index": load_shipped,
        "open": lambda: memory_microscope(model, tokenizer, SENTENCE, index=index),
        "click a token": click,
        "switch a part": switch,
        "another sentence": sentence,
        "probe: rows of a token": lambda: row_frame(model, LONG, tokenizer, index=index),
        "probe: next tokens": lambda: next_token_frame(model, LONG, tokenizer),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    shipped = load_shipped()
    tokens = shipped.tokenizer.encode(LONG).shape[1]
    rows = []
    for name, case in cases(shipped).items():
        rows.append({"case": name, "tokens": tokens} | measure(case, options.repeats))
        print(f"{name:32} {rows[-1]['median_ms']:8.1f} ms, {rows[-1]['cpu_ms']:8.1f} ms of CPU")
    slow = next(row for row in rows if row["case"] == "click a token")["cpu_ms"] > MOST_MS
    print(f"a click is answered {'too late' if slow else 'in time'}: {MOST_MS} ms are allowed")
    if not options.dry:
        print(append_rows("microscope", rows))
