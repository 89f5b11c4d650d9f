"""Tables: scores on disk, their statistics, and the published numbers beside them."""
