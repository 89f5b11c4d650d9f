"""A report as HTML and Markdown: well formed, self-contained, nothing unescaped."""

from __future__ import annotations

import io
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from prismask.evaluation.figures.cubes import (
    SceneView,
    bands_figure,
    blocks_figure,
    colours_figure,
    correlation_figure,
    maps_figure,
    windows,
)
from prismask.evaluation.figures.scores import (
    FaultPanel,
    Scores,
    scene_figure,
    stress_figure,
    trial_figure,
)
from prismask.evaluation.report.document import (
    Listing,
    Page,
    Picture,
    Section,
    Table,
    Text,
    html_page,
    markdown_page,
)
from prismask.evaluation.report.scores import number_text, published_beside
from prismask.evaluation.tables.markdown import ScoreTable

VOID = {"meta", "img", "br", "link"}


class Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.columns: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.columns.append(0)
        if tag in ("td", "th"):
            self.columns[-1] += int(given.get("colspan") or 1)
        if tag == "img":
            self.images.append(given)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _png() -> bytes:
    held = io.BytesIO()
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(held, format="PNG")
    return held.getvalue()


def _page() -> Page:
    table = Table(
        "Scores of **all**.",
        ["scene", "PSNR paper [dB] ↑", "SSIM zero-padded ↑", "PSNR paper [dB] ↑"],
        [["scene01", "33.02 ± 0.11", "0.9285", "1 < 2 & 3"]],
        [("a|b", 2), ("paper", 1)],
        "Mind the `std`.",
    )
    blocks = [Text("<script>0</script> and `--resume`"), Listing(["one", "**two**"]), table,
              Picture("fig", _png(), "What & why.", 'Dots "here"')]  # fmt: skip
    return Page("Report <1>", "Lead.", [Section("First", blocks), Section("Second", [])])


def test_page_is_well_formed_and_self_contained() -> None:
    page = html_page(_page())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert set(checker.columns) == {4}
    assert [image["alt"] for image in checker.images] == ['Dots "here"']
    assert all(str(i["src"]).startswith("data:image/png;base64,") for i in checker.images)
    assert not re.search(r"https?://|<link|@import|<script|src=\"(?!data:)", page)
    assert "$" not in re.sub(r"base64,[^\"]*", "", page)


def test_page_escapes_names_and_numbers() -> None:
    page = html_page(_page())
    assert "&lt;script&gt;0&lt;/script&gt; and <code>--resume</code>" in page
    assert "<li><b>two</b></li>" in page
    assert "1 &lt; 2 &amp; 3" in page
    assert "<b>Table 1.</b> Scores of <b>all</b>." in page
    assert "<b>Figure 1.</b> What &amp; why." in page
    assert 'href="#part-2"' in page
    assert 'id="part-2"' in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_markdown_flattens_headings_and_links_written_figures_only() -> None:
    text = markdown_page(_page())
    assert "a\\|b: PSNR paper [dB] ↑" in text
    assert "paper: PSNR paper [dB] ↑" in text
    assert "| scene01" in text
    assert "![" not in text
    linked = markdown_page(_page(), {"fig": "figures/fig.png"})
    assert "](figures/fig.png)" in linked
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


# --- what the tables say -------------------------------------------------------------------------


def _row(**changes: object) -> dict[str, object]:
    row = {"model": "m", "group": "g", "scene": "average", "metric": "psnr_paper", "mean": 30.0,
           "std": 0.1234, "standard_error": 0.01, "trials": 4, "failed": 0}  # fmt: skip
    return row | changes


def test_score_texts() -> None:
    table = ScoreTable([_row(), _row(scene="s", failed=1, mean=math.nan), _row(metric="sam")])
    assert table.text("m", "g", "psnr_paper", with_error=True) == "30.00 ± 0.12 (0.010)"
    assert table.text("m", "g", "psnr_paper") == "30.00 ± 0.12"
    assert table.text("m", "g", "psnr_paper", "s") == "no result [1 of 5 failed]"
    assert table.text("m", "other", "psnr_paper") == "–"
    assert table.scenes == ["s"]
    assert table.metrics == ["psnr_paper", "sam"]


def test_published_numbers_stand_beside_their_own_scenes_only() -> None:
    found = published_beside("many-to-many", ["scene01", "scene07"])
    assert number_text("psnr_paper", found["SRN + GST"]["psnr_paper"]["scene01"]) == (
        "33.99 ± 0.14"
    )
    assert number_text("ssim", found["SRN + GST"]["ssim"]["scene07"]) == "0.8658 ± 0.0024"
    assert number_text("psnr_paper", None) == "–"
    assert published_beside("many-to-many", ["beads"]) == {}
    assert published_beside("stress", ["scene01"]) == {}


# --- figures -------------------------------------------------------------------------------------


def _size(png: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(png)) as picture:
        picture.load()
        return picture.size


def _view(truth: bool) -> SceneView:
    cube = np.random.default_rng(0).random((5, 32, 40)).astype(np.float32)
    error = np.random.default_rng(1).random((32, 40)).astype(np.float32) * 0.1
    at = np.linspace(450, 650, 5).tolist()
    return SceneView({"a": cube, "b": cube * 0.9}, {"a": error, "b": error}, at,
                     cube if truth else None, None, {"a": "30.00 dB"})  # fmt: skip


def test_figures_draw_and_are_reproducible() -> None:
    scores = [Scores("a", ["s1", "s2"], [30.0, 31.0], [0.1, math.nan]),
              Scores("paper", ["s1"], [33.0], [math.nan], True)]  # fmt: skip
    curve = Scores("a", [0.0, 0.5, 1.0], [30.0, 28.0, 25.0], [0.1, 0.2, 0.3])
    spectra = np.random.default_rng(2).random((3, 5))
    error = np.abs(np.random.default_rng(3).standard_normal((20, 24))) * 0.01
    drawings = {
        "scenes": lambda: scene_figure(scores, "PSNR paper [dB] ↑"),
        "trials": lambda: trial_figure({"g": {"a": [30.0, 31.0, math.nan], "b": [29.0]}}, "x"),
        "stress": lambda: stress_figure([FaultPanel("shift", "px", 0.0, [curve])] * 4, "dB"),
        "matrices": lambda: correlation_figure({"truth": np.eye(5), "a": np.ones((5, 5))}, None),
        "blocks": lambda: blocks_figure(spectra, {"a": spectra}, {"a": spectra / 9}, None,
                                        {"a": [0.9, None, 0.8]}),
        "maps": lambda: maps_figure({"a": {"error": error, "std": error / 30},
                                     "b": {"error": error}}),
        "colours": lambda: colours_figure(_view(True)),
        "bands": lambda: bands_figure(_view(False)),
    }  # fmt: skip
    for name, make in drawings.items():
        png = make()
        assert min(_size(png)) > 150, name
        assert max(_size(png)) < 2400, name
        if name in ("scenes", "maps"):
            assert png == make()


def test_without_truth_there_is_one_picture_less() -> None:
    assert list(_view(True).shown) == ["truth", "a", "b"]
    assert list(_view(False).shown) == ["a", "b"]
    assert _size(colours_figure(_view(True)))[0] > _size(colours_figure(_view(False)))[0]


def test_windows_are_where_the_error_is_largest_and_where_it_is_in_the_middle() -> None:
    error = np.zeros((64, 64))
    error[24:36, 48:60] = 1.0
    found = windows(error, side=12)
    assert (found[0].row, found[0].column) == (24, 48)
    assert found[0] != found[1]
    assert windows(np.zeros((10, 10)), side=8) == ()


@pytest.mark.parametrize("count", [1, 2, 7, 9])
def test_any_number_of_panels_fits(count: int) -> None:
    curve = Scores("a", [0.0, 1.0], [30.0, 28.0], [0.0, 0.0])
    panels = [FaultPanel(f"f{k}", "size [px]", 0.0, [curve]) for k in range(count)]
    assert min(_size(stress_figure(panels, "PSNR"))) > 150
