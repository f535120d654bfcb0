"""`python -m ercr` is the command line."""

from ercr.cli import main

main()
