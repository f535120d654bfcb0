"""Fits the calibrations of `seen` and scores runs by them; part of the repository, not of the package."""
