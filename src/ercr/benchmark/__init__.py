"""What explaining costs, measured: every row of a table in the same run, beside what the public TAM code does."""
