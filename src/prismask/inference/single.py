"""One snapshot to one cube: records in, a record with its history out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prismask import __version__
from prismask.errors import DeviceError, DivergedError
from prismask.optics.camera import CASSI
from prismask.optics.simulate import camera_attrs, camera_from_attrs, unscaled
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement, check_wavelengths
from prismask.solvers import create_solver

Progress = Callable[[int, int, Mapping[str, Any]], None]


def reconstruct(
    measurement: Measurement,
    mask: Mask,
    camera: CASSI | None = None,
    method: str = "gap-tv",
    wavelengths: Sequence[float] | NDArray[np.float64] | None = None,
    progress: Progress | None = None,
    device: str = "auto",
    **options: Any,
) -> Cube:
    """The cube `(C, H, W)` behind a `measurement` taken through `mask`.

    `camera` None takes the one noted in the measurement, else the default one. The same holds for
    `wavelengths`; where nothing is known and the camera has not the default number of bands, the
    cube has none. `method` names a solver, `options` go to it. `progress(done, total, info)` is
    called while it works. The cube is in the scene's units: a scale noted in the measurement is
    divided out.
    """
    camera = camera or camera_from_attrs(measurement.attrs) or CASSI.from_step()
    at, at_source = _wavelengths(measurement, camera, wavelengths)
    place = pick_device(device)
    solver = create_solver(method, **options)
    signal = torch.tensor(unscaled(measurement), device=place)[None]
    aperture = torch.tensor(mask.values, device=place)
    camera.check_measurement_and_mask(signal, aperture)
    started = time.perf_counter()
    with torch.no_grad():
        values = solver(signal, aperture, camera, progress=progress)[0].cpu().numpy()
    seconds = time.perf_counter() - started
    if not np.isfinite(values).all():
        raise DivergedError(
            f"{method} did not stay finite on this snapshot. Check that mask and dispersion "
            "belong to it, and that its values are fractions of full scale."
        )
    attrs = {
        "title": "Reconstructed cube",
        "made_by": f"prismask {__version__}",
        "method": method,
        "method_options": repr(solver),
        "device": str(place),
        "seconds": round(seconds, 3),
        "measurement_hash": measurement.hash,
        "mask_hash": mask.hash,
        "wavelengths_from": at_source,
        **camera_attrs(camera),
    }
    return Cube(values, at, attrs=attrs)


def pick_device(device: str = "auto") -> torch.device:
    """`auto` is the GPU where there is one; anything else is what torch calls it."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise DeviceError(f"no device is called {device!r}; use auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device is available here; use --device cpu or auto.")
    return chosen


def _wavelengths(
    measurement: Measurement, camera: CASSI, given: Any
) -> tuple[NDArray[np.float64] | None, str]:
    """The wavelengths of the bands and where they were found."""
    noted = measurement.attrs.get("wavelengths_nm")
    if given is not None:
        return check_wavelengths(given, camera.bands), "given"
    if noted is not None and np.size(noted) == camera.bands:
        return check_wavelengths(np.atleast_1d(noted), camera.bands), "measurement"
    if camera.bands == BANDS:
        return check_wavelengths(WAVELENGTHS_NM, BANDS), "default"
    return None, "unknown"
