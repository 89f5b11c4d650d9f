"""Intervals: error bars that hold what they say, their fit and their wording."""
