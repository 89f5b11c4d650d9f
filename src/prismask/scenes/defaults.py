"""The one place where the field's habitual numbers appear.

Everything in Prismask takes any band count, size and dispersion; these are what is assumed when
nothing else is said. They describe the TSA-Net camera (Meng, Ma & Yuan, 2020), on which most
published results stand.
"""

from __future__ import annotations

BANDS = 28
"""Spectral bands of a cube."""

STEP = 2.0
"""Dispersion between neighbouring bands, in sensor pixels."""

SIZE = 256
"""Height and width of a simulated scene or mask crop."""

WAVELENGTHS_NM: tuple[float, ...] = (
    453.3, 457.6, 462.1, 466.8, 471.6, 476.5, 481.6, 486.9, 492.4, 498.0, 503.9, 509.9, 516.2,
    522.7, 529.5, 536.5, 543.8, 551.4, 558.6, 567.5, 575.3, 584.3, 594.4, 604.2, 614.4, 625.1,
    636.3, 648.1,
)  # fmt: skip
"""Centre wavelengths of the 28 bands in nanometres."""
