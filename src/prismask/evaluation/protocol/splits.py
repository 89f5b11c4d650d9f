"""Who is tested on what: the split of the data, and the scenarios that draw masks from it.

The split is that of the data folder, or one of your own as TOML. A split file says the same as
`splits.json` of the data folder, and may say more:

    wavelengths_nm = [453.3, 457.6, …]   # all scenes are brought there; left out: those of the
                                         # data folder, or of the first file

    [scenes]
    test = ["scene01", "lab/leaf.nc"]    # scenes of the data folder, or files

    [camera]                             # left out: 2 px per band along the width
    step_px = 2.0                        # or offsets_px = [0.0, 1.9, 3.7, …], one per band
    axis = "width"                       # or "height"
    design = "single"                    # or "dual"

    [masks.single]                       # the mask of one-to-one, exactly as large as it must be
    file = "masks/lab_256.mat"

    [masks.test_second_camera]           # a group of test masks; crops are drawn from these rows
    file = "masks/other.mat"             # and columns, first and one after the last
    rows = [0, 660]
    columns = [0, 660]

    [protocols]                          # left out: one-to-one takes `single`, the others take
    one-to-many = ["test_second_camera"] # every mask whose name begins with `test`

Files are looked for beside the split file, then in the data folder.

Three scenarios say which masks a trial draws, and which groups are kept apart:

    one-to-one     trained and tested on the single mask: one trial
    one-to-many    trained on the single mask, tested on crops of other regions
    many-to-many   trained on crops of the training region, tested on crops of other regions

A trial draws one mask and photographs all scenes through it. The masks of a group are drawn
without replacement with a seed and listed in the result, so anybody can use the same ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from prismask.checks import choose, nearest, size_text
from prismask.errors import ConfigError, DataMissingError, OverlapError, ShapeError
from prismask.evaluation.run.contenders import Contender
from prismask.optics.camera import CameraDescription
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.masks import MaskEntry, MaskRegion, MaskSet, check_disjoint
from prismask.optics.randomness import seed_of, seeded
from prismask.scenes import datasets
from prismask.scenes.records import Mask

PROTOCOLS = ("one-to-one", "one-to-many", "many-to-many")
SINGLE = "single"
"""The name of the one-mask setting's mask."""

_KEYS = {
    "": ("wavelengths_nm", "scenes", "camera", "masks", "protocols"),
    "scenes": ("train", "validation", "test"),
    "camera": ("step_px", "offsets_px", "axis", "design"),
    "mask": ("file", "rows", "columns"),
}


@dataclass(frozen=True)
class EvaluationSplit:
    """Test scenes, masks by name, and the camera."""

    folder: Path | None
    """The data folder; None when nothing comes from one."""
    beside: Path | None = None
    """The folder of the split file, where files are looked for first."""
    wavelengths: tuple[float, ...] | None = None
    """Wavelengths in nm to which scenes are brought."""
    scenes: tuple[str, ...] = ()
    """Names or files of the test scenes."""
    regions: Mapping[str, datasets.MaskRegion] = field(default_factory=dict)
    """The file of each mask, and which rows and columns of it."""
    protocols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of a protocol where they are not the default ones."""
    camera: Mapping[str, Any] = field(default_factory=dict)
    """Dispersion: step_px or offsets_px, axis, design."""

    def region(self, name: str) -> MaskRegion:
        """Load a mask region by name."""
        if name not in self.regions:
            raise ConfigError(
                f"the split has no masks {name!r}.{nearest(name, self.regions)} "
                f"Known: {', '.join(self.regions) or 'none'}."
            )
        listed = self.regions[name]
        folder = self.find(listed.file, "mask file")
        mask = datasets.load_mask_file(folder, listed.file)
        return MaskRegion.of(mask, listed.rows, listed.columns, Path(listed.file).stem)

    def find(self, file: str, what: str) -> Path:
        """The folder in which `file` is."""
        for folder in (self.beside, self.folder):
            if folder is not None and (folder / file).is_file():
                return folder
        folders = " nor in ".join(str(f) for f in (self.beside, self.folder) if f is not None)
        raise DataMissingError(f"the {what} {file} is not in {folders or 'any folder'}.")

    @property
    def described_camera(self) -> CameraDescription:
        """What the split says about the camera."""
        offsets, step = self.camera.get("offsets_px"), self.camera.get("step_px")
        return CameraDescription(
            step=None if step is None or offsets is not None else float(step),
            offsets=None if offsets is None else tuple(float(one) for one in offsets),
            axis=self.camera.get("axis"),
            design=self.camera.get("design"),
        )


def read_evaluation_split(
    data: str | Path | None = None, file: str | Path | None = None
) -> EvaluationSplit:
    """The split of the data folder, or the one a TOML file describes."""
    if file is None:
        folder = datasets.data_folder(data)
        found = datasets.read_split(folder)
        return EvaluationSplit(folder, None, found.wavelengths, found.test, found.masks)
    path = Path(file)
    if not path.is_file():
        raise DataMissingError(f"there is no split file {path}.")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    return _from_table(table, path, _folder_if_any(data))


def _folder_if_any(data: str | Path | None) -> Path | None:
    """A split file may name files only; a data folder that is given must be there."""
    try:
        return datasets.data_folder(data)
    except DataMissingError:
        if data is not None:
            raise
        return None


def _from_table(table: dict[str, Any], path: Path, folder: Path | None) -> EvaluationSplit:
    _check_keys(table, "", path)
    _check_keys(table.get("scenes", {}), "scenes", path)
    _check_keys(table.get("camera", {}), "camera", path)
    regions = {}
    for name, listed in table.get("masks", {}).items():
        _check_keys(listed, "mask", path)
        if "file" not in listed:
            raise ConfigError(f"{path}: masks.{name} has no file.")
        rows, columns = (_pair(listed.get(key), name, key, path) for key in ("rows", "columns"))
        regions[name] = datasets.MaskRegion(str(listed["file"]), rows, columns)
    protocols = {
        choose(name, PROTOCOLS, "protocol"): tuple(str(group) for group in groups)
        for name, groups in table.get("protocols", {}).items()
    }
    scenes = table.get("scenes", {}).get("test", ())
    if not scenes:
        raise ConfigError(f'{path} names no scenes: add [scenes] with test = ["scene01", …].')
    wavelengths = table.get("wavelengths_nm")
    return EvaluationSplit(
        folder,
        path.parent,
        None if wavelengths is None else tuple(float(w) for w in wavelengths),
        tuple(str(name) for name in scenes),
        regions,
        protocols,
        table.get("camera", {}),
    )


def _check_keys(table: Any, kind: str, path: Path) -> None:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {kind} must be a table, not {table!r}.")
    for key in table:
        if key not in _KEYS[kind]:
            where = f" in {kind}" if kind else ""
            raise ConfigError(
                f"{path}: unknown key {key!r}{where}.{nearest(key, _KEYS[kind])} "
                f"Known: {', '.join(_KEYS[kind])}."
            )


def _pair(value: Any, name: str, key: str, path: Path) -> tuple[int, int] | None:
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)):
        raise ConfigError(
            f"{path}: masks.{name}.{key} is {value!r}; give the first and the one after the last, "
            "as in [404, 660]."
        )
    return int(value[0]), int(value[1])


FABRICATED = "fabricated"
"""A group that every split has: masks of made-up instruments, of any size."""
GROUP_TEXTS = {
    SINGLE: "the single mask",
    "test_same_hardware": "same hardware, unseen region",
    "test_other_hardware": "other hardware",
    FABRICATED: "each of an instrument of its own",
}
"""What people call the groups of the built-in split."""


@dataclass(frozen=True, eq=False)
class Group:
    """Masks that belong together in every table."""

    name: str
    region: MaskRegion
    """Where the masks are cut from."""
    masks: MaskSet
    """One mask per trial."""
    other: MaskRegion | None = None
    """A second calibration of the one mask, where there is one."""

    def __len__(self) -> int:
        return len(self.masks)

    def mask(self, trial: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask of a trial, `(1, 1|C, H, W)`."""
        entry = self.masks.entries[trial]
        crop = self.region.crop(entry.row, entry.column, entry.height, entry.width)
        return crop.to_tensor(device)

    @property
    def text(self) -> str:
        """Name, meaning and origin in one line."""
        meaning = GROUP_TEXTS.get(self.name)
        named = f"{self.name} ({meaning})" if meaning else self.name
        return f"{named}: {self.region.name} {self.region.rectangle.text()}"


def group_names(
    protocol: str, split: EvaluationSplit, wanted: Sequence[str] | None, allow_overlap: bool
) -> tuple[list[str], list[str]]:
    """The groups that a protocol tests on, and remarks about groups that were left out."""
    choose(protocol, PROTOCOLS, "protocol")
    if wanted:
        return list(wanted), []
    if protocol in split.protocols:
        return list(split.protocols[protocol]), []
    if protocol == "one-to-one":
        return [SINGLE], []
    tests = [name for name in split.regions if name.startswith("test")]
    if not tests:
        raise ConfigError("the split has no masks to test on: name them test_… in [masks].")
    if protocol == "many-to-many" or allow_overlap or SINGLE not in split.regions:
        return tests, []
    return _without_the_single_mask(tests, split)


def _without_the_single_mask(
    tests: list[str], split: EvaluationSplit
) -> tuple[list[str], list[str]]:
    """In one-to-many the single mask was trained on: groups that share its pixels are left out."""
    single, kept, remarks = split.region(SINGLE), [], []
    for name in tests:
        try:
            check_disjoint(single, split.region(name))
            kept.append(name)
        except OverlapError as error:
            remarks.append(
                f"{name} was left out: every model of this scenario was trained on the single "
                f"mask, and {error}"
            )
    if not kept:
        raise OverlapError(
            "every group of test masks shares pixels with the single mask. Add masks of another "
            "instrument, or pass --allow-overlap to see the scores marked."
        )
    return kept, remarks


def draw_groups(
    regions: Mapping[str, MaskRegion | None],
    protocol: str,
    trials: int,
    size: tuple[int, int],
    seed: int,
) -> dict[str, Group]:
    """Draw the masks of every group: `trials` crops of `size`, or the single mask itself.

    A group without a region gets fabricated masks.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}; at least 1 is needed.")
    groups = {}
    for name, region in regions.items():
        count = 1 if protocol == "one-to-one" else trials
        if region is None:
            groups[name] = _fabricated(name, count, size, seed)
            continue
        if protocol == "one-to-one" and region.size != size:
            raise ShapeError(
                f"one-to-one tests on one mask, but {name} ({region.name}) is "
                f"{size_text(region.size)} where these scenes need {size_text(size)}. Give rows "
                "and columns that cut exactly one mask."
            )
        masks = MaskSet.draw(region, count, size, seed_of(seed, "masks", name), name)
        groups[name] = Group(name, region, masks)
    return groups


def _fabricated(name: str, count: int, size: tuple[int, int], seed: int) -> Group:
    """Masks below each other on one sheet; more trials leave the earlier masks as they are."""
    made = []
    for trial in range(count):
        generator = seeded(seed_of(seed, FABRICATED, trial))
        made.append(fabricate_mask(size, generator, random_aperture(generator)))
    sheet = MaskRegion.of(Mask(torch.cat(made).numpy()), name=name)
    crops = (sheet.crop(trial * size[0], 0, *size) for trial in range(count))
    return Group(name, sheet, MaskSet(name, tuple(MaskEntry.of(crop) for crop in crops), seed))


# --- whether a model has seen what it is tested on ------------------------------------------------
#
# Weights carry a record of the masks and scenes they were trained on. A test mask that shares a
# pixel of the same aperture with them, or a test scene of the same name, is refused; allowed by
# hand it is marked beside every score. One-to-one is the exception by definition: there the test
# mask *is* the training mask, and nothing else will do.


Verdict = Literal["", "same mask", "overlap", "unknown"]
"""How test and training masks relate, as tables write it; empty: they share nothing."""

VERDICT_TEXTS: dict[str, str] = {
    "same mask": "trained on this very mask, as one-to-one means",
    "overlap": "**has seen these masks or scenes in training**",
    "unknown": "it is not known which masks it was trained on",
}


def judge_all(
    contenders: Iterable[Contender],
    groups: Iterable[Group],
    scenes: Iterable[str],
    protocol: str,
    allow: bool = False,
) -> tuple[dict[tuple[str, str], Verdict], list[str]]:
    """A verdict for each (model, group), and remarks; raises `OverlapError` unless allowed."""
    groups, scenes = list(groups), list(scenes)
    verdicts: dict[tuple[str, str], Verdict] = {}
    remarks: list[str] = []
    for contender in contenders:
        shared_scenes = trained_scenes(contender, scenes)
        if chosen := trained_scenes(contender, scenes, "validation"):
            remarks.append(
                f"{contender.label}: its training was validated on {', '.join(chosen)}, and a "
                "self-tuned mask posterior learns from such scenes."
            )
        for group in groups:
            verdict, why = judge(contender, group, protocol)
            if shared_scenes:
                verdict, why = "overlap", f"it was trained on {', '.join(shared_scenes)}."
            if verdict == "overlap" and not allow:
                raise OverlapError(
                    f"{contender.label} on {group.name}: {why} A score there says little about "
                    "unseen cameras. Leave the group out with --groups, or pass --allow-overlap "
                    "to see the score marked."
                )
            if verdict == "overlap":
                remarks.append(f"{contender.label} on {group.name}: {why}")
            verdicts[contender.label, group.name] = verdict
    return verdicts, remarks


def judge(contender: Contender, group: Group, protocol: str) -> tuple[Verdict, str]:
    """How the group's masks relate to the contender's training masks, and the reason."""
    earlier = [record.get("masks") for record in contender.earlier_trainings]
    verdicts = [
        _judge_masks(facts, group, protocol) for facts in (contender.training_masks, *earlier)
    ]
    # What was seen in an earlier training stays seen: the gravest verdict counts.
    order: tuple[Verdict, ...] = ("overlap", "unknown", "same mask", "")
    return min(verdicts, key=lambda found: order.index(found[0]))


def _judge_masks(
    facts: Mapping[str, Any] | None, group: Group, protocol: str
) -> tuple[Verdict, str]:
    if facts is None:
        return "unknown", ""
    trained = training_entry(facts)
    if trained is None:
        return "", ""
    try:
        check_disjoint(trained, group.masks)
    except OverlapError as error:
        if protocol == "one-to-one" and _is_the_mask(trained, group):
            return "same mask", ""
        return "overlap", str(error)
    return "", ""


def training_entry(facts: Mapping[str, Any]) -> MaskEntry | None:
    """The region that training masks were cut from; None where they were fabricated."""
    if "source_hash" not in facts:
        return None
    (top, bottom), (left, right) = facts["rows"], facts["columns"]
    return MaskEntry(
        "", str(facts["source_hash"]), str(facts["name"]), top, left, bottom - top, right - left
    )


def trained_scenes(contender: Contender, scenes: Iterable[str], part: str = "train") -> list[str]:
    """Test scenes that the contender's record lists as scenes for training, or for validation."""
    seen: set[str] = set()
    for record in (contender.record, *contender.earlier_trainings):
        data = record.get("data", {})
        # Made-up scenes have names too, but every run makes its own.
        if data.get("source") != "synthetic":
            seen.update(data.get(part, ()))
    return sorted(seen & set(scenes))


def trained_on(contender: Contender) -> str:
    """Where its training masks came from, in words; those of the weights it began from too."""
    if contender.kind in ("untrained", "solver"):
        return "nothing"
    earlier = [_masks_in_words(record.get("masks")) for record in contender.earlier_trainings]
    latest, *before = dict.fromkeys([_masks_in_words(contender.training_masks), *earlier])
    return f"{latest}; before that {', '.join(before)}" if before else latest


def beyond_one_mask(contenders: Iterable[Contender], protocol: str) -> list[str]:
    """Remarks on those that one-to-one and one-to-many do not mean: they know many masks."""
    if protocol == "many-to-many":
        return []
    remarks = []
    for contender in contenders:
        earlier = [record.get("masks") for record in contender.earlier_trainings]
        known = (facts for facts in (contender.training_masks, *earlier) if facts)
        sources = {facts.get("source", "single") for facts in known}
        if sources - {"single", "none"}:
            remarks.append(
                f"{contender.label} knows more than one mask: it was trained on "
                f"{trained_on(contender)}. {protocol} means networks that know one."
            )
    return remarks


def _masks_in_words(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "unknown"
    trained = training_entry(facts)
    words = "fabricated masks" if trained is None else f"{trained.name} {trained.rectangle.text()}"
    share = float(facts.get("fabricated_share") or 0)
    if trained is not None and share:
        words += f" and fabricated masks ({share:.0%})"
    return f"{words}, varied" if facts.get("vary") else words


def _is_the_mask(trained: MaskEntry, group: Group) -> bool:
    return all(
        entry.source_hash == trained.source_hash and entry.rectangle == trained.rectangle
        for entry in group.masks.entries
    )
