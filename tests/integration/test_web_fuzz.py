"""Hundreds of files and requests that are wrong: each is refused in words, none leaves a trace."""

from __future__ import annotations

import io
import pickle
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import httpx
import numpy as np
import pytest
import tiny_web
from PIL import Image

from prismask.scenes.formats.files import load_measurement, save

pytestmark = pytest.mark.slow

UPLOAD_BYTES = 4 * 2**20
SOLVER = {"method": "gap-tv", "iterations": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    tiny_web.write_snapshot(made)
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[httpx.Client]:
    with tiny_web.running(folder, "serve", "--upload-megabytes", "4") as (client, _):
        yield client
    assert tiny_web.leftovers(folder) == []
    assert "Traceback" not in (folder / "server.log").read_text()


@pytest.fixture(scope="module")
def good(folder: Path) -> dict[str, bytes]:
    """The snapshot in every format that is taken."""
    shot = load_measurement(folder / "snapshot.nc")
    for ending in ("mat", "npy", "npz", "tif"):
        save(shot, folder / f"good.{ending}")
    save(shot, folder / "good73.mat", format="matlab7.3")
    grey = np.round(65535 * shot.values / shot.values.max()).astype(np.uint16)
    Image.fromarray(grey).save(folder / "good.png")
    names = ("snapshot.nc", "good.mat", "good73.mat", "good.npy", "good.npz", "good.tif",
             "good.png")  # fmt: skip
    return {name: (folder / name).read_bytes() for name in names}


class Sender:
    """Sends a file in the place of the snapshot or the mask, and checks what comes back."""

    def __init__(self, client: httpx.Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.parts = {
            "snapshot": ("snapshot.nc", (folder / "snapshot.nc").read_bytes()),
            "mask": ("mask.nc", (folder / "mask.nc").read_bytes()),
        }
        self.count = 0

    def __call__(self, name: str, content: bytes, part: str = "snapshot") -> httpx.Response:
        answer = self.client.post(
            "/api/jobs", files=self.parts | {part: (name, content)}, data=SOLVER
        )
        self.check(answer, name)
        if answer.status_code == 202:
            self.client.delete(f"/api/jobs/{answer.json()['id']}")
        return answer

    def check(self, answer: httpx.Response, what: object) -> None:
        self.count += 1
        assert answer.status_code < 500, (what, answer.text)
        assert "Traceback" not in answer.text, what
        assert str(self.folder) not in answer.text, (what, answer.text)
        if answer.status_code >= 400:
            assert len(answer.json()["detail"]) > 10, what


@pytest.fixture
def send(served: httpx.Client, folder: Path) -> Iterator[Sender]:
    sender = Sender(served, folder)
    yield sender
    # Accepted jobs were called off; what may still be there is the server's own empty folder.
    for _ in range(100):
        if len(tiny_web.leftovers(folder)) == 1:
            break
        time.sleep(0.1)
    assert len(tiny_web.leftovers(folder)) == 1, tiny_web.leftovers(folder)


def test_cut_short(send: Sender, good: dict[str, bytes]) -> None:
    for name, content in good.items():
        for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.6, 0.9, 0.99):
            answer = send(name, content[: int(share * len(content))])
            # A NetCDF or PNG may end in padding, but nothing here ends in 1 %.
            assert answer.status_code == 422, (name, share)
    assert send.count >= 50


def test_bytes_flipped(send: Sender, good: dict[str, bytes]) -> None:
    rng = np.random.default_rng(5)
    for name, content in good.items():
        for case in range(14):
            spoilt = bytearray(content)
            # Headers are where it hurts: half of the cases stay within the first bytes.
            most = len(content) if case % 2 else min(512, len(content))
            for _ in range(1 + case):
                spoilt[int(rng.integers(most))] = int(rng.integers(256))
            send(name, bytes(spoilt), "snapshot" if case % 3 else "mask")
    assert send.count >= 90


def npy(array: object) -> bytes:
    held = io.BytesIO()
    np.save(held, np.asarray(array), allow_pickle=True)
    return held.getvalue()


def npy_claim(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 64


def test_wrong_values_and_types(send: Sender) -> None:
    plain = np.ones((8, 62), np.float32)
    holes = plain.copy()
    holes[2, 3] = np.nan
    wrong = [holes, plain * np.inf, plain + 1j, plain.astype(np.int64) * 9, plain[0], plain[None],
             np.zeros((0, 4)), np.float64(3), plain.astype("U4"), plain.astype("S3"),
             np.array([{"a": 1}], dtype=object), plain.astype("M8[s]"),
             np.zeros(4, dtype=[("a", "f4")]), np.full((8, 62), 1e300)]  # fmt: skip
    for array in wrong:
        for part in ("snapshot", "mask"):
            answer = send("x.npy", npy(array), part)
            if not (part == "mask" and array is wrong[5]):
                assert answer.status_code == 422, (array.dtype, part, answer.text)
    assert send("m.npy", npy(plain * 5), "mask").status_code == 422
    assert "never loaded" in send("x.npy", pickle.dumps(plain)).json()["detail"]


def test_huge_claims_and_bombs(send: Sender) -> None:
    for shape in ((2**31, 2**31), (10**9, 10**9), (60000, 60000), (-1, 5), (2**62, 4)):
        assert send("x.npy", npy_claim(shape)).status_code == 422, shape
    bombs = {"zeros.npz": _zip_bomb(), "wide.png": _png_claim(10**9, 10**9),
             "bomb.png": _png_bomb(20000), "bomb.nc": _hdf5_bomb(30000)}  # fmt: skip
    for name, content in bombs.items():
        for part in ("snapshot", "mask"):
            answer = send(name, content, part)
            assert answer.status_code == 422, (name, answer.text)
    nested = io.BytesIO()
    with zipfile.ZipFile(nested, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../../../tmp/evil.npy", npy(np.ones((3, 3))))
        archive.writestr("/etc/evil.txt", b"x")
    send("evil.npz", nested.getvalue())
    assert not Path("/tmp/evil.npy").exists()


def _zip_bomb() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        body = npy_claim((20000, 20000), "|u1")[:-64]
        with archive.open("measurement.npy", "w") as member:
            member.write(body)
            for _ in range(400):
                member.write(b"\0" * 10**6)
    return held.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def _png(width: int, height: int, data: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head)
    return start + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _png_claim(width: int, height: int) -> bytes:
    return _png(width, height, zlib.compress(b"\0" * 100))


def _png_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9)
    rows = [packer.compress(b"\0" * (size + 1)) for _ in range(size)]
    return _png(size, size, b"".join(rows) + packer.flush())


def _hdf5_bomb(size: int) -> bytes:
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        options = {"chunks": (1000, 1000), "compression": "gzip", "fillvalue": 0.0}
        file.create_dataset("measurement", (size, size), "f4", **options)
    return held.getvalue()


def test_no_other_file_is_ever_read(send: Sender, folder: Path) -> None:
    """HDF5 can lead to other files in three ways; none of them may work from outside."""
    secret = folder / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["measurement"] = np.ones((8, 62), np.float32)
    (folder / "secret.bin").write_bytes(b"\x3f\x80\0\0" * 1000)

    def link(file: h5py.File) -> None:
        file["measurement"] = h5py.ExternalLink(str(secret), "/measurement")

    def deep_link(file: h5py.File) -> None:
        file.create_group("a/b")["measurement"] = h5py.ExternalLink(str(secret), "/measurement")
        file["measurement"] = h5py.SoftLink("/a/b/measurement")

    def storage(file: h5py.File) -> None:
        place = [(str(folder / "secret.bin"), 0, 8 * 62 * 4)]
        file.create_dataset("measurement", (8, 62), "f4", external=place)

    def virtual(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((8, 62), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "measurement", (8, 62))
        file.create_virtual_dataset("measurement", layout)

    def loop(file: h5py.File) -> None:
        group = file.create_group("round")
        group["again"] = group
        file["measurement"] = np.ones((8, 62), np.float32)

    for number, build in enumerate((link, deep_link, storage, virtual, loop)):
        path = folder / f"leads{number}.h5"
        with h5py.File(path, "w") as file:
            build(file)
        for name in ("x.nc", "x.mat"):
            answer = send(name, path.read_bytes())
            if build is loop:  # groups are walked through once each
                assert answer.status_code == 202, answer.text
                continue
            assert answer.status_code == 422, (build.__name__, answer.text)
            # A MATLAB file has its arrays in no group: what lies in one is not even looked at.
            reason = "a group" if (build, name) == (deep_link, "x.mat") else "another file"
            assert reason in answer.text, build.__name__


NAMES = ("../../etc/passwd.npy", "..\\..\\boot.npy", "/etc/passwd", "a\0b.npy", "x" * 5000 + ".npy",
         "C:\\x.npy", "....//x.npy", "%2e%2e%2fx.npy", "~/x.npy", "nul", ".", "..", " ", "\n.npy",
         "naïve ✓.npy", "<script>alert(1)</script>.npy", "'; drop table.npy", "a/b/c.hdr", "x.hdr",
         "x.img", "$(id).npy", "|id.npy", "x.nc.lnk", "\u202excod.npy")  # fmt: skip


def test_tricks_in_file_names(send: Sender, good: dict[str, bytes]) -> None:
    for name in NAMES:
        for content in (good["good.npy"], b"ENVI\nfile = /etc/passwd\n"):
            answer = send(name, content)
            assert answer.status_code in (202, 400, 422), (name, answer.text)
            if answer.status_code == 202:
                shown = answer.json()["name"]
                assert "/" not in shown
                assert "\\" not in shown
                assert len(shown) <= 80


def test_requests_that_are_wrong(send: Sender) -> None:
    client, parts = send.client, send.parts
    orders = [{"model": "../../secret.safetensors"}, {"model": "/etc/passwd"}, {"method": "rm"},
              {"samples": "1"}, {"samples": "-4"}, {"samples": "999999"}, {"iterations": "0"},
              {"iterations": "many"}, {"bands": "1e9"}, {"step": "nan"}, {"step": "inf"},
              {"wavelengths": "/etc/passwd"}, {"wavelengths": "1,2,x"}, {"wavelengths": "nan"},
              {"offsets": "/etc/passwd"}, {"offsets": "0,2,inf"}, {"offsets": "0,2", "step": "2"},
              {"axis": "depth"}, {"design": "../dual"}, {"level": "2"}, {"level": "nan"},
              {"seed": "-1"},
              {"method": "gap-tv", "samples": "8", "model": "x"}]  # fmt: skip
    for order in orders:
        answer = client.post("/api/jobs", files=parts, data=order)
        send.check(answer, order)
        assert answer.status_code == 422, (order, answer.text)
    raw = {"content-type": "multipart/form-data; boundary=x"}
    bodies = [b"", b"--x", b"--x\r\n\r\n--x--", b"\0" * 1000, b"--x\r\nContent-Disposition: a"]
    for body in bodies:
        answer = client.post("/api/jobs", content=body, headers=raw)
        send.check(answer, body)
        assert 400 <= answer.status_code < 500
    for content_type in ("application/json", "multipart/form-data", "text/plain"):
        headers = {"content-type": content_type}
        send.check(client.post("/api/jobs", content=b"{}", headers=headers), content_type)
    big = client.post("/api/jobs", files=parts | {"mask": ("m.npy", b"\0" * (UPLOAD_BYTES + 1))})
    assert big.status_code == 413

    def endless() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="snapshot"; filename="a"\r\n\r\n'
        for _ in range(UPLOAD_BYTES // 2**16 + 2):
            yield b"\0" * 2**16

    unannounced = client.post("/api/jobs", content=endless(), headers=raw)
    assert unannounced.status_code == 413, unannounced.text


def test_addresses_that_are_wrong(send: Sender) -> None:
    paths = ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/",
             "/results/../api", "/api/jobs/..", "/api/jobs/%00", "/api/results/x/cube.nc",
             "/api/results/../../etc/passwd/cube.nc", "/api/results/x/layers/rgb.png",
             "/api/results/x/layers/..%2f..%2fx.png", "/api/results/x/spectrum?region=1,2",
             "/api/results/x/spectra.csv", "/docs", "/redoc", "/.git/config"]  # fmt: skip
    for path in paths:
        answer = send.client.get(path)
        assert answer.status_code in (404, 422), (path, answer.status_code)
        assert "import" not in answer.text
