"""Texts from files, made fit to be shown."""

from __future__ import annotations

import unicodedata

_UNSAFE = ("Cc", "Cf", "Cs")
"""Unicode's categories: control, format, surrogate."""


def printable(text: str) -> str:
    """The text with everything that a terminal obeys, or cannot show, written out as its code.

    Control characters (colours, window titles, moving the cursor), letters that turn the
    direction of writing, and halves of letters; line breaks and tabs stay.
    """
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in _UNSAFE
        else letter.encode("unicode_escape").decode()
        for letter in text
    )  # fmt: skip
