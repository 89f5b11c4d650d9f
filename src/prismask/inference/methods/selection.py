"""Which method serves a camera: the one that was asked for, else weights that ship, else a solver.

Of the weights that ship two are defaults. One is for the camera it was trained behind, the other
learned behind many and serves where the camera is not that one. Where a camera is out of reach of
both, a solver takes their place and people are told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from prismask.errors import ConfigError
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.checks import Finding
from prismask.inference.engine.frame import Engine, default_tiling
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.protocol import Method
from prismask.inference.methods.solver import SolverMethod
from prismask.inference.options import Settings
from prismask.models.catalogue import Shipped, defaults, load_model
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI

FALLBACK = "gap-tv"
"""The solver that works for every camera, used where no network does."""


class Choice:
    """The methods of one run; the second default is loaded when a camera first needs it."""

    def __init__(
        self, settings: Settings, device: torch.device, network: Reconstructor | None = None
    ) -> None:
        self.settings = settings
        self.device = device
        self._networks: dict[str, NetworkMethod] = {}
        self._defaults = defaults()
        self._asked = self._asked_for(network)
        # What cannot be is told before anything runs.
        (self._asked or self._first()).check(settings)

    def for_camera(self, camera: CASSI) -> Method:
        """The method to use behind `camera`."""
        if self._asked is not None:
            return self._asked
        return self._default(camera) or self._solver(FALLBACK)

    def aligner(self, camera: CASSI) -> NetworkMethod | None:
        """The network that finds the mask's place: the one that reconstructs, else the default."""
        method = self.for_camera(camera)
        if isinstance(method, NetworkMethod):  # also one that was chosen for a strange camera
            return method
        return self._default(camera) if self.settings.align else None

    def findings(self, camera: CASSI) -> list[Finding]:
        """A remark where no default network serves `camera`."""
        if self._asked is not None or not self._defaults or self._default(camera) is not None:
            return []
        known = [(one, adapter_of(one, camera)) for one in self._defaults]
        nearest, adapter = min(
            known, key=lambda pair: (pair[1].is_of_other_design, pair[1].strangeness)
        )
        off = f"dispersion is {adapter.strangeness:.2g} times off"
        if adapter.is_of_other_design:
            count = {"single": "one disperser", "dual": "two dispersers"}[camera.design]
            off = f"design, with {count}, is not"
        text = (
            f"{FALLBACK} is used: this camera's {off} what the network {nearest.name} was trained "
            f"for. Give --model {nearest.name} to use it anyway."
        )
        return [Finding("note", text)]

    def _asked_for(self, network: Reconstructor | None) -> Method | None:
        settings = self.settings
        if network is not None and settings.method is not None:
            raise ConfigError(
                f"method {settings.method!r} and a network are two ways to reconstruct: give one "
                "of them."
            )
        if (network is not None or settings.model is not None) and settings.options:
            listed = ", ".join(name for name, _ in settings.options)
            raise ConfigError(f"{listed}: options of a solver; a network takes none of them.")
        if network is None and settings.model is not None:
            network = load_model(settings.model)
        if network is not None:
            return self._network(network)
        # Options speak of a solver, so they choose one where weights would be the default.
        if settings.method is not None or settings.options or not self._defaults:
            return self._solver(settings.method or FALLBACK)
        return None

    def _default(self, camera: CASSI) -> NetworkMethod | None:
        chosen = choose(camera, self._defaults)
        return None if chosen is None else self._ready(chosen)

    def _first(self) -> NetworkMethod:
        return self._ready(self._defaults[0])

    def _ready(self, one: Shipped) -> NetworkMethod:
        if one.name not in self._networks:
            self._networks[one.name] = self._network(load_model(one.path))
        return self._networks[one.name]

    def _network(self, network: Reconstructor) -> NetworkMethod:
        tiling = default_tiling(self.device)
        if self.settings.tile is not None:
            tiling = replace(tiling, tile=self.settings.tile)
        precision: Any = self.settings.precision
        engine = Engine(network, self.device, precision, tiling)
        name = network.record.get("name") or self.settings.model or network.record["backbone"]
        return NetworkMethod(engine, str(name))

    def _solver(self, name: str) -> SolverMethod:
        return SolverMethod(name, self.device, dict(self.settings.options))


def choose(camera: CASSI, among: tuple[Shipped, ...]) -> Shipped | None:
    """The weights to take behind `camera`, or None where it is out of reach of all.

    Those whose own camera it is; else those that are there for other cameras, if they reach it.
    """
    for one in among:
        if not adapter_of(one, camera).is_another:
            return one
    near = [one for one in among if adapter_of(one, camera).is_within_reach]
    return next((one for one in near if one.is_default_elsewhere), near[0] if near else None)


def adapter_of(one: Shipped, camera: CASSI) -> BandAdapter:
    """How the camera would be shown to these weights."""
    return BandAdapter.for_record(camera, one.record)
