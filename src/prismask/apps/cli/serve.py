"""`prismask serve`: a web page that reconstructs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from prismask.apps.cli.view import SERVER, need_web
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.apps.web.limits import Limits
    from prismask.apps.web.site import Choices

LIMITS = Group("Limits", sort_key=30)


def serve(
    *,
    model: Annotated[list[Path] | None, Parameter(negative="")] = None,
    device: str = "auto",
    host: Annotated[str, Parameter(group=SERVER)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=SERVER)] = 8000,
    name: Annotated[list[str] | None, Parameter(group=SERVER, negative="")] = None,
    browser: Annotated[bool, Parameter(group=SERVER)] = True,
    upload_megabytes: Annotated[float, Parameter(group=LIMITS)] = 256,
    queue: Annotated[int, Parameter(group=LIMITS)] = 8,
    minutes: Annotated[float, Parameter(group=LIMITS)] = 15,
    keep_minutes: Annotated[float, Parameter(group=LIMITS)] = 60,
) -> None:
    """Start a web page and an HTTP API for reconstruction.

    Parameters
    ----------
    model
        Your own weights to offer in addition to those that ship; may be repeated. They appear under
        the name of their training or, if that is taken, of their folder.
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    host
        Address to listen on. With any other than 127.0.0.1, other computers have access, too, if
        they have the link that is printed.
    port
        Port to listen on; 0 chooses a free one.
    name
        Another host name of the page, such as that of a proxy; may be repeated.
    browser
        Open the page in the browser.
    upload_megabytes
        Largest upload, snapshot and mask together.
    queue
        Number of jobs that may wait; further ones are refused.
    minutes
        How long one job may run.
    keep_minutes
        How long results are kept.
    """
    need_web()
    from prismask.apps.web.server import run_site
    from prismask.apps.web.site import Site

    limits = _limits(upload_megabytes, queue, minutes, keep_minutes)
    run_site(
        Site(limits, find_choices(tuple(model or ()), device)),
        host,
        port,
        browser,
        tuple(name or ()),
    )


def find_choices(own: tuple[Path, ...] = (), device: str = "auto") -> Choices:
    """The methods and weights to offer: solvers, what ships, and files of one's own."""
    from prismask.apps.web.site import Choices
    from prismask.models.machine import choose_device
    from prismask.models.weights import default_weights, find_weights, read_record, shipped
    from prismask.solvers.registry import list_solvers

    choose_device(device)
    models = {one.name: one.path for one in shipped()}
    for path in own:
        found = find_weights(path)
        record = read_record(found)  # a damaged file is refused now, not when somebody picks it
        if found.resolve() not in models.values():
            models[_free_name(found, record, models)] = found.resolve()
    best = default_weights()
    return Choices(tuple(list_solvers()), models, "gap-tv" if best is None else best.name, device)


def _free_name(path: Path, record: dict[str, Any], taken: dict[str, Path]) -> str:
    """What to call weights: as their record does, else after their folder."""
    named = (record.get("name"), path.parent.resolve().name)
    names = [name for name in dict.fromkeys(named) if isinstance(name, str) and name]
    for name in names:
        if name not in taken:
            return name
    if not names:
        raise ConfigError(f"{path} has no name to be offered under: put it into a folder.")
    raise ConfigError(
        f"{path} has no name to be offered under: "
        + " and ".join(f"{name!r} is {taken[name]}" for name in names)
        + ". It is called as its record says (`name` in the training file), else after its folder: "
        "rename the folder, or leave one of the files out."
    )


def _limits(megabytes: float, queue: int, minutes: float, keep_minutes: float) -> Limits:
    from prismask.apps.web.limits import MEBIBYTE, Limits

    given = {
        "--upload-megabytes": megabytes,
        "--queue": queue,
        "--minutes": minutes,
        "--keep-minutes": keep_minutes,
    }
    for name, value in given.items():
        if not value > 0:
            raise ConfigError(f"{name} is {value:g}; it is a number above 0.")
    return Limits(
        upload_bytes=int(megabytes * MEBIBYTE),
        queue=queue,
        seconds=60 * minutes,
        keep_seconds=60 * keep_minutes,
    )
