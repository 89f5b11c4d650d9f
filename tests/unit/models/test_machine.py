"""Devices: chosen by themselves, or insisted on and refused by name."""

from __future__ import annotations

import pytest
import torch

from prismask.errors import DeviceError
from prismask.models.machine import choose_device


def test_the_best_device_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", local_rank=1) == torch.device("cuda", 1)


def test_a_device_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda") == torch.device("cuda", 0)
    with pytest.raises(DeviceError, match="has 1 CUDA devices"):
        choose_device("cuda:1")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="'mps' is wanted"):
        choose_device("mps")
    with pytest.raises(DeviceError, match="'gpu' is no device"):
        choose_device("gpu")
    with pytest.raises(DeviceError, match="not supported"):
        choose_device("meta")
