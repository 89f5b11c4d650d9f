"""Which method serves a camera: the one that was asked for, else weights that ship, else a solver.

Of the weights that ship two are defaults. One is for the camera it was trained behind, the other
learned behind many and serves where the camera is not that one. Where a camera is out of reach of
both, a solver serves instead, and a finding says so.
"""

from __future__ import annotations

from typing import Any

import torch

from prismask.errors import ConfigError
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.findings import Finding
from prismask.inference.methods.protocol import Aligner, Method, as_aligner
from prismask.inference.methods.registry import as_method, create_method
from prismask.inference.options import Options
from prismask.models.catalogue import Shipped, defaults, load_model
from prismask.optics.camera import CASSI

FALLBACK = "gap-tv"
"""The solver that works for every camera, used where no network does."""


class Choice:
    """The methods of one run; the second default is loaded when a camera first needs it."""

    def __init__(self, options: Options, device: torch.device, given: Any = None) -> None:
        self.options = options
        self.device = device
        self._ready: dict[str, Method] = {}
        self._defaults = defaults()
        self._asked = self._asked_for(given)
        # What cannot work is refused before anything runs.
        (self._asked or self._shipped(self._defaults[0])).check(options)

    def for_camera(self, camera: CASSI) -> Method:
        """The method to use behind `camera`."""
        if self._asked is not None:
            return self._asked
        return self._default(camera) or self._named(FALLBACK)

    def aligner(self, camera: CASSI) -> Aligner | None:
        """Who finds the mask's pose: the method that reconstructs, else the default network."""
        own = as_aligner(self.for_camera(camera))
        if own is not None or not self.options.align:
            return own
        default = self._default(camera)
        return None if default is None else as_aligner(default)

    def findings(self, camera: CASSI) -> list[Finding]:
        """A remark where no default network serves `camera`."""
        if self._asked is not None or not self._defaults or self._default(camera) is not None:
            return []
        known = [(one, adapter_of(one, camera)) for one in self._defaults]
        nearest, adapter = min(
            known, key=lambda pair: (pair[1].is_of_other_design, pair[1].dispersion_mismatch)
        )
        off = f"dispersion is {adapter.dispersion_mismatch:.2g} times off"
        if adapter.is_of_other_design:
            count = {"single": "one disperser", "dual": "two dispersers"}[camera.design]
            off = f"design, with {count}, is not"
        text = (
            f"{FALLBACK} is used: this camera's {off} what the network {nearest.name} was trained "
            f"for. Give --model {nearest.name} to use it anyway."
        )
        return [Finding("note", text)]

    def _asked_for(self, given: Any) -> Method | None:
        options = self.options
        if given is not None and (options.method or options.model):
            raise ConfigError(
                f"{options.method or options.model!r} and a method of one's own are two ways to "
                "reconstruct: give one of them."
            )
        if (given is not None or options.model is not None) and options.method_options:
            listed = ", ".join(name for name, _ in options.method_options)
            raise ConfigError(f"{listed}: options of a solver; a network takes none of them.")
        if given is None and options.model is not None:
            given = load_model(options.model)
        if given is not None:
            return as_method(given, self.device, options)
        # Options speak of a solver, so they choose one where weights would be the default.
        if options.method is not None or options.method_options or not self._defaults:
            return self._named(options.method or FALLBACK)
        return None

    def _default(self, camera: CASSI) -> Method | None:
        chosen = choose(camera, self._defaults)
        return None if chosen is None else self._shipped(chosen)

    def _shipped(self, one: Shipped) -> Method:
        if one.name not in self._ready:
            self._ready[one.name] = as_method(load_model(one.path), self.device, self.options)
        return self._ready[one.name]

    def _named(self, name: str) -> Method:
        return create_method(name, self.device, **dict(self.options.method_options))


def choose(camera: CASSI, among: tuple[Shipped, ...]) -> Shipped | None:
    """The weights to take behind `camera`, or None where it is out of reach of all.

    Those whose own camera it is; else those that are there for other cameras, if they reach it.
    """
    for one in among:
        if not adapter_of(one, camera).is_other_camera:
            return one
    near = [one for one in among if adapter_of(one, camera).is_within_reach]
    return next((one for one in near if one.is_default_elsewhere), near[0] if near else None)


def adapter_of(one: Shipped, camera: CASSI) -> BandAdapter:
    """How the camera would be shown to these weights."""
    return BandAdapter.for_record(camera, one.record)
