"""Ctrl-C in the middle of uploads: the server ends at once, and has nothing to say."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
import tiny_web

pytest.importorskip("fastapi", reason="the extra web is not installed")

pytestmark = pytest.mark.slow

UPLOADS = 6


def _begun(client: httpx.Client, sent: int) -> socket.socket:
    """An upload of which as much as the server takes of `sent` bytes has come, and no more does."""
    url, token = client.base_url, client.headers["authorization"]
    assert url.port is not None
    upload = socket.create_connection((url.host, url.port))
    upload.settimeout(0.3)
    head = (
        f"POST /api/jobs HTTP/1.1\r\nhost: {url.host}:{url.port}\r\nauthorization: {token}\r\n"
        "content-length: 50000000\r\ncontent-type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\ncontent-disposition: form-data; name="snapshot"; filename="a.nc"\r\n\r\n'
    )
    with contextlib.suppress(TimeoutError):
        upload.sendall(head.encode() + bytes(sent))
    return upload


@pytest.mark.parametrize("again", [(), (0.05,)], ids=["once", "twice"])
@pytest.mark.parametrize("sent", [10, 3_000_000], ids=["little", "more than is read"])
def test_ctrl_c_ends_uploads_without_a_word(tmp_path: Path, sent: int, again: tuple[float]) -> None:
    """However often it is pressed, and whether or not the server had stopped reading."""
    with (
        tiny_web.running(tmp_path, "serve") as (client, server),
        contextlib.ExitStack() as uploads,
    ):
        for _ in range(UPLOADS):
            uploads.enter_context(_begun(client, sent))
        for pause in (0, *again):
            time.sleep(pause)
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0
    assert (tmp_path / "server.log").read_text() == ""
    assert tiny_web.leftovers(tmp_path) == []
