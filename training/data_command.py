"""`phys-pipeline data inspect|score|cache`: look at the clips of a training set, score them, keep the good ones, encode them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.subcommands import run_subcommand
from training.cluster import in_ray
from training.config import TrainConfig, load_config
from training.pool import Engine, in_processes

_USAGE = """usage: phys-pipeline data inspect SOURCE [--config FILE] [key=value ...] [-o FOLDER]
       phys-pipeline data score SOURCE -o FILE [--workers N] [--engine processes|ray]
       phys-pipeline data cache --config FILE [key=value ...] [--workers N] [--engine processes|ray]

SOURCE is a folder of clips or a table (.csv, .jsonl, .parquet). `phys-pipeline data inspect --help` says more."""


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code. Raises PhysPipelineError, with one line, on expected trouble."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {"inspect": inspect, "score": score, "cache": cache}
    try:
        return run_subcommand("data", _USAGE, commands, arguments)
    except BrokenPipeError:
        raise
    except OSError as error:  # a folder that can't be written, a full disk
        where = f" ({error.filename})" if error.filename else ""
        raise DataError(f"{error.strerror or error}{where}: check the paths and the free space") from None


def inspect(arguments: Sequence[str]) -> int:
    """`phys-pipeline data inspect`."""
    parser = _parser("inspect", "Read every clip as training would and say what becomes of it, and why clips are skipped.")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="write contact_sheet.png, inspection.json and clips.jsonl here")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--scores", metavar="FILE", help="table of `data score`; without it, the options below score first")
    parser.add_argument(
        "--max-loss", type=float, metavar="L", help="keep clips with a composite motion loss (the lower the better) of at most L"
    )
    parser.add_argument("--min-dynamic", type=float, metavar="D", help="keep clips with a dynamic degree of at least D")
    parser.add_argument("--dominant", metavar="KIND", help='keep clips that mostly do this: "rotation", or "rotation|scaling"')
    parser.add_argument("--no-cuts", action="store_true", help="leave out clips that show more than one shot")
    _engine_options(parser)
    options = parser.parse_intermixed_args(arguments)
    config = _config(options)
    if options.scores:
        config.data_scores = options.scores
    from training import inspection

    wanted: dict[str, str] = {}
    if options.max_loss is not None:
        wanted["composite"] = f"<={options.max_loss}"
    if options.min_dynamic is not None:
        wanted["dynamic_degree"] = f">={options.min_dynamic}"
    if options.dominant:
        wanted["dominant"] = options.dominant
    if options.no_cuts:
        wanted["has_cut"] = "false"
    with tempfile.TemporaryDirectory() as scratch:
        if wanted and config.data_scores is None:
            scores = str(Path(options.output or scratch) / "scores.jsonl")
            _score(config, scores, options.workers, "calibrated", _engine(options))
            config.data_scores = scores
        config.data_filters |= wanted
        found = inspection.inspect_clips(config, _progress("reading"))
    text = json.dumps(found.to_dict(), indent=2, ensure_ascii=False)
    print(text if options.json else inspection.text_report(found, config.data))
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "inspection.json").write_text(text + "\n", encoding="utf-8")
        if found.facts:
            inspection.contact_sheet(found, folder / "contact_sheet.png")
            inspection.write_clip_list(found, folder / "clips.jsonl")
        _say(f"wrote {folder}")
    if not found.facts:
        raise DataError(f"no usable clip in {config.data}; the reasons stand above")
    return 0


def score(arguments: Sequence[str]) -> int:
    """`phys-pipeline data score`."""
    parser = _parser("score", "Score the motion of every clip into one table. A killed run goes on where it was.")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="table to write: .csv, .jsonl or .parquet")
    parser.add_argument("--preset", choices=("calibrated", "paper"), default="calibrated", help="loss (default: calibrated)")
    _engine_options(parser)
    options = parser.parse_intermixed_args(arguments)
    from training.scores import summary

    rows = _score(_config(options), options.output, options.workers, options.preset, _engine(options))
    print(f"{summary(rows)}\nscores  {options.output}")
    return 0


def cache(arguments: Sequence[str]) -> int:
    """`phys-pipeline data cache`."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline data cache",
        description="Encode the clips and captions that a training run would and the cache lacks, and say what became of each. "
        "A killed run goes on where it was. On several GPUs: accelerate launch training/train_lora.py --cache-only.",
    )
    parser.add_argument("--config", metavar="FILE", help="the trainer's YAML file (default: the trainer's defaults)")
    _engine_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the trainer, such as data=DIR")
    options = parser.parse_intermixed_args(arguments)
    config, engine = load_config(options.config, options.overrides), _engine(options)
    if engine is in_ray:
        engine = partial(in_ray, gpus=True)
    from training.encoding import make_encoder
    from training.filling import cache_report, over_engine

    encoder = make_encoder(json.dumps(config.to_dict()))
    print(cache_report(encoder, over_engine(encoder, engine, options.workers, _progress("encoding"))))
    return 0


def _engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--engine", choices=("processes", "ray"), default="processes", help="what runs them (default: processes)")


def _engine(options: argparse.Namespace) -> Engine:
    if options.workers < 1:
        raise ConfigError(f"--workers is {options.workers}: use at least 1")
    return in_ray if options.engine == "ray" else in_processes


def _score(config: TrainConfig, output: str, workers: int, preset: str, engine: Engine) -> list[dict[str, Any]]:
    from training.scores import score_entries
    from training.sources import filter_entries, list_entries

    entries, _ = filter_entries(list_entries(config), config)
    return score_entries(entries, output, workers=workers, preset=preset, progress=_progress("scoring"), engine=engine)


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"phys-pipeline data {name}", description=description)
    parser.add_argument("source", metavar="SOURCE", help="folder of clips, or a table .csv, .jsonl or .parquet")
    parser.add_argument("--config", metavar="FILE", help="the trainer's YAML file (default: the trainer's defaults)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the trainer, such as buckets=auto")
    return parser


def _config(options: argparse.Namespace) -> TrainConfig:
    return load_config(options.config, [*options.overrides, f"data={json.dumps(options.source)}"])


def _progress(what: str) -> Callable[[int, int], None]:
    """One line that counts up on a terminal, every hundredth clip elsewhere."""
    terminal = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if terminal:
            print(f"\r{what} {done}/{total} ", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done % 100 == 0 or done == total:
            _say(f"{what} {done}/{total}")

    return show


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
