"""Configurations: every shipped file parses, every mistake is named."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from prismask.errors import ConfigError, DataMissingError
from prismask.training.config import (
    LIMITS,
    TrainConfig,
    difference,
    from_table,
    parse_budget,
    read_config,
    to_toml,
    with_changes,
)
from prismask.training.tables import flatten, toml_value

CONFIGS = sorted((Path(__file__).parents[3] / "configs").rglob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_shipped_config(path: Path) -> None:
    config = read_config(path)
    if path.parent.name != "parts":
        assert config.name in (path.stem, f"{path.stem}-budget")
    if path.parent.name == "budget":
        assert parse_budget(config.schedule.budget)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# Expected:"), "the first comment says what to expect"


def test_round_trip(tmp_path: Path) -> None:
    model = {"options": {"width": 8}, "inputs": ("mask",)}
    camera = {"bands": 3, "offsets": (0.0, 1.9, 4.1), "wavelengths": (450.0, 500.0, 560.0)}
    config = with_changes(TrainConfig(), model=model, camera=camera)
    path = tmp_path / "c.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert read_config(path) == config


def test_every_character_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    singles = [chr(number) for number in range(0x2100)] + ["\U0001f308"]
    for text in ("".join(singles), "a\r\nb", 'c:\\new "x"', "\\u0041", "é\t"):
        config = with_changes(TrainConfig(name=text), data={"folder": text})
        path.write_text(to_toml(config), encoding="utf-8")
        assert read_config(path) == config
    assert [tomllib.loads(f"x = {toml_value(c)}")["x"] for c in singles] == singles


def test_unknown_keys_are_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"schedule\.bacth.*Did you mean 'batch'"):
        from_table({"schedule": {"bacth": 3}})
    with pytest.raises(ConfigError, match=r"unknown key shedule.*'schedule'"):
        from_table({"shedule": {}})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"schedule": {"batch": "four"}}, "should be of type int"),
        ({"schedule": {"batch": True}}, "should be of type int"),
        ({"schedule": 3}, "is a table"),
        ({"data": {"scale": [1.0]}}, "should be of type"),
        ({"schedule": {"batch": 0}}, "at least 1"),
        ({"schedule": {"epochs": 0}}, r"schedule\.epochs is 0"),
        ({"schedule": {"halve_every": 0}}, r"schedule\.halve_every is 0"),
        ({"output": {"checkpoint_every": 0}}, r"output\.checkpoint_every is 0"),
        ({"output": {"log_every": 0}}, r"output\.log_every is 0"),
        ({"data": {"noise_std": [0.05, 0.0]}}, r"data\.noise_std = \[0\.05, 0\].*lower end"),
        ({"data": {"scale": [1.0, 0.5]}}, r"data\.scale"),
        ({"data": {"brightness": [-1.0, 1.0]}}, r"data\.brightness.*negative"),
        ({"data": {"scale": ["a", 1]}}, "should be of type float"),
        ({"schedule": {"budget": "soon"}}, "is not a time"),
        ({"loss": {"kind": "l3"}}, "loss.kind"),
        ({"posterior": {"kind": "none"}}, "posterior.kind"),
        ({"schedule": {"mode": "plain"}}, "would leave it untrained"),
        ({"masks": {"source": "tset"}}, "masks.source"),
        ({"camera": {"design": "triple"}}, "camera.design"),
        ({"camera": {"bands": 3, "offsets": [0, 2]}}, r"camera\.offsets lists 2 .*says 3"),
        ({"camera": {"bands": 3, "wavelengths": [500]}}, r"camera\.wavelengths lists 1"),
        ({"camera": {"bands": 2, "offsets": [0, "two"]}}, "should be of type float"),
        ({"seed": -1}, r"seed is -1; it must be 0 or more"),
        ({"schedule": {"theta_rate": -1}}, r"schedule\.theta_rate is -1; .* finite"),
        ({"schedule": {"theta_rate": float("inf")}}, r"schedule\.theta_rate is inf"),
        ({"schedule": {"phi_epochs": -4}}, r"schedule\.phi_epochs is -4"),
        ({"schedule": {"phi_epochs": 0}}, "would leave the variance network untrained"),
        ({"speed": {"ema": 1.0}}, r"speed\.ema is 1; it must be 0 \(off\) or more, and below 1"),
        ({"data": {"collage": 3}}, r"data\.collage is 3; it must be between 0 and 1"),
        ({"data": {"noise_share": 0}}, r"data\.noise_share is 0; .* set data\.noise_std"),
        ({"data": {"noise_std": [0, float("nan")]}}, r"data\.noise_std = \[0, nan\]"),
        ({"data": {"scale": [1, float("inf")]}}, r"data\.scale = \[1, inf\]"),
        ({"posterior": {"prior_std": float("nan")}}, "prior_std nan"),
        ({"posterior": {"prior_mean": float("inf")}}, "prior_mean inf"),
        ({"schedule": {"theta_rate": 0}}, "theta_rate is 0; it must be above 0"),
        ({"schedule": {"phi_rate": 0}}, "phi_rate is 0; it must be above 0"),
        ({"optimizer": {"muon_rate": 0}}, "muon_rate is 0; it must be above 0"),
        ({"optimizer": {"kind": "moun"}}, "optimizer.kind.*muon"),
        ({"data": {"crop": [8, 0]}}, "each side is at least 1"),
        ({"masks": {"fault_share": 0.5, "calibration_error": 1.0}}, "Set one of them to 0"),
        ({"data": {"crop": [8, 8, 8]}}, "data.crop"),
        ({"data": {"crop": [8, 0.5]}}, "data.crop"),
        ({"speed": {"graphs": True}, "loss": {"adversarial": 0.1}}, "speed.graphs = false"),
    ],
)
def test_wrong_values(table: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_table(table)


NUMBERS = {
    key: value
    for key, value in flatten(asdict(TrainConfig())).items()
    if isinstance(value, int | float) and not isinstance(value, bool)
}


def test_every_number_has_its_limits() -> None:
    elsewhere = {"camera.step", *(key for key in NUMBERS if key.startswith("posterior."))}
    assert set(LIMITS) == set(NUMBERS) - elsewhere


@pytest.mark.parametrize("key", LIMITS)
def test_impossible_numbers_are_refused(key: str) -> None:
    table, _, name = key.rpartition(".")
    for wrong in (-1, float("-inf"), float("nan")):
        value = wrong if isinstance(NUMBERS[key], float) else -1
        with pytest.raises(ConfigError, match=rf"{re.escape(key)} is .*; it must be "):
            from_table({table: {name: value}} if table else {name: value})
    assert not LIMITS[key].fits(float("nan"))


def test_zero_says_none_where_it_may() -> None:
    zeros = {
        "schedule": {"warmup_epochs": 0, "clip_gradient": 0},
        "output": {"validate_every": 0, "keep_every": 0},
        "speed": {"ema": 0},
        "loss": {"beta": 0},
    }
    assert from_table(zeros).output.validate_every == 0
    plain = {"posterior": {"kind": "none"}, "schedule": {"mode": "plain", "phi_epochs": 0}}
    assert from_table(plain).schedule.phi_epochs == 0


def test_overrides(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("name = 'a'\n[schedule]\nbatch = 2\n")
    config = read_config(path, ["schedule.batch=6", "data.scale=[1, 1.5]", "name=b"])
    assert (config.schedule.batch, config.data.scale, config.name) == (6, (1.0, 1.5), "b")
    for wrong in ("schedule.batch", "=3", "name.x=3"):
        with pytest.raises(ConfigError):
            read_config(path, [wrong])


def test_bases_are_merged_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("name = 'a'\n[schedule]\nbatch = 2\nepochs = 7\n")
    (tmp_path / "b.toml").write_text("[schedule]\nbatch = 3\n")
    (tmp_path / "c.toml").write_text("base = ['a.toml', 'b.toml']\n[data]\ncrop = 9\n")
    config = read_config(tmp_path / "c.toml")
    assert (config.name, config.schedule.batch, config.schedule.epochs) == ("a", 3, 7)
    assert config.data.crop == (9, 9)
    (tmp_path / "d.toml").write_text("base = 'd.toml'\n")
    with pytest.raises(ConfigError, match="its own base"):
        read_config(tmp_path / "d.toml")
    (tmp_path / "e.toml").write_text("base = 3\n")
    with pytest.raises(ConfigError, match="base should be"):
        read_config(tmp_path / "e.toml")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="configs/"):
        read_config(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_config(tmp_path / "bad.toml")


def test_budget_and_difference() -> None:
    assert parse_budget("12min") == 720
    assert parse_budget("90 s") == 90
    assert parse_budget("1.5h") == 5400
    assert parse_budget("") is None
    other = with_changes(TrainConfig(), schedule={"batch": 3})
    assert difference(TrainConfig(), other) == ["schedule.batch: 8 → 3"]
