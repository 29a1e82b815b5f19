"""Commands that the documentation shows are understood: their options, settings and configuration files exist."""

import re
import shlex
from pathlib import Path

import pytest

from phys_pipeline import cli
from phys_pipeline.evaluation import evaluate_command
from training.train_lora import parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "training" / "train_lora.py"]
TRAIN = re.compile(r"^(?:\$ | {4})?(?:accelerate launch .*?|python )training/train_lora\.py (--.+)$", re.MULTILINE)
OTHER = re.compile(r"^(?:\$ )?phys-pipeline (?!data )(.+)$", re.MULTILINE)


def commands(pattern):
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        found += [(page.name, re.sub(r" \[--.*?\]| {2,}[a-z ]+$", "", line)) for line in pattern.findall(text)]
    return [pytest.param(line, id=f"{page}: {line[:60]}") for page, line in found]


@pytest.mark.parametrize("line", commands(TRAIN))
def test_training_commands(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    parse(shlex.split(line, comments=True))


@pytest.mark.parametrize("line", commands(OTHER))
def test_other_commands(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    name, *rest = shlex.split(line, comments=True)
    if name == "evaluate" and rest[:1] != ["export"]:
        evaluate_command.parser().parse_args(rest)
    elif name not in cli._MODULES:  # the other commands make their parsers when they run
        cli.build_parser().parse_args([name, *rest])


def test_there_are_commands():
    assert len(commands(TRAIN)) >= 9 and len(commands(OTHER)) >= 6
