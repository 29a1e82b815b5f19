"""``phys-pipeline prompts list|label|kappa|export``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.prompts.chat import ChatLabeller
from phys_pipeline.evaluation.prompts.label import Label
from phys_pipeline.evaluation.prompts.prompt_set import Prompt, PromptSet, load_prompts
from phys_pipeline.evaluation.prompts.rules import NAME, label_by_rules
from phys_pipeline.evaluation.prompts.split import FIELDS, Split, author_label, compare, counts, make_split, read_overrides
from phys_pipeline.subcommands import run_subcommand

_USAGE = """usage: phys-pipeline prompts list [--prompts FILE] [--stratum S] [--motion M]
       phys-pipeline prompts label -o SPLIT.json [--by rules|chat|author] [--prompts FILE] [--overrides FILE]
       phys-pipeline prompts kappa SPLIT.json SPLIT.json
       phys-pipeline prompts export -o FILE.txt|.csv|.jsonl [--prompts FILE] [--split SPLIT.json] [--stratum S] [--motion M]

Without --prompts the shipped set is used. `phys-pipeline prompts label --help` says more."""


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code. Raises PhysPipelineError, with one line, on expected trouble."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {"list": show, "label": label, "kappa": kappa, "export": export}
    return run_subcommand("prompts", _USAGE, commands, arguments)


def show(arguments: Sequence[str]) -> int:
    """`phys-pipeline prompts list`."""
    parser = _parser("list", "Print the prompts with their labels, then how many there are of each.")
    _filters(parser)
    options = parser.parse_args(arguments)
    prompts, labelled = _selected(options)
    for prompt in prompts:
        given = labelled.get(prompt.id)
        words = " ".join(given.sample_labels().values()) if given else "no label"
        print(f"{prompt.id}  {prompt.text}  [{words}]")
    print(f"\n{len(prompts)} prompts, set {prompts.sha[:12]}")
    if labelled:
        for field in FIELDS:
            print(f"{field}: {_counted(counts(labelled.values(), field))}")
    return 0


def label(arguments: Sequence[str]) -> int:
    """`phys-pipeline prompts label`."""
    parser = _parser(
        "label",
        "Label every prompt and write a split file. `chat` asks the OpenAI-compatible endpoint that PHYS_PIPELINE_CHAT_URL, "
        "PHYS_PIPELINE_CHAT_MODEL and PHYS_PIPELINE_CHAT_KEY name; answers are cached, so that an interrupted run goes on.",
    )
    parser.add_argument("--by", choices=("rules", "chat", "author"), default="rules", help="labeller (default: rules)")
    parser.add_argument("--overrides", metavar="FILE", help='JSON: {"ID": {"motion": ..., "direction": ...}}; these win')
    parser.add_argument(
        "--cache", metavar="FOLDER", default="out/prompt_labels", help="answers of chat (default: out/prompt_labels)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="split file to write (.json)")
    options = parser.parse_args(arguments)
    prompts = load_prompts(options.prompts)
    labeller, name = _labeller(options.by, Path(options.cache))
    overrides = read_overrides(Path(options.overrides)) if options.overrides else {}
    split = make_split(prompts, _counting(labeller, len(prompts) - len(overrides)), name, overrides)
    split.write(Path(options.output))
    print(f"{len(split.labels)} prompts labelled by {name}, {len(overrides)} overridden")
    for field in FIELDS:
        print(f"{field}: {_counted(counts(split.labels.values(), field))}")
    unsure = [split.ids[sha] for sha, given in split.labels.items() if given.confidence < 0.5]
    if unsure:
        print(f"confidence below 0.5, look at these: {', '.join(unsure)}")
    print(f"split  {options.output}")
    return 0


def kappa(arguments: Sequence[str]) -> int:
    """`phys-pipeline prompts kappa`."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline prompts kappa",
        description="Cohen's kappa of two split files, with 95 % intervals, and where they differ.",
    )
    parser.add_argument("first", metavar="SPLIT")
    parser.add_argument("second", metavar="SPLIT")
    options = parser.parse_args(arguments)
    first, second = Split.read(Path(options.first)), Split.read(Path(options.second))
    print(f"{first.labeller} against {second.labeller}\n\n| label | n | agreement | kappa | 95 % |\n|---|---|---|---|---|")
    differences: dict[str, list[str]] = {}
    for field in FIELDS:
        found, differ = compare(first, second, field)
        value = "undefined" if found.value is None else f"{found.value:.3f}"
        interval = "" if found.interval is None else f"{found.interval[0]:.3f} to {found.interval[1]:.3f}"
        print(f"| {field} | {found.items} | {100 * found.agreement:.1f} % | {value} | {interval} |")
        for id, a, b in differ:
            differences.setdefault(id, []).append(f"{field} {a} / {b}")
    if differences:
        print("\ndiffer:")
    for id, texts in differences.items():
        print(f"{id}: {', '.join(texts)}")
    return 0


def export(arguments: Sequence[str]) -> int:
    """`phys-pipeline prompts export`."""
    parser = _parser("export", "Write the prompts for a generator: .txt (one a line), .csv or .jsonl (id, prompt, labels).")
    _filters(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="ends with .txt, .csv or .jsonl")
    options = parser.parse_args(arguments)
    prompts, labelled = _selected(options)
    rows = [
        {"id": prompt.id, "prompt": prompt.text, **(labelled[prompt.id].sample_labels() if prompt.id in labelled else {})}
        for prompt in prompts
    ]
    target = Path(options.output)
    if target.suffix == ".txt":
        text = "".join(f"{' '.join(row['prompt'].split())}\n" for row in rows)
    elif target.suffix == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif target.suffix == ".csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, ("id", "prompt", *FIELDS), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = buffer.getvalue()
    else:
        raise ConfigError(f"{target}: end the name with .txt, .csv or .jsonl")
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{len(rows)} prompts  {target}")
    return 0


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"phys-pipeline prompts {name}", description=description)
    parser.add_argument("--prompts", metavar="FILE", help=".json, .txt, .csv, .jsonl or .parquet (default: the shipped set)")
    return parser


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", metavar="FILE", help="use this split's labels instead of the set's own")
    parser.add_argument("--stratum", choices=("simple", "complex"), help="only these")
    parser.add_argument("--motion", choices=("translation", "rotation", "scaling", "mixed", "other"), help="only these")


def _selected(options: argparse.Namespace) -> tuple[PromptSet, dict[str, Label]]:
    """The prompts that pass the filters, and labels by id where there are any."""
    prompts = load_prompts(options.prompts)
    if options.split:
        split = Split.read(Path(options.split))
        labels = {prompt.id: split.labels[prompt.sha] for prompt in prompts if prompt.sha in split.labels}
    else:
        labels = {prompt.id: prompt.label for prompt in prompts if prompt.label is not None}
    wanted = {name: value for name in ("stratum", "motion") if (value := getattr(options, name))}
    if wanted and not labels:
        raise ConfigError("the prompts carry no labels to choose by: make some with `phys-pipeline prompts label`, give --split")

    def passes(prompt: Prompt) -> bool:
        given = labels[prompt.id].sample_labels() if prompt.id in labels else {}
        return all(given.get(name) == value for name, value in wanted.items())

    kept = PromptSet(prompts.name, tuple(prompt for prompt in prompts if passes(prompt)))
    return kept, {id: given for id, given in labels.items() if id in kept.by_id}


def _labeller(by: str, cache: Path) -> tuple[Callable[[Prompt], Label], str]:
    if by == "chat":
        chat = ChatLabeller.from_environment(cache)
        return chat, chat.name
    if by == "author":
        return author_label, "author"
    return lambda prompt: label_by_rules(prompt.text), NAME


def _counting(labeller: Callable[[Prompt], Label], total: int) -> Callable[[Prompt], Label]:
    """The labeller, saying on stderr how far it is every 50 prompts."""
    done = 0

    def counted(prompt: Prompt) -> Label:
        nonlocal done
        given = labeller(prompt)
        done += 1
        if done % 50 == 0:
            print(f"labelling {done}/{total}", file=sys.stderr, flush=True)
        return given

    return counted


def _counted(values: dict[str, int]) -> str:
    return ", ".join(f"{value} {count}" for value, count in values.items())
