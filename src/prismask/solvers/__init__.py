"""Solvers: reconstruction without training, with the calling convention of a model."""
