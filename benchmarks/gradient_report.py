"""Tables and figure of the gradient test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.descent import FORMS, MOTIONS, PROXIMITY, RATE, STEPS, STRONGER
from benchmarks.judging import clip_bootstrap
from phys_pipeline.atomic import atomic_file

Row = dict[str, Any]
HARD = ("jitter", "stutter")
LEAST_JERK_OFF, PATH_BAND, BELOW = 0.6, 0.25, 0.05  # the aims


def jerk_off(row: Row) -> float:
    before = row["before"]["jerk"]
    return 1 - row["after"]["jerk"] / before if before > 0 else 0.0


def path(row: Row) -> float:
    return row["after"]["path"] / row["clean"]["path"]


def distance(row: Row) -> float:
    before = row["before"]["distance"]
    return row["after"]["distance"] / before if before > 0 else 0.0


def gap(row: Row) -> float:
    return row["loss"]["after"] - row["loss"]["clean"]


def mean(rows: Sequence[Row], value: Callable[[Row], float], digits: int = 2) -> str:
    """Mean and its interval as text."""
    if not rows:
        return ""
    values = [(row["clip"], value(row)) for row in rows]
    low, high = clip_bootstrap(values)
    middle = float(np.mean([v for _, v in values]))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def median(rows: Sequence[Row], value: Callable[[Row], float]) -> str:
    """Median and its bootstrap interval as text."""
    values = np.array([value(row) for row in rows])
    drawn = np.random.default_rng(0).integers(len(values), size=(4000, len(values)))
    low, high = np.percentile(np.median(values[drawn], axis=1), [2.5, 97.5])
    return f"{np.median(values):.2f} [{low:.2f}, {high:.2f}]"


def average(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    return float(np.mean([value(row) for row in rows]))


def picked(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def meets(rows: Sequence[Row]) -> tuple[bool, bool, bool]:
    """Whether a form's rows reach the three aims on average: jerk, path, and no clip far below the clean clip's loss."""
    return (
        average(rows, jerk_off) >= LEAST_JERK_OFF,
        abs(average(rows, path) - 1) <= PATH_BAND,
        min(gap(row) for row in rows) >= -BELOW,
    )


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(line) + " |" for line in lines), ""]


def main_table(rows: Sequence[Row], start: str) -> list[str]:
    lines = []
    for form in FORMS:
        part = picked(rows, source="synthetic", start=start, form=form)
        if part:
            lines.append([
                form, mean(part, jerk_off), mean(part, path), mean(part, distance),
                mean(part, lambda r: r["after"]["sharpness"]), mean(part, lambda r: r["after"]["dynamic"]),
                mean(part, gap), f"{min(gap(r) for r in part):+.2f}",
            ])  # fmt: skip
    return table(
        ["form", "jerk off", "path / clean", "distance left", "sharpness", "dynamic degree", "loss - clean's", "lowest"], lines
    )


def aims_table(rows: Sequence[Row]) -> list[str]:
    """Means by motion and start, and which aims all six cells reach."""
    lines = []
    for form in FORMS:
        cells, reached = [], np.ones(3, bool)
        for motion in MOTIONS:
            for start in HARD:
                part = picked(rows, source="synthetic", start=start, form=form, motion=motion)
                cells.append(f"{average(part, jerk_off):.2f}, {average(part, path):.2f}" if part else "")
                reached &= np.array(meets(part)) if part else True
        if any(cells):
            lines.append([form, *cells, *("yes" if aim else "no" for aim in reached)])
    head = [f"{motion}, {start}" for motion in MOTIONS for start in HARD]
    return table(["form", *head, "jerk", "path", "loss"], lines)


def other_table(rows: Sequence[Row]) -> list[str]:
    lines = []
    for form in FORMS:
        line = [form]
        for start in ("reverse", "rubber"):
            part = picked(rows, source="synthetic", start=start, form=form)
            line += [mean(part, jerk_off), mean(part, distance)]
        part = picked(rows, source="synthetic", start="clean", form=form)
        line += [mean(part, lambda r: r["moved"]), mean(part, lambda r: r["after"]["sharpness"]),
                 mean(part, lambda r: r["after"]["dynamic"]), mean(part, path)]  # fmt: skip
        if part:
            lines.append(line)
    head = ["reversed: jerk off", "distance left", "rubber: jerk off", "distance left"]
    return table(["form", *head, "clean: moved / D", "sharpness", "dynamic degree", "path / clean"], lines)


def source_table(rows: Sequence[Row], source: str, middle: Callable[..., str] = mean) -> list[str]:
    lines = []
    for form in FORMS:
        for start in HARD:
            part = picked(rows, source=source, start=start, form=form)
            if part:
                lines.append([
                    form, start, str(len(part)), middle(part, jerk_off), middle(part, path), middle(part, distance),
                    middle(part, lambda r: r["after"]["sharpness"]),
                    middle(part, lambda r: r["after"]["dynamic"]), middle(part, gap),
                ])  # fmt: skip
    head = ["form", "start", "n", "jerk off", "path / clean", "distance left", "sharpness", "dynamic degree", "loss - clean's"]
    return table(head, lines)


def paired_line(rows: Sequence[Row], source: str) -> str:
    """Jerk off under the anchored form minus that under the squared error, on the same clips."""
    parts = []
    for start in HARD:
        ours, theirs = (picked(rows, source=source, start=start, form=form) for form in ("anchored", "squared error"))
        peer = {row["clip"]: row for row in theirs}
        both = [{"clip": row["clip"], "gain": jerk_off(row) - jerk_off(peer[row["clip"]])} for row in ours if row["clip"] in peer]
        if both:
            parts.append(f"{start} {mean(both, lambda r: r['gain'], 3)}")
    return f"Jerk off, anchored minus squared error, paired: {'; '.join(parts) or 'not run'}."


def paint_table(rows: Sequence[Row]) -> list[str]:
    lines = []
    for form in FORMS:
        part = picked(rows, source="paint", form=form)
        if part:
            pays = sum(row["slope"] < 0 for row in part)
            lower = sum(row["change"] < 0 for row in part)
            lines.append([
                form, mean(part, lambda r: r["change"], 3), f"{lower} of {len(part)}", mean(part, lambda r: r["slope"], 3),
                f"{pays} of {len(part)}",
            ])  # fmt: skip
    return table(["form", "change of the value", "value falls", "slope along the paint", "painting is downhill"], lines)


def prediction_tables(rows: Sequence[Row]) -> list[str]:
    part = picked(rows, source="prediction")
    if not part:
        return []
    sigmas = sorted({row["sigma"] for row in part})
    names = list(part[0]["cosine"])
    lines = []
    for sigma in sigmas:
        here = picked(part, sigma=sigma)
        lines.append([
            f"{sigma:g}", str(len(here)), mean(here, lambda r: r["error"]),
            mean(here, lambda r: r["loss"]["absolute"]), mean(here, lambda r: r["clean loss"]["absolute"]),
            mean(here, lambda r: r["loss"]["anchored"]),
        ])  # fmt: skip
    text = table(["sigma", "n", "error energy", "absolute loss of x0-hat", "of x0", "anchored loss of x0-hat"], lines)
    text += ["Cosine between the descent direction on decoded pixels and the way from x0-hat to x0:", ""]
    lines = [[name, *(mean(picked(part, sigma=s), lambda r, n=name: r["cosine"][n]) for s in sigmas)] for name in names]
    return text + table(["form", *(f"sigma {s:g}" for s in sigmas)], lines)


def write_report(rows: Sequence[Row], folder: Path, command: str, seed: int) -> str:
    """Write gradient_test.md and .png into ``folder``; returns the page's text."""
    count = len(picked(rows, source="synthetic", start="jitter", form="anchored"))
    real = ", ".join(sorted({row["clip"] for row in picked(rows, source="real")})) or "none"
    lines = [
        "# Where the gradient leads", "",
        f"Made by `{command}`. A clip is broken, and its pixels are optimised under one form of the loss: does it go home? The "
        "clean clip is known, so the answer can be measured.", "",
        f"Protocol, the same for every form: Adam, {STEPS} steps, learning rate {RATE} falling along a cosine, on "
        f"`L(x) / G + {PROXIMITY} |x - start|^2 / (2 D)`, pixels clamped to [0, 1]. G is the norm of the form's gradient at the "
        "start and D the distance from start to clean, so all forms pull equally hard at first, and the proximity pulls "
        f"back with {PROXIMITY} of that at the clean clip's distance. {PROXIMITY} (of 0.1, 0.25, 0.5 and 1), the steps and the "
        f"anchored loss were chosen on seeds 0 and 1. Clips: 16x48x48, {count // 3} each of translation, rotation and zoom, "
        f"seeds {seed} to {seed + count // 3 - 1}, half shapes before a still texture, half textures. Starts: the corruptions of "
        "`phys_pipeline.media.corrupt` at full strength.", "",
        "Brackets: 95 % bootstrap intervals over clips. *Jerk off*: share of the tracked mean jerk that is gone, jerk being the "
        "change between neighbouring steps of (x, y, angle, log size), the last two times a radius, in pixels. Shapes are "
        "tracked by colour; other clips by registering each frame to the clean frame of its time. *Path*: summed length of the "
        "steps. *Distance left*: RMSE to the clean clip over that of the start. *Sharpness*, *dynamic degree*: energy of "
        "neighbouring pixels' differences, and of the moving part, over the clean clip's. *Loss - clean's*: the form's own value "
        "at the end minus that of the clean clip; below 0 something other than the clean motion was found. The last three forms "
        "know the clean clip. *Squared error* is the plain peer: the squared error to the clean clip.", "",
        "## Jittered starts", "", *main_table(rows, "jitter"),
        "## Stuttered starts", "",
        "A stuttered clip keeps its frames, so its path is right at the start.", "", *main_table(rows, "stutter"),
        paired_line(rows, "synthetic"), "",
        "## By motion", "",
        f"Each cell: jerk off, path / clean. Aims, to be reached in all six: {LEAST_JERK_OFF:.0%} of the jerk off; path within "
        f"{PATH_BAND:.0%} of the clean clip's; no clip ends more than {BELOW} below the clean clip's own loss.", "",
        *aims_table(rows),
        f"## A stronger proximity: {STRONGER}", "", *source_table(rows, "stronger"), paired_line(rows, "stronger"), "",
        "## Other starts, and the clean clip itself", "",
        "Reversed and bent clips, two of each motion (a reversed clip has jerk in one frame only, so little to take off). "
        "The clean clip is held by the proximity of its jittered copy, with the same G: what a form does to a clip that "
        "has nothing wrong (moved: distance over D).", "", *other_table(rows),
        "## Painting", "",
        "A coherent texture (10 % contrast, another motion) over the jittered clip, plus and minus. *Change*: what it does to "
        "the value. *Slope*: what the form's gradient says about more of it (share of its norm); below 0, descent paints.", "",
        *paint_table(rows),
        "## Real clips", "",
        f"16 frames reduced to 64 pixels, one window of each clip: {real}. Medians: some clips hardly move: their ratios "
        "have no bound.", "", *source_table(rows, "real", median),
        "## Latents of the embedded model", "",
        "The same descent on latents, the loss on decoded pixels (learning rate 0.06, nothing clamped); clean is the decoded "
        "clean latent.", "", *source_table(rows, "latent"),
        "## Predicted clean clips", "",
        "Clips of the embedded model's world (spread 0.25, eight kinds of motion in turn) are noised to sigma, and x0-hat is "
        "read back. *Error energy*: whitened energy, as the calibrated loss sees it, of x0-hat - x0 over that of x0.", "",
        *prediction_tables(rows),
    ]  # fmt: skip
    text = "\n".join(lines)
    with atomic_file(folder / "gradient_test.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    draw(rows, folder / "gradient_test.png")
    return text


def draw(rows: Sequence[Row], target: Path) -> None:
    """Below: jerk off, sharpness and distance by form. Above: the middle line of one jittered clip over time under each form."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    part = picked(rows, source="synthetic", start="jitter")
    names = [form for form in FORMS if picked(part, form=form)]
    figure = pyplot.figure(figsize=(11, 5.2), dpi=100)
    grid = figure.add_gridspec(2, len(names), height_ratios=[1, 1.3], hspace=0.35, left=0.06, right=0.99, top=0.9, bottom=0.24)
    for column, form in enumerate(names):
        slices = [row["slice"] for row in picked(part, form=form) if "slice" in row]
        axes = figure.add_subplot(grid[0, column])
        axes.set_title(form.replace(", ", ",\n"), fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
        if column == 0:
            axes.set_ylabel("time", fontsize=8)
        axes.imshow(np.array(slices[0], np.uint8), aspect="auto", interpolation="nearest")
    axes = figure.add_subplot(grid[1, :])
    place = np.arange(len(names))
    measures: tuple[tuple[str, Callable[[Row], float]], ...] = (
        ("jerk off", jerk_off), ("distance left", distance), ("sharpness", lambda r: r["after"]["sharpness"]),
        ("dynamic degree", lambda r: r["after"]["dynamic"]),
    )  # fmt: skip
    for index, (label, value) in enumerate(measures):
        shift = (index - 1.5) * 0.2
        for x, form in zip(place, names, strict=True):
            values = [(row["clip"], value(row)) for row in picked(part, form=form)]
            low, high = clip_bootstrap(values)
            middle = float(np.mean([v for _, v in values]))
            axes.bar(x + shift, middle, 0.18, color=f"C{index}", label=label if x == 0 else None)
            axes.plot([x + shift] * 2, [low, high], color="black", linewidth=1)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.axhline(LEAST_JERK_OFF, color="grey", linewidth=0.8, linestyle=":")
    axes.set_ylim(-0.5, 2.5)
    axes.set_xticks(place, [name.replace(", ", ",\n") for name in names], rotation=25, fontsize=8)
    axes.legend(ncols=4, fontsize=8, loc="upper right")
    figure.suptitle(
        "Jittered clips after descent: one line of pixels over time (above), means and 95 % intervals (below)", fontsize=10
    )
    with atomic_file(target) as temporary:
        figure.savefig(temporary, format="png")
    pyplot.close(figure)
