"""Progress of long work: the library calls, only `apps` draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Progress = Callable[[int, int, Mapping[str, Any]], None]
"""`progress(done, total, info)` after each step, counted from 1.

info: whatever the work can tell, such as `stage` (what people read instead of the title), `model`
or `residual`.
"""
