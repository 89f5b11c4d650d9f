"""Backbones: one file for each network."""
