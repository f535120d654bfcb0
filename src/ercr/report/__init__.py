"""From the rows of runs to tables and plots beside the paper's; it never runs a model."""
