"""Training: configuration, crops, the bilevel loop, exact checkpoints."""
