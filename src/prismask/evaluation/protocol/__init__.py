"""The protocol: scenarios, splits, scenes, mask conditions, and proofs that nothing overlaps."""
