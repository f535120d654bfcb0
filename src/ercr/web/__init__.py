"""The page that `ercr serve` shows, and its API; parses, calls the library, shows. Needs the `serve` extra."""
