"""The page that `ercr serve` shows, and its API: parses requests, calls the library and shows results.

Needs the `serve` extra.
"""
