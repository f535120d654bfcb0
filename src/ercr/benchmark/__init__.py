"""Measures the cost of explaining: all rows of a table in one run, compared with the public TAM code."""
