"""Every file of reference numbers (tests/golden) is read by a test: by its name, or by the helpers' short one."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(path for path in (TESTS / "golden").iterdir() if path.is_file() and path.name != "README.md")


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_is_used_and_described(file):
    name = file.name.split(".")[0]
    users = [path for path in TESTS.rglob("*.py") if f'"{name}"' in (text := path.read_text()) or f'"{file.name}"' in text]
    assert users, f"no test reads {file.name}: use it or remove it"
    assert name in (TESTS / "golden" / "README.md").read_text()
    if file.name.endswith(".config.json"):
        assert file.with_name(f"{name}.safetensors").is_file()


def test_there_are_files():
    assert len([file for file in FILES if file.suffix == ".safetensors"]) >= 6
