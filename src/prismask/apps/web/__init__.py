"""The web page: one file to look at (`prismask view`), or a place to reconstruct (`serve`).

Needs the extra `web`. Nothing here is imported before one of the two commands runs.
"""
