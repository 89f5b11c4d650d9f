"""Where each band lands on the sensor: offsets in pixels from what people know of their prism."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prismask.errors import ConfigError
from prismask.optics.shear import Offsets
from prismask.scenes.defaults import BANDS, STEP


def offsets_from_step(bands: int = BANDS, step: float = STEP) -> Offsets:
    """Equal steps of `step` pixels per band; a negative step runs the other way."""
    if bands < 1:
        raise ConfigError(f"a camera needs at least one band, not {bands}.")
    return offsets_from_array([step * band for band in range(bands)])


def offsets_from_array(offsets: Sequence[float]) -> Offsets:
    """Any displacement per band in pixels; only differences matter, so the smallest becomes 0."""
    try:
        values = np.asarray(offsets, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ConfigError(
            f"band offsets must be a list of finite pixel numbers, one per band; got {offsets!r}."
        )
    # 1e-9 px is far below any calibration: it turns 0.1·10 style residue into whole pixels.
    return tuple(float(v) for v in np.round(values - values.min(), 9) + 0.0)


def offsets_from_polynomial(
    wavelengths_nm: Sequence[float], coefficients: Sequence[float]
) -> Offsets:
    """Offsets from a wavelength calibration `px(λ) = Σ_k coefficients[k] · λ_nmᵏ`.

    Coefficients start with the constant term, as `numpy.polynomial` orders them.
    """
    if len(coefficients) < 2:
        raise ConfigError("a calibration polynomial needs at least a constant and a slope.")
    positions = np.polynomial.Polynomial(np.asarray(coefficients, dtype=np.float64))(
        np.asarray(wavelengths_nm, dtype=np.float64)
    )
    return offsets_from_array([float(p) for p in positions])
