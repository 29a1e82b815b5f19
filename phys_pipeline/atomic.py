"""Atomic output: a file or folder appears under its final name whole, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(final: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``final`` (same suffix); rename it on success, delete it on any error.

    The temporary name starts with a dot and carries ``.partial`` so that a killed run leaves nothing that looks finished.
    """
    target = Path(final)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=f".partial{target.suffix}", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes private files; a result is as readable as any other
        os.replace(temporary, target)
    except Exception as error:
        _tell_failed_write(error, target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(final: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside ``final``; on success it replaces ``final``, on any error it is deleted.

    An existing ``final`` is moved aside first and deleted last, so that a failure keeps the old folder.
    """
    target = Path(final)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    aside = temporary.with_suffix(".partial.old")
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        if target.exists():
            os.replace(target, aside)
        os.replace(temporary, target)
    except Exception as error:
        _tell_failed_write(error, target)
        raise
    finally:
        if aside.exists() and not target.exists():  # interrupted between the two renames
            os.replace(aside, target)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def _tell_failed_write(error: Exception, target: Path) -> None:
    """Raise OSError where torch or safetensors say in an error of their own kind that writing failed, as on a full disk."""
    if not isinstance(error, OSError) and any(sign in str(error) for sign in ("inline_container", "I/O error")):
        raise OSError(errno.EIO, "writing failed", str(target)) from error
