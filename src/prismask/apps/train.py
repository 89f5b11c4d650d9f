"""Training from a configuration file, with progress for a person and files for the record.

Needs torch, NumPy, SciPy and safetensors only, so that it runs on a bare GPU machine; curves
are drawn where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prismask.errors import PrismaskError

log = logging.getLogger(__name__)


def run_training(
    config_path: Path | str,
    *,
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    resume: bool = False,
    stop_after: str = "",
) -> Any:
    """Train as the file says; the run folder is `runs/NAME` unless `out` says otherwise."""
    from prismask.training.config import parse_budget, read_config
    from prismask.training.run import train

    config = read_config(config_path, list(overrides))
    folder = Path(out) if out is not None else Path("runs") / config.name
    outcome = train(
        config,
        folder,
        resume=resume,
        make_validate=_make_validate,
        report=_report,
        stop_after=parse_budget(stop_after),
    )
    _draw_curves(folder)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of `python -m prismask.training`."""
    parser = argparse.ArgumentParser(prog="python -m prismask.training")
    parser.add_argument("config", help="a TOML file, such as configs/smoke.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--out", help="run folder (default: runs/NAME)")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--stop-after", default="", metavar="TIME", help="pause after e.g. 9min")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        outcome = run_training(
            given.config,
            overrides=given.overrides,
            out=given.out,
            resume=given.resume,
            stop_after=given.stop_after,
        )
    except PrismaskError as error:
        log.error("error: %s", error)
        return 2
    except (RuntimeError, ConnectionError) as error:
        if not _lost_peer(error):
            raise
        log.error(
            "error: another process of this run is gone (%s). The run folder's checkpoint is "
            "whole: start again with --resume.",
            str(error).splitlines()[0],
        )
        return 3
    if outcome.folder is not None:
        log.info("%s %s", "finished:" if outcome.finished else "paused:", outcome.folder)
    return 0


def _lost_peer(error: BaseException) -> bool:
    from prismask.training.distributed import under_torchrun

    words = ("connection", "peer", "gloo", "nccl", "timed out", "socket")
    return under_torchrun() and any(word in str(error).lower() for word in words)


def _make_validate(config: Any, prepared: Any) -> Any:
    import torch

    from prismask.evaluation.validation import make_validation

    region = None if prepared.region is None else torch.tensor(prepared.region.values)
    return make_validation(prepared.validation_scenes, region, prepared.camera)


def progress_text(line: dict[str, Any]) -> str:
    """One line of metrics as a person reads it."""
    if line["event"] == "validation":
        groups = [f"{k.removeprefix('psnr_')} {v:.2f}" for k, v in line.items() if "psnr_" in k]
        return f"validation at step {line['step']}: PSNR paper [dB] {', '.join(groups)}"
    g = f"  g {line['g_min']:.4f}…{line['g_max']:.4f}" if "g_min" in line else ""
    return (
        f"epoch {line['epoch']:4d} {line['phase']:6s} loss {line['loss']:.5f}  "
        f"PSNR unit {line['psnr_unit']:5.2f} dB{g}  {line['samples_per_s']:6.0f} samples/s  "
        f"{_time(line['seconds_left'])} left"
    )


def _time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


_last_shown = [-1e9]


def _report(line: dict[str, Any]) -> None:
    """Show validations always and steps at most every two seconds."""
    if line["event"] == "step":
        if line["seconds"] - _last_shown[0] < 2 and line["seconds"] > _last_shown[0]:
            return
        _last_shown[0] = line["seconds"]
    log.info("%s", progress_text(line))


def _draw_curves(folder: Path) -> None:
    try:
        from prismask.evaluation.curves import draw_curves
    except ImportError:
        log.debug("matplotlib is not installed; no curves were drawn")
        return
    draw_curves(folder / "metrics.jsonl", folder / "curves.png")
