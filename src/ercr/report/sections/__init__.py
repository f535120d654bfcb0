"""The questions of a report, one file each: which cells answer it, as which tables and plots."""
