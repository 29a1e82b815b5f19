"""The command line: ``phys-pipeline score|compare|overlay|generate|data|adapter|comfy|fetch|publish|families|...``.

Results go to stdout, progress and errors to stderr. Exit codes: 0 done, 2 an expected error (one line that says what to do),
130 interrupted; an interrupted or failed command leaves no half-written file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from phys_pipeline import __version__
from phys_pipeline.errors import ConfigError, MediaError, PhysPipelineError
from phys_pipeline.progress import StepProgress

_SCORES_SCHEMA = "phys-pipeline/scores"
_ENDINGS = (".mp4", ".gif", ".webp")
_MODULES = {  # commands with an argument parser of their own: module with `main(arguments) -> exit code`, help
    "adapter": ("phys_pipeline.adapters.command", "inspect, convert, check and merge LoRA files"),
    "comfy": ("phys_pipeline.comfy", "install the nodes into ComfyUI"),
    "fetch": ("phys_pipeline.adapters.fetch_command", "download an adapter from the Hugging Face Hub"),
    "publish": ("phys_pipeline.adapters.publish_command", "publish an adapter on the Hugging Face Hub, checked"),
    "families": ("phys_pipeline.families.command", "list the base models that can be trained and generated with"),
    "evaluate": ("phys_pipeline.evaluation.evaluate_command", "measure generated videos with many metrics and write a report"),
    "doctor": ("phys_pipeline.evaluation.doctor", "show what each metric needs and whether it is here"),
    "prompts": ("phys_pipeline.evaluation.prompts.command", "label prompts by their motion, list our own set"),
    "convert": ("phys_pipeline.models.convert_command", "turn a model's official weights into a diffusers folder"),
    "study": ("phys_pipeline.evaluation.study.command", "ask people which of two videos they prefer"),
}


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; every help text is written for someone who has not read the paper."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline",
        description="Measure how plausibly a video moves, compare videos, and generate videos with a motion adapter.",
        epilog="Try: phys-pipeline score my_video.mp4",
    )
    parser.add_argument("--version", action="version", version=f"phys-pipeline {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    score = commands.add_parser(
        "score",
        help="print motion scores of videos",
        description="Print the spectral motion losses (lower is more coherent; about 1.2 is white noise, 0 a still clip) and "
        "the measured motion: velocity, rotation, zoom and dynamic degree (the share of the picture's contrast that moves).",
    )
    score.add_argument("files", nargs="+", metavar="FILE", help="video, GIF or animated WebP")
    score.add_argument("--json", action="store_true", help="print JSON with the timeline of every window")
    _reading_options(score)
    score.set_defaults(run=run_score)

    compare = commands.add_parser(
        "compare",
        help="put two videos side by side with their scores",
        description="Write one video that shows A and B together, and print both scores.",
    )
    compare.add_argument("a", metavar="A", help="first video")
    compare.add_argument("b", metavar="B", help="second video")
    compare.add_argument("--labels", nargs=2, metavar=("A", "B"), help="texts shown on the videos (default: file names)")
    _picture_options(compare)
    _reading_options(compare)
    _output_options(compare, "comparison.mp4")
    compare.set_defaults(run=run_compare)

    overlay = commands.add_parser(
        "overlay",
        help="draw the scores beside a video",
        description="Write the video with a panel of scores, measured motion and a timeline with a moving cursor.",
    )
    overlay.add_argument("file", metavar="FILE", help="video, GIF or animated WebP")
    overlay.add_argument("--title", help="first line of the panel (default: the file name)")
    _reading_options(overlay)
    _output_options(overlay, "overlay.mp4")
    overlay.set_defaults(run=run_overlay)

    generate = commands.add_parser(
        "generate",
        help="generate a video, with and without a motion adapter",
        description="Generate a video from a prompt. With --adapter the adapter is used; with --baseline the same noise is also "
        "generated without it and both are shown side by side with their scores.",
        epilog='Try: phys-pipeline generate "a red square moves right" -o out.mp4   (the embedded model: no download)',
    )
    generate.add_argument("prompt", metavar="PROMPT", help='for example "a red square moves right"')
    generate.add_argument("--model", default="tiny", help='"tiny" (embedded), a diffusers folder or a Hub id (default: tiny)')
    generate.add_argument("--family", metavar="NAME", help="model family, for a model that does not say it itself")
    generate.add_argument("--adapter", metavar="PATH", help="LoRA file or folder as training writes it, or a Hub id")
    generate.add_argument("--weight", type=float, default=1.0, help="adapter strength, 0 is off (default: 1)")
    generate.add_argument("--baseline", action="store_true", help="also generate without the adapter, from the same noise")
    generate.add_argument("--seed", type=int, default=0, help="noise seed (default: 0)")
    generate.add_argument(
        "--best-of", type=int, metavar="N", help="make N videos, from --seed on, and take the one with the lowest motion loss "
        "that is not still; with --baseline the best of each side"
    )  # fmt: skip
    generate.add_argument("--keep-all", metavar="FOLDER", help="with --best-of: also write every video and candidates.json here")
    generate.add_argument(
        "--steps", type=int, dest="num_inference_steps", metavar="N", help="denoising steps (default: the model's)"
    )
    generate.add_argument("--frames", type=int, dest="num_frames", metavar="N", help="frames (default: the model's)")
    generate.add_argument("--height", type=int, metavar="PIXELS", help="default: the model's")
    generate.add_argument("--width", type=int, metavar="PIXELS", help="default: the model's")
    generate.add_argument("--fps", type=float, help="frames per second of the result (default: the model's)")
    generate.add_argument("--guidance", type=float, dest="guidance_scale", metavar="SCALE", help="embedded guidance")
    generate.add_argument(
        "--true-cfg", type=float, dest="true_cfg_scale", metavar="SCALE", help="classifier-free guidance, 1 is off"
    )
    generate.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="weights (default: fp32)")
    generate.add_argument("--device", default=None, help='"cpu", "cuda", ... (default: cuda if there is one)')
    generate.add_argument("--raw", metavar="FOLDER", help="also write the plain videos here")
    _picture_options(generate)
    _output_options(generate, "generated.mp4")
    generate.set_defaults(run=run_generate)

    commands.add_parser("data", help="inspect and score the clips of a training set (in a checkout of the repository)")
    for name, (_, text) in _MODULES.items():
        commands.add_parser(name, help=text)
    return parser


def _reading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start", type=float, default=0.0, metavar="SECONDS", help="skip the beginning")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="read only so much")
    parser.add_argument("--max-frames", type=int, metavar="N", help="read at most N frames")
    parser.add_argument(
        "--preset",
        choices=("calibrated", "paper"),
        default="calibrated",
        help="loss: calibrated (default) or as printed in the paper",
    )


def _picture_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode", choices=("horizontal", "vertical", "wipe", "difference"), default="horizontal", help="how two videos are shown"
    )
    parser.add_argument("--no-scores", action="store_true", help="leave the score panels out of the picture")


def _output_options(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("-o", "--output", default=default, metavar="FILE", help=f".mp4, .gif or .webp (default: {default})")
    parser.add_argument("--scores", metavar="FILE", help="also write the scores as JSON to this file")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON instead of a table")


def run_score(options: argparse.Namespace) -> int:
    """``phys-pipeline score``: every file is scored even if another fails; exit code 2 if any failed."""
    from phys_pipeline.scoring import describe, score_file

    reports: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for index, file in enumerate(options.files):
        if len(options.files) > 1:
            _say(f"scoring {index + 1}/{len(options.files)}: {file}")
        try:
            report = score_file(
                file, preset=options.preset, start=options.start, duration=options.duration, max_frames=options.max_frames
            ).to_dict()
        except PhysPipelineError as error:
            errors.append({"source": file, "message": str(error)})
            _say(f"error: {error}")
            continue
        reports.append(report)
        if not options.json:
            print(describe(report), flush=True)
    if options.json:
        print(_json({"reports": reports, "errors": errors}))
    return 2 if errors else 0


def run_compare(options: argparse.Namespace) -> int:
    """``phys-pipeline compare``."""
    names = options.labels or [Path(options.a).name, Path(options.b).name]
    if names[0] == names[1]:
        names = [f"A: {names[0]}", f"B: {names[1]}"]
    _check_output(options, options.a, options.b)
    videos, reports = [], []
    for file in (options.a, options.b):
        video, report = _read_and_score(file, options)
        videos.append(video)
        reports.append(report)
    return _write_scored(options, videos, dict(zip(names, reports, strict=True)), {})


def run_overlay(options: argparse.Namespace) -> int:
    """``phys-pipeline overlay``."""
    options.mode, options.no_scores = "horizontal", False
    _check_output(options, options.file)
    video, report = _read_and_score(options.file, options)
    return _write_scored(options, [video], {options.title or Path(options.file).name: report}, {})


def run_generate(options: argparse.Namespace) -> int:
    """``phys-pipeline generate``."""
    _check_output(options)
    from phys_pipeline.scoring import LEAST_FRAMES, LEAST_SIDE, check_measurable, score_video

    if not options.prompt.strip():
        raise ConfigError('the prompt is empty: describe the video, for example "a red square moves right"')
    if options.baseline and not options.adapter:
        raise ConfigError(
            "--baseline compares with an adapter: add --adapter PATH (training writes one), or leave --baseline out"
        )
    if options.best_of is not None and options.best_of < 1:
        raise ConfigError(f"--best-of is {options.best_of}: use at least 1")
    if options.keep_all and options.best_of is None:
        raise ConfigError("--keep-all keeps the videos of --best-of N: add it, or use --raw FOLDER for a single video")
    if not math.isfinite(options.weight):
        raise ConfigError(f"--weight is {options.weight}: use a number, 1 is full strength")
    check_measurable("the video", options.num_frames or LEAST_FRAMES, options.height or LEAST_SIDE, options.width or LEAST_SIDE)
    device, dtype = _device_and_dtype(options.device, options.precision)
    _say(f"loading {options.model}")
    from phys_pipeline.families import load_model
    from phys_pipeline.media import write_video
    from phys_pipeline.pipelines import generate, generate_best, generate_pair
    from phys_pipeline.pipelines.best import candidate_table

    model = load_model(options.model, dtype, options.family)
    model.pipeline.to(device)
    names = ("num_inference_steps", "num_frames", "height", "width", "fps", "guidance_scale", "true_cfg_scale")
    settings = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    progress, candidates = StepProgress(), {}
    if options.best_of is not None:
        best = generate_best(
            model, options.prompt, options.best_of, options.adapter, options.seed, weight=options.weight,
            baseline=options.baseline, keep_all=options.keep_all, progress=progress, **settings,
        )  # fmt: skip
        videos, made = {name: result.video for name, result in best.items()}, settings
        candidates = {"best_of": {name: result.to_dict() for name, result in best.items()}}
        _say(candidate_table(best))
    elif options.adapter:
        pair = generate_pair(
            model, options.prompt, options.adapter, options.seed, weight=options.weight, progress=progress, **settings
        )
        videos = {"baseline": pair.baseline, "physics": pair.physics} if options.baseline else {"physics": pair.physics}
        made = pair.settings
    else:
        videos = {"generated": generate(model, options.prompt, options.seed, progress=progress, **settings)}
        made = settings
    progress.close()
    reports = {name: score_video(video).to_dict() for name, video in videos.items()}
    if options.raw:
        for name, video in videos.items():
            write_video(Path(options.raw) / f"{name}.mp4", video)
            _say(f"wrote {Path(options.raw) / f'{name}.mp4'}")
    about = {"prompt": options.prompt, "seed": options.seed, "model": options.model, "settings": made, **candidates}
    return _write_scored(options, list(videos.values()), reports, about)


def run_data(arguments: Sequence[str]) -> int:
    """``phys-pipeline data``: the trainer's own command, which lies beside this package and is not installed with it."""
    try:
        command = importlib.import_module("training.data_command")
    except ModuleNotFoundError as error:
        if error.name == "yaml":
            raise ConfigError('the trainer\'s settings need PyYAML: pip install "phys-pipeline[train]"') from None
        if error.name is None or error.name.split(".")[0] != "training":
            raise
        checkout = Path(__file__).resolve().parents[1]
        if not (checkout / "training" / "data_command.py").is_file():
            raise ConfigError("`phys-pipeline data` needs the trainer: run it in a checkout of the repository") from None
        sys.path.append(str(checkout))
        return run_data(arguments)
    return int(command.main(arguments))


def _run_module(module: str, arguments: Sequence[str]) -> int:
    return int(importlib.import_module(module).main(arguments))


def _read_and_score(file: str, options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    from phys_pipeline.media import read_video
    from phys_pipeline.scoring import score_video

    _say(f"reading {file}")
    video = read_video(file, start=options.start, duration=options.duration, max_frames=options.max_frames)
    _say(f"scoring {file}")
    return video, score_video(video, preset=options.preset).to_dict()


def _write_scored(options: argparse.Namespace, videos: list[Any], reports: dict[str, Any], about: dict[str, Any]) -> int:
    """Draw, write the video and the scores, print the table: nothing is written before everything is computed."""
    from phys_pipeline.atomic import atomic_file
    from phys_pipeline.media import write_video
    from phys_pipeline.scoring import score_table, scored_comparison

    text = _json({**about, "videos": reports})
    _say(f"drawing {options.output}")
    picture = scored_comparison(
        videos, list(reports.values()), list(reports), mode=options.mode, show_scores=not options.no_scores
    )
    write_video(options.output, picture)
    if options.scores:
        with atomic_file(options.scores) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        print(score_table(reports))
        print(f"\nvideo   {options.output}")
        if options.scores:
            print(f"scores  {options.scores}")
        if getattr(options, "adapter", None):
            print(f"adapter {options.adapter}")
    return 0


def _check_output(options: argparse.Namespace, *inputs: str) -> None:
    """Refuse, before any work is done, outputs that can't be written or would overwrite an input or each other."""
    targets = [Path(options.output)]
    if targets[0].suffix.lower() not in _ENDINGS:
        raise MediaError(
            f"{targets[0]} has no ending that can be written: end it with {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        )
    if options.scores:
        targets.append(Path(options.scores))
    if getattr(options, "keep_all", None):
        targets.append(Path(options.keep_all) / "candidates.json")
    if getattr(options, "raw", None):
        targets += [Path(options.raw) / f"{name}.mp4" for name in ("baseline", "physics", "generated")]
    taken = {Path(name).resolve(): f"the input {name}" for name in inputs}
    for file in targets:
        if file.resolve() in taken:
            raise MediaError(f"{file} is also {taken[file.resolve()]}: choose another name for the output")
        taken[file.resolve()] = "another output"
        if file.is_dir():
            raise MediaError(f"{file} is a folder: give a file name inside it")
        folder = next(parent for parent in file.resolve().parents if parent.exists())
        if not folder.is_dir():
            raise MediaError(f"{folder} is a file, not a folder: choose another folder for {file.name}")
        if not os.access(folder, os.W_OK):
            raise MediaError(f"{folder} can't be written to: choose another folder or change its permissions")


def _device_and_dtype(device: str | None, precision: str) -> tuple[Any, Any]:
    import torch

    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        if chosen.type not in ("cpu", "cuda", "mps", "xpu"):
            raise ConfigError(f"device {name!r} can't generate videos: try --device cpu")
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} can't be used here ({str(error).splitlines()[0]}): try --device cpu") from error
    if chosen.type == "cpu" and precision == "fp16":
        raise ConfigError("fp16 is not supported on the CPU: use --precision bf16 or fp32")
    return chosen, {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def _json(content: dict[str, Any]) -> str:
    return json.dumps({"schema": _SCORES_SCHEMA, "version": 1, **content}, indent=2, allow_nan=False, ensure_ascii=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run: Callable[[], int]
    if given[:1] == ["data"]:
        run = partial(run_data, given[1:])
    elif given and given[0] in _MODULES:
        run = partial(_run_module, _MODULES[given[0]][0], given[1:])
    else:
        options = build_parser().parse_args(given)
        run = partial(options.run, options)
    logging.basicConfig(level=logging.WARNING, format="warning: %(message)s", stream=sys.stderr)
    try:
        code = run()
        sys.stdout.flush()
        return code
    except PhysPipelineError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted: nothing half-written was left behind")
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
