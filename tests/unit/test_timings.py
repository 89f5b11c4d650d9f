"""Where the time goes: every second is booked once, on the innermost part."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from prismask import progress
from prismask.progress import measured, part


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until somebody moves it."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_parts_within_parts_have_their_own_time(clock: list[float]) -> None:
    with measured() as found:
        clock[0] += 1
        with part("checks"):
            clock[0] += 2
            with part("probe"):
                clock[0] += 4
            clock[0] += 8
        with suppress(ValueError), part("network"):
            clock[0] += 16
            raise ValueError
        with part("probe"):
            clock[0] += 32
    assert found.seconds == {"other": 1, "checks": 10, "probe": 36, "network": 16}
    assert found.total == found.as_dict()["total"] == 63
    lines = found.table().splitlines()
    assert [line.split()[0] for line in lines] == ["checks", "probe", "network", "other", "total"]
    assert lines[-1].split()[1:] == ["63.00", "s", "100", "%"]


def test_nothing_is_kept_where_nobody_measures() -> None:
    @part("checks")
    def work() -> float:
        return time.perf_counter()

    work()
    with measured() as found:
        work()
    work()
    assert list(found.seconds) == ["other", "checks"]
