"""`prismask train`, and `python -m prismask.training` where only torch and SciPy are installed.

Progress goes to the terminal, everything else to the run folder. Curves are drawn where
matplotlib is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from prismask.apps.cli.terminal import complain, remark, say, settle_streams
from prismask.errors import PrismaskError
from prismask.wording import speaking_flags

if TYPE_CHECKING:
    from prismask.training.run import Outcome

LOST_PEER = 3
SECONDS_BETWEEN_LINES = 2.0


def train(
    config: Path,
    /,
    *,
    set_: list[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    stop_after: str = "",
) -> int:
    """Train a network from a configuration file.

    Parameters
    ----------
    config
        A TOML file, such as configs/smoke.toml.
    set_
        Changes to the file, as in --set schedule.batch=4; may be repeated.
    out
        Run folder. [default: runs/NAME]
    resume
        Continue from the run folder's checkpoint.
    stop_after
        Pause with a checkpoint after this time, as in 9min; continue with --resume.
    """
    from prismask.training.distributed import is_first_process

    outcome = run_training(
        config, overrides=set_ or (), out=out, resume=resume, stop_after=stop_after
    )
    if is_first_process():
        say(f"{'finished' if outcome.finished else 'paused'}: {outcome.folder}")
    return 0


def run_training(
    config_path: Path | str,
    *,
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    resume: bool = False,
    stop_after: str = "",
) -> Outcome:
    """Train as the file says, tell the terminal and draw the curves."""
    from prismask.evaluation.run.training import train as train_network
    from prismask.training.config import parse_budget, read_config
    from prismask.training.distributed import is_first_process

    config = read_config(config_path, list(overrides))
    folder = Path(out) if out is not None else Path("runs") / config.name
    if resume and is_first_process() and not (folder / "checkpoint.safetensors").exists():
        # Scripts may always say --resume; a person whose folder got lost should hear of it now.
        remark(f"{folder} holds no checkpoint: this training starts from the beginning.")
    outcome = train_network(
        config,
        folder,
        resume=resume,
        report=line_reporter(),
        stop_after=parse_budget(stop_after),
    )
    if is_first_process():
        _draw_curves(folder)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of `python -m prismask.training`, alone or under torchrun."""
    settle_streams()
    parser = argparse.ArgumentParser(prog="python -m prismask.training")
    parser.add_argument("config", type=Path, help="a TOML file, such as configs/smoke.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="set_")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME)")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--stop-after", default="", metavar="TIME", help="pause after e.g. 9min")
    given = vars(parser.parse_args(arguments))
    try:
        with speaking_flags():
            return train(given.pop("config"), **given)
    except PrismaskError as error:
        complain(str(error))
        return 2
    except RuntimeError as error:
        if not _lost_peer(error):
            raise
        complain(
            f"another process of this run is gone ({str(error).splitlines()[0]}). The run "
            "folder's checkpoint is whole: start again with --resume."
        )
        _leave_at_once(LOST_PEER)


def _leave_at_once(code: int) -> NoReturn:
    """End without clearing up: with a peer gone, gloo's threads may abort the process at that."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def line_reporter() -> Callable[[dict[str, Any]], None]:
    """Shows every validation, and steps no more often than every two seconds."""
    last = -SECONDS_BETWEEN_LINES

    def report(line: dict[str, Any]) -> None:
        nonlocal last
        if line["event"] == "step":
            if 0 <= line["seconds"] - last < SECONDS_BETWEEN_LINES:
                return
            last = line["seconds"]
        remark(progress_text(line))

    return report


def progress_text(line: dict[str, Any]) -> str:
    """One line of metrics as a person reads it."""
    if line["event"] == "validation":
        groups = [f"{k.removeprefix('psnr_')} {v:.2f}" for k, v in line.items() if "psnr_" in k]
        return f"validation at step {line['step']}: PSNR paper [dB] {', '.join(groups)}"
    g = f"  g {line['g_min']:.4f}…{line['g_max']:.4f}" if "g_min" in line else ""
    done = int(20 * min(line["progress"], 1))
    return (
        f"[{'#' * done}{'.' * (20 - done)}] epoch {line['epoch']} {line['phase']}  "
        f"loss {line['loss']:.5f}  PSNR unit {line['psnr_unit']:.2f} dB{g}  "
        f"{line['samples_per_s']:.0f} samples/s  {_time(line['seconds_left'])} left"
    )


def _time(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def _lost_peer(error: BaseException) -> bool:
    from prismask.training.distributed import under_torchrun

    words = ("connection", "peer", "gloo", "nccl", "timed out", "socket")
    return under_torchrun() and any(word in str(error).lower() for word in words)


def _draw_curves(folder: Path) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None or not (folder / "metrics.jsonl").exists():
        return
    from prismask.evaluation.figures.training import draw_curves

    draw_curves(folder / "metrics.jsonl", folder / "curves.png")
