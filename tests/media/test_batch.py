"""Float batches read and made one picture at a time."""

import numpy as np
import pytest
import torch

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, overlay, side_by_side
from phys_pipeline.media.batch import ImageBatch, images_of
from phys_pipeline.media.compare import MODES, Compared
from phys_pipeline.media.overlay import Overlaid
from phys_pipeline.scoring import score_video


@pytest.fixture(scope="module")
def images():
    """A square that moves over a textured ground, (12, 24, 32, 3)."""
    pictures = 0.3 * torch.rand(24, 32, 3, generator=torch.Generator().manual_seed(0)).repeat(12, 1, 1, 1)
    for number in range(12):
        pictures[number, 8:16, number : number + 8] = 0.9
    return pictures


@pytest.fixture(scope="module")
def video(images):
    return Video.from_tensor(images.permute(3, 0, 1, 2), 8.0, "clip")


def test_pictures_are_those_of_the_video(images, video):
    clip = ImageBatch(images, 8.0, "clip")
    assert (len(clip), clip.height, clip.width, clip.fps, clip.duration) == (12, 24, 32, 8.0, video.duration)
    assert (clip.timestamps == video.timestamps).all()
    for number in range(12):
        np.testing.assert_array_equal(clip.frames[number], video.frames[number])


def test_scores_are_those_of_the_video(images, video):
    assert score_video(ImageBatch(images, 8.0, "clip")).to_dict() == score_video(video).to_dict()


@pytest.mark.parametrize("change", ["half", "double", "alpha", "strided", "expanded", "outside"])
def test_any_kind_of_batch(images, video, change):
    given = {
        "half": lambda: torch.from_numpy(video.frames).to(torch.float16) / 255,
        "double": images.double,
        "alpha": lambda: torch.cat([images, torch.rand(12, 24, 32, 1)], dim=-1),
        "strided": lambda: images.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
        "expanded": lambda: images[3:4].expand(12, -1, -1, -1),
        "outside": lambda: torch.where(images > 0.85, 7.0, torch.where(images < 0.01, -3.0, images)),
    }[change]()
    picture = ImageBatch(given, 8.0)[3]
    expected = video.frames[3]
    if change == "outside":
        expected = np.where(images[3].numpy() > 0.85, 255, np.where(images[3].numpy() < 0.01, 0, expected))
    np.testing.assert_array_equal(picture, expected)


def test_grey(images):
    grey = ImageBatch(images[..., :1], 8.0)[0]
    assert grey.shape == (24, 32, 3) and (grey[..., 0] == grey[..., 2]).all()


def test_a_batch_that_is_no_video(images):
    for wrong in (images[0], images[:0], images[..., :2], (255 * images).to(torch.uint8), images[:, :0]):
        with pytest.raises(MediaError):
            ImageBatch(wrong, 8.0)
    with pytest.raises(MediaError, match="fps"):
        ImageBatch(images, 0.0)


def test_a_picture_that_is_not_finite_is_named(images):
    spoiled = images.clone()
    spoiled[5, 1, 1] = float("nan")
    clip = ImageBatch(spoiled, 8.0)
    assert clip[4].shape == (24, 32, 3)
    with pytest.raises(MediaError, match="picture 5"):
        clip[5]


def test_stopping(images):
    """What is called before a picture may end the work; it reaches the caller from inside the scoring."""

    class Stop(BaseException):
        pass

    calls = []

    def each():
        calls.append(0)
        if len(calls) > 4:
            raise Stop

    with pytest.raises(Stop):
        score_video(ImageBatch(images, 8.0, each=each))


def test_there_and_back(images, video):
    back = images_of(ImageBatch(images, 8.0))
    assert back.dtype == torch.float32 and (back.shape, back.is_contiguous()) == (images.shape, True)
    torch.testing.assert_close(back, torch.from_numpy(video.frames) / 255.0)


@pytest.mark.parametrize("mode", MODES)
def test_comparison_of_batches_is_that_of_videos(images, video, mode):
    other = Video.from_frames(video.frames[:7, :, :20].copy(), 6.0, "other")
    expected = side_by_side(video, other, mode=mode, labels=("one", "two"))
    found = Compared(
        ImageBatch(images, 8.0, "clip"), ImageBatch(images[:7, :, :20], 6.0, "other"), mode=mode, labels=("one", "two")
    )
    assert len(found) == len(expected) and (found.fps, found.source) == (expected.fps, expected.source)
    for number in (0, 5, len(found) - 1):
        np.testing.assert_array_equal(found[number], expected.frames[number])
    with pytest.raises(IndexError):
        found[len(found)]


def test_overlay_of_a_batch_is_that_of_the_video(images, video):
    report = score_video(video).to_dict()
    expected, found = overlay(video, report), Overlaid(ImageBatch(images, 8.0, "clip"), report)
    for number in (11, 0, 6):  # in any order
        np.testing.assert_array_equal(found[number], expected.frames[number])


def test_report_that_starts_later(images, video):
    """The panel and the cursor of a picture are those that the report has for it."""
    part = Video.from_frames(video.frames[4:], 8.0, "clip")
    report = score_video(part).to_dict()
    alone, whole = Overlaid(part, report), Overlaid(video, report, first=4)
    np.testing.assert_array_equal(whole[7], alone[3])
