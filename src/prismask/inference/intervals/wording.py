"""Which classes of snapshots one belongs to, and what the findings say about its interval."""

from __future__ import annotations

from prismask.checks import two_digits
from prismask.inference.alignment.probe import Probe
from prismask.inference.camera_match.bands import BandAdapter
from prismask.inference.findings import Finding
from prismask.inference.intervals.learned import LearnedInterval
from prismask.inference.intervals.model import INCONSISTENT_MASKS, OTHER_CAMERAS, Interval
from prismask.inference.options import Options


def classes_of(adapter: BandAdapter, probe: Probe | None) -> list[str]:
    """The classes whose quantiles an interval is to have."""
    other = [OTHER_CAMERAS] if adapter.is_other_camera else []
    inconsistent = [INCONSISTENT_MASKS] if probe is not None and probe.is_inconsistent else []
    return other + inconsistent


Fitted = Interval | LearnedInterval


def calibration_words(adapter: BandAdapter, interval: Fitted, probe: Probe | None) -> str:
    """What an interval was fitted on, and what that has to do with this snapshot."""
    own = f"{interval.about.get('scenes')} scenes"
    if isinstance(interval, LearnedInterval):
        return _learned_words(adapter, interval, probe)
    if probe is not None and probe.is_inconsistent:
        about = interval.classes[INCONSISTENT_MASKS].about
        return f"{about.get('scenes')} scenes whose masks were not as calibrated"
    if not adapter.is_other_camera:
        return own
    if OTHER_CAMERAS not in interval.classes:
        return f"{own} behind the training's camera, not this one"
    about = interval.classes[OTHER_CAMERAS].about
    text = f"{about.get('scenes')} scenes behind {about.get('cameras')} other cameras"
    return text if adapter.is_within_reach else f"{text}, none with such a dispersion mismatch"


def _learned_words(adapter: BandAdapter, interval: LearnedInterval, probe: Probe | None) -> str:
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


def interval_findings(adapter: BandAdapter, interval: Fitted | None) -> list[Finding]:
    """A remark where the interval was not made for the camera."""
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
