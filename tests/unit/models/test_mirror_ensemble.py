"""A network that is asked more than once."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor, combined, ensemble_size, run_ensemble
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI

CPU = torch.device("cpu")
OPTIONS = {
    "srn": {"width": 8, "blocks": 4},
    "srn-looks": {"width": 8, "blocks": 4, "looks": 2},
    "lambda-net": {},
}


def asked(name: str, size: int) -> FastReconstructor:
    model: Reconstructor = create_model(
        name, bands=4, seed=0, inputs=("backprojection", "normalised", "mask"), **OPTIONS[name]
    )
    model.record["mirror_ensemble"] = size
    return FastReconstructor(model, CPU, "float32")


def snapshot(camera: CASSI) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    cube = torch.rand(2, 4, 16, 24, generator=generator)
    mask = torch.rand(1, 1, *camera.mask_size((16, 24)), generator=generator)
    return camera.forward(cube, mask), mask


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("axis", ["width", "height"])
def test_asked_both_ways_it_does_not_care_which(
    name: str, axis: Literal["width", "height"]
) -> None:
    camera = CASSI.from_step(4, 1.5, axis=axis)
    across = -2 if axis == "width" else -1
    measurement, mask = snapshot(camera)
    once, twice = asked(name, 1), asked(name, 2)
    plain = once(measurement, mask, camera)
    mirrored = once(measurement.flip(across), mask.flip(across), camera).flip(across)
    assert not torch.allclose(plain, mirrored), "the network would not need to be asked twice"
    both = twice(measurement, mask, camera)
    torch.testing.assert_close(both, (plain + mirrored) / 2)
    torch.testing.assert_close(twice.once(Observation(measurement, mask, camera)), plain)
    answers = twice.answers(Observation(measurement, mask, camera))
    torch.testing.assert_close(answers[1], mirrored)
    torch.testing.assert_close(combined(answers)[1], (plain - mirrored).abs() / 2**0.5)


class Told(nn.Module):
    """Answers with what it is told about the mask."""

    works_from_snapshot = True

    def forward(self, measurement: Tensor, mask: Tensor, camera: CASSI, *told: Tensor) -> Tensor:
        return told[-1]


def test_how_far_the_mask_is_wrong_is_mirrored_with_it() -> None:
    camera = CASSI.from_step(4, 1.5)
    measurement, mask = snapshot(camera)
    std = torch.rand(mask.shape, generator=torch.Generator().manual_seed(3))
    answers = run_ensemble(
        Told(), measurement, Observation(measurement, mask, camera, torch.tensor([0.01]), std), 2
    )
    torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0)


def test_one_answer_has_no_deviation() -> None:
    answers = torch.rand(1, 2, 3)
    mean, apart = combined(answers)
    assert apart is None
    assert torch.equal(mean, answers[0])


def test_weights_say_how_large_their_ensemble_is() -> None:
    assert ensemble_size({}) == 1
    assert ensemble_size({"mirror_ensemble": 2}) == 2
    assert ensemble_size({"ways": 2}) == 2, "weights of the first versions"
    with pytest.raises(
        ConfigError, match=r"mirror_ensemble = 3.*once \(1\), or also .* mirrored .*\(2\)"
    ):
        ensemble_size({"mirror_ensemble": 3})
