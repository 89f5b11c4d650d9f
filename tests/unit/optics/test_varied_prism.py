"""A camera with a varied prism computes what a camera with those offsets computes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.inputs import Observation
from prismask.models.registry import create_model
from prismask.optics import shear
from prismask.optics.camera import CASSI
from prismask.optics.shear import gathered_shear_sum, gathered_unshear
from prismask.optics.varied_prism import LEAST, MOST, PrismFamily, VariedCamera

NOMINAL = CASSI.from_step(5, 2.0)
OFFSETS = (0.0, 2.3, 4.45, 6.1, 8.3)
NARROW = (0.0, 1.25, 2.5, 3.6, 4.9)


FAMILY = PrismFamily(NOMINAL, (0.6, 1.1), 0.1)


def landed(offsets: tuple[float, ...] = OFFSETS) -> VariedCamera:
    return FAMILY.landing_at(torch.tensor(offsets, dtype=torch.float64))


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def places_of(family: PrismFamily, seeds: int) -> torch.Tensor:
    seen = []
    for seed in range(seeds):
        camera = family.draw(torch.Generator().manual_seed(seed))
        assert camera.offsets == tuple(camera.places.tolist())
        seen.append(camera.places)
        assert camera.lit_extent == math.ceil(round(float(seen[-1].max()), 5))
    return torch.stack(seen)


@pytest.mark.parametrize(
    "offsets", [OFFSETS, NOMINAL.offsets, NARROW, (0.0, 1.9, 3.7, 5.6, 7.25), (0.0, 1, 2, 3, 4)]
)
def test_it_is_the_camera_of_its_offsets(offsets: tuple[float, ...]) -> None:
    ours, theirs = landed(offsets), CASSI(offsets)
    cube, mask = numbers(2, 5, 6, 11), numbers(2, 1, 6, 11)
    assert ours.lit_extent == theirs.extent
    longer = ours.extent - theirs.extent
    shot = theirs.forward(cube, mask)
    wide = F.pad(shot, (0, longer))
    torch.testing.assert_close(ours.forward(cube, mask), wide)
    torch.testing.assert_close(ours.unshear(wide), theirs.unshear(shot))
    torch.testing.assert_close(ours.adjoint(wide, mask), theirs.adjoint(shot, mask))
    torch.testing.assert_close(ours.spread(wide, mask), theirs.spread(shot, mask))
    torch.testing.assert_close(ours.gram_bound(mask), F.pad(theirs.gram_bound(mask), (0, longer)))
    diagonal = F.pad(theirs.gram_diagonal(mask), (0, longer))
    torch.testing.assert_close(ours.gram_diagonal(mask), diagonal)
    torch.testing.assert_close(ours.throughput(mask), F.pad(theirs.throughput(mask), (0, longer)))


@pytest.mark.parametrize("offsets", [NOMINAL.offsets, NARROW, (0.0, 1.0, 2.0, 3.0, 4.0)])
@pytest.mark.parametrize("beyond", [0.0, 5.0])
def test_a_network_sees_the_frame_of_the_narrow_camera(
    offsets: tuple[float, ...], beyond: float
) -> None:
    """What lies on the columns beyond, be it noise, reaches no pixel of the cube."""
    camera, exact = landed(offsets), CASSI(offsets)
    inputs = ("backprojection", "normalised", "mask", "noise")
    model = create_model("srn-looks+", bands=5, inputs=inputs, width=8, blocks=4, looks=2, seed=1)
    model.double()
    for look in model.backbone.looks:  # type: ignore[union-attr]  # they start near zero
        torch.nn.init.normal_(look.tell.weight, std=0.1)
    mask, noise = numbers(2, 1, 6, 11), numbers(2)
    shot = numbers(2, 6, 11 + exact.extent, seed=2)
    wide = F.pad(shot, (0, camera.extent - exact.extent), value=beyond)
    theirs = model.reconstruct(Observation(shot, mask, exact, noise))
    seen = Observation(wide, mask, camera, noise)
    torch.testing.assert_close(model.reconstruct(seen), theirs)
    weights = list(model.backbone.parameters())
    ours = torch.autograd.grad(model.reconstruct(seen).square().sum(), weights)
    torch.testing.assert_close(
        list(ours), list(torch.autograd.grad(theirs.square().sum(), weights))
    )


def test_gradients_are_the_transposes() -> None:
    camera, mask = landed(), numbers(1, 1, 3, 7)
    cube = numbers(2, 5, 3, 7).requires_grad_()
    shot = numbers(2, 3, 7 + camera.extent).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: camera.forward(x, mask), (cube,))
    assert torch.autograd.gradcheck(camera.unshear, (shot,))
    left = (camera.forward(cube, mask) * shot).sum()
    torch.testing.assert_close(left, (cube * camera.adjoint(shot, mask)).sum())


def test_draws_are_reproducible_stay_inside_and_are_often_none() -> None:
    places = places_of(FAMILY, 400)
    again = FAMILY.draw(torch.Generator().manual_seed(3))
    assert torch.equal(again.places, places[3])
    is_steady = (places == torch.tensor(NOMINAL.offsets)).all(1)
    assert 0.4 < float(is_steady.float().mean()) < 0.6
    assert float(places[:, 0].abs().max()) == 0
    assert bool((places.diff(dim=1) > 0).all())
    varied = places[~is_steady]
    spread = varied[:, -1] / 8
    assert 0.6 - 1e-6 < float(spread.min()) < 0.61
    assert 1.08 < float(spread.max()) < 1.1 + 1e-6
    # Evenly in the logarithm: half of them below √(0.6 · 1.1).
    assert abs(float((spread < math.sqrt(0.66)).double().mean()) - 0.5) < 0.1
    # The middle band says the bend: o(½) = s (½ + b) o_max, however far the spectrum is spread.
    bend = varied[:, 2] / varied[:, -1] - 0.5
    assert -0.1 - 1e-6 < float(bend.min()) < -0.09
    assert 0.09 < float(bend.max()) < 0.1 + 1e-6


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_as_many_draws_are_varied_as_asked_for(share: float) -> None:
    places = places_of(PrismFamily(NOMINAL, (0.6, 1.1), share=share), 400)
    is_steady = (places == torch.tensor(NOMINAL.offsets)).all(1)
    assert abs(1 - float(is_steady.float().mean()) - share) < 0.07


@pytest.mark.parametrize(
    ("spread", "bend"),
    [((0.99, 1.01), 0.01), ((LEAST, MOST), 0.25), ((0.6, 0.9), 0.1), ((1.0, 1.0), 0.2)],
)
def test_the_widest_camera_fits_and_no_band_passes_another(
    spread: tuple[float, float], bend: float
) -> None:
    nominal = CASSI.from_step(28, 2.0)
    camera = PrismFamily(nominal, spread, bend)
    places = places_of(camera, 100)
    assert camera.extent == math.ceil(54 * max(1.0, spread[1]))
    assert float(places.max()) <= camera.extent
    assert bool((places.diff(dim=1) > 0).all())
    assert bool((places == torch.tensor(nominal.offsets)).all(1).any()), "the nominal one fits too"


# PyTorch warns of what it does itself while it traces.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_one_compiled_graph_serves_all_draws() -> None:
    graphs = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def seen(cube: torch.Tensor, mask: torch.Tensor, camera: CASSI) -> torch.Tensor:
        return camera.spread(camera.forward(cube, mask), mask) / camera.gram_bound(mask).sum()

    compiled = torch.compile(seen, backend=count, dynamic=False, fullgraph=True)
    cube, mask = numbers(2, 5, 6, 11).float(), numbers(2, 1, 6, 11).float()
    found = []
    for seed in range(6):
        camera = FAMILY.draw(torch.Generator().manual_seed(seed))
        found.append(compiled(cube, mask, camera))
        torch.testing.assert_close(found[-1], seen(cube, mask, camera))
    assert len(graphs) == 1
    assert len({float(one.sum()) for one in found}) > 2


def test_what_cannot_vary() -> None:
    for spread in ((0.2, 1.0), (1.0, 1.6), (1.1, 0.9), (0.0, 1.0), (1.0, float("nan"))):
        with pytest.raises(ConfigError, match=r"camera\.spread .* between 0\.3 and 1\.5"):
            PrismFamily(NOMINAL, spread)
    # Five bands: the last two are at 3/4 and 1, so they meet at 1 / (4 · 3/4).
    PrismFamily(NOMINAL, bend=0.333)
    for bend in (-0.1, 1 / 3, 0.334, float("nan")):
        with pytest.raises(ConfigError, match=r"camera\.bend is .* below 0\.3333"):
            PrismFamily(NOMINAL, (0.6, 1.1), bend)
    PrismFamily(CASSI.from_step(2), bend=0.4)  # two bands are both ends
    with pytest.raises(ConfigError, match="one disperser"):
        PrismFamily(CASSI.from_step(5, design="dual"), (0.9, 1.1))
    with pytest.raises(ConfigError, match=r"camera\.jitter is 1"):
        PrismFamily(NOMINAL, jitter=1.0)


def test_jitter_moves_bands_by_themselves_and_keeps_their_order() -> None:
    family = PrismFamily(NOMINAL, (0.9, 1.1), 0.1, jitter=0.9)
    places = places_of(family, 200)
    plain = places_of(PrismFamily(NOMINAL, (0.9, 1.1), 0.1), 200)
    assert torch.equal(places[:, [0, -1]], plain[:, [0, -1]]), "the ends stay, and the other draws"
    moved = (places - plain)[:, 1:-1]
    assert 0.5 < float(moved.abs().max()) < 2.2
    assert bool((places.diff(dim=1) > 0).all())


def test_a_drawn_camera_is_itself_and_never_changes() -> None:
    one, other = (FAMILY.draw(torch.Generator().manual_seed(seed)) for seed in (3, 3))
    assert one.offsets == other.offsets
    assert one != other
    assert len({one, other, one}) == 2
    before = one.places.clone()
    FAMILY.draw(torch.Generator().manual_seed(4))
    assert torch.equal(one.places, before)


def test_a_recorded_step_reads_where_bands_land_from_its_own_tensor() -> None:
    cube, mask = numbers(2, 5, 6, 11), numbers(2, 1, 6, 11)
    place = landed(NARROW).places.clone()
    recorded = landed(NARROW).reading(place)
    torch.testing.assert_close(recorded.forward(cube, mask), landed(NARROW).forward(cube, mask))
    place.copy_(landed(OFFSETS).places)
    torch.testing.assert_close(recorded.forward(cube, mask), landed(OFFSETS).forward(cube, mask))


@pytest.mark.parametrize("power", [1, 2])
def test_gradients_of_reading_where_bands_land(power: int) -> None:
    """Of squared shares too, which a diagonal of A Aᵀ is made of."""
    places = torch.tensor([0.0, 1.3, 2.6], dtype=torch.float64)
    planes = torch.rand(1, 3, 2, 5, dtype=torch.float64, requires_grad=True)
    image = torch.rand(1, 2, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gathered_shear_sum(x, places, 8, power), (planes,))
    assert torch.autograd.gradcheck(lambda y: gathered_unshear(y, places, 5, power), (image,))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("offsets", [(0.0, 1.3, 2.6), (4.0, 2.5, 0.0), (0.0, 2.0, 4.0)])
def test_tables_for_other_programs_do_the_same(offsets: tuple[float, ...], power: int) -> None:
    places = torch.tensor(offsets, dtype=torch.float64)
    planes, image = numbers(2, 3, 4, 5), numbers(2, 4, 10)
    one = shear._shear_sum_by_table(planes, offsets, 10, power)
    torch.testing.assert_close(one, gathered_shear_sum(planes, places, 10, power))
    if power == 1:
        two = shear._unshear_by_table(image, offsets, 5)
        torch.testing.assert_close(two, gathered_unshear(image, places, 5))
