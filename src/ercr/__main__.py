"""`python -m ercr` is the command line."""

from ercr.commands.cli import main

main()
