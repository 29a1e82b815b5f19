"""`phys-pipeline prompts` as a user meets it."""

from __future__ import annotations

import csv
import json

import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.evaluation.prompts import load_prompts
from phys_pipeline.evaluation.prompts.command import main


def test_help_and_unknown_commands(capsys):
    assert main([]) == 0 and "prompts kappa" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="unknown command"):
        main(["sort"])


def test_list_filters_and_counts(capsys):
    assert main(["list", "--motion", "rotation"]) == 0
    out = capsys.readouterr().out
    assert "24 prompts" in out and "motion: rotation 24" in out and "pans" not in out
    with pytest.raises(DataError, match="empty"):
        main(["list", "--motion", "rotation", "--stratum", "complex"])


def test_label_then_kappa(tmp_path, capsys):
    overrides = tmp_path / "overrides.json"
    overrides.write_text('{"r001": {"motion": "other"}}')
    author, rules = str(tmp_path / "author.json"), str(tmp_path / "rules.json")
    assert main(["label", "--by", "author", "-o", author]) == 0
    assert main(["label", "-o", rules, "--overrides", str(overrides)]) == 0
    assert "1 overridden" in capsys.readouterr().out
    assert main(["kappa", author, rules]) == 0
    out = capsys.readouterr().out
    assert "author against rules" in out and "| motion | 140 |" in out and "r001: motion rotation / other" in out
    assert main(["kappa", author, author]) == 0
    assert "| 100.0 % | 1.000 | 1.000 to 1.000 |" in capsys.readouterr().out


def test_chat_needs_its_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("PHYS_PIPELINE_CHAT_URL", raising=False)
    with pytest.raises(ConfigError, match="PHYS_PIPELINE_CHAT_URL"):
        main(["label", "--by", "chat", "-o", str(tmp_path / "x.json")])
    assert list(tmp_path.iterdir()) == []


def test_export_for_generators_and_for_evaluation(tmp_path):
    for ending in ("txt", "csv", "jsonl"):
        assert main(["export", "--stratum", "simple", "-o", str(tmp_path / f"prompts.{ending}")]) == 0
    lines = (tmp_path / "prompts.txt").read_text().splitlines()
    rows = list(csv.DictReader((tmp_path / "prompts.csv").open()))
    objects = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert lines == [row["prompt"] for row in rows] == [entry["prompt"] for entry in objects]
    assert len(lines) == 92 and {row["stratum"] for row in rows} == {"simple"}
    videos = tmp_path / "ours"
    videos.mkdir()
    (videos / "r001_seed2.mp4").write_bytes(b"")
    for ending in ("csv", "jsonl"):
        (sample,) = read_samples([f"ours={videos}"], tmp_path / f"prompts.{ending}")
        assert sample.prompt == load_prompts().by_id["r001"].text and sample.labels["direction"] == "clockwise"
    with pytest.raises(ConfigError, match=r"\.csv"):
        main(["export", "-o", str(tmp_path / "prompts.xml")])


def test_a_users_own_prompts_can_be_labelled_and_split(tmp_path, capsys):
    own, split = tmp_path / "own.txt", str(tmp_path / "split.json")
    own.write_text("A cart moves left.\nA quiet afternoon.\n")
    with pytest.raises(ConfigError, match="no labels"):
        main(["list", "--prompts", str(own), "--stratum", "simple"])
    assert main(["label", "--prompts", str(own), "-o", split]) == 0
    assert "look at these: 0001" in capsys.readouterr().out
    assert main(["list", "--prompts", str(own), "--split", split, "--stratum", "simple"]) == 0
    assert "1 prompts" in capsys.readouterr().out
