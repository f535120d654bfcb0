"""Mutation testing: which small faults in the core no test would notice; `make mutants` runs it."""
