"""The application without uploads: pages, guards, headers, errors as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra web is not installed")

import httpx
from web_client import opened

from prismask.apps.cli.serve import find_choices
from prismask.apps.cli.view import view_site
from prismask.apps.web.assets import FOLDER
from prismask.apps.web.limits import Limits
from prismask.apps.web.site import Choices, Site
from prismask.apps.web.uploads import keep_upload, safe_name
from prismask.errors import ConfigError
from prismask.models.registry import create_model
from prismask.models.weights import save_weights, shipped
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    values = np.random.default_rng(0).random((3, 5, 7)).astype(np.float32)
    save(Cube(values, [450.0, 550.0, 650.0], attrs={"long": "x" * 5000, "made_by": "a test"}),
         tmp_path / "räw <cube>.nc")  # fmt: skip
    site = view_site(tmp_path / "räw <cube>.nc")
    with opened(site) as client:
        client.headers["x-result"] = str(site.first)
        yield client
    assert not site.root.exists(), "the folder goes when the application ends"


def base(client: httpx.Client) -> str:
    return f"/api/results/{client.headers['x-result']}"


def test_files_that_are_called_alike_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "cube.nc", tmp_path / "other" / "cube.nc"):
        save(Cube(np.ones((3, 5, 7), np.float32)), path)
    site = view_site(tmp_path / "cube.nc", compare=(tmp_path / "other" / "cube.nc",))
    with opened(site) as client:
        told = client.get(f"/api/results/{site.first}").json()
    assert [one["name"] for one in told["others"]] == ["other/cube.nc"]
    assert told["name"] == f"{tmp_path.name}/cube.nc"


def test_the_front_page_leads_to_the_file(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.url.path.startswith("/results/")
    assert "<!doctype html>" in page.text


def test_facts(client: httpx.Client) -> None:
    facts = client.get(base(client)).json()
    assert (facts["bands"], facts["height"], facts["width"]) == (3, 5, 7)
    assert facts["history"] == {"made_by": "a test"}
    assert client.get("/api/about").json()["uploads"] is False


def test_every_answer_has_the_headers(client: httpx.Client) -> None:
    for path in ("/", "/api/about", "/none", "/static/view.js", f"{base(client)}/spectrum"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer", "the link has the token in it"
        for policy in ("cross-origin-resource-policy", "cross-origin-opener-policy"):
            assert headers[policy] == "same-origin"
    policy = client.get("/").headers["content-security-policy"]
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in re.sub(r"style-src[^;]*", "", policy)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8000", "", "[", "0.0.0.0"]
)
def test_other_hosts_are_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/api/about", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8000"])
def test_loopback_names_are_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/api/about", headers={"host": host}).status_code == 200


def test_uploads_are_not_even_there_where_only_one_file_is_shown(client: httpx.Client) -> None:
    assert client.post("/api/jobs").status_code in (404, 405)


def test_wrong_requests_are_sentences(client: httpx.Client) -> None:
    layers = ("none.png", "band.png?band=99", "mask.png", "band.png?band=x")
    spectra = ("spectrum", "spectrum?region=9,9,9,9", "spectra.csv?region=1")
    for path in (*(f"layers/{layer}" for layer in layers), *spectra):
        answer = client.get(f"{base(client)}/{path}")
        assert answer.status_code in (404, 422), path
        assert isinstance(answer.json()["detail"], str)
        assert len(answer.json()["detail"]) > 10


def test_the_name_of_a_download_is_harmless(client: httpx.Client) -> None:
    answer = client.get(f"{base(client)}/cube.nc")
    assert answer.headers["content-disposition"] == 'attachment; filename="r_w__cube_-cube.nc"'
    assert answer.content[:4] == b"\x89HDF"


def test_pictures_are_kept_by_the_browser(client: httpx.Client) -> None:
    answer = client.get(f"{base(client)}/layers/band.png?band=1")
    assert answer.headers["content-type"] == "image/png"
    assert "immutable" in answer.headers["cache-control"]


def test_a_fault_of_ours_shows_no_traceback(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("prismask.apps.web.api_pictures.render", broken)
    answer = client.get(f"{base(client)}/layers/band.png")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_a_browser_that_holds_a_picture_gets_it_only_once(client: httpx.Client) -> None:
    for path in (f"{base(client)}/layers/rgb.png?width=4", "/static/view.js", "/"):
        first = client.get(path)
        again = client.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path
    other = client.get(f"{base(client)}/layers/rgb.png", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


def test_a_picture_is_as_large_as_the_screen_needs(client: httpx.Client) -> None:
    whole = client.get(f"{base(client)}/layers/band.png?width=5")
    small = client.get(f"{base(client)}/layers/band.png?width=3")
    assert [a.headers["display-reduction"] for a in (whole, small)] == ["1", "2"]
    assert float(small.headers["display-low"]) == 0
    assert 0 < float(small.headers["display-high"]) <= 1
    by_hand = client.get(f"{base(client)}/layers/band.png?low=0.1&high=0.3").headers
    assert (by_hand["display-low"], by_hand["display-high"]) == ("0.1", "0.3")
    assert client.get(f"{base(client)}/layers/band.png?low=0.1").status_code == 422


def test_a_wrong_method_is_told_the_right_ones(upload_client: httpx.Client) -> None:
    answer = upload_client.patch("/api/jobs/x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET")
    assert upload_client.put("/api/jobs").headers["allow"] == "POST"


def test_openapi_describes_every_way(client: httpx.Client) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert all(path.startswith("/api/") for path in paths)
    assert "/api/results/{key}/spectrum" in paths
    for path in ("/docs", "/redoc"):
        assert client.get(path).status_code == 404, "these fetch scripts from elsewhere"


def test_plots_come_with_the_package(client: httpx.Client) -> None:
    plain = client.get("/static/plotly.js", headers={"accept-encoding": "identity"})
    assert "plotly.js" in plain.text[:300]
    assert client.get("/static/plotly.js").headers["content-encoding"] == "gzip"


def test_nothing_of_ours_names_another_server() -> None:
    for path in FOLDER.iterdir():
        if path.suffix == ".png":
            continue
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(|@import", text), path.name


@pytest.fixture
def upload_client() -> Iterator[httpx.Client]:
    site = Site(Limits(upload_bytes=2000), Choices(models={"m": Path("m.safetensors")}))
    with opened(site) as client:
        yield client


def test_foreign_pages_cannot_send(upload_client: httpx.Client) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "http://["):
        answer = upload_client.post("/api/jobs", headers={"origin": origin})
        assert answer.status_code == 403, origin
        answer = upload_client.delete("/api/jobs/none", headers={"origin": origin})
        assert answer.status_code == 403, origin
    assert (
        upload_client.post(
            "/api/jobs", headers={"origin": str(upload_client.base_url).rstrip("/")}
        ).status_code
        == 422
    )


def test_too_much_is_refused_before_it_is_read(upload_client: httpx.Client) -> None:
    files = {"snapshot": ("a", b"x" * 3000), "mask": ("b", b"x")}
    answer = upload_client.post("/api/jobs", files=files)
    assert answer.status_code == 413
    assert "MiB" in answer.json()["detail"]


def test_missing_parts_are_named(upload_client: httpx.Client) -> None:
    answer = upload_client.post("/api/jobs", data={"samples": "3"})
    assert answer.status_code == 422
    assert "snapshot" in answer.json()["detail"]


def test_two_ways_at_once_are_refused(upload_client: httpx.Client) -> None:
    files = {"snapshot": ("a", b"x"), "mask": ("b", b"x")}
    answer = upload_client.post("/api/jobs", files=files, data={"method": "gap-tv", "model": "m"})
    assert (answer.status_code, "give one of them" in answer.text) == (422, True)


@pytest.mark.parametrize(("name", "shown"), [("../../a.npy", "a.npy"), ("c:\\x\\b.mat", "b.mat"),
                                             ("..", "file"), (None, "file"), ("a\0\n\u202eb", "ab"),
                                             ("x" * 99 + ".nc", "x" * 77 + ".nc")])  # fmt: skip
def test_names_are_for_show(name: str | None, shown: str) -> None:
    assert safe_name(name) == shown


@pytest.mark.parametrize(("name", "kept"), [("../x.MAT", "mask.mat"), ("x.sh", "mask"),
                                            ("/etc/passwd", "mask"), (None, "mask")])  # fmt: skip
def test_an_upload_gets_a_name_of_ours(tmp_path: Path, name: str | None, kept: str) -> None:
    import io

    path = keep_upload(io.BytesIO(b"content"), name, tmp_path, "mask")
    assert path == tmp_path / kept
    assert path.read_bytes() == b"content"


def test_a_mask_or_a_measurement_can_be_looked_at(tmp_path: Path) -> None:
    save(Mask(np.ones((4, 5))), tmp_path / "mask.nc")
    save(Measurement(np.ones((4, 9))), tmp_path / "shot.nc")
    for name, size in (("mask.nc", (4, 5)), ("shot.nc", (4, 9))):
        site = view_site(tmp_path / name)
        assert site.results.get(str(site.first)).cube.size == size
        site.close()


def weights(path: Path, **record: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    save_weights(create_model("srn", bands=4, seed=0, width=8, blocks=1), path, record)
    return path


def test_every_file_of_weights_is_offered_under_a_name_of_its_own(tmp_path: Path) -> None:
    ours = {one.name: one.path for one in shipped()}
    files = [
        weights(tmp_path / "a" / "weights.safetensors", name="run"),
        weights(tmp_path / "b" / "weights.safetensors", name="run"),
        weights(tmp_path / "c" / "weights.safetensors"),
        *(weights(tmp_path / "d" / f"{name}.safetensors", name=name) for name in [*ours][:1]),
    ]
    offered = find_choices((*files, files[0]), "cpu").models
    own = dict(zip(("run", "b", "c", "d"), files, strict=False))
    assert offered == ours | own


def test_two_files_of_one_name_are_told_apart_or_refused(tmp_path: Path) -> None:
    first = weights(tmp_path / "a" / "one.safetensors", name="a")
    second = weights(tmp_path / "a" / "two.safetensors", name="a")
    with pytest.raises(ConfigError) as caught:
        find_choices((first, second), "cpu")
    for part in (str(first), str(second), "'a'", "rename the folder"):
        assert part in str(caught.value)
