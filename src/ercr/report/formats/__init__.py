"""A report as text for people and programs; each file knows one format, and none computes a score."""
