"""Draft heads for speculative decoding: how they are built, verified, calibrated and scheduled."""
