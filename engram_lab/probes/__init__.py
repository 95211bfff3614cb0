"""Probes: a model, and tokens where it needs them, to a tidy frame; the model stays as it was."""
