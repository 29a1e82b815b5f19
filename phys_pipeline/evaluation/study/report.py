"""The analysis of a study as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_QUESTIONS = {"overall": "better overall", "motion": "moves more plausibly"}
_HEAD = "| {} | n | share | Wilson | participants | prompts | both | p |\n|---|---|---|---|---|---|---|---|"


def study_markdown(analysis: Mapping[str, Any]) -> str:
    """Tables of an analysis as :func:`~phys_pipeline.evaluation.study.analyse.analyse` gives it, with how to read them."""
    people, answers, limits = analysis["participants"], analysis["answers"], analysis["limits"]
    lines = [
        f"# Study: {' '.join(analysis['title'].split())}",
        "",
        f"{people['all']} participants, {people['kept']} kept; {answers['all']} answers,",
        f"{answers['of_kept_participants']} of kept participants, of which {answers['too_fast']} faster than",
        f"{limits['shortest']:g} s and {answers['too_slow']} slower than {limits['longest']:g} s are dropped.",
        f"{analysis['pairs_in_study']} pairs in the study, seed {analysis['seed']}.",
        "",
    ]
    if not answers["votes"]:
        lines += ["There is no answer that counts yet: nothing can be said.", ""]
    else:
        lines += _preferences(analysis)
        lines += _checks(analysis)
    if analysis["excluded"]:
        lines += ["## Excluded participants", "", "| participant | reason |", "|---|---|"]
        lines += [f"| {entry['participant']} | {entry['reason']} |" for entry in analysis["excluded"]]
        lines.append("")
    return "\n".join(lines)


def _preferences(analysis: Mapping[str, Any]) -> list[str]:
    lines = [
        "Intervals are 95 %. Wilson and the sign test's p take all votes as independent, which they are not. The bootstrap over",
        "participants and prompts at once (both) is the one to go by; those over one of them say where the doubt comes from.",
        "With a handful of participants or prompts none is to be trusted. A dash: all votes are equal, or there is one",
        "participant or prompt, and resampling can't say anything.",
        "",
    ]
    for found in analysis["preferences"]:
        if not found["share"]["n"]:
            continue
        lines += [
            f"## {found['second']} preferred to {found['first']}: {_QUESTIONS[found['question']]}",
            "",
            _HEAD.format("pairs"),
            _row("all", found["share"]),
        ]
        for label in ("stratum", "motion"):
            lines += [_row(f"{label} {value}", share) for value, share in found[label].items()]
        alpha = found["alpha"]
        shown = "not defined here" if alpha is None else f"{alpha:.3f}"
        lines += ["", f"Agreement between participants (Krippendorff's alpha; 0 is chance, 1 is full agreement): {shown}.", ""]
    return lines


def _checks(analysis: Mapping[str, Any]) -> list[str]:
    less = analysis["less_motion"]
    lines = ["## Checks", "", _HEAD.format("choice")]
    lines += [_row(f"left side: {_QUESTIONS[question]}", analysis["left"][question]) for question in _QUESTIONS]
    lines += [_row(f"clip with less motion: {_QUESTIONS[question]}", less[question]) for question in _QUESTIONS]
    lines += [
        "",
        f"Sides are balanced, so a share of left choices away from 50 % is a habit. Motion is measured by {less['measure']}.",
    ]
    interval = less["motion"]["both"] or less["motion"]["wilson"]
    if interval is not None and interval[0] > 0.5:
        lines.append(
            "**Participants chose the clip with less motion more often than not: a preference may be one for less motion, not "
            "for better motion.**"
        )
    return [*lines, ""]


def _row(name: str, share: Mapping[str, Any]) -> str:
    if not share["n"]:
        return f"| {name} | 0 | no votes | | | | | |"
    intervals = " | ".join(
        f"{100 * share[kind][0]:.1f} to {100 * share[kind][1]:.1f}" if share[kind] else "–"
        for kind in ("wilson", "participants", "prompts", "both")
    )
    return f"| {name} | {share['n']} | {100 * share['value']:.1f} % | {intervals} | {_p(share['p'])} |"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
