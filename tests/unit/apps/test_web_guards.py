"""Who gets in, and who cannot keep the others out."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra web is not installed")

import httpx
from web_client import opened

from prismask.apps.cli.serve import _limits
from prismask.apps.cli.view import view_site
from prismask.apps.web import guards
from prismask.apps.web.guards import LOOPBACK
from prismask.apps.web.limits import Limits
from prismask.apps.web.results import Result
from prismask.apps.web.server import hosts_of
from prismask.apps.web.site import Choices, Site
from prismask.apps.web.visitors import VARIABLE, Visitors
from prismask.errors import ConfigError
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube


@pytest.fixture
def site(tmp_path: Path) -> Site:
    save(Cube(np.ones((2, 3, 4), np.float32)), tmp_path / "cube.nc")
    return view_site(tmp_path / "cube.nc")


@pytest.fixture
def stranger(site: Site) -> Iterator[httpx.Client]:
    """Somebody on the same computer who has not seen the link."""
    with opened(site) as client:
        del client.headers["authorization"]
        client.follow_redirects = False
        yield client


def test_a_stranger_gets_nothing(stranger: httpx.Client, site: Site) -> None:
    key = site.first
    for path in ("/", f"/results/{key}", "/results/none"):
        answer = stranger.get(path)
        assert (answer.status_code, "token" in answer.text) == (401, True), path
    for path in ("about", "results", f"results/{key}", f"results/{key}/cube.nc", "openapi.json"):
        answer = stranger.get(f"/api/{path}")
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "Bearer TOKEN" in answer.json()["detail"]
    for wrong in ("Bearer x", "Bearer", "Basic eDp4", f"bearer {site.visitors.token}x", "ä"):
        headers = {"authorization": wrong.encode()}
        assert stranger.get("/api/about", headers=headers).status_code == 401, wrong
    for cookie in ("x", f"other={site.visitors.token}", "=;;=", '"'):
        assert stranger.get("/api/about", headers={"cookie": cookie}).status_code == 401, cookie
    assert stranger.get("/static/prismask.css").status_code == 200
    assert stranger.get("/?token=wrong").status_code == 401


def test_the_link_leaves_a_cookie_and_no_token_in_the_address(
    stranger: httpx.Client, site: Site
) -> None:
    answer = stranger.get(f"/results/{site.first}?token={site.visitors.token}&a=1")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{site.first}?a=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert stranger.get("/api/about").status_code == 200, "by the cookie"
    held = f"a[b]=c; odd; =x; prismask-{stranger.base_url.port}={site.visitors.token}"
    stranger.cookies.clear()
    among = stranger.get("/api/about", headers={"cookie": held})
    assert among.status_code == 200, "also among cookies of other servers"
    stranger.cookies.set(f"prismask-{stranger.base_url.port}", site.visitors.token)
    assert stranger.get("/?token=stale").status_code == 303, "who is known need not prove it again"
    address = f"{stranger.base_url}/evil.example/?token={site.visitors.token}"
    leads = stranger.get(address).headers["location"]
    assert leads == "/evil.example/"


def test_a_ticket_is_good_for_one_visit(stranger: httpx.Client, site: Site) -> None:
    ticket = site.visitors.ticket()
    assert ticket != site.visitors.token
    assert stranger.get(f"/?token={ticket}").status_code == 303
    stranger.cookies.clear()
    assert stranger.get(f"/?token={ticket}").status_code == 401
    assert stranger.get("/api/about", headers={"authorization": f"Bearer {ticket}"}).is_error


def test_a_ticket_is_good_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Visitors.from_environment()
    ticket, late = known.ticket(), known.ticket()
    assert known.admits(ticket)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 61)
    assert not known.admits(late)


def test_a_token_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a-token-of-my-own")
    assert Visitors.from_environment().token == "a-token-of-my-own"
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(ConfigError, match="16 or more"):
        Visitors.from_environment()
    monkeypatch.delenv(VARIABLE)
    assert Visitors.from_environment().token != Visitors.from_environment().token


def test_beyond_loopback_names_are_ours_or_told(site: Site) -> None:
    hosts = hosts_of("0.0.0.0", ("Lab.Example",))
    with opened(site, hosts, numbers=True) as client:
        good = ("192.168.0.7:8000", "lab.example", socket.gethostname(), "localhost", "[::1]:80")
        for host in good:
            assert client.get("/api/about", headers={"host": host}).status_code == 200, host
        for host in ("evil.example", "192.168.0.7.evil.example", ""):
            answer = client.get("/api/about", headers={"host": host})
            assert (answer.status_code, "--name" in answer.text) == (403, True), host
    assert hosts_of("127.0.0.1") == LOOPBACK


class Raw:
    """A connection whose bytes are sent by hand."""

    def __init__(self, client: httpx.Client) -> None:
        url = client.base_url
        self.socket = socket.create_connection((url.host, url.port), timeout=60)
        self.head = f"host: {url.host}\r\nauthorization: {client.headers['authorization']}\r\n"

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def post(self, length: int = 1000) -> None:
        """The headers of an upload, and the first of its bytes."""
        kind = "content-type: multipart/form-data; boundary=x\r\n"
        self.send(
            f"POST /api/jobs HTTP/1.1\r\n{self.head}{kind}content-length: {length}\r\n\r\n--x"
        )

    def seconds_until_closed(self) -> float:
        started = time.monotonic()
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        return time.monotonic() - started


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits that a test can wait for."""
    monkeypatch.setattr(guards, "HEADER_SECONDS", 0.6)
    monkeypatch.setattr(guards, "WINDOW_SECONDS", 0.6)
    monkeypatch.setattr(guards, "TICK_SECONDS", 0.1)


@pytest.fixture
def upload_client() -> Iterator[httpx.Client]:
    with opened(Site(Limits(uploads=2), Choices())) as client:
        yield client


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("start", ["", "GET /api/about HTTP/1.1\r\nhost: local"])
def test_headers_that_never_end(upload_client: httpx.Client, start: str) -> None:
    with Raw(upload_client) as raw:
        raw.send(start)
        assert 0.3 < raw.seconds_until_closed() < 30


@pytest.mark.usefixtures("quick")
def test_a_second_request_that_never_ends(upload_client: httpx.Client) -> None:
    with Raw(upload_client) as raw:
        raw.send(f"GET /api/about HTTP/1.1\r\n{raw.head}\r\n")
        assert raw.socket.recv(4096).startswith(b"HTTP/1.1 200")
        raw.send("GET /api")
        assert raw.seconds_until_closed() < 30


@pytest.mark.usefixtures("quick")
def test_a_body_that_drips(upload_client: httpx.Client) -> None:
    with Raw(upload_client) as raw:
        raw.post()
        started = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            while time.monotonic() < started + 60:
                raw.send("x")
                time.sleep(0.1)
        assert time.monotonic() - started < 30
    assert upload_client.get("/api/about").status_code == 200


@pytest.mark.usefixtures("quick")
def test_a_body_in_many_small_pieces(
    upload_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is less than a window wants; together they are more."""
    monkeypatch.setattr(guards, "WINDOW_BYTES", 2**13)
    pieces, size = 40, 2**11
    with Raw(upload_client) as raw:
        head = '\r\ncontent-disposition: form-data; name="a"; filename="a"\r\n\r\n'
        tail = "\r\n--x--\r\n"
        raw.post(3 + len(head) + pieces * size + len(tail))
        raw.send(head)
        for _ in range(pieces):
            raw.send(size * "x")
            time.sleep(0.04)
        raw.send(tail)
        assert raw.socket.recv(4096).startswith(b"HTTP/1.1 422"), "heard out, and no such field"


@pytest.mark.usefixtures("quick")
def test_an_answer_that_nobody_reads(upload_client: httpx.Client) -> None:
    with Raw(upload_client) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.send(f"GET /static/plotly.js HTTP/1.1\r\n{raw.head}\r\n")
        deadline = time.monotonic() + 60
        while guards.GuardedConnection.open_ones:
            assert time.monotonic() < deadline, "it was kept open"
            time.sleep(0.1)


@pytest.mark.usefixtures("quick")
def test_a_slow_reader_gets_all_of_it(
    upload_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "WINDOW_BYTES", 2**14)
    whole = len(upload_client.get("/static/plotly.js", headers={"accept-encoding": "x"}).content)
    with Raw(upload_client) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        raw.send(f"GET /static/plotly.js HTTP/1.1\r\n{raw.head}connection: close\r\n\r\n")
        count = 0
        started = time.monotonic()
        while part := raw.socket.recv(2**16):
            count += len(part)
            time.sleep(0.02)
    assert count > whole
    assert time.monotonic() - started > 0.7, "slower than the window"


@pytest.mark.usefixtures("quick")
def test_whoever_waits_for_us_is_not_hurried(
    upload_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prismask.apps.web import api_jobs

    def slow(*_: object) -> None:
        time.sleep(2)
        raise ConfigError("after two seconds.")

    monkeypatch.setattr(api_jobs, "_take", slow)
    files = {"snapshot": ("a", b"x"), "mask": ("b", b"x")}
    answer = upload_client.post("/api/jobs", files=files)
    assert (answer.status_code, answer.json()["detail"]) == (422, "after two seconds.")


def test_half_open_connections_make_room(
    upload_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "MOST_CONNECTIONS", 20)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(Raw(upload_client))
        for _ in range(3):
            assert upload_client.get("/api/about").status_code == 200
        assert len(guards.GuardedConnection.open_ones) <= 20


def test_stalled_uploads_make_room_and_never_keep_one_from_cancelling(
    upload_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"snapshot": ("a", b"x"), "mask": ("b", b"x")}
    with Raw(upload_client) as first, Raw(upload_client) as second:
        first.post()
        second.post()
        time.sleep(0.3)
        assert upload_client.post("/api/jobs", files=files).status_code == 429, "both may yet go on"
        assert upload_client.delete("/api/jobs/x").status_code == 404, "nobody waits to cancel"
        monkeypatch.setattr(guards, "PATIENCE_SECONDS", 0.2)
        answer = upload_client.post("/api/jobs", files=files)
        assert answer.status_code == 422, "read, and found to be no files"
        ended = [raw for raw in (first, second) if b"408" in _received(raw)]
        assert len(ended) == 1, "only as many as needed"


def test_uploads_that_announce_nothing_take_places_too(upload_client: httpx.Client) -> None:
    """A body in chunks, which has no length."""
    with ExitStack() as stack:
        senders = [stack.enter_context(Raw(upload_client)) for _ in range(4)]
        for raw in senders:
            raw.send(
                f"POST /api/jobs HTTP/1.1\r\n{raw.head}transfer-encoding: chunked\r\n"
                "content-type: multipart/form-data; boundary=b\r\n\r\n3\r\n--b\r\n"
            )
            time.sleep(0.1)
        refused = [raw for raw in senders if b" 429 " in _received(raw)]
        assert refused == senders[2:], "two at a time"


@pytest.mark.parametrize("has_begun", [False, True])
def test_what_is_called_off_at_the_end_is_no_fault(has_begun: bool) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def end() -> None:
        app = guards.LastAnswer(endless)
        task = asyncio.create_task(app({"type": "http"}, None, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(end())
    assert [part.get("status") for part in sent] == ([200] if has_begun else [503, None])


def test_pictures_beside_others_are_kept_apart(site: Site) -> None:
    """What was rendered for one pair of results is not what another pair gets."""
    first, *others = (
        site.results.add(Result(name, Cube(np.full((2, 3, 4), value, np.float32))))
        for name, value in (("a", 0.5), ("b", 0.1), ("c", 0.9))
    )
    with opened(site) as client:
        for side in ("other", "difference"):
            paths = [f"/api/results/{first.id}/beside/{one.id}/{side}.png" for one in others]
            answers = [client.get(path) for path in paths]
            assert [answer.status_code for answer in answers] == [200, 200]
            assert answers[0].headers["etag"] != answers[1].headers["etag"]
            assert answers[0].content != answers[1].content


def test_limits_are_told_in_minutes_and_megabytes() -> None:
    limits = _limits(megabytes=2, queue=3, minutes=15, keep_minutes=0.5)
    assert (limits.seconds, limits.keep_seconds) == (900, 30)
    assert (limits.upload_bytes, limits.queue) == (2 * 2**20, 3)


def _received(raw: Raw) -> bytes:
    raw.socket.settimeout(1)
    try:
        return raw.socket.recv(4096)
    except TimeoutError:
        return b""
