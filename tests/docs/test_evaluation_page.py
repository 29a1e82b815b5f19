"""docs/evaluation.md names every metric, and no other."""

import re
from pathlib import Path

from phys_pipeline.evaluation.registry import infos

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_the_table_has_every_metric_and_only_those():
    rows = PAGE.split("| keys |")[1].split("\n\n")[0].splitlines()[2:]
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(infos())
