"""Apps: the command line and the web page."""
