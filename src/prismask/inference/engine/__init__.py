"""The engine: a network over frames of any size, in bounded memory."""
