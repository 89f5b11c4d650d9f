"""Figures: one style, PNG bytes out."""
