"""One list of cameras, one list of laws: a camera added to `CAMERAS` is subject to all of them.

Everything runs in float64 at random sizes, band counts, dispersions, batches and kinds of mask;
equalities hold to a relative error of 1e-10. The cameras are listed in operator_cases.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from operator_cases import CAMERAS, Case, cases, first_mask, loop_forward, make_case, matrix
from torch import Tensor

from prismask.optics import shear
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.mask_adjoint import mask_adjoint, mask_curvature

TOLERANCE = 1e-10


def assert_equal(came: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    """Same shape, and a relative error of at most `tolerance` against the largest value."""
    assert came.shape == expected.shape
    size = max(float(expected.abs().max()), 1e-3)  # values are of order 1; 0 has no relative error
    error = float((came - expected).abs().max())
    assert error <= tolerance * size, f"relative error {error / size:.3g}"


# --- the laws --------------------------------------------------------------------------------

LAWS: dict[str, Callable[[Case], None]] = {}


def law(function: Callable[[Case], None]) -> Callable[[Case], None]:
    LAWS[function.__name__] = function
    return function


@law
def linear(case: Case) -> None:
    other = torch.flip(case.cube, dims=(2,)) + 1
    both = case.camera.forward(2.5 * case.cube - 0.7 * other, case.mask)
    apart = 2.5 * case.camera.forward(case.cube, case.mask)
    assert_equal(both, apart - 0.7 * case.camera.forward(other, case.mask))


@law
def adjoint(case: Case) -> None:
    forward = case.camera.forward(case.cube, case.mask)
    back = case.camera.adjoint(case.measurement, case.mask)
    left, right = (forward * case.measurement).sum(), (case.cube * back).sum()
    scale = float(forward.norm() * case.measurement.norm()) + 1e-300
    assert abs(float(left - right)) <= TOLERANCE * scale


@law
def adjoint_matrix_is_the_transpose(case: Case) -> None:
    forward = matrix(case)
    shape = case.measurement.shape[1:]
    units = torch.eye(shape.numel(), dtype=torch.float64).reshape(-1, *shape)
    assert_equal(case.camera.adjoint(units, first_mask(case)).flatten(1), forward)


@law
def equals_the_loop(case: Case) -> None:
    assert_equal(
        case.camera.forward(case.cube, case.mask), torch.from_numpy(loop_forward(case).copy())
    )


@law
def shapes(case: Case) -> None:
    camera, batch = case.camera, case.cube.shape[0]
    scene = (case.cube.shape[2], case.cube.shape[3])
    extra = math.ceil(max(camera.offsets))
    longer = (
        (scene[0], scene[1] + extra) if camera.axis == "width" else (scene[0] + extra, scene[1])
    )
    sensor, aperture = (longer, scene) if camera.design == "single" else (scene, longer)
    assert camera.forward(case.cube, case.mask).shape == (batch, *sensor)
    assert camera.adjoint(case.measurement, case.mask).shape == case.cube.shape
    assert camera.unshear(case.measurement).shape == case.cube.shape
    assert camera.scene_size(sensor) == scene
    assert camera.mask_size(scene) == aperture
    for image in (camera.gram_diagonal(case.mask), camera.throughput(case.mask)):
        assert image.shape == (as_mask_batch(case.mask).shape[0], *sensor)


@law
def gram(case: Case) -> None:
    forward = matrix(case)
    product = forward @ forward.T
    diagonal = case.camera.gram_diagonal(first_mask(case)).flatten()
    bound = case.camera.gram_bound(first_mask(case)).flatten()
    assert_equal(diagonal, product.diagonal())
    if case.camera.is_exactly_diagonal:
        assert_equal(product, torch.diag(diagonal))
        assert_equal(bound, diagonal)
    else:
        assert_equal(bound, product.sum(1))
        lowest = torch.linalg.eigvalsh(torch.diag(bound) - product)[0]
        assert float(lowest) >= -TOLERANCE * max(float(bound.max()), 1.0)


@law
def pseudo_inverse_explains_the_measurement(case: Case) -> None:
    camera = case.camera
    seen = camera.gram_bound(case.mask) > 1e-6
    wanted = torch.where(seen, case.measurement, 0.0)
    again = camera.forward(camera.pseudo_inverse(wanted, case.mask), case.mask)
    if camera.is_exactly_diagonal:
        assert_equal(again, wanted)
    else:  # a step towards it that never overshoots, in the norm that the majoriser defines
        weight = camera.gram_bound(case.mask).clamp_min(1e-6).reciprocal()
        left = (weight * (again - wanted).square()).sum()
        assert float(left) <= float((weight * wanted.square()).sum()) * (1 + TOLERANCE)


@law
def gradient_is_the_adjoint(case: Case) -> None:
    cube = case.cube.clone().requires_grad_()
    case.camera.forward(cube, case.mask).backward(case.measurement)
    assert cube.grad is not None
    assert_equal(cube.grad, case.camera.adjoint(case.measurement, case.mask))


@law
def gradients_in_cube_and_mask_are_right(case: Case) -> None:
    small = make_case(case.camera, 2, (2, 2), "one plane", 7)
    inputs = (small.cube.requires_grad_(), small.mask.requires_grad_())
    assert torch.autograd.gradcheck(case.camera.forward, inputs)
    inputs = (small.measurement.requires_grad_(), small.mask)
    assert torch.autograd.gradcheck(case.camera.adjoint, inputs)


@law
def transpose_with_respect_to_the_mask(case: Case) -> None:
    """⟨B_x m, r⟩ = ⟨m, B_xᵀ r⟩, for masks of one plane and of one for each band."""
    mask = as_mask_batch(case.mask)
    seen = case.camera.forward(case.cube, mask)
    back = mask_adjoint(case.camera, case.measurement, case.cube, mask.shape[1])
    left, right = (seen * case.measurement).sum(), (mask * back).sum()
    scale = float(seen.norm() * case.measurement.norm()) + 1e-300
    assert abs(float(left - right)) <= TOLERANCE * scale


@law
def curvature_by_the_mask_is_the_diagonal(case: Case) -> None:
    """Of B_xᵀ W B_x, whose columns are the measurements of masks with one open pixel."""
    mask, weights = first_mask(case), case.measurement[:1].square()
    cube, pixels = case.cube[:1], mask.numel()
    units = torch.eye(pixels, dtype=torch.float64).reshape(pixels, *mask.shape[1:])
    columns = case.camera.forward(cube.expand(pixels, -1, -1, -1), units)
    expected = (weights * columns.square()).sum((-1, -2)).reshape(mask.shape)
    assert_equal(mask_curvature(case.camera, weights, cube, mask.shape[1]), expected)


@law
def gradient_by_the_mask_equals_differences(case: Case) -> None:
    """Of ‖y − B_x m‖² / 2 by each pixel of the mask: quadratic, so that differences are exact."""
    camera, mask = case.camera, first_mask(case)
    cube, seen = case.cube[:1], case.measurement[:1]

    def misfit(masks: Tensor) -> Tensor:
        left = seen - camera.forward(cube.expand(len(masks), -1, -1, -1), masks)
        return left.square().sum((-1, -2)) / 2

    pixels = mask.numel()
    steps = torch.eye(pixels, dtype=torch.float64).reshape(pixels, *mask.shape[1:])
    differences = (misfit(mask + steps) - misfit(mask - steps)) / 2
    left = camera.forward(cube, mask) - seen
    gradient = mask_adjoint(camera, left, cube, mask.shape[1])
    assert_equal(gradient.flatten(), differences, 1e-9)


@law
def fast_path_equals_the_interpolated_one(case: Case) -> None:
    camera = case.camera
    calls: list[Callable[[], Tensor]] = [
        lambda: camera.forward(case.cube, case.mask),
        lambda: camera.adjoint(case.measurement, case.mask),
        lambda: camera.gram_diagonal(case.mask),
        lambda: camera.throughput(case.mask),
    ]
    for call in calls:
        fast = call()
        with mock.patch.object(shear, "whole_step", return_value=None):
            assert_equal(fast, call())


@law
def recording_gradients_changes_nothing(case: Case) -> None:
    plain = case.camera.forward(case.cube, case.mask)
    assert_equal(case.camera.forward(case.cube.clone().requires_grad_(), case.mask).detach(), plain)


@law
def throughput_is_the_measurement_of_white(case: Case) -> None:
    camera, mask = case.camera, as_mask_batch(case.mask)
    white = torch.ones(mask.shape[0], *case.cube.shape[1:], dtype=torch.float64)
    throughput = camera.throughput(mask)
    assert_equal(throughput, camera.forward(white, mask))
    if camera.is_exactly_diagonal:
        assert_equal(camera.spread(throughput, mask, floor=1e-12), white)


@law
def a_batch_is_its_samples(case: Case) -> None:
    camera, masks = case.camera, as_mask_batch(case.mask)
    for b in range(case.cube.shape[0]):
        mask = masks[b if masks.shape[0] > 1 else 0]
        alone = slice(b, b + 1)
        assert_equal(
            camera.forward(case.cube, case.mask)[alone], camera.forward(case.cube[alone], mask)
        )
        assert_equal(
            camera.adjoint(case.measurement, case.mask)[alone],
            camera.adjoint(case.measurement[alone], mask),
        )


@law
def the_other_axis_is_the_transpose(case: Case) -> None:
    other = replace(case.camera, axis="height" if case.camera.axis == "width" else "width")
    turned = other.forward(case.cube.mT, case.mask.mT).mT
    assert_equal(turned, case.camera.forward(case.cube, case.mask))


@law
def only_differences_of_offsets_matter(case: Case) -> None:
    moved = replace(case.camera, offsets=tuple(o - 12.25 for o in case.camera.offsets))
    assert moved == case.camera


@law
def inputs_are_left_alone(case: Case) -> None:
    before = [case.cube.clone(), case.mask.clone(), case.measurement.clone()]
    case.camera.forward(case.cube, case.mask)
    case.camera.pseudo_inverse(case.measurement, case.mask)
    case.camera.spread(case.measurement, case.mask)
    for was, now in zip(before, (case.cube, case.mask, case.measurement), strict=True):
        assert torch.equal(was, now)


@law
def float32_stays_float32_and_near(case: Case) -> None:
    single = [part.float() for part in (case.cube, case.mask, case.measurement)]
    forward = case.camera.forward(single[0], single[1])
    back = case.camera.adjoint(single[2], single[1])
    assert forward.dtype == back.dtype == torch.float32
    for image in (case.camera.gram_bound(single[1]), case.camera.throughput(single[1])):
        assert image.dtype == torch.float32
    assert_equal(forward.double(), case.camera.forward(case.cube, case.mask), 1e-5)
    assert_equal(back.double(), case.camera.adjoint(case.measurement, case.mask), 1e-5)


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("law_name", LAWS)
def test_law(law_name: str, name: str) -> None:
    examples = 3 if "gradients_in" in law_name else 8

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(cases(CAMERAS[name]))
    def holds(case: Case) -> None:
        LAWS[law_name](case)

    holds()


@pytest.mark.parametrize("name", [name for name in CAMERAS if name.startswith("single")])
@pytest.mark.parametrize("law_name", LAWS)
def test_law_by_gather(law_name: str, name: str) -> None:
    """What GPUs run for offsets that are no equal whole steps obeys the same laws."""

    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(cases(CAMERAS[name]))
    def holds(case: Case) -> None:
        with (
            mock.patch.object(shear, "whole_step", return_value=None),
            mock.patch.object(shear, "_gathers", return_value=True),
        ):
            LAWS[law_name](case)

    holds()


# --- the laws can fail -----------------------------------------------------------------------


class ForgetsTheMaskGoingBack(CASSI):
    def adjoint(self, measurement: Tensor, mask: Tensor) -> Tensor:
        return super().adjoint(measurement, torch.ones_like(mask))


class AddsALittle(CASSI):
    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        return super().forward(cube, mask) + 1e-6


class ShearsTheOtherWay(CASSI):
    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        return super().forward(cube.flip(1), mask)


class HalvesTheGram(CASSI):
    def gram_diagonal(self, mask: Tensor) -> Tensor:
        return super().gram_diagonal(mask) / 2


class WritesIntoTheMask(CASSI):
    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        return super().forward(cube, mask.mul_(0.5))


@pytest.mark.parametrize(
    ("broken", "laws"),
    [
        (ForgetsTheMaskGoingBack, ["adjoint", "gradient_is_the_adjoint"]),
        (AddsALittle, ["linear", "equals_the_loop"]),
        (ShearsTheOtherWay, ["adjoint", "equals_the_loop"]),
        (HalvesTheGram, ["gram", "pseudo_inverse_explains_the_measurement"]),
        (WritesIntoTheMask, ["inputs_are_left_alone"]),
    ],
)
def test_laws_catch_planted_faults(broken: type[CASSI], laws: list[str]) -> None:
    case = make_case(broken((0.0, 2.0, 4.0)), 2, (4, 5), "one plane", 3)
    for name in laws:
        with pytest.raises(AssertionError):
            LAWS[name](case)


def test_majoriser_law_catches_the_bare_diagonal() -> None:
    """With fractional offsets the diagonal alone is too small; the law must see that."""

    class TakesTheDiagonal(CASSI):
        def gram_bound(self, mask: Tensor) -> Tensor:
            return self.gram_diagonal(mask)

    with pytest.raises(AssertionError):
        gram(make_case(TakesTheDiagonal((0.0, 1.5, 3.0)), 1, (3, 6), "one plane", 3))
