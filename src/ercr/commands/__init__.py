"""The command line: one file per larger command; `cli.py` defines the application."""
