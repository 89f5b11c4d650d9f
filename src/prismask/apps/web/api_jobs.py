"""The HTTP API, what is sent: snapshots and masks to reconstruct."""

from __future__ import annotations

import asyncio
import math
import shutil
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, UploadFile

from prismask.apps.cli.camera_options import Axis, CameraOptions, Design
from prismask.apps.web.api import Here
from prismask.apps.web.decode import Part, decode
from prismask.apps.web.jobs import Job
from prismask.apps.web.schemas import JobStatus
from prismask.apps.web.site import Site
from prismask.apps.web.uploads import keep_upload, safe_name
from prismask.apps.web.work import MASK, SNAPSHOT, Order
from prismask.checks import choose
from prismask.errors import ConfigError

MOST_SAMPLES, MOST_ITERATIONS, MOST_BANDS, MOST_STEPS = 256, 5000, 1024, 500

router = APIRouter(prefix="/api", tags=["jobs"])


async def order_of(
    site: Here,
    method: Annotated[str | None, Form(description="a solver; or give model")] = None,
    model: Annotated[str | None, Form(description="a name that /api/about lists")] = None,
    samples: Annotated[int, Form(ge=0, le=MOST_SAMPLES)] = 0,
    iterations: Annotated[int | None, Form(ge=1, le=MOST_ITERATIONS)] = None,
    align: Annotated[bool, Form(description="let a network find the mask's place")] = False,
    adapt: Annotated[
        int, Form(ge=0, le=MOST_STEPS, description="steps in which a network learns the scene")
    ] = 0,
    level: Annotated[float, Form(gt=0, lt=1)] = 0.9,
    seed: Annotated[int, Form(ge=0, lt=2**31)] = 0,
    bands: Annotated[int | None, Form(ge=1, le=MOST_BANDS)] = None,
    step: Annotated[float | None, Form(ge=-64, le=64, description="pixels a band")] = None,
    offsets: Annotated[
        str | None,
        Form(description="of each band in px: a,b,c; instead of step", max_length=20_000),
    ] = None,
    wavelengths: Annotated[str | None, Form(description="in nm: a,b,c", max_length=20_000)] = None,
    axis: Annotated[Axis | None, Form(description="along which the prism disperses")] = None,
    design: Annotated[Design | None, Form(description="one disperser or two")] = None,
) -> Order:
    """The order that the form describes."""
    choices = site.choices
    assert choices is not None
    if method is not None:
        choose(method, choices.methods, "method")
    # A name is looked up, never opened: it might be a path.
    path = None if model is None else choices.models[choose(model, choices.models, "model")]
    camera = CameraOptions(
        bands, step, _numbers(offsets, "offsets", "pixels: 0, 1.9, 3.7"),
        wavelengths=_numbers(wavelengths, "wavelengths", "nm: 450, 460, 470"),
        axis=axis, design=design,
    )  # fmt: skip
    order = Order(
        method, path, samples, iterations, level, seed, camera, choices.device, align, adapt
    )
    # What contradicts itself is refused at once, not when its turn comes.
    order.options()
    if step is not None and camera.offsets is not None:
        raise ConfigError("step and offsets both describe the dispersion: give one of them.")
    return order


@router.post("/jobs", status_code=202)
async def submit(
    site: Here,
    snapshot: Annotated[UploadFile, File(description="NetCDF, MATLAB, NPY, NPZ, TIFF or PNG")],
    mask: Annotated[UploadFile, File(description="the calibrated mask, any of these formats")],
    order: Annotated[Order, Depends(order_of)],
) -> JobStatus:
    """Send a snapshot and its mask to be reconstructed; ask for the job until it is done.

    Files are read before this answers: one that cannot be used is refused with the reason.
    """
    site.jobs.check_room()
    return _status(site, await asyncio.to_thread(_take, site, snapshot, mask, order))


@router.get("/jobs/{key}")
async def job_status(site: Here, key: str) -> JobStatus:
    """How far a job is; `result` is set when it is done."""
    return _status(site, site.jobs.get(key))


@router.delete("/jobs/{key}")
async def cancel(site: Here, key: str) -> JobStatus:
    """Call a job off; a finished one is removed together with its result."""
    return _status(site, await asyncio.to_thread(site.jobs.cancel, key))


def _take(site: Site, snapshot: UploadFile, mask: UploadFile, order: Order) -> Job:
    """Read both files in the reader process and queue the job; nothing stays if that fails."""
    folder = site.jobs.new_folder()
    try:
        parts: tuple[tuple[UploadFile, Part, str], ...] = (
            (snapshot, "measurement", SNAPSHOT),
            (mask, "mask", MASK),
        )
        for upload, kind, out in parts:
            # Apart from the file that is written for the job, should both have one name.
            inbox = folder / "inbox"
            inbox.mkdir(exist_ok=True)
            source = keep_upload(upload.file, upload.filename, inbox, kind)
            shown = safe_name(upload.filename)
            arguments = (str(source), shown, kind, str(folder / out), site.limits)
            site.reader.call(decode, arguments, site.limits.check_seconds)
        return site.jobs.submit(safe_name(snapshot.filename), folder, order)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _status(site: Site, job: Job) -> JobStatus:
    return JobStatus(
        id=job.id,
        name=job.name,
        state=job.state,
        position=site.jobs.position(job),
        done=job.done,
        total=job.total,
        seconds=round(job.seconds, 1),
        message=job.message,
        findings=job.findings,
        result=job.result,
    )


def _numbers(text: str | None, what: str, form: str) -> str | None:
    """`450, 460, 470`, checked; unlike on the command line this is never a file's name."""
    if text is None or not text.strip():
        return None
    try:
        numbers = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        numbers = ()
    if not numbers or len(numbers) > MOST_BANDS or not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{what} is {text[:60]!r}; it is numbers in {form}.")
    return ",".join(repr(number) for number in numbers)
