"""Which classes of snapshots one belongs to, and what the findings say about its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismask.checks import two_digits
from prismask.inference.alignment.probe import Probe
from prismask.inference.camera_match import BandAdapter
from prismask.inference.findings import Finding
from prismask.inference.intervals.learned import (
    INCONSISTENT_MASKS,
    OTHER_CAMERAS,
    LearnedInterval,
)
from prismask.inference.options import Options


def classes_of(adapter: BandAdapter, probe: Probe | None) -> list[str]:
    """The classes whose quantiles an interval is to have."""
    other = [OTHER_CAMERAS] if adapter.is_other_camera else []
    inconsistent = [INCONSISTENT_MASKS] if probe is not None and probe.is_inconsistent else []
    return other + inconsistent


def calibration_words(adapter: BandAdapter, interval: LearnedInterval, probe: Probe | None) -> str:
    """What an interval was fitted on, and what that has to do with this snapshot."""
    about = interval.about
    text = f"{about.get('snapshots')} snapshots of {about.get('scenes')} scenes"
    if probe is not None and probe.is_inconsistent:
        return f"{text}, among them masks that were not as calibrated"
    if not adapter.is_other_camera:
        return text
    if OTHER_CAMERAS not in interval.classes:
        return f"{text} behind the training's camera, not this one"
    text = f"{text}, among them {about.get('cameras')} other cameras"
    return text if adapter.is_within_reach else f"{text}, none with such a dispersion mismatch"


def interval_findings(
    adapter: BandAdapter, interval: LearnedInterval | None, stored: Mapping[str, Any] | None
) -> list[Finding]:
    """A remark where the interval was not made for the camera, or is of a kind that is no more."""
    if interval is None and stored:
        text = (
            "there are no error bars: the interval stored with the weights is of an older kind, "
            "which held too little. `prismask calibrate` fits a new one."
        )
        return [Finding("note", text)]
    if interval is None or OTHER_CAMERAS in interval.classes or not adapter.is_other_camera:
        return []
    text = (
        "the interval was fitted behind the camera of the network's training, which is not this "
        "one: expect it to be too narrow. `prismask calibrate` fits it for others."
    )
    return [Finding("note", text)]


def probe_findings(probe: Probe | None, options: Options) -> list[Finding]:
    """What to do about a mask that its snapshot contradicts."""
    if probe is None or not probe.is_inconsistent:
        return []
    advice = "--align finds its pose."
    if options.pose is not None:
        advice = "The pose that was given may hold no longer: give --align instead of --pose."
    elif options.align:
        advice = "--align has found no pose that explains clearly more."
    text = (
        "the snapshot contradicts its mask: with one that lies a fraction of a pixel elsewhere, is "
        "out of focus or behind another dispersion, "
        f"{two_digits(100 * probe.gain)} % less of it would stay unexplained. The cube may be "
        f"worse than it need be, and its error bars are made wider. {advice}"
    )
    return [Finding("warning", text)]
