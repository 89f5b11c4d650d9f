"""Evaluation: metrics, protocols, statistics, analyses, figures, report."""
