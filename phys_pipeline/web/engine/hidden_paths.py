"""Texts for visitors without the places of this server's files."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

_CHECKOUT = Path(__file__).parents[3]
_ABSOLUTE = re.compile(r"""(?:^|(?<=[\s'"`(=<,;:]))(?:[A-Za-z]:)?[/\\](?!/)(?:[^\s/\\'"`,;:()<>]+[/\\]+)*([^\s/\\'"`,;:()<>]+)""")


def without_paths(text: str) -> str:
    """The text with every absolute path cut: to the part below the app's own folder, or else to its name."""
    private = {Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)}
    folders = {str(folder): "/" for folder in private} | {str(folder): "" for folder in (Path.cwd(), _CHECKOUT)}
    for folder in sorted(folders.keys() - {"/"}, key=len, reverse=True):  # their names may have spaces
        text = re.sub(re.escape(folder) + r"[/\\]+", folders[folder], text)
    return _ABSOLUTE.sub(lambda found: found.group(1), text)
