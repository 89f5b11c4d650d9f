"""Alignment: the pose of a mask, found from the snapshot itself."""
