"""Scores of explanations: pure functions and small accumulators that can be merged; none runs a model."""
