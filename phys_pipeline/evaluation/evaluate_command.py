"""``phys-pipeline evaluate``: measure one or more columns of videos and write the report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation import exporters
from phys_pipeline.evaluation.controls import CONTROLS, control_samples
from phys_pipeline.evaluation.evaluator import Evaluator, Shard
from phys_pipeline.evaluation.manifest import read_prompts, read_samples
from phys_pipeline.evaluation.metric import PROTOCOLS, Settings
from phys_pipeline.evaluation.metrics.sd_score import make_references
from phys_pipeline.evaluation.prompts.prompt_set import Prompt
from phys_pipeline.evaluation.prompts.split import Split
from phys_pipeline.evaluation.registry import GROUPS, select
from phys_pipeline.evaluation.report import Column, check_table, describe_run, write_report
from phys_pipeline.evaluation.report.columns import ROLES
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.sample import VideoSample

_EXAMPLES = """examples:
  phys-pipeline evaluate baseline=out/base ours=out/physics -o out/report
  phys-pipeline evaluate manifest.jsonl --metrics noweights,clip_temporal -o out/report
  phys-pipeline evaluate references --prompts motion -o out/references
  phys-pipeline evaluate export ours=out/physics --layout vbench -o out/vbench
  accelerate launch --num_processes 4 -m phys_pipeline evaluate baseline=a ours=b -o out/report

Run the same command again after an interruption: what was measured is kept (rows*.jsonl in the output folder)."""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="phys-pipeline evaluate",
        description="Measure columns of videos and write report.html, .md, .csv, .tex and .json, with guards against motion that "
        "was merely removed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("sources", nargs="+", metavar="SOURCE", help="NAME=FOLDER for each column, or manifests (.jsonl, .csv)")
    made.add_argument("-o", "--output", default="out/evaluation", metavar="FOLDER", help="default: out/evaluation")
    made.add_argument(
        "--prompts",
        metavar="FILE",
        help="prompts and labels, joined to the videos by id: motion (our set), .json, .jsonl or .csv",
    )
    made.add_argument("--split", metavar="FILE", help="split file of `phys-pipeline prompts label`: simple and complex prompts")
    made.add_argument("--columns", metavar="FILE", help="JSON list of {key, label, role, base, adapter, lora, loss}")
    made.add_argument("--metrics", default="noweights", metavar="NAMES", help=f"keys and groups (all, {', '.join(GROUPS)})")
    made.add_argument("--protocol", choices=PROTOCOLS, default="fixed", help="evalcrafter repeats that code's quirks")
    made.add_argument(
        "--controls", default="auto", metavar="KINDS", help=f"auto (all, of the baseline), none, or {','.join(CONTROLS)}"
    )
    made.add_argument("--flow", choices=("auto", "raft", "dis"), default="auto", help="optical flow; auto is RAFT where it is")
    made.add_argument("--no-standins", action="store_true", help="leave metrics out instead of computing a stand-in")
    made.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    made.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default: cpu)")
    made.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    made.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of a metric, such as dover.onnx=FILE")
    made.add_argument("--weights-dir", metavar="FOLDER", help="where weights lie that no Hub has")
    made.add_argument("--offline", action="store_true", help="use local files only")
    made.add_argument(
        "--tables",
        default="",
        metavar="NAMES",
        help="layouts of the paper's tables (T1a, T1b, T2, T3, T4), by the columns' roles",
    )
    made.add_argument("--allow-mismatch", action="store_true", help="compare columns of different size, rate or length")
    made.add_argument("--strict", action="store_true", help="exit code 3 when a metric can't run here or a clip failed")
    made.add_argument("--json", action="store_true", help="print report.json")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 3 with ``--strict`` when a metric could not run here or failed on a clip."""
    if arguments[:1] == ["export"]:
        return exporters.main(arguments[1:])
    if arguments[:1] == ["references"]:
        return _references(arguments[1:])
    options = parser().parse_args(arguments)
    if options.workers < 1:
        raise ConfigError(f"--workers {options.workers}: use at least 1")
    keys = select(name.strip() for name in options.metrics.split(",") if name.strip())
    samples = read_samples(options.sources, options.prompts)
    if options.split:
        samples = _stratified(samples, options.split)
    columns = _columns(samples, options.columns)
    tables = [name.strip() for name in options.tables.split(",") if name.strip()]
    for name in tables:
        check_table(name, {column.role for column in columns}, {sample.labels.get("stratum", "") for sample in samples})
    base = next((column for column in columns if column.role == "baseline"), columns[0])
    samples += control_samples([s for s in samples if s.model == base.key], _controls(options.controls), options.seed)
    settings = Settings(
        options.protocol, options.device, options.seed, options.flow, not options.no_standins, options.offline,
        options.weights_dir, _metric_options(options.option),
    )  # fmt: skip
    evaluator = Evaluator(keys, settings, options.output)
    shard = Shard(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    progress = _Progress()
    rows = evaluator.run(samples, workers=options.workers, shard=shard, progress=progress)
    progress.close()
    if shard.rank:
        return 0
    command = shlex.join(["phys-pipeline", "evaluate", *arguments])
    run = describe_run(
        command, protocol=options.protocol, device=options.device, seed=options.seed, prompt_set=options.prompts or "",
        split=options.split or "",
    )  # fmt: skip
    report = write_report(
        rows, list(evaluator.infos.values()), columns, run, options.output,
        videos={s.name: s.path for s in samples if s.path is not None and not s.control},
        tables=tables, allow_mismatch=options.allow_mismatch,
    )  # fmt: skip
    print(json.dumps(report, indent=1, allow_nan=False) if options.json else _summary(rows, options.output))
    return 3 if options.strict and any(row.is_missing for row in rows) else 0


def _references(arguments: Sequence[str]) -> int:
    """``phys-pipeline evaluate references``: the images that SD-Score compares with."""
    made = argparse.ArgumentParser(
        prog="phys-pipeline evaluate references",
        description="Make five SDXL images of each prompt for --option sd_score.references=FOLDER. Wants a GPU.",
    )
    made.add_argument("--prompts", required=True, metavar="FILE", help="motion (our set), .json, .jsonl or .csv")
    made.add_argument("-o", "--output", required=True, metavar="FOLDER", help="images that are there are kept")
    made.add_argument("--protocol", choices=PROTOCOLS, default="fixed", help="evalcrafter makes images of 512 pixels")
    made.add_argument("--device", default="cuda", help="default: cuda")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--model", metavar="FOLDER", help="a diffusers folder in the place of SDXL")
    made.add_argument("--size", type=int, metavar="PIXELS", help="default: SDXL's 1024, with evalcrafter 512")
    options = made.parse_args(arguments)
    prompts = {id: str(row.get("prompt", "")) for id, row in read_prompts(options.prompts).items()}
    if empty := [id for id, prompt in prompts.items() if not prompt]:
        raise DataError(f"{options.prompts} has no prompt for id {empty[0]}")
    settings = Settings(
        options.protocol, options.device, options.seed, options={"sd_score.model": options.model} if options.model else {}
    )
    folder = make_references(prompts, options.output, settings, size=options.size)
    print(f"references of {len(prompts)} prompts  {folder}")
    return 0


def _controls(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    kinds = tuple(CONTROLS) if text == "auto" else tuple(name.strip() for name in text.split(","))
    for kind in kinds:
        if kind not in CONTROLS:
            raise ConfigError(f"--controls {kind}: use auto, none or {', '.join(CONTROLS)}")
    return kinds


def _columns(samples: Sequence[VideoSample], file: str | None) -> list[Column]:
    """Columns of the file, in its order, or one for each model in order of appearance.

    A model that is called like a role has that role; where none is called baseline, the first one is it.
    """
    models = list(dict.fromkeys(sample.model for sample in samples))
    if file is None:
        roles = {model: model for model in models if model in ROLES and model != "control"}
        if "baseline" not in roles:
            roles[models[0]] = "baseline"
        return [Column(model, role=roles.get(model, "")) for model in models]
    try:
        columns = [Column(**entry) for entry in json.loads(Path(file).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f'{file} is no list of columns ({error}): give [{{"key": ..., "label": ...}}, ...]') from None
    keys = [column.key for column in columns]
    if set(keys) != set(models):
        raise ConfigError(f"{file} has the columns {', '.join(keys)}, the videos are of {', '.join(models)}")
    return columns


def _stratified(samples: Sequence[VideoSample], file: str) -> list[VideoSample]:
    """Samples with the labels of a split file, by prompt; what a sample says itself stays."""
    labels = Split.read(Path(file)).labels
    found = []
    for sample in samples:
        label = labels.get(Prompt(sample.id, sample.prompt).sha)
        if label is None:
            raise DataError(f"{file} has no label for the prompt of {sample.name}, {sample.prompt!r}: label it first")
        found.append(replace(sample, labels={**label.sample_labels(), **sample.labels}))
    return found


def _metric_options(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ConfigError(f"--option {pair}: write KEY=VALUE, such as dover.onnx=weights/dover.onnx")
        found[key] = value
    return found


def _summary(rows: Sequence[Row], folder: str) -> str:
    counts = {status: sum(row.status == status for row in rows) for status in ("ok", "standin", "skipped", "failed")}
    lines = [f"{len({row.sample for row in rows})} videos, {len({row.metric for row in rows})} metrics: "
             + ", ".join(f"{count} {status}" for status, count in counts.items())]  # fmt: skip
    failures = {row.sample: row.reason for row in rows if row.status == "failed"}
    lines += [f"failed  {sample}: {reason}" for sample, reason in list(failures.items())[:10]]
    if len(failures) > 10:
        lines.append(f"and {len(failures) - 10} more: see the report")
    return "\n".join([*lines, f"report  {Path(folder) / 'report.html'}  (and .md, .csv, .tex, .json)"])


class _Progress:
    """Clips done, on stderr: one line that counts up on a terminal, one line in fifty clips elsewhere."""

    def __init__(self) -> None:
        self._terminal, self._open = sys.stderr.isatty(), False

    def __call__(self, done: int, total: int) -> None:
        if self._terminal:
            print(f"\rmeasured {done}/{total} ", end="", file=sys.stderr, flush=True)
            self._open = True
        elif done == total or done % 50 == 0:
            print(f"measured {done}/{total}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the current line."""
        if self._open:
            print(file=sys.stderr)
