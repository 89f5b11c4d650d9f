"""The report: one page about everything a folder holds."""
