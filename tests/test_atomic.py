import os
import stat

import pytest

from phys_pipeline.atomic import atomic_file, atomic_folder


def test_a_file_appears_whole_with_ordinary_permissions(tmp_path):
    target = tmp_path / "new" / "result.json"
    with atomic_file(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists() and temporary.suffix == ".json" and temporary.parent == target.parent
    assert target.read_text() == "whole"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    assert [path.name for path in target.parent.iterdir()] == ["result.json"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path, error):
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(error), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise error
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["result.txt"]


def test_a_folder_replaces_the_old_one_whole(tmp_path):
    target = tmp_path / "adapter"
    target.mkdir()
    (target / "stale").write_text("")
    with atomic_folder(target) as temporary:
        (temporary / "fresh").write_text("1")
        assert (target / "stale").exists()
    assert [path.name for path in target.iterdir()] == ["fresh"]
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_folder_keeps_the_old_one(tmp_path, error):
    target = tmp_path / "adapter"
    target.mkdir()
    (target / "old").write_text("1")
    with pytest.raises(error), atomic_folder(target) as temporary:
        (temporary / "half").write_text("")
        raise error
    assert [path.name for path in target.iterdir()] == ["old"] and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interruption_between_the_two_renames_keeps_the_old_folder(tmp_path, monkeypatch, error):
    target = tmp_path / "adapter"
    target.mkdir()
    (target / "old").write_text("1")
    rename = os.replace

    def interrupted(source, destination):
        if str(destination) == str(target) and not str(source).endswith(".old"):
            raise error
        rename(source, destination)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(error), atomic_folder(target) as temporary:
        (temporary / "new").write_text("2")
    assert [path.name for path in target.iterdir()] == ["old"] and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("make", [atomic_file, atomic_folder])
@pytest.mark.parametrize(
    "error", [RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"), ValueError("x")]
)
def test_a_write_that_a_library_failed_is_told_as_such(tmp_path, make, error):
    expected = OSError if isinstance(error, RuntimeError) else ValueError
    with pytest.raises(expected) as caught, make(tmp_path / "result.pt"):
        raise error
    if expected is OSError:
        assert caught.value.strerror == "writing failed" and caught.value.filename == str(tmp_path / "result.pt")
