import numpy as np
import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video, write_video

PIXELS = np.zeros((4, 16, 16, 3), np.uint8)


def test_a_sample_has_one_source_and_known_labels(tmp_path):
    with pytest.raises(DataError, match="either a file or frames"):
        VideoSample("a", "m")
    with pytest.raises(DataError, match="either a file or frames"):
        VideoSample("a", "m", frames=PIXELS, path=tmp_path)
    with pytest.raises(DataError, match="unknown label 'colour'"):
        VideoSample("a", "m", frames=PIXELS, labels={"colour": "red"})
    with pytest.raises(DataError, match="needs an id"):
        VideoSample("", "m", frames=PIXELS)


def test_the_digest_follows_bytes_and_rate_not_names(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").write_bytes(b"x" * 3_000_000)
    assert VideoSample("a", "m", path=tmp_path / "a").digest == VideoSample("b", "n", path=tmp_path / "b").digest
    digests = {
        VideoSample("a", "m", frames=frames, fps=fps).digest
        for frames, fps in ((PIXELS, 8.0), (PIXELS, 9.0), (PIXELS[:3], 8.0), (PIXELS + np.uint8(1), 8.0))
    }
    assert len(digests) == 4
    with pytest.raises(DataError, match="can't be read"):
        _ = VideoSample("a", "m", path=tmp_path / "none").digest


def test_the_rate_is_the_files_and_unknown_without_one(tmp_path):
    write_video(tmp_path / "v.mp4", Video.from_frames(PIXELS, 12))
    known = VideoSample("a", "m", path=tmp_path / "v.mp4")
    unknown = VideoSample("a", "m", frames=PIXELS)
    assert DecodedClip(known, known.decode()).fps == pytest.approx(12)
    assert DecodedClip(unknown, unknown.decode()).fps is None


def test_names_tell_seeds_apart():
    assert [VideoSample("a", "m", seed=seed, frames=PIXELS).name for seed in (None, 0, 3)] == ["m/a", "m/a#0", "m/a#3"]
