"""The HTTP API, what is sent: snapshots and masks to reconstruct."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Request, UploadFile

from prismask.apps.cli.camera_options import (
    Axis,
    CameraOptions,
    Design,
    Orientation,
    RawFrameOptions,
)
from prismask.apps.web.api_common import (
    KNOWN,
    NONE,
    WRONG,
    FieldFix,
    Here,
    JobStatus,
    Problem,
    Refusals,
    bearer,
)
from prismask.apps.web.decode import Part, decode_caged
from prismask.apps.web.jobs import Job
from prismask.apps.web.remedies import RemedyName, changed_order
from prismask.apps.web.results import Result
from prismask.apps.web.site import Site
from prismask.apps.web.uploads import Frames, keep_upload, safe_name
from prismask.apps.web.work import MASK, SNAPSHOT, TRUTH, Order
from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.scenes.defaults import BANDS

MOST_SAMPLES, MOST_ITERATIONS, MOST_BANDS, MOST_STEPS = 256, 5000, 1024, 500

SAMPLE_SIZE = (256, 256)
SAMPLE_NAME = "drawn scene"
CHANGED: dict[RemedyName, str] = {
    "align": "aligned", "adapt": "adapted", "solver": "gap-tv", "dark": "dark level 0",
}  # fmt: skip

SENT: Refusals = {
    400: {"model": Problem, "description": "the form cannot be read"},
    408: {"model": Problem, "description": "it stalled, or took too long to read"},
    413: {"model": Problem, "description": "it is too large"},
    429: {"model": Problem, "description": "too many are waiting; Retry-After says for how long"},
}

router = APIRouter(
    prefix="/api", tags=["jobs"], dependencies=[Depends(bearer)], responses=KNOWN | WRONG
)


async def order_of(
    site: Here,
    method: Annotated[str | None, Form(description="a solver; or give model")] = None,
    model: Annotated[str | None, Form(description="a name that /api/about lists")] = None,
    samples: Annotated[int, Form(ge=0, le=MOST_SAMPLES)] = 0,
    iterations: Annotated[int | None, Form(ge=1, le=MOST_ITERATIONS)] = None,
    align: Annotated[bool, Form(description="let a network find the mask's pose")] = False,
    adapt: Annotated[
        int, Form(ge=0, le=MOST_STEPS, description="steps in which a network adapts to the scene")
    ] = 0,
    level: Annotated[float, Form(gt=0, lt=1, description="coverage of the error bars")] = 0.9,
    noise_std: Annotated[
        float | None,
        Form(ge=0, le=1e9, description="of the snapshot, in counts or its own units"),
    ] = None,
    dark: Annotated[
        float | None,
        Form(ge=0, le=1e9, description="level of the snapshot, in counts or its own units"),
    ] = None,
    mask_std: Annotated[
        float | None, Form(ge=0, le=1, description="how far the mask may be wrong, in its units")
    ] = None,
    seed: Annotated[int, Form(ge=0, lt=2**31)] = 0,
    bands: Annotated[int | None, Form(ge=1, le=MOST_BANDS)] = None,
    step: Annotated[float | None, Form(ge=-64, le=64, description="pixels per band")] = None,
    offsets: Annotated[
        str | None,
        Form(description="of each band in px: a,b,c; instead of step", max_length=20_000),
    ] = None,
    wavelengths: Annotated[str | None, Form(description="in nm: a,b,c", max_length=20_000)] = None,
    axis: Annotated[Axis | None, Form(description="along which the prism disperses")] = None,
    design: Annotated[Design | None, Form(description="one disperser or two")] = None,
    bits: Annotated[
        int | None, Form(ge=8, le=16, description="of the sensor, in a 16-bit file")
    ] = None,
    fill_bad_pixels: Annotated[
        bool, Form(description="find hot and dead pixels and leave them out")
    ] = True,
    check_mask: Annotated[bool, Form(description="look for the mask in the snapshot")] = True,
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
        method, path, samples, iterations, level, seed, camera, choices.device, align, adapt,
        noise_std, dark, mask_std, bits, "auto" if fill_bad_pixels else "none", check_mask,
    )  # fmt: skip
    # What contradicts itself is refused at once, not when its turn comes.
    order.options()
    if step is not None and camera.offsets is not None:
        raise ConfigError("step and offsets both describe the dispersion: give one of them.")
    return order


async def raw_of(
    average: Annotated[bool, Form(description="the snapshot's pages are exposures")] = False,
    turn_snapshot: Annotated[Orientation | None, Form(description="before anything else")] = None,
    turn_mask: Annotated[Orientation | None, Form(description="before it is cropped")] = None,
    crop_mask: Annotated[
        str | None, Form(description="top,left,height,width in px", max_length=100)
    ] = None,
) -> RawFrameOptions:
    """What is done to the files first."""
    crop = _numbers(crop_mask, "crop_mask", "pixels: top, left, height, width")
    return RawFrameOptions(
        average=average, turn_snapshot=turn_snapshot, turn_mask=turn_mask, crop_mask=crop
    )


async def only_known(request: Request) -> None:
    """Raise for a field that nobody reads: somebody has misspelt what they want."""
    known = {
        name
        for function in (order_of, raw_of, submit)
        for name in signature(function).parameters
        if name not in ("site", "order", "raw")
    }
    for name in await request.form():
        choose(name, sorted(known), "field")


@router.post("/jobs", status_code=202, responses=SENT, dependencies=[Depends(only_known)])
async def submit(
    site: Here,
    snapshot: Annotated[UploadFile, File(description="NetCDF, MATLAB, NPY, NPZ, TIFF or PNG")],
    mask: Annotated[UploadFile, File(description="the calibrated mask, any of these formats")],
    order: Annotated[Order, Depends(order_of)],
    raw: Annotated[RawFrameOptions, Depends(raw_of)],
    dark_frame: Annotated[
        UploadFile | None, File(description="a frame without light, instead of dark")
    ] = None,
    flat: Annotated[
        UploadFile | None, File(description="a frame of even light without the mask")
    ] = None,
) -> JobStatus:
    """Send a snapshot and its mask to be reconstructed; ask for the job until it is done.

    Files are read before this answers: one that cannot be used is refused with the reason.
    """
    frames = Frames(dark_frame, flat, raw)
    frames.check(order)
    return await _taken(site, lambda folder: _take(site, folder, snapshot, mask, order, frames))


@router.post("/sample", status_code=202, responses=SENT)
async def sample(site: Here) -> JobStatus:
    """Draw a scene, photograph it through a mask, and reconstruct it: something to try."""
    return await _taken(site, lambda folder: _draw(site, folder))


@router.post("/results/{key}/again", status_code=202, responses=SENT | NONE)
async def again(
    site: Here, key: str, remedy: Annotated[RemedyName, Form(description="what to change")]
) -> JobStatus:
    """Reconstruct the snapshot of a result again, with a remedy that its notices offer."""
    result = site.results.get(key)
    if result.order is None or result.snapshot is None or result.mask is None:
        raise ConfigError("this result was not made here: its snapshot and mask are not known.")
    return await _taken(site, lambda folder: _repeat(site, folder, result, remedy))


@router.get("/jobs/{key}", responses=NONE)
async def job_status(site: Here, key: str) -> JobStatus:
    """How far a job is; `result` is set when it is done."""
    return _status(site, site.jobs.get(key))


@router.delete("/jobs/{key}", responses=NONE)
async def cancel(site: Here, key: str) -> JobStatus:
    """Call a job off; a finished one is removed together with its result."""
    return _status(site, await asyncio.to_thread(site.jobs.cancel, key))


async def _taken(site: Site, prepare: Callable[[Path], Job]) -> JobStatus:
    """Have a job prepared in a folder of its own; nothing stays if that fails."""
    site.jobs.check_room()

    def run() -> Job:
        folder = site.jobs.new_folder()
        try:
            return prepare(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    return _status(site, await asyncio.get_running_loop().run_in_executor(site.intake, run))


def _take(
    site: Site,
    folder: Path,
    snapshot: UploadFile,
    mask: UploadFile,
    order: Order,
    frames: Frames,
) -> Job:
    """Read the files in cages and queue the job."""
    parts: tuple[tuple[UploadFile, Part, str], ...] = (
        (snapshot, "exposures" if frames.raw.average else "measurement", SNAPSHOT),
        *frames.parts(),
        (mask, "mask", MASK),  # last: its size is the cube's
    )
    size: Sequence[int] = []
    for upload, kind, out in parts:
        # Apart from the file that is written for the job, should both have one name.
        inbox = folder / "inbox"
        inbox.mkdir(exist_ok=True)
        source = keep_upload(upload.file, upload.filename, inbox, kind)
        shown = safe_name(upload.filename)
        with site.reading:
            size = decode_caged(
                source, shown, kind, folder / out, site.limits, lambda: site.is_closed
            )
    order = frames.apply(folder, order)
    size = frames.mask_size(folder) or size
    values = math.prod(size[-2:]) * (order.camera.bands or BANDS)
    return site.jobs.submit(safe_name(snapshot.filename), folder, order, values)


def _draw(site: Site, folder: Path) -> Job:
    """Queue a scene that the worker draws."""
    assert site.choices is not None
    order, values = Order(device=site.choices.device), math.prod(SAMPLE_SIZE) * BANDS
    return site.jobs.submit(SAMPLE_NAME, folder, order, values, drawn=SAMPLE_SIZE)


def _repeat(site: Site, folder: Path, result: Result, remedy: RemedyName) -> Job:
    """Queue the snapshot of a result once more."""
    from prismask.scenes.formats.files import save

    assert result.snapshot is not None
    assert result.mask is not None
    order = changed_order(result.order, remedy)
    order.options()
    save(result.snapshot, folder / SNAPSHOT)
    save(result.mask, folder / MASK)
    if result.reference is not None:
        save(result.reference, folder / TRUTH)
    name = f"{result.name} ({CHANGED[remedy]})"
    before = ((result.id, result.name),)
    return site.jobs.submit(name, folder, order, result.cube.values.size, before)


def _status(site: Site, job: Job) -> JobStatus:
    return JobStatus(
        id=job.id,
        name=job.name,
        state=job.state,
        position=site.jobs.position(job),
        done=job.done,
        total=job.total,
        seconds=round(job.seconds, 1),
        seconds_left=round(site.jobs.seconds_left(job), 1),
        message=job.message,
        findings=job.findings,
        fixes=[FieldFix(field=one.field, value=one.value) for one in job.fixes],
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
