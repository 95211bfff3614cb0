"""Training: configs, data, optimisers, the loop, checkpoints, evaluation."""
