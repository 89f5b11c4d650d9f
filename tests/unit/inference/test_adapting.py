"""Learning a scene: from its own pieces alone, in a copy, the same way every time."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.engine import Engine
from prismask.inference.methods import network as learned
from prismask.inference.methods.network import PIECES, _pieces, adapt, learn
from prismask.inference.options import Options
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI

BANDS = 4
CAMERA = CASSI.from_step(BANDS)


def network(name: str = "srn", **options: int) -> Reconstructor:
    options = options or {"width": 8, "blocks": 1}
    return create_model(name, bands=BANDS, seed=3, **options).eval()


def scene(height: int = 20, width: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    cube = torch.rand(BANDS, height, width, generator=generator)
    return cube, torch.rand(1, 1, height, width, generator=generator)


def weights(model: Reconstructor) -> Tensor:
    return torch.cat([value.flatten() for value in model.backbone.state_dict().values()])


@torch.no_grad()
def error(model: Reconstructor, cube: Tensor, mask: Tensor) -> float:
    """On pieces that were not learned from."""
    drawn = islice(_pieces(cube, mask, CAMERA, 0.0, 99), 8)
    found = [
        float(
            (
                model.reconstruct(Observation(snapshot, code, CAMERA, torch.zeros(PIECES))) - truth
            ).norm()
        )
        for truth, code, snapshot, _ in drawn
    ]
    return sum(found)


def test_it_learns_in_a_copy() -> None:
    model, (cube, mask) = network(), scene()
    before = weights(model).clone()
    found = adapt(model, cube, mask, CAMERA, steps=40)
    assert error(found.model, cube, mask) < error(model, cube, mask)
    assert torch.equal(weights(model), before)
    assert not torch.equal(weights(found.model), before)
    assert not any(value.requires_grad for value in found.model.parameters())


def test_a_seed_decides_what_it_learns() -> None:
    model, (cube, mask) = network(), scene()
    one, same, other = (
        weights(adapt(model, cube, mask, CAMERA, steps=3, noise_std=0.1, seed=seed).model)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    "camera",
    [CAMERA, CASSI.from_step(BANDS, 1.7), CASSI.from_step(BANDS, axis="height"),
     CASSI.from_step(BANDS, design="dual")],
)  # fmt: skip
def test_pieces_are_the_scene_photographed_again(camera: CASSI) -> None:
    cube, _ = scene(110, 120)
    size = camera.mask_size((110, 120))
    mask = torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(6))
    for truth, code, snapshot, _ in islice(_pieces(cube, mask, camera, 0.0, 0), 4):
        assert truth.shape == (PIECES, BANDS, 96, 96)
        assert torch.equal(snapshot, camera.forward(truth, code))
        assert torch.isin(truth[0, 0], cube[0]).all()
        assert torch.isin(code, mask).all()


def test_pieces_lie_where_something_is() -> None:
    cube = torch.zeros(BANDS, 400, 400)
    cube[:, 150:250, 150:250] = torch.rand(BANDS, 100, 100)
    seen = islice(_pieces(cube, torch.ones(1, 1, 400, 400), CAMERA, 0.0, 0), 40)
    dark = [float((truth == 0).float().mean()) == 1 for pair, *_ in seen for truth in pair]
    # Six of ten places are dark throughout: of four, one time in eight all.
    assert sum(dark) <= 20


def test_pieces_have_the_noise_of_the_snapshot() -> None:
    cube, mask = scene(96, 96)
    clean, noisy = (next(_pieces(cube, mask, CAMERA, std, 0)) for std in (0.0, 0.3))
    assert torch.equal(clean[0], noisy[0])
    assert float((noisy[2] - clean[2]).std()) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("name", ["srn-looks+", "hssp"])
def test_networks_with_the_camera_inside_learn_too(name: str) -> None:
    options = {"width": 8, "blocks": 2, "looks": 1} if name == "srn-looks+" else {"stages": 2}
    model, (cube, mask) = network(name, **options), scene()
    found = adapt(model, cube, mask, CAMERA, steps=20)
    assert error(found.model, cube, mask) < error(model, cube, mask)


def test_progress_is_told() -> None:
    told: list[tuple[int, int, object]] = []
    cube, mask = scene()
    adapt(
        network(), cube, mask, CAMERA, steps=3,
        progress=lambda done, total, info: told.append((done, total, info["stage"])),
    )  # fmt: skip
    assert told == [(step, 3, "learning the scene") for step in (1, 2, 3)]


def test_a_network_that_explains_less_than_before_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cube, mask = scene()
    engine = Engine(network(), torch.device("cpu"), "float32")
    signal = CAMERA.forward(cube[None], mask)[0]
    found = learn(engine, Observation(signal[None], mask, CAMERA), 3, 0, None)
    assert found.engine is not engine
    assert found.attrs == {"adapted_steps": 3}
    monkeypatch.setattr(learned, "MOST_RESIDUAL_GROWTH", 0.0)
    refused = learn(engine, Observation(signal[None], mask, CAMERA), 3, 0, None)
    assert refused.engine is engine
    assert not refused.attrs
    assert "does the mask belong" in refused.findings[0].text


def test_only_networks_learn() -> None:
    with pytest.raises(ConfigError, match="gap-tv has no network"):
        Options(method="gap-tv", adapt=5)
    with pytest.raises(ConfigError, match="-1 steps"):
        Options(adapt=-1)
    plain, taught = (Options(adapt=steps).recipe(mask="m") for steps in (0, 5))
    assert plain != taught


@pytest.mark.parametrize(("after", "words"), [
    (0.021, "its error there fell from 2.7 to 2.1 % of white"),
    (0.031, "its error there did not fall: it went from 2.7 to 3.1 % of white"),
])  # fmt: skip
def test_what_is_said_about_the_error_is_so(
    monkeypatch: pytest.MonkeyPatch, after: float, words: str
) -> None:
    model, (cube, mask) = network(), scene()
    found = learned.Adapted(model, 0.027, after)
    monkeypatch.setattr(learned, "adapt", lambda *_, **__: found)
    signal = CAMERA.forward(cube[None], mask)[0]
    made = learn(
        Engine(model, torch.device("cpu")), Observation(signal[None], mask, CAMERA), 3, 0, None
    )
    assert words in made.findings[0].text
