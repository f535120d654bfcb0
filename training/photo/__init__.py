"""The recipe of the packaged model for photographs."""
