"""The tables about the models: whose numbers stand beside whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prismask.evaluation.report.document import Table, Text
from prismask.evaluation.report.models import model_sections
from prismask.evaluation.report.sources import Source, Sources
from prismask.evaluation.tables.published import PSNR, SCENES
from prismask.evaluation.tables.summaries import AVERAGE, write_table

COLUMNS = ("model", "group", "scene", "metric", "trials", "failed", "mean", "std", "standard_error")


def evaluation(folder: Path, models: dict[str, tuple[str, str]]) -> Source:
    """A finished evaluation of `{label: (backbone, kind of posterior)}` on the ten scenes."""
    rows = [
        (label, "g", scene, PSNR, 2, 0, 30.0, 0.1, 0.07)
        for label in models
        for scene in (*SCENES, AVERAGE)
    ]
    write_table(folder / "summary.csv", COLUMNS, rows)
    facts = {
        label: {"record": {"name": label, "backbone": backbone, "posterior": {"kind": kind}}}
        for label, (backbone, kind) in models.items()
    }
    record = {"protocol": "many-to-many", "groups": {"g": {}}, "models": facts}
    return Source("here", folder, record)


def table(found: Sources, caption: str) -> Table:
    blocks = [block for section in model_sections(found) for block in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def by_model(rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in rows}


def test_every_backbone_stands_beside_its_own_numbers(tmp_path: Path) -> None:
    models = {
        "srn": ("srn", "none"),
        "srn-gst": ("srn", "gst"),
        "swinir": ("swinir", "none"),
        "swinir-gst": ("swinir", "gst"),
        "vit-gst": ("spectral-vit", "gst"),
        "looks-gst": ("srn-looks", "gst"),
    }
    rows = by_model(table(Sources(evaluations=[evaluation(tmp_path, models)]), "Ablation").rows)
    beside = {label: cells[-2:] for label, cells in rows.items()}
    assert beside == {
        "srn": ["w/o GST", "32.24 ± 0.10"],
        "srn-gst": ["full", "33.02 ± 0.01"],
        "swinir": ["SwinIR", "33.49 ± 0.10"],
        "swinir-gst": ["SwinIR + GST", "34.15 ± 0.01"],
        "vit-gst": ["Spectral ViT + GST", "32.15 ± 0.01"],
        "looks-gst": ["–", "–"],
    }


def test_a_missing_ablation_is_told_once_and_only_where_there_is_none(tmp_path: Path) -> None:
    sources = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        sources.append(evaluation(tmp_path / str(number), {"srn": ("srn", "none")}))
    texts = [b for s in model_sections(Sources(evaluations=sources)) for b in s.blocks]
    told = [b.text for b in texts if isinstance(b, Text) and "ablation" in b.text]
    assert len(told) == 1
    assert "prismask join" in told[0]
    (tmp_path / "both").mkdir()
    both = {"srn": ("srn", "none"), "srn-gst": ("srn", "gst")}
    sources.append(evaluation(tmp_path / "both", both))
    blocks = [b for s in model_sections(Sources(evaluations=sources)) for b in s.blocks]
    assert not [b for b in blocks if isinstance(b, Text) and "ablation" in b.text]
    assert len([b for b in blocks if isinstance(b, Table) and "Ablation" in b.caption]) == 1


def test_training_time_is_that_of_the_same_weights(tmp_path: Path) -> None:
    source = evaluation(tmp_path, {"mine": ("srn", "gst"), "learning": ("srn", "none")})
    source.record["models"]["mine"]["identity"] = "aaaa"
    source.record["models"]["learning"]["identity"] = "bbbb, learning for 2 steps"
    source.record["costs"] = {"mine": {}, "learning": {}}
    facts = {"training_device": "one machine"}
    models = {
        "mine": {**facts, "identity": "cccc", "training_seconds": 600.0},
        "other": {**facts, "identity": "bbbb", "training_seconds": 720.0},
    }
    analysis = Source("analysis", tmp_path, {"models": models})
    found = Sources(evaluations=[source], analyses=[analysis])
    rows = by_model(table(found, "Complexity").rows)
    assert rows["mine"][3] == "–", "another network has this label in the analysis"
    assert rows["learning"][3] == "12 min, one machine"
