"""What a visitor reads names no folder of the server."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from phys_pipeline.web.engine.hidden_paths import without_paths

HERE = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no model folder /srv/models/x: give one", "no model folder x: give one"),
        (f"{HERE}/samples/clips has no clip", "samples/clips has no clip"),
        (f"can't read '{tempfile.gettempdir()}/app-1/ab12/clip.mp4'", "can't read 'clip.mp4'"),
        (f"{Path.home()}/files/a.safetensors is none", "a.safetensors is none"),
        ("/etc/passwd", "passwd"),
        ("path=/a/b,/c/d (/e/f.mp4)", "path=b,d (f.mp4)"),
        (r"C:\Users\me\x.mp4 is cut off", "x.mp4 is cut off"),
        ("12 %/s and 3 px/frame of owner/name@v1 / other", "12 %/s and 3 px/frame of owner/name@v1 / other"),
        ("see https://huggingface.co/docs/x for more", "see https://huggingface.co/docs/x for more"),
        ("samples/clips and ../x", "samples/clips and ../x"),
        ("", ""),
    ],
)  # fmt: skip
def test_absolute_paths_are_cut(text, shown):
    assert without_paths(text) == shown
