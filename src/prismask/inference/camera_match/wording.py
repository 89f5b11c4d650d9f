"""What people are told about the way a snapshot is shown to a network."""

from __future__ import annotations

from prismask.inference.camera_match.bands import NOTICEABLE, BandAdapter
from prismask.inference.checks import Finding


def scale_findings(gain: float) -> list[Finding]:
    """A remark where the snapshot is made brighter or darker for the network."""
    if gain == 1.0:
        return []
    text = (
        f"the snapshot is multiplied by {gain:.3g} for the network, which was trained on scenes of "
        "that brightness; the cube is divided by it again."
    )
    return [Finding("note", text)]


def _steps(adapter: BandAdapter) -> str:
    """The pixels a band that a network knows: "2", "1.2 to 2.2", or "2 and 2.4 to 3"."""
    step, (low, high) = abs(adapter.trained_step or 0), adapter.variation.spread
    known = " to ".join(f"{step * factor:.3g}" for factor in sorted({low, high}))
    return known if low <= 1 <= high else f"{step:.3g} and {known}"


def band_findings(adapter: BandAdapter) -> list[Finding]:
    """Remarks where the network sees another camera than the one that took the snapshot."""
    found = []
    if adapter.is_needed:
        differs = (
            f"the network has {adapter.shown.bands} bands and the camera {adapter.camera.bands}"
            if adapter.shown.bands != adapter.camera.bands
            else "the camera's bands are not spread as they were in the network's training"
        )
        text = (
            f"{differs}: the network sees a virtual camera over the same pixels, and its bands "
            "are interpolated back."
        )
        found.append(Finding("note", text))
    if adapter.stretch < 1:
        text = (
            f"the network reads the frame with pixels {1 / adapter.stretch:.2f} times as long "
            "along the dispersion, so that bands lie as close as it has learned: finer detail is "
            "lost that way round."
        )
        found.append(Finding("note", text))
    if adapter.strangeness > NOTICEABLE:
        off = f"this camera is {adapter.strangeness:.2g} times off that"
        if adapter.strangeness == adapter.apart:
            off = f"bands of this camera lie {adapter.apart:.2g} times further apart"
        text = (
            f"the network was trained at {_steps(adapter)} px a band, and {off}: expect a worse "
            "cube than published, and compare with --method gap-tv."
        )
        found.append(Finding("warning", text))
    return found
