"""Sentences of the pages that are easily wrong, against the tables and records they speak of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prismask.evaluation.tables.summaries import read_table
from prismask.models.inputs import network_scale
from prismask.models.weights import shipped

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
PAGES = [*ROOT.glob("docs/**/*.md"), *RESULTS.glob("pages/*.md"), RESULTS / "README.md",
         ROOT / "README.md"]  # fmt: skip


def _text(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def _json(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_every_page_with_a_sigma_of_noise_says_its_unit() -> None:
    noisy = re.compile(r"noise (of )?\[?σ")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if noisy.search(text) and page != ROOT / "docs" / "method.md":
            assert "method.md#the-unit-of-noise" in text, page
    assert "### The unit of noise" in (ROOT / "docs" / "method.md").read_text(encoding="utf-8")


def test_noise_on_the_sum_is_told_in_the_unit_of_all_pages() -> None:
    source = (RESULTS / "cameras.py").read_text(encoding="utf-8")
    found = re.search(r"^NOISE = (.+)$", source, re.MULTILINE)
    assert found is not None
    sigma = float(found[1]) * network_scale(28)
    assert f"σ = {sigma:.2g} of docs/method.md" in source
    assert f"σ = {sigma:.2g}" in _text("results/README.md")


def test_cameras_are_counted_without_those_that_are_nearly_the_usual_one() -> None:
    rows = _json("cameras-lumen.json")["rows"]
    names = {row["camera"] for row in rows if row["default"] == "lumen.m2m"}
    steps = {name: re.fullmatch(r"28 bands, ([\d.]+) px", name) for name in names}
    even = {name: float(found[1]) for name, found in steps.items() if found}
    near = {name for name, step in even.items() if abs(step / 2 - 1) < 0.0101}
    usual = {name for name, step in even.items() if step == 2}
    others = len(names - near)
    told = {4: "four"}[len(near - usual)]
    assert f"each of {others} other cameras, and {told} within 1 %" in _text("results/README.md")
    gains = [
        row["lumen.m2m"]["psnr_paper"] - row["gap-tv"]["psnr_paper"]
        for row in rows
        if row["camera"] in names - near
    ]
    assert f"{min(gains):.1f} to {max(gains):.1f} dB above GAP-TV" in _text("results/README.md")


def test_coverage_of_left_out_scenes_is_told_with_its_worst() -> None:
    (ours,) = [one for one in shipped() if one.is_default]
    found = ours.record["interval"]["learned"]["about"]["left_out"]["0.9"]["summary"]
    for page in ("results/pages/trust.md", "docs/uncertainty.md"):
        for name in ("mean", "worst_scene", "worst_quarter", "worst_band"):
            assert f"{100 * found[name]:.1f} %" in _text(page), (page, name)


def test_coverage_on_kaist_is_told_scene_by_scene() -> None:
    page = _text("results/pages/interval.md")
    groups = ("test_same_hardware", "test_other_hardware")
    shares: dict[str, list[float]] = {}
    for run in ("clean", "noisy"):
        rows = list(read_table(RESULTS / "kaist" / "interval" / run / "summary.csv"))
        assert {row["model"] for row in rows} == {"lumen.m2m"}
        for group in groups:
            for row in rows:
                if (row["group"], row["metric"]) == (group, "inside"):
                    shares.setdefault(row["scene"], []).append(row["mean"])
    means = shares.pop("average")
    assert sorted(shares) == [f"scene{number:02d}" for number in range(1, 11)]
    for scene, found in [*shares.items(), ("mean", means)]:
        assert f"| {scene} | {' | '.join(f'{share:.1f} %' for share in found)} |" in page
    worst = min(share for found in shares.values() for share in found[:2])
    for text in (page, _text("results/README.md")):
        assert f"the worst scene has {worst:.1f} %" in text


def test_both_fits_of_an_interval_are_told_as_they_did() -> None:
    page, fits = _text("results/pages/trust.md"), _json("trials/interval_fit.json")
    former, present = (fits[name]["left_out"]["summary"] for name in ("former", "present"))
    for name in ("mean", "worst_scene", "worst_quarter", "worst_band", "structures"):
        assert f"| {100 * former[name]:.1f} % | {100 * present[name]:.1f} % |" in page, name
    learned = fits["present"]["left_out_of_fit_alone"]
    for name in ("mean", "worst_scene", "worst_quarter", "worst_band"):
        assert f"{100 * learned[name]:.1f} %" in page, name


def test_the_default_is_told_beside_desci_scene_by_scene() -> None:
    page, rows = _text("results/pages/trust.md"), _json("trust-lumen.json")["desci"]["rows"]
    for name in dict.fromkeys(row["scene"] for row in rows):
        found = [row["psnr_paper"] for row in rows if row["scene"] == name]
        cells = [f"{of[key]:.1f}" for of in found for key in ("default", "gap_tv", "desci")]
        assert f"| {name.replace('_', ' ')} | {' | '.join(cells)} |" in page
    for row in rows:
        short = max(row["psnr_paper"].values()) - row["psnr_paper"]["default"]
        if short > 0:
            assert f"{short:.1f} dB ({row['scene'].replace('_', ' ')})" in page


def test_solvers_are_compared_in_one_convention() -> None:
    page, record = _text("results/pages/solvers-and-networks.md"), _json("solvers.json")
    names = {"pnp-dip": "PnP-DIP", "desci": "DeSCI", "gap-tv": "GAP-TV", "twist": "TwIST",
             "gpsr": "GPSR"}  # fmt: skip
    for name, title in names.items():
        mean = record["solvers"][name]["mean"]
        row = re.search(rf"\| {title} \|([^|]+)\|[^|]*\|([^|]+)\|[^|]*\|([^|]+)\|", page)
        assert row is not None, title
        told = [float(cell.strip(" *")) for cell in row.groups()]
        wanted = [mean[key] for key in ("psnr_paper", "psnr_dgsmp", "seconds")]
        assert told == pytest.approx(wanted, abs=0.0051), title


def test_the_page_about_spectra_quotes_its_table() -> None:
    def lines(path: str) -> set[str]:
        text = (RESULTS / path).read_text(encoding="utf-8")
        return {re.sub(r"\s+", " ", line) for line in text.splitlines() if line.startswith("|")}

    quoted = {line for line in lines("pages/spectra.md") if not line.startswith("|--")}
    assert len(quoted) > 40
    assert quoted <= lines("spectra/summary.md") | lines("spectra-lumen/summary.md")
    for folder in ("spectra", "spectra-lumen"):
        trials = {row["trials"] for row in read_table(RESULTS / folder / "summary.csv")}
        command = f"--trials {max(trials)} --out results/{folder}`"
        assert command in _text("results/pages/spectra.md")
