"""A client of the web application, served in this very process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from prismask.apps.web.app import create_app
from prismask.apps.web.guards import LOOPBACK, GuardedConnection
from prismask.apps.web.server import address_of, listen
from prismask.apps.web.site import Site


@contextmanager
def opened(
    site: Site, hosts: tuple[str, ...] = LOOPBACK, numbers: bool = False
) -> Iterator[httpx.Client]:
    """A client that has the token; the site is closed by the application."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        create_app(site, hosts, numbers),
        http=GuardedConnection,
        log_level="critical",
        timeout_keep_alive=1,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        address = address_of(listening, "127.0.0.1")
        known = {"authorization": f"Bearer {site.visitors.token}"}
        with httpx.Client(
            base_url=address, headers=known, follow_redirects=True, timeout=30
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
