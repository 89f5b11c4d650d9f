"""Training behind masks that are not what they are told to be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_training import tiny_config

from prismask.errors import ConfigError
from prismask.optics.varied_prism import VariedCamera
from prismask.training.data.batches import Batch, BatchMaker
from prismask.training.run import _batches, train
from prismask.training.setup import prepare

FAULTS = {"fault_share": 0.7, "dispersion_share": 0.5, "per": "sample"}
LUMEN = {"backbone": "lumen", "options": {"width": 8, "stages": 2, "cosines": 8}}
PLAIN = {"mode": "plain", "epochs": 2, "warmup_epochs": 0}


def batch_of(step: int, part: slice = slice(0, 4), **tables: dict[str, Any]) -> Batch:
    config = tiny_config(**tables)
    prepared = prepare(config, torch.device("cpu"))
    return _batches(config, prepared, prepared.train_scenes, "training", part).make(step)


def test_without_faults_nothing_is_told_and_the_mask_is_true() -> None:
    batch = batch_of(3)
    assert batch.mask_std is None
    assert batch.true_mask is batch.mask or torch.equal(batch.true_mask, batch.mask)


@pytest.mark.parametrize("camera", [{}, {"spread": [0.6, 1.1]}, {"design": "dual"}])
def test_the_light_is_that_of_the_true_mask(camera: dict[str, Any]) -> None:
    masks = {**FAULTS, "dispersion_share": 0.0}
    tables = {"masks": masks, "camera": {"bands": 4, **camera}, "data": {"noise_std": [0, 0]}}
    for step in range(3):
        batch = batch_of(step, **tables)
        assert batch.mask_std is not None
        assert batch.mask_std.shape[0] == batch.mask.shape[0] == batch.true_mask.shape[0] == 4
        expected = batch.camera.forward(batch.cube, batch.true_mask)
        torch.testing.assert_close(batch.measurement, expected, atol=1e-5, rtol=1e-5)


def test_cubes_and_noise_stay_the_same_with_faults() -> None:
    right, wrong = batch_of(5), batch_of(5, masks={"fault_share": 0.7})
    assert torch.equal(right.cube, wrong.cube)
    assert right.measurement.shape == wrong.measurement.shape
    assert not torch.equal(right.measurement, wrong.measurement)


def test_every_process_takes_its_part_of_one_batch() -> None:
    whole = batch_of(2, masks=FAULTS)
    for part in (slice(0, 2), slice(2, 4)):
        mine = batch_of(2, part, masks=FAULTS)
        for name in ("cube", "measurement", "mask", "true_mask", "mask_std", "noise"):
            torch.testing.assert_close(getattr(mine, name), getattr(whole, name)[part])


def test_lumen_trains_behind_them() -> None:
    config = tiny_config(
        masks=FAULTS, model=LUMEN, schedule=PLAIN, posterior={"kind": "none"}, data={"lamps": 0.5}
    )
    assert train(config).finished


def test_other_band_counts_come_in_a_share_of_the_steps() -> None:
    camera = {"bands": 4, "more_bands": [3, 6], "more_bands_share": 0.7}
    config = tiny_config(
        camera=camera, masks=FAULTS, model=LUMEN, schedule=PLAIN, posterior={"kind": "none"}
    )
    prepared = prepare(config, torch.device("cpu"))
    maker = _batches(config, prepared, prepared.train_scenes, "training", slice(0, 4))
    plain = batch_of(0)
    seen = set()
    for step in range(12):
        batch = maker.make(step)
        seen.add(batch.camera.bands)
        assert batch.cube.shape == (4, batch.camera.bands, 16, 16)
        assert batch.measurement.shape == plain.measurement.shape, "the prism is the same"
    assert seen == {3, 4, 6}
    assert train(config).finished
    with pytest.raises(ConfigError, match=r"camera\.more_bands .* srn"):
        train(tiny_config(camera=camera))


def test_masks_with_a_plane_per_band_come_in_a_share_of_the_steps() -> None:
    masks = {**FAULTS, "per_band_share": 0.5}
    planes = {batch_of(step, masks=masks).mask.shape[1] for step in range(8)}
    assert planes == {1, 4}
    mask = batch_of(0, masks={"per": "sample", "per_band_share": 1.0}).mask
    contrast = mask.std((0, 2, 3))
    assert float(contrast.max() - contrast.min()) > 0.01


def test_binary_masks_are_open_or_closed() -> None:
    batch, plain = (batch_of(1, masks={"binary_share": b, "per": "sample"}) for b in (1.0, 0.0))
    assert torch.equal(batch.cube, plain.cube)
    noise = [b.measurement - b.camera.forward(b.cube, b.mask) for b in (batch, plain)]
    torch.testing.assert_close(*noise, atol=1e-5, rtol=0)
    mask = batch.mask
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    mixed = batch_of(1, masks={"binary_share": 0.5, "per": "sample", "vary": True}).mask
    counts = [len(one.unique()) for one in mixed]
    assert min(counts) == 2 < max(counts)


BLOCKS = {
    "masks": FAULTS,
    "camera": {"bands": 4, "spread": [0.6, 1.1], "bend": 0.05},
    "speed": {"device": "cpu", "ema": 0.9, "batches_at_once": 3},
}


def test_batches_made_together_are_those_of_their_steps_whatever_came_before() -> None:
    config = tiny_config(**BLOCKS)
    prepared = prepare(config, torch.device("cpu"))

    def maker() -> BatchMaker:
        return _batches(config, prepared, prepared.train_scenes, "training", slice(0, 4))

    in_turn = maker()
    batches = [in_turn.make(step) for step in range(7)]
    for step in (6, 2, 4):
        again = maker().make(step)
        for name in ("cube", "measurement", "mask", "true_mask", "mask_std", "noise"):
            assert torch.equal(getattr(again, name), getattr(batches[step], name)), (step, name)
        assert again.camera.offsets == batches[step].camera.offsets
    sums = {round(float(batch.cube.sum()), 4) for batch in batches}
    assert len(sums) == 7, "every step has crops of its own"
    assert len({batch.camera.offsets for batch in batches}) > 2, "and prisms of their own"
    plans = [in_turn.plan(step).scene.tolist() for step in range(7)]
    assert plans[4] == maker().plan(4).scene.tolist()
    assert all(len(plan) == 4 for plan in plans)


def test_batches_made_together_are_lit_by_their_own_prism() -> None:
    masks = {**FAULTS, "dispersion_share": 0.0}
    tables = {**BLOCKS, "masks": masks, "data": {"noise_std": [0, 0]}}
    for step in range(6):
        batch = batch_of(step, **tables)
        expected = batch.camera.forward(batch.cube, batch.true_mask)
        torch.testing.assert_close(batch.measurement, expected, atol=1e-5, rtol=1e-5)


def test_no_noise_falls_where_no_light_does() -> None:
    masks = {**FAULTS, "dispersion_share": 0.0}  # light further along than is told may fall there
    noise = {"noise_std": [0.05, 0.05], "noise_share": 1.0}
    tables = {**BLOCKS, "masks": masks, "data": noise}
    narrow = 0
    for step in range(9):
        batch = batch_of(step, **tables)
        camera = batch.camera
        assert isinstance(camera, VariedCamera)
        dark = camera.extent - camera.lit_extent
        narrow += dark > 0
        lit = batch.measurement.shape[-1] - dark
        assert not dark or not batch.measurement[..., lit:].any()
        assert (batch.measurement[..., :lit].diff(dim=-1) != 0).float().mean() > 0.9
    assert narrow > 1


def test_batches_made_together_need_a_mask_for_each_sample() -> None:
    with pytest.raises(ConfigError, match=r"masks\.per = 'sample'"):
        tiny_config(speed={"batches_at_once": 2})
    with pytest.raises(ConfigError, match="one process"):
        batch_of(0, slice(0, 2), **BLOCKS)


def test_plain_samples_are_spared_all_that_others_meet() -> None:
    everything: dict[str, Any] = {
        "warp": 1.0, "recombine": 1.0, "repaint": 0.5, "lamps": 1.0, "narrow_bands": 1.0,
        "laser_lines": 1.0, "noise_std": [0.02, 0.05], "noise_share": 1.0,
    }  # fmt: skip
    masks = {**FAULTS, "fault_share": 1.0, "dispersion_share": 1.0}
    plain_count = 0
    for step in range(12):
        scenes = batch_of(step, data={"noise_std": [0, 0]})
        batch = batch_of(step, masks=masks, data={**everything, "plain_share": 0.5})
        is_plain = (batch.cube - scenes.cube).abs().amax((1, 2, 3)) == 0
        right = (batch.true_mask - batch.mask).abs().amax((1, 2, 3)) == 0
        clean = batch.measurement - batch.camera.forward(batch.cube, batch.mask)
        exact = clean.abs().amax((1, 2)) < 1e-5
        assert torch.equal(is_plain, right)
        assert torch.equal(is_plain, exact)
        plain_count += int(is_plain.sum())
    assert 14 <= plain_count <= 34, "half of 48, within three standard deviations"
