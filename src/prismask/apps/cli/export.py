"""`prismask export`: a network behind one camera and mask, for programs without Prismask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prismask.apps.cli.camera_options import CameraOptions, RawFrameOptions, parse_numbers
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.models.network import Reconstructor
    from prismask.optics.camera import CASSI


def export(
    target: Path,
    /,
    *,
    mask: Path,
    model: str | None = None,
    frame: str | None = None,
    noise_std: float | None = None,
    mask_std: str | None = None,
    crop_mask: str | None = None,
    camera: CameraOptions | None = None,
    mask_variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write a network with a fixed camera and mask for onnxruntime or plain PyTorch.

    Parameters
    ----------
    target
        The file to write: .onnx, or .pt2 for a package of torch.export.
    mask
        The calibrated mask; its size determines that of the snapshots.
    model
        Trained weights: a name from `prismask models`, or the path of a weights file. [default:
        those that `reconstruct` uses for the camera]
    frame
        Size of the snapshots as HEIGHT,WIDTH in pixels, to determine or to check the camera.
        [default: follows from mask and camera]
    noise_std
        Noise of every snapshot, a standard deviation as a fraction of full scale, fixed in the
        file. [default: an input of the network]
    mask_std
        How wrong the mask may be: a standard deviation in its units (0 to 1), as a number or as a
        file with one value per pixel. [default: from the mask's file; otherwise estimated by the
        network]
    crop_mask
        Part of the mask to use, as TOP,LEFT,HEIGHT,WIDTH in pixels.
    mask_variable
        The variable that is the mask, in a file that holds several.
    overwrite
        Replace the target if it exists.
    """
    import torch

    from prismask.inference.export import Exported, check_parts, check_suffix
    from prismask.inference.inspection import check_fit, stated_spread
    from prismask.inference.options import Options
    from prismask.inference.reconstruct import with_own_spread
    from prismask.optics.camera import as_mask_batch, resolve_camera
    from prismask.scenes.atomic import check_inputs, check_output, refuse_read
    from prismask.scenes.formats.files import load_mask

    described = camera or CameraOptions()
    frames = RawFrameOptions(crop_mask=crop_mask, mask_std=mask_std)
    check_inputs(mask)
    if check_suffix(target) == ".onnx":
        check_parts(target)
    check_output(target, overwrite)
    refuse_read([target], mask, model, mask_std, *described.files())
    aperture = frames.mask(load_mask(mask, mask_variable))
    size = None if frame is None else _frame(frame)
    sizes = None if size is None else (size, aperture.size)
    found = resolve_camera(described.description(), aperture.attrs, sizes=sizes)
    if found.assumed:
        remark(f"note: {found.assumed}")
    if size is not None:
        check_fit(size, aperture.size, found.camera)
    options = Options(mask_std=frames.options()["mask_std"], noise_std=noise_std)
    code = as_mask_batch(torch.tensor(aperture.values))
    told = stated_spread(with_own_spread(options, aperture), code)
    network = _network(model, found.camera)
    exported = Exported.of(network, code, found.camera, told, options.noise_std)
    exported.save(target, overwrite=overwrite)
    shapes = " and ".join(
        f"{name} {'×'.join(map(str, given.shape))}" for name, given in exported.inputs().items()
    )
    say(f"{target}: {exported.facts['model']}, {shapes} → cube of {found.camera.bands} bands")


def _frame(text: str) -> tuple[int, int]:
    numbers = parse_numbers(text, "--frame")
    if len(numbers) != 2 or any(number != int(number) or number < 1 for number in numbers):
        raise ConfigError(f"--frame is {text!r}; it is HEIGHT,WIDTH in pixels, such as 660,714.")
    return int(numbers[0]), int(numbers[1])


def _network(model: str | None, camera: CASSI) -> Reconstructor:
    """The weights that are named, or those that ship for the camera."""
    from prismask.inference.methods.registry import weights_for
    from prismask.models.weights import default_weights, load_model

    if model is not None:
        return load_model(model)
    chosen = weights_for(camera, default_weights())
    if chosen is None:
        raise ConfigError(
            f"no network that ships serves {camera.bands} bands over {camera.extent} px with a "
            f"{camera.design} disperser. Name one with --model to export it anyway."
        )
    return load_model(chosen.path)
