"""How far to trust a cube: the rule, its words, and the solver that is taken where it is better."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from calibrated_network import bare_network, engine_of, even_interval

from prismask.errors import WeightsError
from prismask.inference.intervals.evidence import (
    FACTS,
    SIGNS,
    Evidence,
    TrustRule,
    Verdict,
    fit_trust,
)
from prismask.inference.intervals.snapshots import Rows
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.methods.protocol import Estimate
from prismask.inference.methods.registry import Choice
from prismask.inference.options import Options
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.noise import estimate_noise
from prismask.optics.randomness import seeded
from prismask.scenes.synthetic.demo import random_scene

LIMITS = {"unexplained": 0.04, "width": 0.5, "solver": 0.1}


def facts(**changes: float) -> dict[str, float]:
    """Those of a cube that explains its snapshot."""
    usual = {"unexplained": 0.01, "over_noise": 1.0, "missing": 0.01, "apart": 0.1, "probe": 0.0,
             "other_camera": 0.0, "mismatch": 0.0}  # fmt: skip
    return usual | changes


def rule() -> TrustRule:
    """A solver is better where more than 8 % stays unexplained."""
    weights = [0.0] * SIGNS
    weights[0], weights[1] = -math.log(0.08), 1.0
    return TrustRule(dict(LIMITS), tuple(weights), {})


def test_a_right_case_is_good() -> None:
    verdict = rule().verdict(facts(), 0.2, -0.01)
    assert verdict.grade == "good"
    assert verdict.trust > 0.5
    assert verdict.text.startswith("as in validation with the right mask")
    assert verdict.findings(is_searched=False, adapt=False) == []
    assert not verdict.takes_solver


@pytest.mark.parametrize(
    ("changes", "width", "gain", "reason", "grade"),
    [
        ({"unexplained": 0.06}, 0.2, None, "unexplained", "doubtful"),
        ({"unexplained": 0.4}, 0.2, None, "unexplained", "poor"),
        ({}, 0.7, None, "width", "doubtful"),
        ({}, 0.2, 0.2, "probe", "poor"),
        ({"mismatch": 0.9}, 0.2, None, "mismatch", "doubtful"),
    ],
)
def test_the_worst_sign_decides(
    changes: dict[str, float], width: float, gain: float | None, reason: str, grade: str
) -> None:
    verdict = rule().verdict(facts(**changes), width, gain)
    assert (verdict.reason, verdict.grade) == (reason, grade)
    assert verdict.trust < 0.5
    assert verdict.trust >= 0.2 or grade == "poor"
    attrs = verdict.attrs()
    assert attrs["trust_grade"] == grade
    assert json.loads(json.dumps(attrs)) == attrs


def test_number_and_word_agree() -> None:
    """Good from 0.5, doubtful from 0.2, poor below."""
    at = [replace(rule().verdict(facts(), 0.2, None), excess=float(e)) for e in (0, 1, 2, 3)]
    assert [one.trust for one in at] == pytest.approx([1, 0.5, 0.2, 0.1])
    assert [one.grade for one in at] == ["good", "good", "doubtful", "poor"]


@pytest.mark.parametrize(
    ("changes", "width", "gain", "said"),
    [
        ({}, 0.2, None, "as in validation with the right mask: 1 % of the snapshot is "
         "unexplained beyond its noise, and the 90 % interval is 20 % of the brightness wide on "
         "average."),
        ({"unexplained": 0.4}, 0.2, None, "the cube leaves 40 % of the snapshot unexplained beyond "
         "its noise; with the right mask it was rarely above 4 % in validation."),
        ({}, 0.7, None, "the 90 % interval is 70 % of the brightness wide on average; in "
         "validation it was rarely above 50 %."),
        ({}, 0.2, 0.2, "the snapshot contradicts its mask."),
        ({"mismatch": 0.9}, 0.2, None, "the camera is unlike those that the network was "
         "trained on."),
    ],
)  # fmt: skip
def test_the_sentence_has_the_right_numbers(
    changes: dict[str, float], width: float, gain: float | None, said: str
) -> None:
    assert rule().verdict(facts(**changes), width, gain).text == said


def test_more_is_worse() -> None:
    found = [rule().verdict(facts(unexplained=u), 0.2, None).trust for u in (0.0, 0.03, 0.1, 0.3)]
    assert found == sorted(found, reverse=True)


def test_an_alignment_does_not_silence_it() -> None:
    verdict = rule().verdict(facts(unexplained=0.3), 0.2, None)
    (before,) = verdict.findings(is_searched=False, adapt=False)
    (after,) = verdict.findings(is_searched=True, adapt=False)
    assert "--align" in before.text
    assert "--align" not in after.text
    assert "--method gap-tv" in after.text
    assert before.weight == after.weight == "warning"


def toy_rows(seed: int, count: int = 60) -> list[Rows]:
    """A third of the snapshots leaves much unexplained; there the solver is better."""
    draw, made = np.random.default_rng(seed), []
    for number in range(count):
        hard = number % 3 == 0
        left = draw.uniform(0.1, 0.3) if hard else draw.uniform(0.005, 0.03)
        values = facts(unexplained=left, missing=left)
        flat = np.zeros(4, dtype=np.float32)
        made.append(
            Rows(
                np.zeros((4, 1), dtype=np.float32), flat, flat, flat, flat, flat > 0,
                f"scene{number % 5}", "lamp" if hard else "smooth",
                "structured spectra" if hard else "right", 0.0, float("nan"), False,
                tuple(values[name] for name in FACTS),
                0.1 if hard else 0.03, 0.04 if hard else 0.1,
            )
        )  # fmt: skip
    return made


def test_the_fit_tells_them_apart() -> None:
    fitted = fit_trust(toy_rows(0), np.full(60, 0.2))
    assert fitted.about["right"] == 40
    assert fitted.about["right_not_trusted"] <= 2
    assert fitted.about["solver_taken"] >= 19
    assert fitted.about["solver_taken_wrongly"] == 0
    hard = fitted.verdict(facts(unexplained=0.2, missing=0.2), 0.2, None)
    assert hard.takes_solver
    assert hard.grade == "poor"
    easy = fitted.verdict(facts(unexplained=0.02, missing=0.02), 0.2, None)
    assert not easy.takes_solver
    assert easy.grade == "good"
    again = TrustRule.from_record(json.loads(json.dumps(fitted.to_record())))
    assert again == fitted


def test_noise_is_no_reason_to_distrust() -> None:
    """Snapshots with noise and right masks set the limits together with those without."""
    rows = toy_rows(0)
    right = [number for number, one in enumerate(rows) if one.condition == "right"]
    noisy = right[::2]
    for number in noisy:
        left = replace(rows[number], condition="noise")
        rows[number] = replace(left, facts=tuple(3 * fact for fact in left.facts))
    fitted = fit_trust(rows, np.full(60, 0.2))
    assert fitted.about["right"] == 40
    most = max(rows[number].facts[FACTS.index("unexplained")] for number in noisy)
    assert fitted.limits["unexplained"] > 0.7 * most


def test_structured_spectra_that_the_network_knows_are_no_reason_to_distrust() -> None:
    """They count as right where it does not lose to the solver, and not where it does."""
    rows = toy_rows(0)
    known = [replace(one, rms_error=0.03, rms_reference=0.1) for one in rows]
    lost = fit_trust(rows, np.full(60, 0.2))
    held = fit_trust(known, np.full(60, 0.2))
    assert (lost.about["right"], held.about["right"]) == (40, 60)
    seen = facts(unexplained=0.15, missing=0.15)
    assert lost.verdict(seen, 0.2, None).grade == "poor"
    assert held.verdict(seen, 0.2, None).grade == "good"


def test_limits_hold_for_the_next_right_case_too() -> None:
    """Of 50 the ⌈51 · 0.96⌉-th: one that comes after them is beyond it as rarely as promised."""
    rows = [
        replace(
            one,
            condition="right",
            facts=tuple(facts()[name] for name in FACTS),
            rms_error=0.03,
            rms_reference=0.1,
        )
        for one in toy_rows(0, 50)
    ]
    widths = 0.1 + np.random.default_rng(4).permutation(50) / 100
    assert fit_trust(rows, widths).limits["width"] == pytest.approx(np.sort(widths)[48], abs=1e-5)


def test_a_solver_that_was_never_better_is_never_taken() -> None:
    rows = [replace(one, rms_error=0.03, rms_reference=0.1) for one in toy_rows(0)]
    # What misleads the rule: the more is unexplained the nearer the solver comes, but never ahead.
    rows = [replace(one, rms_reference=0.032) if one.light == "lamp" else one for one in rows]
    fitted = fit_trust(rows, np.full(60, 0.2))
    assert fitted.about["solver_taken"] == 0
    for left in (0.02, 0.2, 0.9):
        assert not fitted.verdict(facts(unexplained=left, missing=left), 0.2, None).takes_solver


def test_few_or_mixed_gains_are_no_reason_to_take_a_solver() -> None:
    """One large gain beside a small loss, or half of the snapshots gaining and half losing."""
    rows = [replace(one, rms_error=0.03, rms_reference=0.1) for one in toy_rows(0)]
    hard = [number for number, one in enumerate(rows) if one.light == "lamp"]
    few, mixed = list(rows), list(rows)
    few[hard[0]] = replace(rows[hard[0]], rms_error=0.3, rms_reference=0.01)
    for place, number in enumerate(hard):
        gained = 0.02 if place % 2 else 0.038
        mixed[number] = replace(rows[number], rms_reference=gained)
    for found in (few, mixed):
        assert fit_trust(found, np.full(60, 0.2)).about["solver_taken"] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"limits": {"width": 1.0}}, {"weights": [1.0]},
        {"limits": {"unexplained": 0.0, "width": 1.0, "solver": 0.1}}, {"weights": ["a"] * SIGNS},
        {"weights": [float("nan")] * SIGNS},
    ],
)  # fmt: skip
def test_a_damaged_rule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WeightsError, match=r"rule of trust stored with mine\.safetensors"):
        TrustRule.from_record(rule().to_record() | change, "mine.safetensors")


def test_a_damaged_rule_is_told_before_the_work() -> None:
    model = bare_network()
    model.source = "mine.safetensors"
    stored = {"learned": even_interval().to_record(), "trust": rule().to_record()}
    model.record["interval"] = stored
    method = NetworkMethod(engine_of(model), "mine")
    method.check(Options())
    stored["trust"] |= {"weights": [1.0]}
    with pytest.raises(WeightsError, match=r"rule of trust stored with mine\.safetensors"):
        method.check(Options())


def estimate(verdict: Verdict) -> Estimate:
    """A cube of zeros whose solver knows better."""
    eye = CASSI.from_step(4)
    truth = torch.tensor(random_scene(0, (32, 40), np.linspace(450.0, 650.0, 4)).values)
    mask = fabricate_mask((32, 40), seeded(0))[None, None]
    values = torch.zeros_like(truth)
    known = Evidence(values, eye.forward(truth[None], mask)[0], mask, eye, 0.0, 1.0)
    ends = np.full(values.shape, 0.05, dtype=np.float32)
    attrs = {"method": "network", "model": "mine", "interval": "90 %, calibrated"}
    return Estimate(values.numpy(), None, -ends, ends, attrs, (), known, verdict)


def test_the_default_takes_the_solver_and_says_so() -> None:
    poor = rule().verdict(facts(unexplained=0.3), 0.2, None)
    free, asked = (
        Choice(Options(), torch.device("cpu")),
        Choice(Options(model="lumen.m2m"), torch.device("cpu")),
    )
    made = estimate(poor)
    assert asked.settle(made, Options()) is made
    assert (
        free.settle(replace(made, verdict=rule().verdict(facts(), 0.2, None)), Options()).attrs[
            "method"
        ]
        == "network"
    )
    taken = free.settle(made, Options())
    assert taken.attrs["method"] == "gap-tv"
    assert "model" not in taken.attrs
    assert taken.values.max() > 0.1
    assert taken.lower is not None
    assert taken.upper is not None
    assert (taken.lower <= taken.values).all()
    assert (taken.values <= taken.upper).all()
    assert any("--model mine" in finding.text for finding in taken.findings)


def test_a_wrong_mask_does_not_raise_the_noise_of_a_frame_with_dark_parts() -> None:
    """Once it did, and the self-check looked the better the more wrong the mask was."""
    eye = CASSI.from_step()
    at = tuple(np.linspace(450.0, 650.0, eye.bands))
    truth = torch.tensor(random_scene(1, (96, 128), at).values)[None]
    truth[:, :, :24] = 0
    right, wrong = (fabricate_mask((96, 128), seeded(s))[None, None] for s in (1, 2))
    signal = eye.forward(truth, right)
    signal = signal + 0.02 * torch.randn(signal.shape, generator=seeded(0))
    for mask in (right, wrong):
        assert float(estimate_noise(signal, mask, eye)) == pytest.approx(0.02, rel=0.2)
