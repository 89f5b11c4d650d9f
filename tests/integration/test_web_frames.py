"""A dark frame and a flat field sent with a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tiny_web

import prismask
from prismask.scenes.records import Measurement

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a camera writes: light times the response of each pixel, on top of its dark frame."""
    here = tmp_path_factory.mktemp("frames")
    tiny_web.write_snapshot(here)
    clean = prismask.load_measurement(here / "snapshot.nc")
    random = np.random.default_rng(0)
    response = 0.8 + 0.4 * random.random(clean.values.shape)
    dark = 0.05 + 0.02 * random.random(clean.values.shape)
    np.save(here / "dark.npy", dark)
    np.save(here / "flat.npy", 0.7 * response + dark)
    raw = Measurement(response * clean.values + dark, clean.attrs)
    prismask.save(raw, here / "snapshot.nc", overwrite=True)
    return here


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[httpx.Client]:
    with tiny_web.running(folder, "serve") as (client, _):
        yield client


def _sent(client: httpx.Client, folder: Path, names: dict[str, str], **form: Any) -> httpx.Response:
    names = {"snapshot": "snapshot.nc", "mask": "mask.nc", **names}
    files = {field: (name, (folder / name).read_bytes()) for field, name in names.items()}
    form = {"method": "gap-tv", "iterations": "4", **form}
    return client.post("/api/jobs", files=files, data=form)


def _made(client: httpx.Client, folder: Path, answer: httpx.Response) -> prismask.Cube:
    assert answer.status_code == 202, answer.text
    status = tiny_web.wait_for(client, answer.json()["id"])
    assert status["state"] == "done", status
    out = folder / "fetched.nc"
    out.write_bytes(client.get(f"/api/results/{status['result']}/cube.nc").content)
    return prismask.load_cube(out)


def test_they_do_what_the_command_does(folder: Path, served: httpx.Client) -> None:
    answer = _sent(served, folder, {"dark_frame": "dark.npy", "flat": "flat.npy"})
    found = _made(served, folder, answer)
    expected = prismask.reconstruct(
        folder / "snapshot.nc", folder / "mask.nc", method="gap-tv", iterations=4,
        dark=folder / "dark.npy", flat=folder / "flat.npy",
    )  # fmt: skip
    np.testing.assert_allclose(found.values, expected.values, atol=1e-3)
    untreated = _made(served, folder, _sent(served, folder, {}))
    assert np.abs(untreated.values - expected.values).max() > 0.05


def test_what_does_not_go_together_is_told(folder: Path, served: httpx.Client) -> None:
    both = _sent(served, folder, {"dark_frame": "dark.npy"}, dark="0.1")
    assert (both.status_code, "give one of them" in both.text) == (422, True)
    np.save(folder / "small.npy", np.ones((8, 8)))
    small = _sent(served, folder, {"flat": "small.npy"})
    assert small.status_code == 422
    assert "flat field (small.npy) is 8×8 and the snapshot 32×94" in small.json()["detail"]
    assert str(folder) not in small.text


def test_what_a_message_advises_can_be_done_on_the_page(
    folder: Path, served: httpx.Client, tmp_path: Path
) -> None:
    """Turned, cropped, averaged, of 12 bits: as the command has it."""
    shot = prismask.load_measurement(folder / "snapshot.nc")
    mask = prismask.load_mask(folder / "mask.nc")
    counts = np.round(3000 * shot.values / shot.values.max()).astype(np.uint16)
    np.save(tmp_path / "stack.npy", np.stack([counts[::-1], counts[::-1]]))
    np.save(tmp_path / "large.npy", np.pad(mask.values, ((1, 2), (3, 0))))
    files = {
        "snapshot": ("stack.npy", (tmp_path / "stack.npy").read_bytes()),
        "mask": ("large.npy", (tmp_path / "large.npy").read_bytes()),
    }
    form = {"method": "gap-tv", "iterations": "4", "dark": "0", "fill_bad_pixels": "false"}
    refused = served.post("/api/jobs", files=files, data=form)
    assert refused.status_code == 422
    assert "Pages are exposures" in refused.json()["detail"]
    raw = {
        "average": "true", "turn_snapshot": "flipped-top-bottom", "bits": "12",
        "crop_mask": "1, 3, 32, 40",
    }  # fmt: skip
    answer = served.post("/api/jobs", files=files, data=form | raw)
    found = _made(served, tmp_path, answer)
    expected = prismask.reconstruct(
        counts, mask, method="gap-tv", iterations=4, dark=0, bits=12, bad_pixels="none",
    )  # fmt: skip
    assert np.abs(found.values - expected.values).mean() < 0.05 * expected.values.mean()
    wrong = served.post("/api/jobs", files=files, data=form | raw | {"crop_mask": "0,0,90,90"})
    assert (wrong.status_code, "within the mask" in wrong.text) == (422, True)


def test_a_field_that_nobody_reads_is_told(folder: Path, served: httpx.Client) -> None:
    answer = _sent(served, folder, {}, iteratons="3")
    assert answer.status_code == 422
    assert "iterations" in answer.json()["detail"]
