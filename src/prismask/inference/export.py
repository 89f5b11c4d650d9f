"""A network with a fixed camera, mask and frame size as a file that other programs run.

    exported = Exported.of(network, mask, camera)
    exported.save("camera.onnx")          # for onnxruntime; .pt2 is a package of `torch.export`

The graph maps `measurement (1, H, L)`, and `noise (1,)` for networks that want to know it, to
`cube (1, C, H, W)`, all of float32. It is the whole network, in the frame of the camera: rows and
columns that the network wants exchanged are exchanged inside. All of the frame is worked on at
once, without tiles.

What stays outside. The measurement is in fractions of full scale and without its dark level, as
`inference.inspection` makes it, and its bright parts lie where networks know them (`KNOWN_LEVELS`;
other exposures are multiplied into that range, noise included, and their cubes divided again). The
noise is not estimated in the graph: how many windows of a snapshot say something about it is known
only when it is there, and neither format holds such an estimate. It is an input, because it changes
with the exposure, or fixed where the camera's is known. How far the mask may be wrong is fixed: it
belongs to the mask. No interval and no verdict are in the file.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prismask import __version__
from prismask.checks import size_text
from prismask.errors import ConfigError, MissingPartError
from prismask.inference.camera_match import View, match_camera
from prismask.inference.engine import mean_mask
from prismask.inference.inspection import KNOWN_LEVELS, check_light
from prismask.models.inputs import Observation, network_input
from prismask.models.network import Reconstructor, run_backbone
from prismask.optics.camera import CASSI, as_mask_batch, camera_attrs
from prismask.scenes.atomic import write_beside

SUFFIXES = (".onnx", ".pt2")
"""What a file is called that holds an ONNX graph, and a package of `torch.export`."""
LARGEST = 2**31 - 2**20
"""Bytes of weights and mask in one ONNX file; a megabyte less than it can hold at all."""
FACTS = "prismask.json"
"""What a .pt2 package calls the facts that an ONNX file has as metadata."""


class FixedNetwork(nn.Module):
    """A network for one camera and mask."""

    mask: Tensor
    mask_std: Tensor | None
    noise: Tensor | None

    def __init__(self, network: Reconstructor, seen: View, noise_std: float | None) -> None:
        super().__init__()
        self.backbone, self.inputs = network.backbone, network.inputs
        shown = seen.shown
        self.camera, self.turn = shown.camera, seen.turn
        self.wants_noise = network.wants_noise and noise_std is None
        self.register_buffer("mask", mean_mask(network.posterior, shown.mask))
        self.register_buffer("mask_std", shown.mask_std)
        known = network.wants_noise and noise_std is not None
        self.register_buffer("noise", torch.tensor([noise_std]) if known else None)

    def forward(self, measurement: Tensor, noise: Tensor | None = None) -> Tensor:
        """`measurement (1, H, L)`, its noise `(1,)` → the cube `(1, C, H, W)`."""
        noise = self.noise if noise is None else noise
        shot = self.turn.there(measurement)
        planes = network_input(self.inputs, shot, self.mask, self.camera, noise)
        seen = Observation(shot, self.mask, self.camera, noise, self.mask_std)
        return self.turn.back(run_backbone(self.backbone, planes, seen))


@dataclass(frozen=True, eq=False)
class Exported:
    """A network ready to be written."""

    network: FixedNetwork
    frame: tuple[int, int]
    """Height and width of a measurement."""
    facts: dict[str, Any]
    """What the file says about itself."""

    @classmethod
    def of(
        cls,
        network: Reconstructor,
        mask: Tensor,
        camera: CASSI,
        mask_std: Tensor | None = None,
        noise_std: float | None = None,
    ) -> Exported:
        """`network` for `camera` and `mask (H, W)`, `(C, H, W)` or `(1, 1|C, H, W)`.

        mask_std: how far the mask may be wrong, of its shape; None: unknown.
        noise_std: of every measurement; None: an input of the graph.
        """
        code = as_mask_batch(mask).float()
        check_light(code)
        scene = _scene(camera, (code.shape[-2], code.shape[-1]))
        frame = camera.measurement_size(scene)
        blank, one = torch.zeros(1, *frame), torch.ones(1)
        code = camera.check_measurement_and_mask(blank, code)
        stated = None
        if mask_std is not None and network.wants_mask_std:
            stated = as_mask_batch(mask_std).float()
        taken = Observation(blank, code, camera, one, stated)
        match = match_camera(camera, network.record)
        name = network.record.get("name") or network.record["backbone"]
        match.check(name)
        seen = View.of(taken, one, match)
        if seen.is_resampled:
            raise ConfigError(
                f"{name} reads a spectrum of {camera.extent} px with larger pixels than the "
                "camera's, and an exported graph has no such resampling."
            )
        fixed = FixedNetwork(network, seen, noise_std).eval().requires_grad_(False)
        facts = _facts(network, camera, frame, stated, noise_std)
        return cls(fixed, frame, facts)

    def inputs(self) -> dict[str, Tensor]:
        """A dark measurement, and the noise if it is an input: names and shapes."""
        found = {"measurement": torch.zeros(1, *self.frame)}
        return {**found, "noise": torch.full((1,), 0.01)} if self.network.wants_noise else found

    def program(self) -> torch.export.ExportedProgram:
        """The graph."""
        with torch.no_grad():
            made = torch.export.export(self.network, tuple(self.inputs().values()))
        for node in made.graph.nodes:
            node.meta.pop("stack_trace", None)  # lines of code, with where they lie on this disk
        return made

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write it as the extension says; an ONNX file needs the extra `export`."""
        suffix = check_suffix(Path(path))
        if suffix == ".onnx":
            self._check_onnx(Path(path))
        with write_beside(path, overwrite=overwrite) as part, _quiet():
            if suffix == ".onnx":
                part.write_bytes(self._onnx())
                return
            text = json.dumps(self.facts, ensure_ascii=False)
            with part.open("wb") as file:
                torch.export.save(self.program(), file, extra_files={FACTS: text})

    def _check_onnx(self, path: Path) -> None:
        check_parts(path)
        size = sum(t.numel() * t.element_size() for t in self.network.state_dict().values())
        if size > LARGEST:
            raise ConfigError(
                f"weights and mask take {size / 1e9:.2f} GB, and an ONNX file holds 2 GB. Write "
                f"{path.with_suffix('.pt2').name} instead, or take a smaller frame."
            )

    def _onnx(self) -> bytes:
        """The bytes of an ONNX file."""
        made = torch.onnx.export(
            self.program(), dynamo=True, verbose=False, external_data=False,
            input_names=list(self.inputs()), output_names=["cube"],
        )  # fmt: skip
        assert made is not None
        model = made.model_proto
        for node in model.graph.node:
            node.ClearField("metadata_props")  # where each came from: twice the size of the file
        for key, value in self.facts.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            model.metadata_props.add(key=key, value=text)
        return bytes(model.SerializeToString())


def check_suffix(path: Path) -> str:
    """The extension of a file to write, or an error that names those there are."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"{path} has the extension {path.suffix or '(none)'!r}; a network is exported as .onnx "
            "(for onnxruntime) or as .pt2 (a package of torch.export)."
        )
    return suffix


def check_parts(path: Path) -> None:
    """Raise unless what writes ONNX files is installed."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise MissingPartError(
            f"ONNX files need {' and '.join(missing)}: pip install 'prismask[export]'. "
            f"{path.with_suffix('.pt2').name} would need nothing more."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of its own insides: old names, packages that nobody needs."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _scene(camera: CASSI, mask: tuple[int, int]) -> tuple[int, int]:
    """Size of the scene seen through a mask of the given size."""
    if camera.design == "single":
        return mask
    # A dual disperser shears the mask, so that is the longer one.
    return replace(camera, design="single").scene_size(mask)


def _facts(
    network: Reconstructor,
    camera: CASSI,
    frame: tuple[int, int],
    mask_std: Tensor | None,
    noise_std: float | None,
) -> dict[str, Any]:
    record = network.record
    known = (float(level) for level in KNOWN_LEVELS)
    return {
        "producer": f"prismask {__version__}",
        "model": str(record.get("name") or record["backbone"]),
        "weights_sha256": str(record.get("sha256", "unsaved")),
        **camera_attrs(camera),
        "measurement": f"1×{size_text(frame)}, in fractions of full scale, dark level subtracted",
        "bright_parts": list(known),
        "noise_std": "an input" if noise_std is None and network.wants_noise else noise_std,
        "mask_std": "estimated" if mask_std is None else float(mask_std.square().mean().sqrt()),
    }
