"""Camera match: a snapshot of one camera as a network trained behind another likes it."""
