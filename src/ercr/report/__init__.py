"""From the rows of runs to tables and plots beside those of the paper; it never runs a model."""
