"""Listening on an address, until somebody says stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys

import uvicorn

from prismask.apps.cli.terminal import remark, say
from prismask.apps.web.app import create_app
from prismask.apps.web.guards import LOOPBACK, GuardedConnection
from prismask.apps.web.site import Site
from prismask.errors import ConfigError

KEEP_ALIVE_SECONDS = 30
COMING_IN_SECONDS = 0.05
ANYWHERE = ("0.0.0.0", "::")


def run_site(
    site: Site, host: str, port: int, open_browser: bool, names: tuple[str, ...] = ()
) -> None:
    """Serve `site` until Ctrl-C; says the link first. `names` are further ones it is reached by."""
    try:
        listening = listen(host, port)
        address = address_of(listening, host)
        local = host in LOOPBACK
        if not local:
            remark(
                "other computers can reach this page, and the link lets them in. It travels "
                "unencrypted: outside a network you trust, use an SSH tunnel."
            )
        say(f"Prismask is at {address}?token={site.visitors.token} (Ctrl-C stops it)")
        sys.stdout.flush()
        if open_browser:
            _open(f"{address}?token={site.visitors.ticket()}")
        config = uvicorn.Config(
            create_app(site, hosts_of(host, names), not local),
            http=GuardedConnection,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
        )
        # Uvicorn passes Ctrl-C on after it has shut down; for us that is the normal end.
        with contextlib.suppress(KeyboardInterrupt):
            SiteServer(config, site).run(sockets=[listening])
    finally:
        site.close()


class SiteServer(uvicorn.Server):
    """Uvicorn, which first calls off what the site is reading: it waits for answers only then."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, with answers to those who get one soon."""
        self.site.is_closed = True
        for server in self.servers:
            server.close()
        # Who is just coming in is then among those that are told to go.
        await asyncio.sleep(COMING_IN_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:
            # A second Ctrl-C: uvicorn waits for nothing then, and shows a traceback of what it
            # left waiting for the end. Called twice, this does nothing the second time.
            await self.lifespan.shutdown()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    if not 0 <= port < 65536:
        raise ConfigError(f"--port is {port}; ports run from 0 (any free one) to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise ConfigError(
            f"cannot listen on {host} port {port}: {reason}. Give another --port, or 0 for any "
            "free one."
        ) from problem


def address_of(listening: socket.socket, host: str) -> str:
    """The address to type into a browser."""
    port = listening.getsockname()[1]
    shown = socket.gethostname() if host in ANYWHERE else host
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def hosts_of(host: str, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names under which a server that listens on `host` is asked for."""
    if host in LOOPBACK:
        return tuple(dict.fromkeys((*LOOPBACK, *(name.lower() for name in names))))
    own = socket.gethostname().lower()
    known = (*LOOPBACK, host.lower(), own, f"{own}.local", socket.getfqdn().lower())
    return tuple(dict.fromkeys((*known, *(name.lower() for name in names))))


def _open(address: str) -> None:
    import webbrowser

    # Without a screen Python would start a text browser in this very terminal.
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if has_screen:
        webbrowser.open(address)
