"""One table of the networks the paper builds on and compares with.

    python results/networks.py

Reads kaist/networks/*/ (evaluations), training/networks/*/ (the runs that were evaluated) and the
benchmark_backbones_*.json beside this file; writes networks.md. A network that was trained but not
evaluated yet has no scores there.
"""

from __future__ import annotations

import csv
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismask.evaluation.tables import published

HERE = Path(__file__).resolve().parent
GROUPS = {"test_same_hardware": "same hardware", "test_other_hardware": "other hardware"}
BACKBONES = {
    "swinir": "SwinIR",
    "swinir-gst": "SwinIR + GST",
    "spectral-vit": "Spectral ViT",
    "spectral-vit-gst": "Spectral ViT + GST",
}
COMPARED = {
    "tsa-net": ("TSA-Net", "many-to-many"),
    "gsm": ("GSM", "many-to-many"),
    "lambda-net": ("λ-net", "one-to-one"),
    "hssp": ("HSSP", "one-to-one"),
}
"""What the paper calls them, and where it has a number of them."""


@dataclass(frozen=True)
class Run:
    """What a training left behind."""

    minutes: float
    samples: int
    validation: dict[str, float]


def main() -> None:
    text = "\n\n".join(
        (
            "# The networks the paper builds on and compares with",
            "Made by `python results/networks.py`; where the numbers come from is said in "
            "[README.md](README.md#the-compared-networks).",
            "## Trained for the same time, scored on the same 100 masks a group",
            "PSNR paper [dB] / SSIM (zero-padded) on KAIST, mean ± standard deviation over masks. "
            "Validation: PSNR paper [dB] on CAVE scenes, seen / fabricated masks.",
            scores_table(),
            gst_table(),
            "## Speed",
            "Plain: the same network in eager float32 with attention written out. Training "
            "milliseconds a sample, inference milliseconds a snapshot, peak memory of ours.",
            *(speed_table(path) for path in sorted(HERE.glob("benchmark_backbones_*.json"))),
        )
    )
    (HERE / "networks.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def scores_table() -> str:
    runs, scores = read_runs(), read_scores()
    heads = " | ".join(GROUPS.values())
    lines = [f"| network | samples (128×128) | validation | {heads} | paper |", "|---" * 6 + "|"]
    for name, run in runs.items():
        seen, fabricated = (run.validation.get(f"psnr_{k}") for k in ("seen", "fabricated"))
        check = "" if seen is None else f"{seen:.2f} / {fabricated:.2f}"
        cells = " | ".join(score_text(scores.get((name, group))) for group in GROUPS)
        lines.append(
            f"| {name} | {run.samples:,} in {run.minutes:.1f} min | {check} | {cells} | "
            f"{paper_text(name)} |"
        )
    return "\n".join(lines)


def paper_text(name: str) -> str:
    """PSNR paper [dB] / SSIM of the paper, many-to-many where it has one."""
    if name in BACKBONES:
        psnr, ssim = published.ROWS[BACKBONES[name]]["many-to-many"].values()
        return f"{psnr.mean:.2f} / {ssim.mean:.4f}"
    if name not in COMPARED:
        return ""
    title, protocol = COMPARED[name]
    psnr, ssim = (one["average"] for one in published.SCORES[protocol][title].values())
    text = f"{psnr.mean:.2f} / {ssim.mean:.4f}"
    return text + (" (one mask)" if protocol == "one-to-one" else "")


def read_runs() -> dict[str, Run]:
    """Every run in training/networks by its name, each with and without GST side by side."""
    found = {}
    for folder in sorted((HERE / "training" / "networks").glob("*/")):
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        last = next(x for x in map(json.loads, reversed(lines)) if x["event"] == "validation")
        samples = last["step"] * config["schedule"]["batch"]
        found[folder.name] = Run(last["seconds"] / 60, samples, last)
    return found


def read_scores() -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Mean and standard deviation of each metric by network and mask group."""
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for path in sorted((HERE / "kaist" / "networks").glob("*/summary.csv")):
        for row in csv.DictReader(path.open(encoding="utf-8")):
            if row["scene"] == "average":
                numbers = (float(row["mean"]), float(row["std"]))
                found.setdefault((row["model"], row["group"]), {})[row["metric"]] = numbers
    return found


def score_text(found: dict[str, tuple[float, float]] | None) -> str:
    if found is None:
        return "not evaluated"
    (psnr, spread), (ssim, _) = found["psnr_paper"], found["ssim"]
    return f"{psnr:.2f} ± {spread:.2f} / {ssim:.4f}"


def gst_table() -> str:
    """What GST adds to a backbone, where both were evaluated together."""
    lines = []
    for path in sorted((HERE / "kaist" / "networks").glob("*/paired.csv")):
        for row in csv.DictReader(path.open(encoding="utf-8")):
            names = {row["first"], row["second"]}
            plain = min(names, key=len)
            if row["metric"] != "psnr_paper" or row["scene"] != "average":
                continue
            if names == {plain, f"{plain}-gst"}:
                sign = 1 if row["first"] != plain else -1
                low, high = sorted(sign * float(row[key]) for key in ("low", "high"))
                lines.append(
                    f"| {plain} | {GROUPS[row['group']]} | {sign * float(row['mean']):+.3f} | "
                    f"{low:+.3f} … {high:+.3f} |"
                )
    if not lines:
        return "What GST adds has not been evaluated yet."
    head = "| what GST adds to | masks | PSNR paper [dB] | 95 % interval |"
    return "\n".join((head, "|---|---|---|---|", *lines))


def speed_table(path: Path) -> str:
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    title = (
        f"{facts['device']}, {facts['size']}×{facts['size']}, batch {facts['train_batch']} in "
        f"training and {facts['batch']} in inference{', compiled' if facts['compiled'] else ''} "
        f"([{path.name}]({path.name})):"
    )
    lines = [
        "| network | parameters [M] | multiply-adds [G] | training: plain | ours | faster | GiB | "
        "inference: plain | ours | faster | GiB | error |",
        "|---" * 12 + "|",
    ]
    for row in facts["rows"]:
        cells = [row["network"], f"{row['parameters_M']:.2f}", f"{row['multiply_adds_G']:.1f}"]
        for part in ("training", "inference"):
            plain, ours = row[part]["plain"], row[part]["ours"]
            cells += [f"{plain['ms']:.2f}", f"{ours['ms']:.2f}", f"{row[part]['faster']:.2f}×"]
            cells.append(f"{ours['peak_GiB']:.2f}")
        cells.append(f"{row['inference']['ours']['relative_error']:.1e}")
        lines.append("| " + " | ".join(cells) + " |")
    return title + "\n\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
