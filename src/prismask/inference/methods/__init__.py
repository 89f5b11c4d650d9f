"""Methods: every way from a snapshot to a cube, behind one protocol."""
