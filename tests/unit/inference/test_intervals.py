"""Intervals cover what they promise, on a toy whose truth is known."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from calibrated_network import CAMERA, SIZE, calibrated_network
from torch import Tensor

from prismask.errors import ConfigError, ValuesError, WeightsError
from prismask.inference.intervals.fit import coverage_left_out, fit_interval
from prismask.inference.intervals.model import (
    INCONSISTENT_MASKS,
    LEVELS,
    OTHER_CAMERAS,
    Interval,
    Size,
    band_features,
    coverage,
    residual_planes,
)
from prismask.inference.reconstruct import reconstruct
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

BANDS = 3


def toy(
    seed: int, scenes: int = 8, each: int = 20_000
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Errors whose scale is known: 0.2 · brightness^0.5 · residual, doubled in the last band."""
    draw = np.random.default_rng(seed)
    count = scenes * each
    features = {
        name: torch.tensor(draw.uniform(0.01, 1, count), dtype=torch.float32)
        for name in ("brightness", "gradient", "residual")
    }
    band = torch.tensor(draw.integers(0, BANDS, count))
    scale = 0.2 * (features["brightness"] + 1e-3) ** 0.5 * (features["residual"] + 1e-3)
    scale = scale * torch.where(band == BANDS - 1, 2.0, 1.0)
    errors = scale * torch.tensor(draw.standard_t(5, count), dtype=torch.float32)
    return errors, features, band, torch.arange(scenes).repeat_interleave(each)


def test_coverage_and_scale_on_a_toy() -> None:
    interval = fit_interval(*toy(0), BANDS)
    assert interval.exponents["brightness"] == pytest.approx(0.5, abs=0.15)
    assert interval.exponents["residual"] == pytest.approx(1.0, abs=0.25)
    assert abs(interval.exponents["gradient"]) < 0.05
    errors, features, band, _ = toy(1)
    for level in LEVELS:
        inside = torch.zeros_like(errors, dtype=torch.bool)
        for one in range(BANDS):
            here = band == one
            part = {name: values[here] for name, values in features.items()}
            inside[here] = errors[here].abs() <= interval.half_width(part, one, level)
            # Not only on average: every band by itself.
            assert float(inside[here].float().mean()) == pytest.approx(level, abs=0.02)
        assert float(inside.float().mean()) == pytest.approx(level, abs=0.01)
        bright = features["residual"] > 0.8
        assert float(inside[bright].float().mean()) == pytest.approx(level, abs=0.05)


def test_left_out_scenes_are_reported() -> None:
    errors, features, band, scene = toy(0)
    easy = fit_interval(errors, features, band, scene, BANDS)
    low, mean, high = easy.about["coverage_90_left_out"]
    assert low > 0.88
    assert high < 0.92
    # A scene with larger errors than its features tell is covered less: that must show.
    hard = torch.where(scene == 3, 3 * errors, errors)
    low, mean, high = fit_interval(hard, features, band, scene, BANDS).about["coverage_90_left_out"]
    assert low < 0.8
    assert low < mean < high


def test_record_round_trip() -> None:
    interval = fit_interval(*toy(0, each=500), BANDS)
    again = Interval.from_record(interval.to_record(), BANDS)
    assert again == interval
    with pytest.raises(ConfigError, match="there are 50 %, 80 %, 90 %, 95 %"):
        again.quantile(0.42)


def with_classes() -> Interval:
    """One whose two classes have 1.5 times the quantiles; at 95 % one of them has twice."""
    interval = fit_interval(*toy(0, each=500), BANDS)
    wider = {level: 1.5 * q for level, q in interval.quantiles.items()}
    widest = wider | {0.95: 2 * interval.quantiles[0.95]}
    sizes = {OTHER_CAMERAS: Size(wider, {"cameras": 4}), INCONSISTENT_MASKS: Size(widest)}
    return replace(interval, classes=sizes)


def test_what_is_left_out_is_judged_by_the_others_alone() -> None:
    """One scene with errors ten times as large: its own quantile would cover it."""
    member = torch.arange(4).repeat_interleave(1000)
    ratio = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    ratio = torch.where(member == 3, 10 + ratio, ratio)
    low, mean, high = coverage_left_out(ratio, member, 0.9)
    assert low == 0
    assert high == 1  # the others are judged with that scene among them
    assert mean == pytest.approx(3 / 4, abs=0.02)
    assert coverage_left_out(ratio[:1000], member[:1000], 0.9) == []


def test_record_round_trip_with_classes() -> None:
    interval = with_classes()
    again = Interval.from_record(interval.to_record(), BANDS)
    assert again == interval
    assert again.for_classes([]).quantiles == interval.quantiles
    other = again.for_classes([OTHER_CAMERAS])
    assert other.quantile(0.9) == pytest.approx(1.5 * interval.quantile(0.9))
    features = {name: torch.ones(1) for name in interval.exponents}
    wider = other.half_width(features, 0, 0.9) / interval.half_width(features, 0, 0.9)
    assert float(wider) == pytest.approx(1.5)


def test_of_several_classes_the_widest_counts() -> None:
    interval = with_classes()
    for names in ([OTHER_CAMERAS, INCONSISTENT_MASKS], [INCONSISTENT_MASKS, OTHER_CAMERAS]):
        both = interval.for_classes(names)
        assert both.quantile(0.9) == pytest.approx(1.5 * interval.quantile(0.9))
        assert both.quantile(0.95) == pytest.approx(2 * interval.quantile(0.95))


def test_weights_of_before_know_no_classes() -> None:
    interval = fit_interval(*toy(0, each=500), BANDS)
    record = interval.to_record()
    assert "classes" not in record
    again = Interval.from_record(record, BANDS)
    assert again.classes == {}
    assert again.for_classes([OTHER_CAMERAS, INCONSISTENT_MASKS]) == interval


@pytest.mark.parametrize(
    "other",
    [None, [1.0], {"often": 1.0}, {"0.9": "wide"}, {"0.9": 3.0}, {"0.5": 1.0, "0.42": 3.0}],
)
def test_damaged_quantiles_of_a_class_are_refused(other: object) -> None:
    damaged = {"classes": {OTHER_CAMERAS: {"quantiles": other, "about": {}}}}
    record = with_classes().to_record() | damaged
    with pytest.raises(WeightsError, match="interval stored with the weights is damaged"):
        Interval.from_record(record, BANDS)


@pytest.mark.parametrize("classes", [None, [1.0], {OTHER_CAMERAS: None}, {OTHER_CAMERAS: {}}])
def test_damaged_classes_are_refused(classes: object) -> None:
    record = with_classes().to_record() | {"classes": classes}
    with pytest.raises(WeightsError, match="interval stored with the weights is damaged"):
        Interval.from_record(record, BANDS)


@pytest.mark.parametrize(
    "change",
    [
        {"bands": None},
        {"bands": [1.0]},
        {"exponents": {"humidity": 1.0}},
        {"quantiles": {"often": 1.0}},
    ],
)
def test_damaged_records_are_refused(change: dict[str, object]) -> None:
    record = fit_interval(*toy(0, each=500), BANDS).to_record() | change
    with pytest.raises(WeightsError, match="interval stored with the weights"):
        Interval.from_record(record, BANDS)


@pytest.mark.parametrize("quantiles", [
    {0.9: -1.0}, {0.9: float("nan")}, {0.9: float("inf")}, {0.5: 2.0, 0.9: 1.0}, {1.0: 1.0},
    {-0.1: 1.0},
])  # fmt: skip
def test_ends_on_the_wrong_side_are_refused(quantiles: dict[float, float]) -> None:
    """Wherever an interval is made, and where it is read."""
    with pytest.raises(ValuesError, match="times its scale"):
        Size(quantiles)
    with pytest.raises(ValuesError, match="times its scale"):
        Interval((0.0,), {}, quantiles)
    good = Interval((0.0,), {"residual": 1.0}, dict.fromkeys(quantiles, 1.0) if 0.9 in quantiles
                    else {0.9: 1.0}).to_record()  # fmt: skip
    named = {str(level): q for level, q in quantiles.items()}
    for record in (good | {"quantiles": named},
                   good | {"classes": {OTHER_CAMERAS: {"quantiles": named}}}):  # fmt: skip
        with pytest.raises(WeightsError, match=r"stored with mine\.safetensors is damaged"):
            Interval.from_record(record, 1, "mine.safetensors")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(number: float) -> None:
    good = Interval((0.0,), {"residual": -0.1}, {0.9: 1.0})  # an exponent may be negative
    for change in ({"bands": [number]}, {"exponents": {"residual": number}}):
        with pytest.raises(WeightsError, match="no finite number"):
            Interval.from_record(good.to_record() | change, 1)


def test_the_file_of_a_damaged_interval_is_named(tmp_path: Path) -> None:
    """An interval scaled by −1 once loaded, and still said that it was calibrated."""
    model = calibrated_network()
    turned = copy.deepcopy(model.record["interval"])
    for level in turned["single"]["quantiles"]:
        turned["single"]["quantiles"][level] *= -1
    path = tmp_path / "turned.safetensors"
    save_weights(model, path, {**model.record, "interval": turned})
    mask = Mask(fabricate_mask(SIZE, seeded(0)).numpy())
    shot = simulate(random_scene(0, SIZE, np.linspace(450.0, 650.0, model.bands)), mask, CAMERA)
    with pytest.raises(WeightsError, match=r"turned\.safetensors is damaged"):
        reconstruct(shot, mask, model=path)


def test_a_missing_feature_is_told() -> None:
    interval = fit_interval(*toy(0, each=500), BANDS)
    with pytest.raises(ConfigError, match="residual"):
        interval.half_width({"brightness": torch.ones(2), "gradient": torch.ones(2)}, 0, 0.9)


def test_what_cannot_work_is_known_before_an_estimate() -> None:
    fitted = fit_interval(*toy(0, each=500), BANDS)
    exponents = {**fitted.exponents, "disagreement": 0.2}
    interval = Interval(fitted.bands, exponents, fitted.quantiles)
    interval.check(0.9, {"disagreement"})
    with pytest.raises(ConfigError, match="there are 50 %, 80 %, 90 %, 95 %"):
        interval.check(0.85, {"disagreement"})
    with pytest.raises(ConfigError, match=r"mirror ensemble .* or calibrate again"):
        interval.check(0.9, {"std"})


def test_one_scene_is_not_enough() -> None:
    errors, features, band, scene = toy(0, scenes=1, each=100)
    with pytest.raises(ConfigError, match="at least two"):
        fit_interval(errors, features, band, scene, BANDS)


def test_features_of_a_ramp() -> None:
    ramp = torch.arange(12.0)[None].expand(10, 12) / 10
    features = band_features(ramp, -torch.ones(10, 12))
    assert torch.allclose(features["brightness"][5, 3:9], ramp[5, 3:9], atol=1e-6)
    assert torch.allclose(features["gradient"][5, 3:8], torch.tensor(0.1), atol=1e-6)
    assert torch.allclose(features["residual"], torch.tensor(1.0))
    assert "std" not in features


def test_residuals_lie_where_the_bands_look() -> None:
    camera = CASSI.from_step(BANDS)
    residual = torch.zeros(6, 9 + camera.extent)
    residual[:, 4] = 2.0
    planes = residual_planes(residual, torch.full_like(residual, 0.5), camera)
    assert planes.shape == (BANDS, 6, 9)
    for band in range(BANDS):
        assert float(planes[band, 0, 4 - 2 * band]) == 4.0
    dark = residual_planes(residual, torch.zeros_like(residual), camera)
    assert float(dark.max()) == pytest.approx(20.0)


def test_coverage_counts_ends_as_inside() -> None:
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert coverage(truth, torch.zeros(4), torch.full((4,), 2.0)) == 0.75
