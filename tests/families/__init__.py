"""Tiny checkpoints with random weights in the shape of published families; one file per group of families."""
