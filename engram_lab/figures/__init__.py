"""Figures: a tidy frame to a plotly figure; no model, no torch."""
