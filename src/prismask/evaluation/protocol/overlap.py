"""Whether a model has seen what it is tested on.

Weights carry a record of the masks and scenes they were trained on. A test mask that shares a
pixel of the same aperture with them, or a test scene of the same name, is refused; allowed by
hand it is marked beside every score. One-to-one is the exception by definition: there the test
mask *is* the training mask, and nothing else will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from prismask.errors import OverlapError
from prismask.evaluation.protocol.splits import Group
from prismask.evaluation.run.contenders import Contender
from prismask.optics.masks import MaskEntry, check_disjoint

Verdict = Literal["", "same mask", "overlap", "unknown"]
"""How test and training masks relate, as tables write it; empty: they share nothing."""

VERDICT_TEXTS: dict[str, str] = {
    "same mask": "trained on this very mask, as one-to-one means",
    "overlap": "**has seen these masks or scenes in training**",
    "unknown": "it is not known which masks it was trained on",
}


def judge_all(
    contenders: Iterable[Contender],
    groups: Iterable[Group],
    scenes: Iterable[str],
    protocol: str,
    allow: bool = False,
) -> tuple[dict[tuple[str, str], Verdict], list[str]]:
    """A verdict for each (model, group), and remarks; raises `OverlapError` unless allowed."""
    groups, scenes = list(groups), list(scenes)
    verdicts: dict[tuple[str, str], Verdict] = {}
    remarks: list[str] = []
    for contender in contenders:
        shared_scenes = trained_scenes(contender, scenes)
        if chosen := trained_scenes(contender, scenes, "validation"):
            remarks.append(
                f"{contender.label}: its training was validated on {', '.join(chosen)}, and a "
                "self-tuned mask posterior learns from such scenes."
            )
        for group in groups:
            verdict, why = judge(contender, group, protocol)
            if shared_scenes:
                verdict, why = "overlap", f"it was trained on {', '.join(shared_scenes)}."
            if verdict == "overlap" and not allow:
                raise OverlapError(
                    f"{contender.label} on {group.name}: {why} A score there says little about "
                    "unseen cameras. Leave the group out with --groups, or pass --allow-overlap "
                    "to see the score marked."
                )
            if verdict == "overlap":
                remarks.append(f"{contender.label} on {group.name}: {why}")
            verdicts[contender.label, group.name] = verdict
    return verdicts, remarks


def judge(contender: Contender, group: Group, protocol: str) -> tuple[Verdict, str]:
    """How the group's masks relate to the contender's training masks, and the reason."""
    earlier = [record.get("masks") for record in contender.earlier_trainings]
    verdicts = [
        _judge_masks(facts, group, protocol) for facts in (contender.training_masks, *earlier)
    ]
    # What was seen in an earlier training stays seen: the gravest verdict counts.
    order: tuple[Verdict, ...] = ("overlap", "unknown", "same mask", "")
    return min(verdicts, key=lambda found: order.index(found[0]))


def _judge_masks(
    facts: Mapping[str, Any] | None, group: Group, protocol: str
) -> tuple[Verdict, str]:
    if facts is None:
        return "unknown", ""
    trained = training_entry(facts)
    if trained is None:
        return "", ""
    try:
        check_disjoint(trained, group.masks)
    except OverlapError as error:
        if protocol == "one-to-one" and _is_the_mask(trained, group):
            return "same mask", ""
        return "overlap", str(error)
    return "", ""


def training_entry(facts: Mapping[str, Any]) -> MaskEntry | None:
    """The region that training masks were cut from; None where they were fabricated."""
    if "source_hash" not in facts:
        return None
    (top, bottom), (left, right) = facts["rows"], facts["columns"]
    return MaskEntry(
        "", str(facts["source_hash"]), str(facts["name"]), top, left, bottom - top, right - left
    )


def trained_scenes(contender: Contender, scenes: Iterable[str], part: str = "train") -> list[str]:
    """Test scenes that the contender's record lists as scenes for training, or for validation."""
    seen: set[str] = set()
    for record in (contender.record, *contender.earlier_trainings):
        data = record.get("data", {})
        # Made-up scenes have names too, but every run makes its own.
        if data.get("source") != "synthetic":
            seen.update(data.get(part, ()))
    return sorted(seen & set(scenes))


def trained_on(contender: Contender) -> str:
    """Where its training masks came from, in words; those of the weights it began from too."""
    if contender.kind in ("untrained", "solver"):
        return "nothing"
    earlier = [_masks_in_words(record.get("masks")) for record in contender.earlier_trainings]
    latest, *before = dict.fromkeys([_masks_in_words(contender.training_masks), *earlier])
    return f"{latest}; before that {', '.join(before)}" if before else latest


def beyond_one_mask(contenders: Iterable[Contender], protocol: str) -> list[str]:
    """Remarks on those that one-to-one and one-to-many do not mean: they know many masks."""
    if protocol == "many-to-many":
        return []
    remarks = []
    for contender in contenders:
        earlier = [record.get("masks") for record in contender.earlier_trainings]
        known = (facts for facts in (contender.training_masks, *earlier) if facts)
        sources = {facts.get("source", "single") for facts in known}
        if sources - {"single", "none"}:
            remarks.append(
                f"{contender.label} knows more than one mask: it was trained on "
                f"{trained_on(contender)}. {protocol} means networks that know one."
            )
    return remarks


def _masks_in_words(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "unknown"
    trained = training_entry(facts)
    words = "fabricated masks" if trained is None else f"{trained.name} {trained.rectangle.text()}"
    share = float(facts.get("fabricated_share") or 0)
    if trained is not None and share:
        words += f" and fabricated masks ({share:.0%})"
    return f"{words}, varied" if facts.get("vary") else words


def _is_the_mask(trained: MaskEntry, group: Group) -> bool:
    return all(
        entry.source_hash == trained.source_hash and entry.rectangle == trained.rectangle
        for entry in group.masks.entries
    )
