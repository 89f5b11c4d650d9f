"""The pages in a real browser: upload → progress → result → click → spectrum → download."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_web

from prismask.apps.cli.camera_options import ORIENTATIONS
from prismask.scenes.formats.files import load_cube, load_mask, load_measurement, save
from prismask.scenes.records import Cube, Mask, Measurement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt: chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as started:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: PRISMASK_SCREENSHOTS, to look at them, else away."""
    folder = Path(os.environ.get("PRISMASK_SCREENSHOTS", tmp_path / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Watched:
    """A page whose faults and foreign requests are noted."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.faults: list[str] = []
        self.address = address
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address.partition("?")[0], "data:", "blob:")):
            self.faults.append(f"asked for {request.url}")

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


BRIGHTNESS = """name => {
    const canvas = document.getElementById(name);
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return data.reduce((sum, value) => sum + value, 0) / data.length;
}"""


def bright(page: Any, panel: str) -> float:
    """Mean of the pixels that a canvas shows."""
    return float(page.evaluate(BRIGHTNESS, panel))


def wait_until_drawn(page: Any, *names: str) -> None:
    """Wait until every one of these panels shows something."""
    for name in names:
        page.wait_for_selector(f"#panel-{name}")
        page.wait_for_function(f"name => ({BRIGHTNESS})(name) > 5", arg=f"panel-{name}")


def curves(page: Any) -> list[dict[str, Any]]:
    """The lines of the plot that have a name."""
    script = "() => (document.getElementById('plot').data ?? []).map(t => ({name: t.name, y: t.y}))"
    return [one for one in page.evaluate(script) if one.get("name")]


def has_no_sideways_scroll(page: Any) -> bool:
    return bool(page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"))


def test_from_upload_to_download(browser: Any, tmp_path: Path, shots: Path) -> None:
    tiny_web.write_snapshot(tmp_path, (64, 80))
    with tiny_web.running(tmp_path, "serve") as (client, _):
        address = tiny_web.link_of(client)
        seen = Watched(browser, address, viewport=DESKTOP, accept_downloads=True)
        page = seen.page
        page.goto(address)
        page.set_input_files("#snapshot", tmp_path / "snapshot.nc")
        page.set_input_files("#mask", tmp_path / "mask.nc")
        page.wait_for_selector("#how option", state="attached")
        assert page.input_value("#how") == "camera:", "the default of reconstruct"
        assert page.is_visible("#align")
        assert page.is_visible("#adapt")
        page.select_option("#how", "method:gap-tv")
        for name in ("#turn_snapshot", "#turn_mask"):
            offered = page.eval_on_selector_all(f"{name} option", "all => all.map(o => o.value)")
            assert offered == ["", *ORIENTATIONS]
        assert page.is_visible("#align"), "solvers ask the default network"
        assert not page.is_visible("#adapt"), "solvers learn nothing"
        page.fill("#iterations", "200")
        page.click("summary:has-text('Camera')")
        page.select_option("#axis", "width")
        page.fill("#offsets", ", ".join(str(2 * band) for band in range(28)))
        assert has_no_sideways_scroll(page)
        page.screenshot(path=shots / "upload.png", full_page=True)
        page.click("#go")
        page.wait_for_selector("#stage:has-text('Reconstructing')", timeout=60_000)
        page.screenshot(path=shots / "progress.png", full_page=True)
        page.wait_for_url("**/results/*", timeout=60_000)
        wait_until_drawn(page, "rgb", "band", "snapshot", "mask")

        key = page.url.rsplit("/", 1)[1]
        box = page.locator("#panel-rgb").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 10.5 / 80, box["y"] + box["height"] * 20.5 / 64)
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        (curve,) = curves(page)
        assert curve["name"] == "x 10, y 20"
        with page.expect_download() as caught:
            page.click("#get-cube")
        cube = load_cube(caught.value.path())
        np.testing.assert_allclose(curve["y"], cube.values[:, 20, 10], rtol=1e-6)
        assert caught.value.suggested_filename == "snapshot-cube.nc"

        page.click("#pin")
        _drag(page, "#panel-band", (16.5 / 80, 0.2), (32.5 / 80, 0.5))
        page.wait_for_function(
            "() => document.getElementById('plot').data.filter(t => t.name).length === 2"
        )
        with page.expect_download() as caught:
            page.click("#get-spectra")
        table = caught.value.path().read_text().splitlines()
        assert len(table) == 1 + 28
        assert table[0].startswith("wavelength_nm,x10 y20,x16-32 y")
        with page.expect_download() as caught:
            page.click("#get-rgb")
        assert caught.value.path().read_bytes().startswith(b"\x89PNG")
        page.screenshot(path=shots / "result.png", full_page=True)
        assert client.get(f"/api/results/{key}").status_code == 200
        seen.close()
    assert tiny_web.leftovers(tmp_path) == []


def test_a_drawn_scene_at_one_press(browser: Any, tmp_path: Path, shots: Path) -> None:
    with tiny_web.running(tmp_path, "serve") as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        assert "token" not in page.url
        page.wait_for_function("() => document.getElementById('time').textContent.includes(' s ')")
        assert is_in_view(page, ".example")
        assert page.evaluate("() => document.querySelector('.example').naturalWidth") > 0
        page.screenshot(path=shots / "front.png")
        page.click("#try")
        page.wait_for_selector("#stage:has-text('left (starting)')", timeout=30_000)
        assert is_in_view(page, "#progress")
        assert page.get_attribute("#progress", "value") is not None, "how far, from the start"
        page.screenshot(path=shots / "front-progress.png")
        page.wait_for_url("**/results/*", timeout=60_000)
        wait_until_drawn(page, "rgb", "error", "uncertainty")
        assert page.inner_text("#notices").startswith("Note: Trust: ")
        page.screenshot(path=shots / "sample.png")
        page.goto(f"{client.base_url}")
        page.wait_for_selector("#past a:has-text('drawn scene')")
        seen.close()


DROP = """names => {
    const held = new DataTransfer();
    for (const name of names) held.items.add(new File(['x'], name));
    const options = { dataTransfer: held, bubbles: true, cancelable: true };
    document.body.dispatchEvent(new DragEvent('drop', options));
    return ['snapshot', 'mask'].map(id => document.getElementById(id).files[0]?.name ?? '');
}"""


def test_dropped_files_find_their_fields(browser: Any, tmp_path: Path) -> None:
    with tiny_web.running(tmp_path, "serve") as (client, _):
        page = browser.new_page()
        for dropped, found in (
            (["Mask 3.mat", "shot.mat"], ["shot.mat", "Mask 3.mat"]),
            (["a.npy", "b.npy"], ["a.npy", "b.npy"]),
            (["mask.png"], ["", "mask.png"]),
            (["a", "b", "c"], ["", ""]),
        ):
            page.goto(tiny_web.link_of(client))
            page.wait_for_selector("#how option", state="attached")
            assert page.evaluate(DROP, dropped) == found
            assert page.inner_text("#message") != ""
        page.close()


def test_who_has_no_link_is_asked_for_the_token(browser: Any, tmp_path: Path, shots: Path) -> None:
    with tiny_web.running(tmp_path, "serve") as (client, _):
        page = browser.new_page(viewport=DESKTOP)
        page.goto(str(client.base_url))
        page.fill("#token", "wrong")
        page.press("#token", "Enter")
        page.wait_for_selector("text=not the token of this server")
        page.screenshot(path=shots / "token.png")
        page.fill("#token", tiny_web.link_of(client).partition("=")[2])
        page.press("#token", "Enter")
        page.wait_for_selector("#form")
        page.close()


def test_a_warning_stands_at_the_top_with_its_remedy(
    browser: Any, tmp_path: Path, shots: Path
) -> None:
    tiny_web.write_snapshot(tmp_path, (96, 96))
    mask = load_mask(tmp_path / "mask.nc").values
    beside = Mask((mask + np.roll(mask, 1, axis=1)) / 2)  # half a pixel from where it was
    save(beside, tmp_path / "mask.nc", overwrite=True)
    with tiny_web.running(tmp_path, "serve") as (client, _):
        job = tiny_web.submit(client, tmp_path).json()["id"]
        key = tiny_web.wait_for(client, job)["result"]
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address.replace("/?", f"/results/{key}?"))
        wait_until_drawn(page, "rgb")
        told = page.inner_text("#notices .warning")
        assert "contradicts its mask" in told
        assert "--" not in told, "no flags on the page"
        button = page.locator("#notices .warning [data-remedy=align]")
        assert "about" in button.inner_text()
        assert is_in_view(page, "#notices .warning [data-remedy=align]")
        page.screenshot(path=shots / "warning.png")
        button.click()
        page.wait_for_selector("#notices [role=status]:has-text('left')", timeout=30_000)
        page.screenshot(path=shots / "remedy.png")
        page.click("#notices button:has-text('Cancel')")
        page.wait_for_selector("#notices .bad:has-text('cancelled')")
        assert button.is_enabled()
        seen.close()


def test_cancel_and_a_bad_file_are_told(browser: Any, tmp_path: Path) -> None:
    tiny_web.write_snapshot(tmp_path, (96, 96))
    (tmp_path / "bad.npy").write_bytes(b"not an array")
    with tiny_web.running(tmp_path, "serve") as (client, _):
        page = browser.new_page()
        page.goto(tiny_web.link_of(client))
        page.set_input_files("#snapshot", tmp_path / "bad.npy")
        page.set_input_files("#mask", tmp_path / "mask.nc")
        page.click("#go")
        page.wait_for_selector("#message.bad", timeout=30_000)
        assert "bad.npy starts with 'not an array'" in page.inner_text("#message")
        page.set_input_files("#snapshot", tmp_path / "snapshot.nc")
        page.select_option("#how", "method:gap-tv")
        page.fill("#iterations", "5000")
        page.click("#go")
        page.wait_for_selector("#stage:has-text('Reconstructing')", timeout=60_000)
        page.click("#cancel")
        page.wait_for_selector("#message.bad", timeout=10_000)
        assert page.inner_text("#message") == "cancelled."
        assert page.is_enabled("#go")
        page.close()


def test_a_file_the_wrong_way_round_is_mended_at_one_press(
    browser: Any, tmp_path: Path, shots: Path
) -> None:
    tiny_web.write_snapshot(tmp_path, (96, 96))
    mask = load_mask(tmp_path / "mask.nc").values
    save(Mask(mask[::-1].copy()), tmp_path / "mask.nc", overwrite=True)
    with tiny_web.running(tmp_path, "serve") as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=PHONE)
        page = seen.page
        page.goto(seen.address)
        page.set_input_files("#snapshot", tmp_path / "snapshot.nc")
        page.set_input_files("#mask", tmp_path / "mask.nc")
        page.wait_for_selector("#how option", state="attached")
        page.select_option("#how", "method:gap-tv")
        page.click("#go")
        button = "#fixes button:has-text('with the mask flipped top-bottom')"
        page.wait_for_selector(button, timeout=60_000)
        assert "flipped top-bottom" in page.inner_text("#message")
        assert is_in_view(page, button)
        assert page.locator("#fixes button").count() == 2, "or it is the snapshot"
        page.screenshot(path=shots / "fix.png")
        page.click(button)
        page.wait_for_url("**/results/*", timeout=60_000)
        wait_until_drawn(page, "rgb")
        seen.close()


def test_a_wrong_number_is_never_out_of_sight(browser: Any, tmp_path: Path) -> None:
    """A browser holds a form back for it, and says so only where it can be seen."""
    tiny_web.write_snapshot(tmp_path)
    asked = "() => document.activeElement.matches(':invalid') && document.activeElement.id"
    with tiny_web.running(tmp_path, "serve") as (client, _):
        page = browser.new_page()
        page.goto(tiny_web.link_of(client))
        page.set_input_files("#snapshot", tmp_path / "snapshot.nc")
        page.set_input_files("#mask", tmp_path / "mask.nc")
        page.wait_for_selector("#how option", state="attached")
        page.fill("#samples", "999")
        page.select_option("#how", "method:gap-tv")
        page.click("summary:has-text('Camera')")
        page.fill("#bands", "0")
        page.click("summary:has-text('Camera')")
        assert not page.is_visible("#bands")
        page.click("#go")
        page.wait_for_function(asked)
        assert page.evaluate(asked) == "bands"
        assert page.is_visible("#bands")
        page.fill("#bands", "")
        page.fill("#iterations", "99999")
        page.click("#go")
        assert page.evaluate(asked) == "iterations"
        page.select_option("#how", "model:lumen.m2m")
        page.click("#go")
        assert page.evaluate(asked) == "samples", "shown again, it counts again"
        page.select_option("#how", "method:gap-tv")
        page.fill("#iterations", "2")
        page.click("#go")
        page.wait_for_url("**/results/*", timeout=60_000)
        page.close()


@pytest.fixture
def rich_view(tmp_path: Path) -> list[str]:
    """Words for `prismask view` with everything that can be shown."""
    scene = tiny_web.write_snapshot(tmp_path, (64, 80))
    rng = np.random.default_rng(0)
    std = (0.02 + 0.1 * np.abs(scene.values)).astype(np.float32)
    guess = np.asarray(scene.values + std * rng.standard_normal(std.shape), dtype=np.float32)
    cube = Cube(guess, scene.wavelengths, std, guess - 2 * std, guess + 2 * std,
                {"interval": "90 %", "findings": ["warning: a finding to show"]})  # fmt: skip
    save(cube, tmp_path / "cube.nc")
    save(scene, tmp_path / "truth.nc")
    save(Cube(guess * 0.9, scene.wavelengths), tmp_path / "second.nc")
    given = {"reference": "truth.nc", "compare": "second.nc", "snapshot": "snapshot.nc",
             "mask": "mask.nc"}  # fmt: skip
    options = [word for key, name in given.items() for word in (f"--{key}", str(tmp_path / name))]
    return ["view", str(tmp_path / "cube.nc"), *options]


def test_view_by_keyboard_in_the_dark(
    browser: Any, tmp_path: Path, rich_view: list[str], shots: Path
) -> None:
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        address = tiny_web.link_of(client)
        seen = Watched(browser, address, viewport=DESKTOP, color_scheme="dark")
        page = seen.page
        page.goto(address)
        wait_until_drawn(page, "rgb", "band", "uncertainty", "error", "snapshot", "mask")
        before = page.inner_text("#band-text")
        page.focus("#band")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#band-text") != before
        page.focus("#panel-rgb")
        for key in ("ArrowRight", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        wait_until_drawn(page, "other", "difference")
        names = [one["name"] for one in curves(page)]
        assert names == ["x 41, y 33", "x 41, y 33 reference", "x 41, y 33 second.nc"]
        page.keyboard.press("p")
        page.check("#overlay")
        whole = bright(page, "panel-error")
        for _ in range(3):
            page.click("#closer")
        page.wait_for_timeout(300)
        assert bright(page, "panel-error") != whole, "zooming is linked over all pictures"
        back = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert max(int(part) for part in back[4:-1].split(",")) < 60
        page.screenshot(path=shots / "view-dark.png", full_page=True)
        seen.close()


SET_BAND = """band => {
    const slider = document.getElementById('band');
    slider.value = band;
    slider.dispatchEvent(new Event('input'));
}"""
COLOURED = """name => {
    const canvas = document.getElementById(name);
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const [xs, ys] = [[], []];
    for (let k = 0; k < data.length; k += 4) {
        const rgb = [data[k], data[k + 1], data[k + 2]];
        if (Math.max(...rgb) - Math.min(...rgb) < 60) continue;
        xs.push((k / 4) % canvas.width);
        ys.push(Math.floor(k / 4 / canvas.width));
    }
    const middle = (list) => (Math.min(...list) + Math.max(...list) + 1) / 2;
    return { shape: canvas.width / canvas.height, count: xs.length,
             x: middle(xs) / canvas.width, y: middle(ys) / canvas.height };
}"""
"""Shape of a canvas, and the middle of what is not grey in it, as shares of its sides."""


def test_a_mark_in_the_snapshot_lies_where_the_light_landed(
    browser: Any, tmp_path: Path, rich_view: list[str], shots: Path
) -> None:
    """Pixel x 41, y 33 of 80×64; 28 bands at 2 px make the snapshot 134×64."""
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb", "snapshot", "mask")
        page.focus("#panel-rgb")
        for key in ("ArrowRight", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        for band in (14, 0, 27):
            page.evaluate(SET_BAND, band)
            page.wait_for_timeout(200)
            mark = page.evaluate(COLOURED, "panel-snapshot")
            assert mark["shape"] == pytest.approx(134 / 64, rel=0.01)
            assert mark["x"] * 134 == pytest.approx(41.5 + 2 * band, abs=0.7)
            assert mark["y"] * 64 == pytest.approx(33.5, abs=0.7)
            mark = page.evaluate(COLOURED, "panel-mask")
            assert mark["x"] * 80 == pytest.approx(41.5, abs=0.7)
        page.screenshot(path=shots / "view-marks.png", full_page=True)
        # A click in the snapshot asks for the pixel whose light lies there.
        page.evaluate(
            "() => document.getElementById('panel-snapshot').scrollIntoView({ block: 'center' })"
        )
        box = page.locator("#panel-snapshot").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 74.5 / 134, box["y"] + box["height"] * 10.5 / 64)
        asked = "() => document.getElementById('plot').data.some(t => t.name === 'x 20, y 10')"
        page.wait_for_function(asked)
        for _ in range(5):
            page.click("#closer")
        page.wait_for_timeout(200)
        page.screenshot(path=shots / "view-marks-close.png", full_page=True)
        seen.close()


def test_a_snapshot_of_an_unknown_camera_has_no_marks(
    browser: Any, tmp_path: Path, rich_view: list[str]
) -> None:
    snapshot = load_measurement(tmp_path / "snapshot.nc")
    save(Measurement(snapshot.values), tmp_path / "snapshot.nc", overwrite=True)
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb", "snapshot", "mask")
        page.click("#panel-rgb")
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        page.wait_for_timeout(200)
        assert page.evaluate(COLOURED, "panel-mask")["count"] > 0
        found = page.evaluate(COLOURED, "panel-snapshot")
        assert found["count"] == 0
        assert found["shape"] == pytest.approx(134 / 64, rel=0.01)
        before = curves(page)
        page.click("#panel-snapshot")
        page.wait_for_timeout(200)
        assert curves(page) == before
        seen.close()


def is_in_view(page: Any, selector: str) -> bool:
    """Whether all of an element can be seen without scrolling."""
    box, size = page.locator(selector).bounding_box(), page.viewport_size
    ends = (box["x"] + box["width"], box["y"] + box["height"])
    return box["y"] >= 0 and ends[0] <= size["width"] and ends[1] <= size["height"]


def test_everything_that_a_click_changes_is_in_view(
    browser: Any, tmp_path: Path, rich_view: list[str], shots: Path
) -> None:
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb", "band", "uncertainty")
        assert "Click a pixel" in page.inner_text("#plot"), "what to do, not axes from -1 to 6"
        titles = page.evaluate("""() => {
            const { xaxis, yaxis } = document.getElementById('plot').layout;
            return [xaxis.title.text, yaxis.title.text, ...yaxis.range];
        }""")
        assert titles == ["wavelength in nm", "value (fraction of full scale)", 0, 1]
        assert page.inner_text("#notices") == "Warning: a finding to show"
        page.click("#panel-rgb")
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        for part in ("#panel-rgb", "#plot", "#plot-note"):
            assert is_in_view(page, part), part
        bars = page.locator(".legend:visible").all_inner_texts()
        assert any("one standard deviation" in text for text in bars), bars
        assert any("fraction of full scale" in text for text in bars), bars
        page.check("#overlay")
        page.wait_for_selector("text=overlay: uncertainty")
        page.screenshot(path=shots / "view.png")
        seen.close()


def test_contrast_limits(browser: Any, tmp_path: Path, rich_view: list[str]) -> None:
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb", "band")
        plain = bright(page, "panel-band")
        low = page.input_value("#low")
        page.select_option("#stretch", "full")
        page.wait_for_timeout(300)
        assert float(page.input_value("#low")) < float(low) == 0, "noise goes below zero"
        page.select_option("#stretch", "hand")
        assert page.input_value("#low") != "", "begins with what is in view"
        page.fill("#low", "0")
        page.fill("#high", "0.01")
        page.press("#high", "Tab")
        page.wait_for_timeout(300)
        assert bright(page, "panel-band") > plain
        assert page.locator("#panel-band ~ .legend >> nth=0").inner_text().split()[-1] == "0.01"
        seen.close()


PLOT_SHARES = """() => {
    const place = document.getElementById('plot');
    const drawn = place.querySelector('.main-svg').clientHeight;
    return [drawn, place._fullLayout._size.h].map(high => high / place.clientHeight);
}"""
"""Shares of the plot's place that are drawn on, and that lie between its axes."""


def test_a_polygon_by_mouse_and_by_keyboard(
    browser: Any, tmp_path: Path, rich_view: list[str], shots: Path
) -> None:
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb")
        page.click("#polygon")
        box = page.locator("#panel-rgb").bounding_box()
        for x, y in ((10, 10), (30, 10), (30, 40), (10, 10)):
            page.mouse.click(box["x"] + box["width"] * x / 80, box["y"] + box["height"] * y / 64)
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        assert curves(page)[0]["name"] == "polygon x 10–29, y 10–39"
        page.wait_for_timeout(200)
        page.screenshot(path=shots / "view-polygon.png")
        page.click("#pin")
        page.focus("#panel-band")
        keys = ["Enter", *["ArrowRight"] * 4, "Enter", *["ArrowDown"] * 4, "Enter", "c"]
        for key in keys:
            page.keyboard.press(key)
        found = "document.getElementById('plot').data.some(t => t.name?.startsWith('polygon x 40'))"
        page.wait_for_function(f"() => {found}")
        page.wait_for_function(f"() => ({PLOT_SHARES})()[0] > 0.98")
        assert page.evaluate(PLOT_SHARES)[1] > 0.4, "not all of it is legend"
        buttons = page.locator("#regions button").all()
        assert [button.bounding_box()["height"] < 45 for button in buttons] == [True, True]
        page.screenshot(path=shots / "view-two-regions.png")
        seen.close()


def test_the_nearest_material_of_a_library_is_beside(
    browser: Any, tmp_path: Path, rich_view: list[str], shots: Path
) -> None:
    rows = ["wavelength,grass,clay", *(f"{nm},{nm - 390},{800 - nm}" for nm in range(400, 751, 10))]
    library = tmp_path / "materials.csv"
    library.write_text("\n".join(rows), encoding="utf-8")
    with tiny_web.running(tmp_path, *rich_view, "--library", str(library)) as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        wait_until_drawn(page, "rgb")
        page.click("#panel-rgb")
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        names = [one["name"] for one in curves(page)]
        assert any(name.startswith(("grass, ", "clay, ")) and name.endswith("°") for name in names)
        assert "Nearest in the library: " in page.text_content("#plot-note")
        page.wait_for_timeout(200)
        page.screenshot(path=shots / "view-library.png")
        seen.close()


def test_dark_frame_and_flat_field_are_sent(browser: Any, tmp_path: Path, shots: Path) -> None:
    tiny_web.write_snapshot(tmp_path)
    shape = load_measurement(tmp_path / "snapshot.nc").shape
    np.save(tmp_path / "flat.npy", np.full(shape, 0.5))
    np.save(tmp_path / "dark.npy", np.zeros(shape))
    with tiny_web.running(tmp_path, "serve") as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=DESKTOP)
        page = seen.page
        page.goto(seen.address)
        page.wait_for_selector("#how option", state="attached")
        page.select_option("#how", "method:gap-tv")
        page.fill("#iterations", "2")
        page.click("summary:has-text('Error bars, sensor and mask')")
        for field, name in (("snapshot", "snapshot.nc"), ("mask", "mask.nc"), ("flat", "flat.npy"),
                            ("dark_frame", "dark.npy")):  # fmt: skip
            page.set_input_files(f"#{field}", tmp_path / name)
        page.screenshot(path=shots / "upload-frames.png", full_page=True)
        page.fill("#dark", "0.1")
        page.click("#go")
        told = "document.getElementById('message').textContent.includes('give one of them')"
        page.wait_for_function(f"() => {told}")
        page.fill("#dark", "")
        page.click("#go")
        page.wait_for_url("**/results/**")
        wait_until_drawn(page, "rgb")
        # The refused form is an answer of 422, which the console notes.
        assert [one for one in seen.faults if "422" not in one] == []


def test_view_on_a_phone(browser: Any, tmp_path: Path, rich_view: list[str], shots: Path) -> None:
    with tiny_web.running(tmp_path, *rich_view) as (client, _):
        address = tiny_web.link_of(client)
        seen = Watched(browser, address, viewport=PHONE, has_touch=True, is_mobile=True)
        page = seen.page
        page.goto(address)
        wait_until_drawn(page, "rgb", "band", "mask")
        page.tap("#panel-band")
        page.wait_for_function("() => document.getElementById('plot').data?.length > 0")
        assert has_no_sideways_scroll(page)
        page.wait_for_timeout(300)
        assert is_in_view(page, "#plot"), "a tap's spectrum is on the screen"
        page.screenshot(path=shots / "view-phone.png", full_page=True)
        seen.close()
    with tiny_web.running(tmp_path, "serve") as (client, _):
        seen = Watched(browser, tiny_web.link_of(client), viewport=PHONE)
        seen.page.goto(seen.address)
        seen.page.wait_for_selector("#how option", state="attached")
        assert is_in_view(seen.page, "#try"), "a phone has no snapshots on it"
        seen.page.click("summary:has-text('For scripts')")
        assert has_no_sideways_scroll(seen.page)
        seen.page.screenshot(path=shots / "upload-phone.png", full_page=True)
        unlabelled = """() => [...document.querySelectorAll('input, select, button')]
            .filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel)
            .map(e => e.id)"""
        assert seen.page.evaluate(unlabelled) == []
        seen.close()


def _drag(
    page: Any, panel: str, start: tuple[float, float], end: tuple[float, float]
) -> None:  # fmt: skip
    page.evaluate("() => window.scrollTo(0, 0)")
    box = page.locator(panel).bounding_box()
    first, last = (
        (box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in (start, end)
    )
    page.mouse.move(*first)
    page.mouse.down()
    page.mouse.move(*last, steps=4)
    page.mouse.up()
