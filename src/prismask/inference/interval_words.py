"""What people are told about the interval of their cube: fitted on what, behind which cameras."""

from __future__ import annotations

from prismask.inference.bands import BandAdapter
from prismask.inference.checks import Finding
from prismask.inference.intervals import Interval


def calibration_words(adapter: BandAdapter, interval: Interval) -> str:
    """What an interval was fitted on, and what that has to do with the camera of `adapter`."""
    own = f"{interval.about.get('scenes')} scenes"
    if not adapter.is_another:
        return own
    if not interval.knows_other_cameras:
        return f"{own} behind the training's camera, not this one"
    about = interval.other_about
    text = f"{about.get('scenes')} scenes behind {about.get('cameras')} other cameras"
    return text if adapter.is_within_reach else f"{text}, none as strange as this one"


def interval_findings(adapter: BandAdapter, interval: Interval | None) -> list[Finding]:
    """A remark where the interval was not made for the camera."""
    if interval is None or interval.knows_other_cameras or not adapter.is_another:
        return []
    text = (
        "the interval was fitted behind the camera of the network's training, which is not this "
        "one: expect it to be too narrow. `prismask calibrate --only-cameras` fits it for others."
    )
    return [Finding("note", text)]
