"""Cells are done once, a failed one again, and a held one is left to its holder, even one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from training.experiments.ledger import Busy, Cell, Ledger

ROOT = Path(__file__).resolve().parents[3]
CELL = Cell("train", "a", {"seed": 1})


def test_a_cell_is_done_once_and_its_inputs_name_it(tmp_path):
    ledger, calls = Ledger(tmp_path), []
    for _ in range(2):
        record = ledger.run(CELL, lambda folder: calls.append(folder) or {"answer": 3})
    assert len(calls) == 1 and record["answer"] == 3 and record["inputs"] == {"seed": 1}
    other = Cell("train", "a", {"seed": 2})
    assert other.key != CELL.key and ledger.record(other) is None


def test_a_failed_cell_has_no_record_and_keeps_what_it_wrote(tmp_path):
    ledger = Ledger(tmp_path)

    def fail(folder):
        (folder / "half").write_text("x")
        raise ValueError("power cut")

    with pytest.raises(ValueError, match="power cut"):
        ledger.run(CELL, fail)
    assert ledger.record(CELL) is None
    assert ledger.run(CELL, lambda folder: {"found": (folder / "half").read_text()})["found"] == "x"


def test_a_held_cell_is_busy_until_its_holder_is_killed(tmp_path):
    code = textwrap.dedent(f"""
        import sys, time
        from training.experiments.ledger import Cell, Ledger
        def work(folder):
            print("at it", flush=True)
            time.sleep(60)
        Ledger({str(tmp_path)!r}).run(Cell("train", "a", {{"seed": 1}}), work)
    """)
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert holder.stdout.readline() == "at it\n"
        with pytest.raises(Busy):
            Ledger(tmp_path).run(CELL, lambda folder: {})
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert Ledger(tmp_path).run(CELL, lambda folder: {"done": True})["done"]
