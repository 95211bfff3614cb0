"""Experiments as data: sweeps, their stored results, verdicts with intervals, and the catalogue."""

from engram_lab.experiments.sweep import Sweep, SweepError, load_results, product, run

__all__ = ["Sweep", "SweepError", "load_results", "product", "run"]
