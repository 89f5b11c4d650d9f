"""Drawing masks, and refusing those that a model has seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_workload import SIDE, mask, region

from prismask.errors import ConfigError, OverlapError, ShapeError
from prismask.evaluation.protocol.splits import (
    FABRICATED,
    beyond_one_mask,
    draw_groups,
    judge,
    judge_all,
    trained_on,
    trained_scenes,
)
from prismask.evaluation.run.contenders import Contender
from prismask.optics.masks import MaskRegion

SIZE = (SIDE, SIDE)


def trained(source: MaskRegion | None, **more: Any) -> Contender:
    """A contender whose record says that it was trained on a region."""
    masks: dict[str, Any] = {"source": "train", "vary": False, "fabricated_share": 0.0}
    if source is not None:
        masks |= {
            "name": source.name,
            "source_hash": source.source_hash,
            "rows": list(source.rows),
            "columns": list(source.columns),
        }
    return Contender("net", "weights", None, "id", {"masks": masks, **more})


def test_masks_are_listed_seeded_and_all_different() -> None:
    one, same, other = (
        draw_groups({"lab": region()}, "many-to-many", 20, SIZE, seed)["lab"] for seed in (0, 0, 1)
    )
    assert one.masks == same.masks
    assert one.masks.id != other.masks.id
    places = {(entry.row, entry.column) for entry in one.masks.entries}
    assert len(places) == 20
    longer = draw_groups({"lab": region()}, "many-to-many", 30, SIZE, 0)["lab"]
    assert longer.masks.entries[:20] == one.masks.entries


def test_fabricated_masks_need_no_region_and_stay_when_more_are_asked_for() -> None:
    groups = draw_groups({FABRICATED: None}, "many-to-many", 3, (20, 24), 0)
    masks = [groups[FABRICATED].mask(trial) for trial in range(3)]
    assert all(mask.shape == (1, 1, 20, 24) for mask in masks)
    assert not torch.equal(masks[0], masks[1])
    longer = draw_groups({FABRICATED: None}, "many-to-many", 5, (20, 24), 0)[FABRICATED]
    assert torch.equal(longer.mask(2), masks[2])
    ids = [entry.mask_id for entry in groups[FABRICATED].masks.entries]
    assert [entry.mask_id for entry in longer.masks.entries[:3]] == ids
    other = draw_groups({FABRICATED: None}, "one-to-one", 5, (20, 24), 1)[FABRICATED]
    assert len(other) == 1
    assert not torch.equal(other.mask(0), masks[0])


def test_a_trial_s_mask_is_what_the_list_says() -> None:
    group = draw_groups({"lab": region()}, "many-to-many", 5, SIZE, 0)["lab"]
    entry = group.masks.entries[3]
    expected = mask().values[entry.row : entry.row + SIDE, entry.column : entry.column + SIDE]
    assert torch.equal(group.mask(3)[0, 0], torch.tensor(expected))


def test_groups_get_masks_of_their_own() -> None:
    groups = draw_groups({"a": region(), "b": region()}, "many-to-many", 10, SIZE, 0)
    assert groups["a"].masks.id != groups["b"].masks.id


def test_one_to_one_has_one_trial_on_exactly_one_mask() -> None:
    fitting = MaskRegion.of(mask(), (3, 3 + SIDE), (5, 5 + SIDE), "lab")
    group = draw_groups({"single": fitting}, "one-to-one", 100, SIZE, 0)["single"]
    assert len(group) == 1
    assert group.masks.entries[0].rectangle == fitting.rectangle
    with pytest.raises(ShapeError, match="one-to-one tests on one mask"):
        draw_groups({"single": region()}, "one-to-one", 100, SIZE, 0)


def test_too_many_or_no_trials() -> None:
    with pytest.raises(ShapeError, match="different crops"):
        draw_groups({"lab": region()}, "many-to-many", 10**6, SIZE, 0)
    with pytest.raises(ConfigError, match="at least 1"):
        draw_groups({"lab": region()}, "many-to-many", 0, SIZE, 0)


def parts() -> tuple[MaskRegion, MaskRegion, MaskRegion]:
    """Upper half, lower half, and one row of both, of one source."""
    whole = mask()
    return (
        MaskRegion.of(whole, (0, 20), None, "lab"),
        MaskRegion.of(whole, (20, 40), None, "lab"),
        MaskRegion.of(whole, (19, 40), None, "lab"),
    )


def test_a_planted_overlap_is_refused_and_one_row_less_is_not() -> None:
    upper, lower, shared = parts()
    groups = draw_groups({"good": lower, "bad": shared}, "many-to-many", 90, SIZE, 0)
    model = trained(upper)
    verdicts, _ = judge_all([model], [groups["good"]], [], "many-to-many")
    assert verdicts == {("net", "good"): ""}
    with pytest.raises(OverlapError, match=r"net on bad: .*--allow-overlap"):
        judge_all([model], groups.values(), [], "many-to-many")
    verdicts, remarks = judge_all([model], groups.values(), [], "many-to-many", allow=True)
    assert verdicts == {("net", "good"): "", ("net", "bad"): "overlap"}
    assert "net on bad" in remarks[0]
    assert "share rows 19–19" in remarks[0]


def test_the_second_calibration_of_an_aperture_counts_as_the_same() -> None:
    larger = MaskRegion.of(mask(size=(260, 250)), name="tsanet_real_660")
    model = trained(MaskRegion.of(mask(8, size=SIZE), name="tsanet_sim_256"))
    near = MaskRegion.of(larger.source, (210, 240), (200, 240), "tsanet_real_660")
    far = MaskRegion.of(larger.source, (0, 30), (0, 40), "tsanet_real_660")
    drawn = draw_groups({"near": near, "far": far}, "many-to-many", 3, SIZE, 0)
    assert judge(model, drawn["far"], "many-to-many")[0] == ""
    assert judge(model, drawn["near"], "many-to-many")[0] == "overlap"


def test_one_to_one_allows_the_very_mask_and_no_other() -> None:
    single = MaskRegion.of(mask(), (3, 3 + SIDE), (5, 5 + SIDE), "lab")
    group = draw_groups({"single": single}, "one-to-one", 1, SIZE, 0)["single"]
    assert judge(trained(single), group, "one-to-one")[0] == "same mask"
    assert judge(trained(single), group, "one-to-many")[0] == "overlap"
    moved = MaskRegion.of(mask(), (3, 4 + SIDE), (5, 5 + SIDE), "lab")
    assert judge(trained(moved), group, "one-to-one")[0] == "overlap"
    assert judge(trained(region()), group, "one-to-one")[0] == "overlap"


def test_who_cannot_have_seen_anything_and_who_may_have() -> None:
    group = draw_groups({"lab": region()}, "many-to-many", 3, SIZE, 0)["lab"]
    assert judge(trained(None), group, "many-to-many")[0] == ""
    solver = Contender("tv", "solver", None, "id", {})
    assert judge(solver, group, "many-to-many")[0] == ""
    stranger = Contender("f", "callable", None, "id", {})
    assert judge(stranger, group, "many-to-many")[0] == "unknown"
    silent = Contender("w", "weights", None, "id", {})
    assert judge(silent, group, "many-to-many")[0] == "unknown"


def test_scenes_that_were_trained_on_are_refused_too() -> None:
    group = draw_groups({"lab": region()}, "many-to-many", 3, SIZE, 0)["lab"]
    model = trained(None, data={"source": "cave", "train": ["beads"], "validation": ["cloth"]})
    _, remarks = judge_all([model], [group], ["cloth"], "many-to-many")
    assert any("validated on cloth" in remark for remark in remarks)
    assert judge_all([model], [group], ["feathers"], "many-to-many")[1] == []
    with pytest.raises(OverlapError, match="trained on beads"):
        judge_all([model], [group], ["beads", "cloth"], "many-to-many")
    verdicts, _ = judge_all([model], [group], ["beads"], "many-to-many", allow=True)
    assert verdicts["net", "lab"] == "overlap"


def test_what_an_earlier_training_saw_stays_seen() -> None:
    upper, lower, _ = parts()
    drawn = draw_groups({"lower": lower}, "many-to-many", 3, SIZE, 0)["lower"]
    data = {"source": "cave", "train": ["beads"]}
    first = trained(lower, data=data)
    second = trained(upper, started_from=dict(first.record))
    third = trained(upper, started_from=dict(second.record))
    assert judge(trained(upper), drawn, "many-to-many")[0] == ""
    for model in (second, third):
        assert judge(model, drawn, "many-to-many")[0] == "overlap"
        assert trained_scenes(model, ["beads", "cloth"]) == ["beads"]


def test_training_masks_in_words() -> None:
    upper = parts()[0]
    assert trained_on(trained(upper)) == "lab rows 0–19, columns 0–43"
    assert trained_on(trained(None)) == "fabricated masks"
    mixed = trained(upper)
    mixed.record["masks"].update(vary=True, fabricated_share=0.5)
    assert trained_on(mixed).endswith("and fabricated masks (50%), varied")


def test_weights_that_began_from_others_say_what_those_were_trained_on() -> None:
    upper, lower, _ = parts()
    first = trained(lower)
    again = trained(lower, started_from=dict(first.record))
    second = trained(upper, started_from=dict(again.record))
    assert trained_on(again) == trained_on(first)
    assert trained_on(second) == f"{trained_on(trained(upper))}; before that {trained_on(first)}"


def test_a_network_that_knows_many_masks_is_told_among_those_that_know_one() -> None:
    upper, lower, _ = parts()
    one = trained(upper)
    one.record["masks"]["source"] = "single"
    tuned = trained(upper, started_from=dict(trained(lower).record))
    tuned.record["masks"]["source"] = "single"
    solver, stranger = (Contender("f", kind, None, "id", {}) for kind in ("solver", "callable"))
    everybody = [one, tuned, trained(upper), solver, stranger]
    remarks = beyond_one_mask(everybody, "one-to-many")
    assert len(remarks) == 2
    assert "lab rows 0–19, columns 0–43; before that lab rows 20" in remarks[0]
    assert beyond_one_mask(everybody, "many-to-many") == []
