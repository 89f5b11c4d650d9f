"""Predicted widths cover what they promise, scene by scene, on a toy whose truth is known."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import BANDS, CAMERA, bare_network, calibrated_network

from prismask.errors import ConfigError, WeightsError
from prismask.evaluation.figures.cubes import scene_coverage_figure
from prismask.inference.inspection import prepare
from prismask.inference.intervals.evidence import FACTS, VALUES, Evidence, missing_light
from prismask.inference.intervals.learn import (
    Fitted,
    LeftOut,
    Table,
    fit_learned,
    fit_record,
)
from prismask.inference.intervals.learned import (
    LEVELS,
    Factors,
    LearnedInterval,
    WidthHead,
    aim_of,
    coverage,
    rounded,
)
from prismask.inference.intervals.snapshots import LIGHTS, Plan, Rows, Studio, collect, folder_for
from prismask.inference.methods.registry import network_method
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import load_weights, save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

NAMES = VALUES
SCENES = 6


def toy_rows(seed: int, snapshots: int = 24, each: int = 1500, hidden: float = 0.3) -> list[Rows]:
    """Errors whose scale is known: it doubles with one feature, has its sign from another, and
    differs from scene to scene by a factor that no feature tells."""
    draw = np.random.default_rng(seed)
    of_scene = np.exp(hidden * draw.standard_normal(SCENES))
    made = []
    for number in range(snapshots):
        scene = number % SCENES
        features = draw.standard_normal((each, len(NAMES))).astype(np.float32)
        scale = 0.02 * of_scene[scene] * np.exp(0.7 * features[:, 3])
        sign = np.where(features[:, 8] > 0, 1.0, -0.3)
        error = (scale * sign * np.abs(draw.standard_t(5, each))).astype(np.float32)
        value = draw.uniform(0.2, 1, each).astype(np.float32)
        place = draw.uniform(0, 1, each).astype(np.float32)
        made.append(
            Rows(
                features, error, value, value + error, place, np.zeros(each, dtype=bool),
                f"scene{scene}", "smooth", "right", 0.0, float("nan"), False,
                (0.01, 1.0, 0.01, 0.1, 0.0, 0.0, 0.0), 0.05, 0.1,
            )
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit_learned(toy_rows(0), steps=400)


def test_the_level_holds_conditional_on_the_scene(fitted: Fitted) -> None:
    """New scenes from the same world: on average, and nearly for each of them."""
    inside = [_inside(fitted.interval, one) for one in toy_rows(1, snapshots=60)]
    assert 0.87 < np.mean(inside) < 0.96
    assert np.quantile(inside, 0.1) > 0.78


def test_widths_follow_what_predicts_the_error(fitted: Fitted) -> None:
    features = torch.zeros(len(NAMES), 4)
    features[3, 1], features[8, 2], features[8, 3] = 1.0, 1.5, -1.5
    above, below = fitted.interval.head.reach(features)
    place = LEVELS.index(0.9)
    assert 1.6 < float(above[place, 1] / above[place, 0]) < 2.8  # e^0.7 is 2.0
    assert float(above[place, 2]) > 4 * float(below[place, 2])
    assert float(below[place, 3]) > 2 * float(above[place, 3])
    assert (above.diff(dim=0) >= 0).all()
    assert (below.diff(dim=0) >= 0).all()
    few, _ = fitted.interval.head.reach(features, place + 1)
    torch.testing.assert_close(few, above[: place + 1], rtol=0, atol=0)


def test_scores_are_of_scenes_left_out(fitted: Fitted) -> None:
    scores = fitted.scores["0.9"]
    assert set(scores["scenes"]) == {f"scene{number}" for number in range(SCENES)}
    assert scores["summary"]["worst_tenth"] >= 0.78
    assert scores["summary"]["mean"] == pytest.approx(aim_of(0.9), abs=0.015)
    assert fitted.interval.about["left_out"] == fitted.scores
    # A scene with errors that nothing foretells is covered less, and that shows.
    rows = toy_rows(0)
    rows[3::SCENES] = [replace(one, error=6 * one.error) for one in rows[3::SCENES]]
    hard = fit_learned(rows, steps=200).scores["0.9"]
    assert hard["summary"]["worst_scene"] == hard["scenes"]["scene3"] < 0.8


def test_what_is_left_out_is_judged_by_the_others_alone() -> None:
    """A scene whose errors are ten times as large may widen others, not hold itself.

    A feature names it, so that a regressor that had seen it would know.
    """
    rows = toy_rows(0, hidden=0.0)
    for number, one in enumerate(rows):
        one.features[:, 12] = number % SCENES == 3
    rows[3::SCENES] = [replace(one, error=10 * one.error) for one in rows[3::SCENES]]
    found = fit_learned(rows, steps=200)
    scores = found.scores["0.9"]["scenes"]
    assert scores["scene3"] < 0.5
    assert min(share for name, share in scores.items() if name != "scene3") > 0.88
    held = np.mean([_inside(found.interval, one) for one in rows[3::SCENES]])
    assert held > scores["scene3"] + 0.2  # what is stored has seen it


def test_scenes_that_the_network_learned_from_teach_and_do_not_judge() -> None:
    """Their errors have the same shape and half the size; nobody is told that they are small."""
    small = [replace(one, error=0.5 * one.error, scene="t" + one.scene) for one in toy_rows(2)]
    found = fit_learned(toy_rows(0), seen=small, steps=300)
    assert set(found.scores["0.9"]["scenes"]) == {f"scene{number}" for number in range(SCENES)}
    assert found.interval.about["learned_from"] == SCENES
    alone = found.interval.about["left_out_of_fit_alone"]["0.9"]
    assert alone["mean"] > 0.97 > found.scores["0.9"]["summary"]["mean"]
    assert alone["worst_scene"] > found.scores["0.9"]["summary"]["worst_scene"]
    assert 0.87 < np.mean([_inside(found.interval, one) for one in toy_rows(1)]) < 0.96


def _inside(interval: LearnedInterval, one: Rows) -> float:
    """Share of a toy's errors inside its 90 % interval."""
    place, error = LEVELS.index(0.9), torch.from_numpy(one.error)
    above, below = interval.head.reach(torch.from_numpy(one.features).T)
    reach = interval.quantiles[0.9] * torch.where(error >= 0, above[place], below[place])
    return float((error.abs() <= reach).float().mean())


def test_coverage_counts_ends_as_inside() -> None:
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert coverage(truth, torch.zeros(4), torch.full((4,), 2.0)) == 0.75


def test_the_file_of_a_damaged_interval_is_named(tmp_path: Path) -> None:
    """An interval scaled by −1 once loaded, and still said that it was calibrated."""
    model = calibrated_network()
    turned = model.record["interval"]
    turned["learned"]["quantiles"]["0.9"] *= -1
    path = tmp_path / "turned.safetensors"
    save_weights(model, path, {**model.record, "interval": turned})
    shot = Measurement(np.ones((36, 48 + CAMERA.extent), np.float32))
    with pytest.raises(WeightsError, match=r"turned\.safetensors is damaged"):
        Reconstruction(Options(), load_weights(path)).run(shot, Mask(np.ones((36, 48))), CAMERA)


@pytest.mark.parametrize("harder", [1.0, 3.0])
def test_a_factor_holds_a_little_more_than_its_level_of_all_that_is_known(harder: float) -> None:
    """Also where one scene is much worse than the others: it counts as one of them."""
    rows = toy_rows(0, hidden=0.0)
    rows[3::SCENES] = [replace(one, error=harder * one.error) for one in rows[3::SCENES]]
    table = Table.of(rows)
    reach = np.full((2, len(LEVELS), len(table.error)), 0.02, dtype=np.float32)
    left_out = LeftOut.of(table, reach, np.arange(len(rows)) % SCENES)
    found = left_out.factors(np.ones(len(rows), dtype=bool))[""].quantiles
    for place, level in enumerate(LEVELS):
        held = (left_out.ratio[place] <= found[level]).mean()
        assert held == pytest.approx(aim_of(level), abs=1e-3)
        assert level < held < (1 + level) / 2


def test_the_record_is_plain_and_gives_the_same(fitted: Fitted) -> None:
    stored = json.loads(json.dumps(fitted.interval.to_record(), allow_nan=False))
    again = LearnedInterval.from_record(stored)
    features = torch.randn(len(NAMES), 50, generator=seeded(0))
    for before, after in zip(
        fitted.interval.head.reach(features), again.head.reach(features), strict=True
    ):
        torch.testing.assert_close(before, after, rtol=0, atol=0)
    assert again.quantiles == fitted.interval.quantiles
    assert again.to_record() == stored


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: r.update(version=2), "version 2"),
        (lambda r: r.pop("head"), "head"),
        (lambda r: r["head"]["layers"][0][0][0].__setitem__(0, 9.0), "not those that were fitted"),
        (lambda r: r["quantiles"].update({"0.9": -1.0}), "not above 0"),
        (lambda r: r["quantiles"].pop("0.5"), "levels are not those"),
        (lambda r: r["quantiles"].update({"0.9": float("nan")}), "not above 0"),
    ],
)
def test_a_damaged_record_is_refused(fitted: Fitted, change: Any, told: str) -> None:
    stored = copy.deepcopy(json.loads(json.dumps(fitted.interval.to_record())))
    change(stored)
    with pytest.raises(WeightsError, match=rf"mine\.safetensors is damaged.*{told}"):
        LearnedInterval.from_record(stored, "mine.safetensors")


def test_of_several_classes_the_widest_counts(fitted: Fitted) -> None:
    """Level by level, in whatever order the classes are found."""
    own = fitted.interval.quantiles
    few = {level: 2 * q if level < 0.85 else q for level, q in own.items()}
    many = {level: q if level < 0.85 else 3 * q for level, q in own.items()}
    known = replace(fitted.interval, classes={"one": Factors(few), "two": Factors(many)})
    widest = {level: max(few[level], many[level]) for level in own}
    for names in (["one", "two"], ["two", "one"]):
        assert known.for_classes(names).quantiles == widest
    assert known.for_classes(["one", "unknown"]).quantiles == few
    assert known.for_classes([]).quantiles == own


def test_levels_that_were_not_fitted(fitted: Fitted) -> None:
    with pytest.raises(ConfigError, match="there are 50 %, 80 %, 90 %, 95 %"):
        fitted.interval.place(0.85)


def test_one_scene_is_not_enough() -> None:
    with pytest.raises(ConfigError, match="two or more"):
        fit_learned([one for one in toy_rows(0) if one.scene == "scene0"], steps=1)


# --- evidence -----------------------------------------------------------------------------------


def evidence(scale: float = 1.0, camera: CASSI | None = None, seed: int = 0) -> Evidence:
    """A drawn scene and a blurred guess of it."""
    eye = camera or CASSI.from_step(BANDS)
    truth = torch.tensor(random_scene(seed, (40, 48), np.linspace(450.0, 650.0, BANDS)).values)
    turned = eye.axis == "height"
    truth = truth.mT.contiguous() if turned else truth
    mask = fabricate_mask((40, 48), seeded(seed))
    mask = (mask.T.contiguous() if turned else mask)[None, None]
    values = torch.nn.functional.avg_pool2d(truth[None], 5, 1, 2)[0]
    signal = eye.forward(truth[None], mask)[0]
    return Evidence(scale * values, scale * signal, mask, eye, 0.01 * scale, scale, None)


def test_a_brighter_exposure_changes_nothing() -> None:
    one, other = evidence(), evidence(7.0)
    for first, second in zip(one.features(), other.features(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=2e-3)
    assert one.facts == pytest.approx(other.facts, rel=1e-2, abs=1e-4)
    assert tuple(one.facts) == FACTS


def test_ends_lie_in_the_light_and_grow_with_the_level(fitted: Fitted) -> None:
    seen, interval = evidence(), fitted.interval
    far = replace(interval, quantiles=dict.fromkeys(LEVELS, 1e3))
    lower, upper = far.ends(seen, 0.9)
    assert (lower == 0).all(), "no light is negative"
    assert (upper > seen.values).all()
    seen = replace(seen, values=seen.values - 0.5)  # where the cube itself says so, it may be
    torch.testing.assert_close(far.ends(seen, 0.9)[0], seen.values.clamp_max(0))
    odd = replace(interval, quantiles={level: 1.0 - 0.9 * level for level in LEVELS})
    reaches = [torch.stack(odd.reach(evidence(), level)) for level in LEVELS]
    for less, more in pairwise(reaches):
        assert (more >= less).all(), "whatever the factors are"


def test_turned_by_ninety_degrees_it_is_the_same() -> None:
    one = evidence()
    other = evidence(camera=CASSI.from_step(BANDS, axis="height"))
    for first, second in zip(one.features(), other.features(), strict=True):
        assert first.shape[0] == len(VALUES)
        torch.testing.assert_close(first, second.mT, rtol=1e-3, atol=2e-3)


def test_missing_light_finds_the_band() -> None:
    """A line that a cube lacks, spread over a patch, is found in the residual in its band."""
    eye = CASSI.from_step(BANDS)
    lacking = torch.zeros(1, BANDS, 48, 64)
    lacking[:, 5, 10:38, 16:48] = 0.3
    mask = (torch.rand(1, 1, 48, 64, generator=seeded(1)) > 0.5).float()
    found = missing_light(eye.forward(lacking, mask), mask, eye)[0, :, 14:34, 22:42].mean((1, 2))
    assert int(found.argmax()) == 5
    assert float(found[5]) > 0.15
    assert float(found[5]) > 3 * float(found[[0, 1, 2, 7]].abs().max())


# --- from snapshots to weights --------------------------------------------------------------------


@pytest.fixture(scope="module")
def studio() -> Studio:
    at = tuple(np.linspace(450.0, 650.0, BANDS))
    scenes = {f"drawn{seed}": random_scene(seed, (80, 96), at) for seed in range(3)}
    return Studio(Plan(rows=64, columns=64, other=0.0), scenes, CAMERA, [])


def test_snapshots_are_drawn_by_their_number(studio: Studio) -> None:
    one, again = studio.shoot(4), studio.shoot(4)
    torch.testing.assert_close(one.signal, again.signal, rtol=0, atol=0)
    assert one.scene == list(studio.scenes)[4 % 3]
    shots = [studio.shoot(number) for number in range(3 * len(LIGHTS))]
    assert {shot.light for shot in shots} == set(LIGHTS)
    assert {"right", "noise", "wrong masks", "structured spectra"} == {s.condition for s in shots}
    assert all(shot.planted.any() for shot in shots if shot.light in ("line", "laser"))


def test_noise_is_counted_as_in_training(studio: Studio) -> None:
    """Relative to the cube's range: a snapshot is the sum of its bands, scaled by 2 / C."""
    noisy = [shot for shot in map(studio.shoot, range(30)) if shot.noise_std and not shot.fault]
    assert noisy
    for shot in noisy:
        left = shot.signal - CAMERA.forward(shot.truth[None], shot.mask)[0]
        assert float(left.std()) == pytest.approx(shot.noise_std * BANDS / 2, rel=0.06)


def test_a_fit_goes_on_where_it_stopped(studio: Studio, tmp_path: Any) -> None:
    method = network_method(bare_network(), torch.device("cpu"), Options(precision="float32"))
    folder = folder_for(tmp_path, method, studio)
    first = collect(method, studio, 2, folder)
    (folder / "00001.npz").write_bytes(b"half written")
    times = (folder / "00000.npz").stat().st_mtime_ns
    again = collect(method, studio, 3, folder)
    assert (folder / "00000.npz").stat().st_mtime_ns == times
    np.testing.assert_array_equal(again[1].features, first[1].features)
    assert len(again) == 3
    # Time that is up ends it once every scene was there twice, and not before.
    assert len(collect(method, studio, 12, folder, seconds=0)) == 6
    other = replace(studio, plan=replace(studio.plan, seed=1))
    assert folder_for(tmp_path, method, other) != folder


@pytest.fixture(scope="module")
def network(studio: Studio, tmp_path_factory: pytest.TempPathFactory) -> Reconstructor:
    model = bare_network()
    method = network_method(model, torch.device("cpu"), Options(precision="float32"))
    rows = collect(method, studio, 9, tmp_path_factory.mktemp("rows"))
    model.record["interval"], _, _ = fit_record(rows, studio, steps=150)
    return model


def test_a_network_from_the_snapshot_behind_other_cameras_too(
    studio: Studio, tmp_path: Path
) -> None:
    """One that is told noise and mask errors, and serves any band count."""
    model = create_model(
        "lumen", bands=BANDS, mask_posterior="none", seed=0, width=8, stages=2, cosines=8
    ).eval()
    model.record |= {"name": "tiny", "step_px": 2.0}
    method = network_method(model, torch.device("cpu"), Options(precision="float32"))
    mixed = replace(studio, plan=replace(studio.plan, other=0.5), others=[CASSI.from_step(6, 3.0)])
    rows = collect(method, mixed, 6, tmp_path)
    assert {one.other_camera for one in rows} == {True, False}
    record, _, _ = fit_record(rows, mixed, steps=20)
    model.record["interval"] = record
    shot = next(s for s in map(mixed.shoot, range(20)) if s.is_other)
    (snapshot,) = prepare(shot.signal[None], shot.mask, shot.camera).snapshots()
    made = method(snapshot, Options(precision="float32"))
    assert made.upper is not None
    assert made.upper.shape == shot.truth.shape


def test_the_figure_of_a_fit(fitted: Fitted) -> None:
    assert scene_coverage_figure(fitted.scores["0.9"]).startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_cubes_have_ends_and_a_verdict(network: Reconstructor, studio: Studio) -> None:
    shot = studio.shoot(40)
    ready = Reconstruction(Options(precision="float32", check_mask=False), network)
    cube = ready.run(Measurement(shot.signal.numpy()), Mask(shot.mask[0, 0].numpy()), CAMERA)
    assert cube.lower is not None
    assert cube.upper is not None
    assert (cube.lower <= cube.values).all()
    assert (cube.values <= cube.upper).all()
    assert cube.attrs["interval"].startswith("90 %, calibrated on 9 snapshots of 3 scenes")
    assert cube.attrs["trust_grade"] in ("good", "doubtful", "poor")
    assert 0 < cube.attrs["trust"] <= 1
    assert cube.attrs["trust_because"].endswith(".")
    wide = Reconstruction(Options(precision="float32", check_mask=False, level=0.95), network)
    wider = wide.run(Measurement(shot.signal.numpy()), Mask(shot.mask[0, 0].numpy()), CAMERA)
    assert wider.upper is not None
    assert (wider.upper >= cube.upper - 1e-6).all()


def test_ends_are_rounded_outwards_by_a_thousandth_of_their_reach() -> None:
    values = torch.randn(10_000, generator=seeded(0))
    reach = torch.logspace(-4, 3, 10_000)
    for sign in (1, -1):
        exact = values + sign * reach
        made = rounded(exact, values)
        assert (sign * (made - exact) >= 0).all()
        # Beside a value of one, a reach of 1e-4 is known to 1e-3 of itself by float32 alone.
        assert (sign * (made - exact) <= 1.01e-3 * reach + 2e-7).all()
    torch.testing.assert_close(rounded(values, values), values, rtol=0, atol=0)
    assert (rounded(torch.zeros(5), torch.rand(5)) == 0).all(), "no light is negative"


@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
def test_an_end_takes_two_thirds_of_the_cubes_space(
    network: Reconstructor, studio: Studio, tmp_path: Path
) -> None:
    """Its digits that mean nothing are gone; those of the cube stay."""
    shot = studio.shoot(40)
    ready = Reconstruction(Options(precision="float32", check_mask=False), network)
    cube = ready.run(Measurement(shot.signal.numpy()), Mask(shot.mask[0, 0].numpy()), CAMERA)
    assert cube.upper is not None
    tiled = [np.tile(one, (1, 8, 8)) for one in (cube.values, cube.upper)]
    for name, values in zip(("cube", "upper"), tiled, strict=True):
        save(Cube(values), tmp_path / f"{name}.nc")
    sizes = [(tmp_path / f"{name}.nc").stat().st_size for name in ("cube", "upper")]
    assert sizes[1] < 2 / 3 * sizes[0]


def test_the_same_numbers_as_when_it_was_fitted(network: Reconstructor, studio: Studio) -> None:
    """What `calibrate` looks at is what `reconstruct` gives."""
    method = network_method(network, torch.device("cpu"), Options(precision="float32"))
    shot = studio.shoot(3)
    (snapshot,) = prepare(shot.signal[None], shot.mask, shot.camera).snapshots()
    fit_time = method.evidence(snapshot, probed=False)
    made = method(snapshot, Options(precision="float32", check_mask=False))
    np.testing.assert_array_equal(fit_time.values.numpy(), made.values)
    interval = method.interval()
    assert interval is not None
    assert isinstance(interval.head, WidthHead)
    np.testing.assert_array_equal(interval.ends(fit_time, 0.9)[1].numpy(), made.upper)
