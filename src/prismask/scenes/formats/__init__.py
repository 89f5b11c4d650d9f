"""File formats: one file each, recognised by content; opening and saving whatever the format."""
