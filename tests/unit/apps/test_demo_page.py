"""The page: well formed, self-contained, nothing from outside, nothing unescaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np

from prismask.apps.cli.demo import PageContent, build_page, interval_words
from prismask.scenes.colour import png_bytes

VOID = {"meta", "img", "input", "br", "link"}


class Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.alternatives = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        if tag == "img":
            self.sources.append(given["src"] or "")
            self.alternatives += bool(given["alt"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _content() -> PageContent:
    png = png_bytes(np.zeros((2, 2, 3), np.uint8))
    names = ("snapshot", "truth", "reconstruction", "error", "spectra", "bands_picture")
    return PageContent(
        pictures=dict.fromkeys(names, png),
        scores=[("PSNR paper", "24.50 dB", "peak = maximum of the cube")],
        provenance=[("seed", "<script>0</script>")],
        files=["cube.nc"],
        facts={
            "bands": "28",
            "snapshot_size": "79,360",
            "cube_size": "1,835,008",
            "sensor": "s",
            "band_words": "is the spread",
        },
        what_one_sees="Errors run along rows & edges.",
    )


def test_page_is_well_formed_and_self_contained() -> None:
    page = build_page(_content())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.sources) == checker.alternatives == 6
    assert all(source.startswith("data:image/png;base64,") for source in checker.sources)
    assert not re.search(r"https?://|<link|@import|<script", page)
    assert "$" not in re.sub(r"base64,[^\"]*", "", page)


def test_page_shows_scores_and_escapes_text() -> None:
    page = build_page(_content())
    assert "24.50 dB" in page
    assert "peak = maximum of the cube" in page
    assert "&lt;script&gt;0&lt;/script&gt;" in page
    assert "rows &amp; edges" in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_what_the_interval_held_is_counted() -> None:
    truth = np.array([0.1, 0.5, 0.9, 0.2]).reshape(1, 2, 2)
    lower, upper = np.full((1, 2, 2), 0.15), np.full((1, 2, 2), 0.6)
    shot = SimpleNamespace(
        truth=SimpleNamespace(values=truth), estimate=SimpleNamespace(lower=lower, upper=upper)
    )
    (said,) = interval_words(shot)  # type: ignore[arg-type]
    assert "90 times out of 100" in said
    assert said.endswith("it did 50 times.")
    shot.estimate.upper = None
    assert interval_words(shot) == []  # type: ignore[arg-type]
