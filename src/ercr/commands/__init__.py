"""The larger commands, one file each; `cli.py` puts them together."""
