"""Scenes: records, files, data sets, synthetic scenes and colour. Needs no torch."""
