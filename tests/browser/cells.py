"""The notebook of the browser tests: its cells by name, one widget a cell."""

MODEL = """
from engram_lab.probes.shipped import load_shipped

class Counting:
    "A tokenizer that counts the texts it is given."
    def __init__(self, tokenizer):
        self.tokenizer, self.calls = tokenizer, 0
    def encode(self, text):
        self.calls += 1
        return self.tokenizer.encode(text)
    def tokens(self, ids):
        return self.tokenizer.tokens(ids)

model, tokenizer, index, *_ = load_shipped("microscope")
counting = Counting(tokenizer)
"""
GATES = """
from engram_lab.widgets.gates import gate_reader
gate_reader(model, counting, "one")
"""
ALLOCATION = """
import pandas as pd
from engram_lab.widgets.allocation import allocation_slider
from tests.figures.frames import SHAPES, allocation_frame
half = {name: {ratio: loss / 2 for ratio, loss in curve.items()} for name, curve in SHAPES.items()}
parts = allocation_frame(static_share=0.5), allocation_frame(static_share=0.2, shapes=half)
allocation_slider(pd.concat(parts, ignore_index=True))
"""
LENS = """
from engram_lab.widgets.lens import lens_explorer
lens_explorer(model, counting, "one")
"""
CKA = """
from engram_lab.widgets.cka import cka_explorer
from engram_lab.model.modeling import EngramLM
plain = EngramLM(model.config.replace(engram=None)).eval()
cka_explorer(plain, model, tokenizer.encode("The king spoke and the queen heard him. " * 4))
"""
MICROSCOPE = """
from engram_lab.widgets.microscope import memory_microscope
memory_microscope(model, counting, "the children of", index=index)
"""
COLLISIONS = """
from engram_lab.widgets.collisions import collision_arcade
collision_arcade(keys=1_000, rows=1_000, heads=3)
"""
SCHEDULER = """
from engram_lab.draft.costs import roofline, staircase
from engram_lab.probes.confidence import records_of
from engram_lab.widgets.scheduler import scheduler_bench
from tests.probes.drafted_rounds import drafted
curves = {
    "roofline": roofline(base=0.02, free_tokens=32),
    "staircase": staircase(base=0.02, rise=0.01, width=64),
}
scheduler_bench(records_of(*drafted(80, positions=4)), curves, concurrency=8, steps=4)
"""
THEATRE = """
from engram_lab.probes.theatre_models import load_theatre
from engram_lab.widgets.draft_theatre import draft_theatre
target, drafters, spelling, _ = load_theatre()
draft_theatre(target, drafters, spelling, max_new_tokens=16)
"""

CELLS = {
    "model": MODEL,
    "gates": GATES,
    "calls": "print(counting.calls)",
    "allocation": ALLOCATION,
    "lens": LENS,
    "cka": CKA,
    "microscope": MICROSCOPE,
    "collisions": COLLISIONS,
    "scheduler": SCHEDULER,
    "theatre": THEATRE,
}
BOARDS = (
    *("gates", "allocation", "lens", "cka", "microscope", "collisions"),
    *("scheduler", "theatre"),
)
