"""Inference: one snapshot or a folder, tiling, uncertainty."""
