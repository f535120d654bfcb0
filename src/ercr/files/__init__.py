"""Safe reading and writing of files; knows nothing of explanations."""
