"""Building blocks that several backbones share."""
