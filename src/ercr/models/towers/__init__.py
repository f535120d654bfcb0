"""Vision towers that transformers does not include, registered with its Auto classes."""
