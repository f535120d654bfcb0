"""Vision towers that transformers does not have, registered with its Auto classes."""
