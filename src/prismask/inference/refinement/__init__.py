"""A camera that calibrates itself: the mask that explains many snapshots taken through it."""
