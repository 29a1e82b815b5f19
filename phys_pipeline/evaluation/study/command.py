"""``phys-pipeline study build|serve|analyse``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.subcommands import run_subcommand

_USAGE = """usage: phys-pipeline study build NAME=FOLDER NAME=FOLDER [...] -o STUDY [--prompts FILE]
       phys-pipeline study serve STUDY [--host H] [--port P] [--token T]
       phys-pipeline study analyse STUDY [-o FOLDER] [--rows FOLDER]

`phys-pipeline study build --help` says more."""


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code. Raises PhysPipelineError, with one line, on expected trouble."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {"build": build, "serve": serve, "analyse": analyse}
    return run_subcommand("study", _USAGE, commands, arguments)


def build(arguments: Sequence[str]) -> int:
    """`phys-pipeline study build`."""
    parser = _parser("build", "Make a blind study from two or more columns of videos, and the key that says which is which.")
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="NAME=FOLDER (files ID.mp4 or ID_seed3.mp4), or a manifest")
    parser.add_argument("--prompts", metavar="FILE", help="motion (our set), .json, .jsonl or .csv with id, prompt and labels")
    parser.add_argument("-o", "--output", required=True, metavar="STUDY", help="folder to make")
    parser.add_argument("--key", metavar="FILE", help="key to write, outside of STUDY (default: STUDY.key.json)")
    parser.add_argument("--seed", type=int, default=0, help="of order and sides (default: 0)")
    parser.add_argument("--checks", type=int, default=2, metavar="N", help="attention checks, at least 2 (default: 2)")
    parser.add_argument("--per-person", type=int, metavar="N", help="pairs for each participant (default: all)")
    parser.add_argument("--title", default="Video study", help="headline of the page (default: Video study)")
    options = parser.parse_args(arguments)
    from phys_pipeline.evaluation.manifest import read_samples
    from phys_pipeline.evaluation.study.build import build_study

    samples = read_samples(options.sources, options.prompts)
    if missing := [sample.name for sample in samples if not sample.prompt]:
        raise ConfigError(f"{missing[0]} has no prompt to show: give --prompts FILE")
    key = Path(options.key) if options.key else _default_key(Path(options.output))
    content = build_study(
        samples, Path(options.output), key, seed=options.seed, checks=options.checks, per_person=options.per_person,
        title=options.title, progress=lambda done, total: _say(f"pair {done}/{total}"),
    )  # fmt: skip
    print(f"columns  {', '.join(content['columns'])}\nstudy    {options.output}\nkey      {key}   (keep it to yourself)")
    return 0


def serve(arguments: Sequence[str]) -> int:
    """`phys-pipeline study serve`; runs until it is interrupted."""
    parser = _parser("serve", "Show the study in browsers and collect the answers. Stop with Ctrl-C; start again to go on.")
    parser.add_argument("study", metavar="STUDY")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument("--token", help="only links with this token are served; 8 or more letters, digits, - and _")
    parser.add_argument("--answers", metavar="FILE", help="file to append to (default: STUDY/answers.jsonl)")
    options = parser.parse_args(arguments)
    from phys_pipeline.evaluation.study.server import StudyServer
    from phys_pipeline.evaluation.study.session import Session, Study

    study = Study(Path(options.study))
    session = Session(study, _answers(options))
    server = StudyServer(session, options.host, options.port, options.token)
    print(f"study    {server.url}\nanswers  {session.path}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        _say("stopped; the answers are kept")
    finally:
        server.server_close()
        session.close()
    return 0


def analyse(arguments: Sequence[str]) -> int:
    """`phys-pipeline study analyse`."""
    parser = _parser("analyse", "Print what the answers say, and write analysis.md and analysis.json with -o.")
    parser.add_argument("study", metavar="STUDY")
    parser.add_argument("--key", metavar="FILE", help="the key that build wrote (default: STUDY.key.json)")
    parser.add_argument("--answers", metavar="FILE", help="default: STUDY/answers.jsonl")
    parser.add_argument("--rows", metavar="FOLDER", help="results of `phys-pipeline evaluate`: how much each clip moves")
    parser.add_argument("--shortest", type=float, default=1.0, metavar="S", help="drop faster answers, seconds (default: 1)")
    parser.add_argument("--longest", type=float, default=600.0, metavar="S", help="drop slower answers, seconds (default: 600)")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="write analysis.md and analysis.json here")
    options = parser.parse_args(arguments)
    from phys_pipeline.evaluation.rows import read_rows
    from phys_pipeline.evaluation.study import analyse as analysis
    from phys_pipeline.evaluation.study.report import study_markdown
    from phys_pipeline.evaluation.study.session import Study, read_answers

    study = Path(options.study)
    if options.answers and not Path(options.answers).is_file():
        raise ConfigError(f"{options.answers}: there is no such file of answers")
    rows = read_rows(options.rows) if options.rows else []
    if options.rows and not rows:
        raise ConfigError(f"{options.rows} holds no rows: give the folder that `phys-pipeline evaluate -o` wrote")
    key = analysis.read_key(Path(options.key) if options.key else _default_key(study))
    found = analysis.analyse(
        Study(study), key, read_answers(_answers(options)), rows=rows,
        shortest=options.shortest, longest=options.longest,
    )  # fmt: skip
    text = study_markdown(found)
    print(text)
    if options.output:
        for name, content in {
            "analysis.md": text,
            "analysis.json": json.dumps(found, indent=2, ensure_ascii=False) + "\n",
        }.items():
            with atomic_file(Path(options.output) / name) as temporary:
                temporary.write_text(content, encoding="utf-8")
        _say(f"wrote {options.output}/analysis.md and analysis.json")
    return 0


def _default_key(study: Path) -> Path:
    return study.with_name(f"{study.name}.key.json")


def _answers(options: argparse.Namespace) -> Path:
    return Path(options.answers) if options.answers else Path(options.study) / "answers.jsonl"


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"phys-pipeline study {name}", description=description)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
