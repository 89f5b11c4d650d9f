"""`prismask camera refine` and `prismask camera check`: a mask judged by its snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.camera_options import CameraOptions, number_or_file
from prismask.apps.cli.terminal import remark, reporter, say
from prismask.errors import ConfigError, MissingPartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prismask.inference.refinement.check import MaskCheck
    from prismask.inference.refinement.refine import Refinement
    from prismask.wording import Finding

DOES_NOT_FIT = 1


def refine(
    *snapshots: Path,
    mask: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    camera: CameraOptions | None = None,
    rounds: int = 4,
    dark: str | None = None,
    bits: int | None = None,
    noise_std: float | None = None,
    model: str | None = None,
    device: str = "auto",
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Refine a calibrated mask from snapshots that were taken through it.

    The scenes need not be known. One or two snapshots give the pose of the mask; three or more also
    refine its pixels, and ten are better. Repeat the command to resume interrupted work.

    Parameters
    ----------
    snapshots
        Snapshots of one camera: files, folders, or patterns in quotes. Use different scenes with
        edges and several colours, none of them overexposed.
    mask
        The mask as calibrated.
    out
        The mask to write: its pose corrected, its pixels refined, and with the remaining
        uncertainty of each, which `reconstruct` uses.
    rounds
        Maximum number of rounds that alternate between cubes and mask; 0 corrects the pose only.
    dark
        Dark frame (a file), or dark level (a number). [default: estimated from each snapshot]
    bits
        Bit depth of the sensor, if its counts are stored in a 16-bit file.
    noise_std
        Noise of the snapshots, as for reconstruct. [default: estimated from each]
    model
        Weights that accept how wrong a mask may be. [default: lumen.m2m]
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    overwrite
        Replace the output if it exists.
    """
    from prismask.inference.refinement.refine import refine_mask
    from prismask.scenes.atomic import check_record
    from prismask.scenes.formats.files import save

    if out.suffix.lower() == ".npy":
        raise ConfigError(f"{out}: a .npy file holds no mask_std; write .nc or .mat.")
    files = _files(snapshots, mask)
    described = camera or CameraOptions()
    check_record(out, overwrite, *files, mask, dark, model, *described.files())
    with reporter() as report:
        found = refine_mask(
            files, mask, described.description(), rounds=rounds,
            state=out.with_name(f".{out.name}.refining.npz"), progress=report("refining"),
            **_options(dark, bits, noise_std, model, device),
        )  # fmt: skip
    save(found.mask, out, overwrite=overwrite)
    _tell(found.findings)
    say(_refined_text(found))
    say(f"\n{out}. Now:\n  prismask reconstruct SNAPSHOT --mask {out} -o cube.nc")


def check(
    *snapshots: Path,
    mask: Path,
    camera: CameraOptions | None = None,
    most: int = 12,
    figure: Path | None = None,
    dark: str | None = None,
    bits: int | None = None,
    noise_std: float | None = None,
    model: str | None = None,
    device: str = "auto",
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Check whether a mask still fits its camera, from snapshots taken through it.

    The exit status is 0 if it does, and 1 if most snapshots contradict it.

    Parameters
    ----------
    snapshots
        Snapshots of one camera: files, folders, or patterns in quotes.
    mask
        The mask as calibrated, or refined.
    most
        Number of snapshots to use, evenly spread; 12 take about a minute.
    figure
        Plot of the drift over time, a PNG, if the files or their names contain dates.
    dark
        Dark frame (a file), or dark level (a number). [default: estimated from each snapshot]
    bits
        Bit depth of the sensor, if its counts are stored in a 16-bit file.
    noise_std
        Noise of the snapshots, as for reconstruct. [default: estimated from each]
    model
        Weights that accept how wrong a mask may be. [default: lumen.m2m]
    device
        Where to compute: auto, cpu, cuda, cuda:1 or mps.
    overwrite
        Replace the figure if it exists.
    """
    from prismask.inference.refinement.check import check_mask
    from prismask.scenes.atomic import check_output, refuse_read

    if most < 1:
        raise ConfigError(f"--most is {most}; at least one snapshot is looked at.")
    files = _files(snapshots, mask)
    if figure is not None:
        check_output(figure, overwrite)
        refuse_read([figure], *files, mask)
    with reporter() as report:
        found = check_mask(
            files, mask, (camera or CameraOptions()).description(), most=most,
            progress=report("checking"), **_options(dark, bits, noise_std, model, device),
        )  # fmt: skip
    _tell(found.findings)
    say(_check_text(found))
    if figure is not None:
        _draw(found, figure, overwrite)
    return 0 if found.fits else DOES_NOT_FIT


def _files(snapshots: Sequence[Path], mask: Path) -> list[Path]:
    from prismask.apps.cli.reconstruct import find_snapshots

    if not snapshots:
        raise ConfigError("give the snapshots: files, a folder, or a pattern in quotes.")
    return list(find_snapshots(tuple(snapshots), [mask]))


def _options(
    dark: str | None, bits: int | None, noise_std: float | None, model: str | None, device: str
) -> dict[str, Any]:
    stated: dict[str, Any] = {"bits": bits, "noise_std": noise_std, "model": model}
    if dark is not None:
        stated["dark"] = number_or_file(dark, "--dark")
    return {"device": device, **{key: value for key, value in stated.items() if value is not None}}


def _tell(findings: Sequence[Finding]) -> None:
    for finding in findings:
        remark(f"{finding.weight}: {finding.text}")


def _refined_text(found: Refinement) -> str:
    """What was found, in a few lines."""
    levels = [f"{100 * level:.2g} %" for level in found.levels]
    lines = [f"{len(found.used)} snapshots; of what was held out the given mask leaves {levels[0]}"]
    if not found.is_changed:
        return f"{lines[0]} unexplained, and no other less: it is kept."
    lines[0] += f" unexplained, the refined one {levels[found.kept]}."
    pose = found.pose
    lines.append(
        f"The mask lies {-pose.right:+.2f} px to the right and {-pose.down:+.2f} px down of where "
        "it was calibrated."
    )
    if found.kept == 1:
        lines.append("Its pixels are left as they are: changing them explained no more.")
    spread = found.mask.std
    if spread is not None:
        lines.append(
            f"Its values changed by {found.mask.attrs['refined_change_rms']:.3f} (rms) and may "
            f"still be wrong by {float(spread.mean()):.3f} on average."
        )
    return "\n".join(lines)


def _check_text(found: MaskCheck) -> str:
    """A table of the snapshots and a verdict."""
    lines = ["unexplained   another pose  moved right    down   snapshot"]
    for shot in found.shots:
        gain = "cannot say" if shot.gain is None else f"{100 * max(shot.gain, 0):.1f} % less"
        mark = "" if shot.fits else "   contradicts the mask"
        lines.append(
            f"{100 * shot.unexplained:9.2g} % {gain:>14} {-shot.pose.right:+7.2f} px "
            f"{-shot.pose.down:+6.2f} px   {shot.name}{mark}"
        )
    lines += [f"left out: {name} {reason}" for name, reason in found.left_out]
    wrong = sum(not shot.fits for shot in found.shots)
    if all(shot.gain is None for shot in found.shots):
        return "\n".join([*lines, "", "The frames are too small to say whether the mask fits."])
    verdict = (
        f"The mask fits: {wrong} of {len(found.shots)} snapshots contradict it."
        if found.fits
        else f"The mask no longer fits: {wrong} of {len(found.shots)} snapshots contradict it. "
        "Refine it with `prismask camera refine`, or calibrate anew."
    )
    return "\n".join([*lines, "", verdict])


def _draw(found: MaskCheck, path: Path, overwrite: bool) -> None:
    from prismask.scenes.colour import write_bytes

    if len(found.dated) < 2:
        remark("note: no figure: fewer than two snapshots have a date, in the file or its name.")
        return
    try:
        from prismask.evaluation.figures.cubes import drift_figure

        write_bytes(drift_figure(found), path, overwrite)
    except MissingPartError as error:
        remark(f"note: no picture: {error}")
