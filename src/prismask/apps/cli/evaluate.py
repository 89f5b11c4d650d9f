"""`prismask evaluate`, `stress`, `spectra-test`, `analyse`: models side by side, on unseen masks;
`report` and `join`: one page about a folder, one table of evaluations made apart.

No compiled package but torch, NumPy, SciPy and safetensors is needed, so that the commands run on
a machine that has nothing else (CONTRIBUTING, "Where little is installed"); figures are drawn where
matplotlib is installed. The options that the commands share are grouped here once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.terminal import remark, reporter, say
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.evaluation.run.runner import Evaluation
    from prismask.optics.camera import CameraDescription

SOME_FAILED = 1


@Parameter(name="*")
@dataclass(frozen=True)
class SceneOptions:
    """What the models see, and where they run."""

    data: Path | None = None
    """The data folder. [default: PRISMASK_DATA, or shared/data nearby]"""
    scenes: str | None = None
    """Scenes of the data folder, or files, separated by commas; validation and train stand for all
    scenes of that part. [default: the test scenes of the split]"""
    size: str | None = None
    """Use only the centre of each scene, with this height and width, as in 192,224 or 256.
    [default: the whole scene]"""
    split: Path | None = None
    """A TOML file that names scenes and masks instead of the data folder's splits.json."""
    camera: str | None = None
    """The camera, as in step=3,axis=height or bands=31,design=dual or offsets=FILE. [default: that
    of the split, otherwise 2 px per band along the width]"""
    resample: bool = False
    """Interpolate scenes to the bands of the models, or of --camera."""
    noise: float = 0.0
    """Measurement noise: std on 2/C times the snapshot of C bands, so relative to the cube's range
    (white is 1)."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""


@Parameter(name="*")
@dataclass(frozen=True)
class ProtocolOptions:
    """Which masks they are measured through: `evaluate` and `analyse`."""

    protocol: str = "many-to-many"
    """one-to-one, one-to-many or many-to-many."""
    groups: str | None = None
    """Mask groups of the split, or fabricated, separated by commas. [default: those of the
    protocol]"""


@Parameter(name="*")
@dataclass(frozen=True)
class DeliveryOptions:
    """What models do with every snapshot besides a single pass: `evaluate` and `stress`."""

    align: bool = False
    """First find the pose of the mask from every snapshot, as reconstruct --align does."""
    adapt: int = 0
    """Steps in which networks first adapt to every scene, as reconstruct --adapt does."""
    mask_std: float | None = None
    """How wrong every mask may be, for networks that use it, as for reconstruct --mask-std.
    [default: estimated by the networks]"""


@Parameter(name="*")
@dataclass(frozen=True)
class WorkOptions:
    """How a long run is shared out and resumed: `evaluate` and `stress`."""

    batch: int = 10
    """Number of scenes per batch."""
    workers: int = 1
    """Processes on this machine."""
    threads: int | None = None
    """CPU threads per process. [default: the cores divided among the processes]"""
    dask: str | None = None
    """Address of a Dask scheduler, or local."""
    resume: bool = False
    """Resume the run in the folder."""
    allow_overlap: bool = False
    """Also test models on masks or scenes they were trained on, and mark their scores."""


Shared = SceneOptions | ProtocolOptions | DeliveryOptions | WorkOptions


def evaluate(
    models: list[str],
    /,
    *,
    out: Path,
    protocol: ProtocolOptions = ProtocolOptions(),
    scenes: SceneOptions = SceneOptions(),
    trials: int = 100,
    seed: int = 0,
    metrics: str | None = None,
    precision: str = "auto",
    delivery: DeliveryOptions = DeliveryOptions(),
    work: WorkOptions = WorkOptions(),
    without_timing: bool = False,
) -> int:
    """Score models side by side on identical measurements: mean ± std over masks.

    The cubes that are scored are those that `reconstruct` returns, for any camera.

    Parameters
    ----------
    models
        Weights files, run folders, new networks (srn) or solvers (gap-tv), with options as in
        gap-tv:iterations=30 and labels as in mine=weights.safetensors.
    out
        Output folder for the tables and the record.
    trials
        Masks per group, drawn without replacement; one-to-one has one.
    seed
        Random seed of masks, noise and new networks.
    metrics
        Names, separated by commas; inside is the share of true values within the 90 % interval.
        [default: all but inside]
    precision
        Of networks: auto (half on a GPU where it moves no PSNR by 0.005 dB), float32 or half.
    without_timing
        Do not measure the speed and memory of each method.
    """
    from prismask.evaluation.run.runner import evaluate as run

    return _run(
        run,
        models,
        out,
        f"{protocol.protocol} evaluation",
        trials=trials,
        seed=seed,
        metrics=tuple(words(metrics) or ()),
        precision=precision,
        timing=not without_timing,
        **as_arguments(protocol, scenes, delivery, work),
    )


def stress(
    models: list[str],
    /,
    *,
    out: Path,
    scenes: SceneOptions = SceneOptions(),
    groups: str | None = None,
    trials: int = 5,
    seed: int = 0,
    faults: str | None = None,
    spectra: int = 0,
    metrics: str = "psnr_paper,ssim,sam",
    precision: str = "auto",
    delivery: DeliveryOptions = DeliveryOptions(),
    work: WorkOptions = WorkOptions(),
) -> int:
    """Score models on cameras that differ slightly from their description.

    Parameters
    ----------
    models
        Weights files, run folders, new networks (srn) or solvers (gap-tv).
    out
        Output folder for the tables and the record.
    groups
        Mask groups of the split, or fabricated. [default: all except its single mask]
    trials
        Masks per group.
    seed
        Random seed of masks, directions of faults and noise.
    faults
        shift, rotation, blur, gain, mask_noise, dispersion, measurement_noise, mismatch,
        recalibration, separated by commas, with sizes as in shift=0.5,1,blur=0.7. [default: all,
        each in its usual sizes]
    spectra
        Masks per group for spectra with structure (spectra-test, of drawn and validation scenes),
        into the folder spectra of --out; 0: none.
    metrics
        Names, separated by commas.
    precision
        Of networks: auto, float32 or half.
    """
    from prismask.evaluation.run.runner import stress as run

    failed = _run(
        run,
        models,
        out,
        "stress test",
        groups=words(groups),
        trials=trials,
        seed=seed,
        **read_faults(faults),
        metrics=tuple(words(metrics) or ()),
        precision=precision,
        **as_arguments(scenes, delivery, work),
    )
    if not spectra:
        return failed
    return failed | spectra_test(
        models,
        out=out / "spectra",
        data=scenes.data,
        trials=spectra,
        noise=scenes.noise,
        seed=seed,
        camera=scenes.camera,
        device=scenes.device,
        resume=work.resume,
    )


def spectra_test(
    models: list[str],
    /,
    *,
    out: Path,
    data: Path | None = None,
    groups: str | None = None,
    features: str | None = None,
    trials: int | None = None,
    size: int | None = None,
    noise: float = 0.0,
    level: float = 0.9,
    seed: int = 0,
    camera: str | None = None,
    device: str = "auto",
    quick: bool = False,
    resume: bool = False,
) -> int:
    """Test models on spectra with structure: lines, dips, lamps, lasers.

    A structure is added to drawn and validation scenes; snapshots are simulated through fabricated
    masks and reconstructed as `reconstruct` does, with intervals.

    Parameters
    ----------
    models
        Weights files, run folders, new networks (srn) or solvers (gap-tv).
    out
        Output folder for the tables and the record.
    data
        The data folder. [default: PRISMASK_DATA, or shared/data nearby; without one, only drawn
        scenes]
    groups
        drawn, validation, separated by commas. [default: both]
    features
        smooth, line, cosine, dips, laser, lamp, separated by commas. [default: all]
    trials
        Masks per group, each with its own scene. [default: 4]
    size
        Height and width of the scenes in pixels. [default: 128]
    noise
        Measurement noise: std on 2/C times the snapshot of C bands, so relative to the cube's range
        (white is 1).
    level
        Level of the interval.
    seed
        Random seed of scenes, masks, structures and noise.
    camera
        The camera, as in step=3,axis=height. [default: 28 bands, 2 px per band along the width]
    device
        auto, cpu, cuda or cuda:1.
    quick
        Only one structure of each kind in one trial of 64 pixels, to try the command.
    resume
        Resume the run in the folder.
    """
    from prismask.evaluation.run.spectra import spectra_test as run

    sizes = {"trials": trials, "size": size}
    given = {name: value for name, value in sizes.items() if value is not None}
    with _resumable(out), reporter() as bar:
        found = run(
            models,
            data,
            out,
            groups=words(groups),
            kinds=words(features),
            camera=None if camera is None else read_camera(camera),
            device=device,
            quick=quick,
            resume=resume,
            progress=bar("test of spectra"),
            noise=noise,
            level=level,
            seed=seed,
            **given,
        )
    say(found.markdown)
    remark(f"{out}: spectra.json, scores.csv, summary.csv, summary.md")
    for failure in found.failures[:5]:
        remark(f"failed: {failure}")
    return SOME_FAILED if found.failures else 0


def analyse(
    models: list[str],
    /,
    *,
    out: Path,
    protocol: ProtocolOptions = ProtocolOptions(),
    scenes: SceneOptions = SceneOptions(),
    masks: int = 5,
    samples: int = 8,
    seed: int = 0,
    precision: str = "auto",
    allow_overlap: bool = False,
    without_figures: bool = False,
    overwrite: bool = False,
) -> int:
    """Analyse models: spectra, spread over masks, coverage of error bars, learned noise.

    Parameters
    ----------
    models
        Weights files, run folders, new networks (srn) or solvers (gap-tv), with labels as in
        mine=weights.safetensors.
    out
        Folder for numbers (analysis.json), arrays (.npz) and figures.
    masks
        Masks per group for the spread; the paper uses 100.
    samples
        Masks that a network draws around the first one; the spread over samples needs at least 2.
    seed
        Random seed of masks, samples, noise and new networks.
    precision
        Of networks: auto, float32 or half.
    allow_overlap
        Also analyse models on masks or scenes they were trained on, and mark them.
    without_figures
        Draw no figures; the report draws them from the arrays anyway.
    overwrite
        Replace the analysis in the folder.
    """
    from prismask.evaluation.analyses.runner import analyse as run

    with reporter() as bar:
        record = run(
            models,
            out=out,
            masks=masks,
            samples=samples,
            seed=seed,
            precision=precision,
            allow_overlap=allow_overlap,
            figures=not without_figures,
            overwrite=overwrite,
            progress=bar("analysis"),
            **as_arguments(protocol, scenes),
        )
    say(str(out / "analysis.json"))
    remark(f"For a page about it: prismask report {out}")
    for failure in record["failures"]:
        remark(f"failed: {failure}")
    return SOME_FAILED if record["failures"] else 0


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say at an interruption that what is finished is kept."""
    from prismask.evaluation.run.runs import CELLS

    try:
        yield
    except KeyboardInterrupt:
        if (out / CELLS).exists():
            remark(f"Finished cells are kept in {out}: give the same command with --resume.")
        raise


def _run(
    run: Callable[..., Evaluation], models: list[str], out: Path, title: str, **options: Any
) -> int:
    """Run with progress, print the summary; 1 when a reconstruction failed."""
    with _resumable(out), reporter() as bar:
        found = run(models, out=out, progress=bar(title), **options)
    say(found.markdown)
    remark(f"{out}: run.json, scores.csv, summary.csv, summary.md")
    if found.ok:
        return 0
    for failure in found.summary.failures[:5]:
        remark(f"failed: {failure}")
    remark(f"{found.summary.failed} reconstructions failed; all others are in the tables.")
    return SOME_FAILED


# --- what was typed, as the library takes it ------------------------------------------------------


def as_arguments(*given: Shared) -> dict[str, Any]:
    """All fields by name as the library takes them: lists of names instead of commas."""
    found = {name: value for options in given for name, value in vars(options).items()}
    if found.get("camera") is not None:
        found["camera"] = read_camera(found["camera"])
    if found.get("size") is not None:
        found["size"] = read_size(found["size"])
    return found | {name: words(found[name]) for name in {"scenes", "groups"} & found.keys()}


def read_size(text: str) -> tuple[int, int]:
    """`192,224` → height and width; one number is both."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--size is {text!r}; give height and width, as in 192,224 or 256.")
    return int(parts[0]), int(parts[-1])


def read_camera(text: str) -> CameraDescription:
    """`step=3,axis=height` → what it says; a piece without a name goes on with the one before."""
    from prismask.checks import choose
    from prismask.optics.camera import CameraDescription

    known = [field.name for field in fields(CameraDescription)]
    parts: dict[str, str] = {}
    name = ""
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        first, equals, rest = (word.strip() for word in piece.partition("="))
        if not equals and not name:
            raise ConfigError(f"--camera is {text!r}; write it as in step=3,axis=height.")
        name = choose(first, known, "part of --camera") if equals else name
        parts[name] = rest if equals else f"{parts[name]},{piece}"
    return CameraDescription(**{name: _part(name, value) for name, value in parts.items()})


def read_faults(text: str | None) -> dict[str, Any]:
    """`shift=0.5,1,blur` → faults, and sizes for those that name some."""
    faults: list[str] = []
    sizes: dict[str, list[float]] = {}
    for piece in words(text) or ():
        name, equals, size = (part.strip() for part in piece.rpartition("="))
        goes_on = not equals and faults and faults[-1] in sizes
        try:
            number = float(size)
        except ValueError:
            if equals:
                raise ConfigError(
                    f"--faults {name} has the size {size!r}; write numbers, as in shift=0.5,1."
                ) from None
            faults.append(piece)
            continue
        if not (equals or goes_on):
            raise ConfigError(f"--faults names no fault for {piece}; write it as in shift=0.5,1.")
        if equals and name not in faults:
            faults.append(name)
        sizes.setdefault(name if equals else faults[-1], []).append(number)
    return {"faults": faults or None, "sizes": sizes}


def _part(name: str, text: str) -> Any:
    """One part of a camera: a word, a number, or several."""
    from prismask.apps.cli.camera_options import parse_numbers
    from prismask.checks import choose

    words_of = {"axis": ("width", "height"), "design": ("single", "dual")}
    if name in words_of:
        return choose(text, words_of[name], name)
    numbers = parse_numbers(text, f"--camera {name}")
    if name not in ("bands", "step"):
        return numbers
    if len(numbers) > 1 or (name == "bands" and numbers[0] % 1):
        raise ConfigError(f"--camera {name} is {text!r}; it is one number.")
    return int(numbers[0]) if name == "bands" else numbers[0]


def words(text: str | None) -> list[str] | None:
    """`a, b` → its parts; None of nothing."""
    return [word.strip() for word in (text or "").split(",") if word.strip()] or None


def report(
    folder: Path,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    title: str = "",
    figures: Path | None = None,
    truth_pictures: bool = True,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make an HTML page and Markdown tables of a folder's results.

    Parameters
    ----------
    folder
        The folder to search for evaluations, stress tests, tests of spectra, analyses and
        trainings.
    out
        The HTML file; its tables are written next to it as .md. [default: report.html in the
        folder]
    title
        Heading of the page.
    figures
        Folder for every figure as a PNG, linked from the Markdown. [default: none]
    truth_pictures
        Show pictures of the true scenes; leave them out before publishing a page about a data
        set that is not yours.
    overwrite
        Replace the page if it exists.
    """
    from prismask.evaluation.report.page import NAME, write_report
    from prismask.scenes.atomic import check_folder, refuse_existing, refuse_inputs

    page = folder / NAME if out is None else out
    refuse_existing(page, overwrite)
    check_folder(page.parent)
    # The tables of the page must not take the place of those of a run.
    refuse_inputs([page.with_suffix(".md")], folder.rglob("summary.md"))
    written = write_report(
        folder,
        out,
        truth_pictures=truth_pictures,
        figures=figures,
        title=title,
        overwrite=overwrite,
    )
    say(str(written.page))
    remark(f"tables: {written.tables}")
    for text in written.missing:
        remark(f"not on the page: {text}")


def join(folders: list[Path], /, *, out: Annotated[Path, Parameter(name=["--out", "-o"])]) -> None:
    """Combine separate evaluations in one table, with differences mask by mask.

    They must have used the same scenes, masks, camera, seed and noise, so that their models saw the
    same snapshots. Only their tables are needed, no weights, so they can come from another
    laboratory.

    Parameters
    ----------
    folders
        Two or more folders that `prismask evaluate` wrote.
    out
        Output folder for the joined tables and the record.
    """
    from prismask.evaluation.run.join import join as put_together

    say(put_together(folders, out))
    remark(f"{out}: run.json, scores.csv, summary.csv, summary.md")
