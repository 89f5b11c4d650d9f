"""One snapshot to one cube: records in, a record with its error bar and its history out.

    cube = reconstruct("snapshot.mat", "mask.mat", samples=16)

`Reconstruction` is the same in two steps, for many snapshots: prepare once, run often.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from prismask import __version__
from prismask.errors import ConfigError, DivergedError
from prismask.inference import checks
from prismask.inference.alignment.known_pose import KnownPlace
from prismask.inference.alignment.method import Aligned, align, at_place, straightened
from prismask.inference.camera_match.view import Snapshot
from prismask.inference.checks import Finding
from prismask.inference.history import observations, sources
from prismask.inference.inspection import look
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.protocol import Method, Outcome, Progress
from prismask.inference.methods.selection import Choice
from prismask.inference.options import Settings
from prismask.inference.selfcheck import Residual, reproject
from prismask.models.devices import choose_device
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI
from prismask.optics.simulate import camera_attrs, camera_notes, unscaled
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.formats.files import load_mask, load_measurement
from prismask.scenes.records import Cube, Mask, Measurement, array_hash, check_wavelengths

MUCH = 3.0
"""Residual in units of the noise from which a network's cube does not explain its snapshot."""

Wavelengths = Sequence[float] | NDArray[np.float64]


def reconstruct(
    measurement: Measurement | str | Path,
    mask: Mask | str | Path,
    camera: CASSI | None = None,
    method: str | None = None,
    *,
    model: str | Path | Reconstructor | None = None,
    wavelengths: Wavelengths | None = None,
    samples: int = 0,
    level: float = 0.9,
    seed: int = 0,
    device: str = "auto",
    precision: Literal["auto", "half", "float32"] = "auto",
    tile: int | None = None,
    noise_std: float | None = None,
    dark: float | None = None,
    registration: bool = True,
    align: bool = False,
    adapt: int = 0,
    place: Cube | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Cube:
    """The cube `(C, H, W)` behind a `measurement` taken through `mask` (records or files).

    camera: None takes the one noted in the measurement or the mask, else the default one, else the
        band count that fits the two sizes.
    method, model: a solver by name, or trained weights by name or path. With neither, the weights
        that ship for such a camera, or gap-tv where none do (`inference.methods.selection`).
    wavelengths: of the camera's bands in nm; None takes those noted in the measurement or the
        mask, or the default ones for the default band count; otherwise the cube has none.
    samples: masks drawn from the network's posterior. The cube is then their mean, `std` their
        spread. `lower` and `upper` are the calibrated interval of coverage `level` where one is
        stored with the weights, else the quantiles of the samples.
    precision, tile: how a network computes (`inference.engine.frame`, `inference.engine.tiling`).
    noise_std, dark: of the measurement in its own units, those in which `attrs["noise_std"]` and
        `attrs["dark_level"]` tell them; None estimates them.
    registration: whether to ask the snapshot first if its mask is the right one and in its place.
    align: whether to move the mask by fractions of a pixel to where the snapshot says it lies; a
        network has to be run some hundred times on part of the frame for it: the one that
        reconstructs, or for a solver the one for such a camera.
    adapt: steps in which the network first learns the scene from its own cube; about a hundred are
        worth their time, which does not grow with the frame.
    place: a cube made with `align` from another snapshot of the same camera: the mask is read where
        it was found then.
    options: of the solver, such as `iterations`.

    The cube is in the scene's units: a scale noted in the measurement, `scale` with `scale_rule`
    beside it, is divided out. What was noticed on the way is in `attrs["findings"]`: show it to
    people.
    """
    network = model if isinstance(model, Reconstructor) else None
    name = None if network is not None or model is None else str(model)
    known = None if place is None else KnownPlace.from_attrs(place.attrs, "the cube")
    settings = Settings(method, name, samples, level, seed, device, precision, tile, noise_std,
                        dark, registration, tuple(sorted(options.items())), align,
                        adapt, known)  # fmt: skip
    if not isinstance(measurement, Measurement):
        measurement = load_measurement(measurement)
    if not isinstance(mask, Mask):
        mask = load_mask(mask)
    return Reconstruction(settings, network).run(measurement, mask, camera, wavelengths, progress)


class Reconstruction:
    """Settings with their network or solver ready."""

    def __init__(self, settings: Settings, network: Reconstructor | None = None) -> None:
        self.settings = settings
        self.device = choose_device(settings.device)
        self._choice = Choice(settings, self.device, network)

    def recipe(
        self, measurement: Measurement, mask: Mask, camera: CASSI, at: Wavelengths | None
    ) -> str:
        """Short id of everything that decides the result."""
        listed = None if at is None else [float(value) for value in at]
        return self.settings.recipe(
            version=__version__,
            measurement=array_hash(unscaled(measurement)),
            mask=mask.hash,
            wavelengths=listed,
            **camera_attrs(camera),
            **self._identity(camera),
        )

    def _identity(self, camera: CASSI) -> dict[str, Any]:
        method, aligner = self._choice.for_camera(camera), self._choice.aligner(camera)
        # What tells the result from one that another network aligned.
        other = {} if aligner is None or aligner is method else {"aligner": aligner.identity()}
        return {**method.identity(), **other, **self._unasked(method)}

    def _unasked(self, method: Method) -> dict[str, Any]:
        """What tells a cube whose snapshot was not asked about its mask, where others are."""
        asks = isinstance(method, NetworkMethod) and method.asks_about_masks
        return {"mask_checked": False} if asks and not self.settings.registration else {}

    def run(
        self,
        measurement: Measurement,
        mask: Mask,
        camera: CASSI | None = None,
        wavelengths: Wavelengths | None = None,
        progress: Progress | None = None,
    ) -> Cube:
        """Check, reconstruct, check again."""
        camera, guessed = self.camera_for(measurement, mask, camera)
        at, at_source = find_wavelengths(measurement, mask, camera, wavelengths)
        started = time.perf_counter()
        if self.settings.place is not None:
            self.settings.place.check(mask)
        method = self._choice.for_camera(camera)
        method.check(self.settings)
        looked = look(measurement, mask, camera, self.settings, self.device)
        aligned = self._aligned(looked.snapshot, method, progress)
        seen = aligned.snapshot
        outcome = method.run(seen, self.settings, progress)
        _check_finite(outcome, method.name)
        values = torch.from_numpy(outcome.values)
        residual = reproject(
            values, seen.signal, seen.mask, camera, seen.noise_std, looked.noise_from, looked.unit
        )
        attrs = {
            "title": "Reconstructed cube",
            "made_by": f"prismask {__version__}",
            **outcome.attrs,
            **aligned.attrs,
            "device": str(self.device),
            "seconds": round(time.perf_counter() - started, 3),
            "wavelengths_from": at_source,
            **sources(measurement, mask, camera),
            **observations(
                looked,
                residual,
                [
                    *guessed,
                    *checks.plane_findings(mask, at),
                    *looked.findings,
                    *self._choice.findings(camera),
                    *aligned.findings,
                    *outcome.findings,
                    *_residual_findings(residual, outcome, method, self.settings),
                ],
            ),
            "recipe": self.recipe(measurement, mask, camera, at),
        }
        outcome = straightened(outcome, aligned.place, camera)
        return Cube(outcome.values, at, outcome.std, outcome.lower, outcome.upper, attrs)

    def camera_for(
        self, measurement: Measurement, mask: Mask, camera: CASSI | None
    ) -> tuple[CASSI, list[Finding]]:
        """The camera to use, and the remark if it was guessed; sizes that do not fit raise."""
        guessed: Finding | None = None
        if camera is None:
            notes = camera_notes(measurement, mask)
            camera, guessed = checks.find_camera(measurement.size, mask.size, notes)
        checks.check_fit(measurement.size, mask.size, camera)
        return camera, [guessed] if guessed is not None else []

    def _aligned(self, snapshot: Snapshot, method: Method, progress: Progress | None) -> Aligned:
        """The snapshot with its mask where it lies, if that is asked for."""
        if self.settings.place is not None:
            return at_place(snapshot, self.settings.place.place)
        if not self.settings.align:
            return Aligned(snapshot)
        aligner = self._choice.aligner(snapshot.camera)
        if aligner is None:
            raise ConfigError(
                f"{method.name} cannot tell where the mask lies, and no network fits this camera: "
                "leave align out."
            )
        return align(snapshot, aligner, progress)


def _residual_findings(
    residual: Residual, outcome: Outcome, method: Method, settings: Settings
) -> list[Finding]:
    """What to do about a cube that leaves much of its snapshot unexplained."""
    left = residual.over_noise
    if left is None or left < MUCH or settings.align or not isinstance(method, NetworkMethod):
        return []
    if outcome.attrs.get("mask_doubted"):  # has been told
        return []
    # Also where the snapshot agrees with its mask: a few lines do not show all that can be wrong.
    learn = "" if settings.adapt else " (--adapt 60 learns it)"
    text = (
        f"the cube leaves {left:.2g} times the noise of its snapshot unexplained: the scene is "
        f"harder than what the network knows{learn}, or the mask lies a fraction of a pixel beside "
        "where it was calibrated. --align tells which."
    )
    return [Finding("note", text)]


def find_wavelengths(
    measurement: Measurement, mask: Mask, camera: CASSI, given: Any
) -> tuple[NDArray[np.float64] | None, str]:
    """The wavelengths of the bands and where they were found."""
    if given is not None:
        return check_wavelengths(given, camera.bands), "given"
    for source, attrs in (("measurement", measurement.attrs), ("mask", mask.attrs)):
        noted = attrs.get("wavelengths_nm")
        if noted is not None and np.size(noted) == camera.bands:
            return check_wavelengths(np.atleast_1d(noted), camera.bands), source
    if camera.bands == BANDS:
        return check_wavelengths(WAVELENGTHS_NM, BANDS), "default"
    return None, "unknown"


def _check_finite(outcome: Outcome, name: str) -> None:
    if not np.isfinite(outcome.values).all():
        raise DivergedError(
            f"{name} did not stay finite on this snapshot. Check that mask and dispersion "
            "belong to it, and that its values are fractions of full scale."
        )
