"""Language models with experts and memory, as ordinary `transformers` models."""
