"""The page that names a test for each known bug must name tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (ROOT / "docs" / "known_bugs.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and line != "| what goes wrong | our guard |"
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_named_test_exists():
    named = {match for _, guard in ROWS for match in NAMED.findall(guard)}
    assert len(named) > 50
    trees = {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file, _ in named}
    defined = {file: {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} for file, tree in trees.items()}
    assert [f"{file}::{name}" for file, name in sorted(named) if name not in defined[file]] == []


def test_every_bug_has_a_guard_or_says_why_not():
    assert len(ROWS) > 34
    for bug, guard in ROWS:
        assert NAMED.search(guard) or guard.startswith(("Later: ", "No test of its own: ")), bug
        assert guard.count("tests/") == len(NAMED.findall(guard)), guard  # no reference that the pattern misses
