"""The overlay: the picture stays untouched, the panel tells the report's numbers, the cursor follows the time."""

import numpy as np
import pytest

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, overlay
from phys_pipeline.media import overlay as overlay_function
from phys_pipeline.media.panel import PANEL_WIDTH, render_panel
from phys_pipeline.media.text import BAD, GOOD, TEXT, fitted, font, loss_colour
from phys_pipeline.media.timeline import render_strip, window_edges


def entry(start=0.0, end=1.0, composite=0.3, **changes):
    return {
        "start_s": start,
        "end_s": end,
        "composite": composite,
        "translation": 0.4,
        "rotation": 0.2,
        "scaling": 0.6,
        "dynamic_degree": 0.5,
        "velocity": {"x_percent_per_s": 10.0, "y_percent_per_s": -5.0},
        "rotation_deg_per_s": 12.0,
        "zoom_percent_per_s": -3.0,
    } | changes


def report(timeline, **changes):
    first = timeline[0] if timeline else entry()
    return {
        "schema": "phys-pipeline/motion-report",
        "version": 1,
        "source": "folder/clip.mp4",
        "loss": {name: first[name] for name in ("composite", "translation", "rotation", "scaling")},
        "weights": {"translation": 0.2, "rotation": 0.5, "scaling": 0.3},
        "dominant": "rotation",
        "dynamic_degree": 0.5,
        "is_static": False,
        "timeline": timeline,
    } | changes


def noise(count=6, height=24, width=32, fps=6.0):
    return Video.from_frames(np.random.default_rng(1).integers(0, 256, (count, height, width, 3), dtype=np.uint8), fps)


def test_picture_is_untouched_and_nothing_covers_it():
    video = noise(3, 400, 520)
    result = overlay(video, report([entry()]))
    np.testing.assert_array_equal(result.frames[:, :400, :520], video.frames)
    np.testing.assert_array_equal(result.timestamps, video.timestamps)
    assert result.fps == video.fps and result.width > 520 + 250 and result.height > 400 + 60


@pytest.mark.parametrize(
    "size", [(64, 64), (480, 720), (1080, 1920), (640, 360), (2, 2), (1, 1), (20, 1000), (1000, 20), (361, 363), (2160, 3840)]
)
def test_every_size_gives_a_readable_panel_of_even_sides(size):
    result = overlay(noise(1, *size), report([entry()]))
    assert result.height % 2 == 0 and result.width % 2 == 0
    assert result.height >= 360 and result.width >= 250
    bright = (result.frames[0, :, -200:].min(-1) > 200).sum()  # letters are there
    assert bright > 200


def test_small_pictures_grow_by_a_whole_factor():
    y, x = np.mgrid[:90, :100]
    waves = (128 + 80 * np.sin(x / 7) * np.cos(y / 9)).astype(np.uint8)
    result = overlay(Video.from_frames(np.repeat(waves[None, :, :, None], 3, -1), 1.0), report([entry()]))
    grown = result.frames[0, :360, :400, 0].reshape(90, 4, 100, 4).mean((1, 3))  # four rows and columns for each pixel
    assert np.abs(grown - waves).max() < 4


def test_panel_grows_with_the_picture():
    small, large = overlay(noise(1, 360, 640), report([entry()])), overlay(noise(1, 720, 1280), report([entry()]))
    assert (large.width - 1280) == 2 * (small.width - 640) and (large.height - 720) == 2 * (small.height - 360)


def coloured(picture, value):
    return int((np.abs(picture.astype(int) - loss_colour(value)).max(-1) <= 3).sum())


def test_bar_length_is_the_loss():
    # Each value has a colour of its own, so its pixels can be counted; the numbers on top use other values.
    sizes = {}
    for loss in (0.2, 0.4, 0.8):
        window = entry(composite=1.0, translation=loss, rotation=0.0, scaling=0.0)
        told = report([window], loss={"composite": 1.0, "translation": 0.0, "rotation": 0.0, "scaling": 0.0})
        picture = render_panel(told, window, "clip", 720, 2.0)[220:]  # below the colour scale
        sizes[loss] = coloured(picture, loss)
    assert sizes[0.4] / sizes[0.2] == pytest.approx(2, rel=0.1)
    assert sizes[0.8] / sizes[0.2] == pytest.approx(4, rel=0.1)


def test_strip_height_is_the_loss_and_width_the_time():
    timeline = [entry(0, 2, 0.3), entry(2, 4, 0.9)]
    strip = render_strip(timeline, 4.0, 1000, 148, 2.0)
    assert coloured(strip, 0.9) / coloured(strip, 0.3) == pytest.approx(3, rel=0.1)
    columns = np.flatnonzero((np.abs(strip.astype(int) - loss_colour(0.9)).max(-1) <= 3).any(0))
    assert columns.min() == pytest.approx(500, abs=4) and columns.max() == pytest.approx(1000 - 36, abs=4)


def lit_centre(window, rows, told):
    """Mean column of what is brighter in this window's icon than in the mirrored one's."""
    first, second = (render_panel(told, item, "clip", 720, 2.0)[rows, 30:80].astype(int).sum(-1) for item in window)
    return np.argwhere(first > second + 150)[:, 1].mean() - np.argwhere(second > first + 150)[:, 1].mean()


def test_arrow_points_where_the_content_goes():
    right, left = (entry(velocity={"x_percent_per_s": x, "y_percent_per_s": 0.0}) for x in (9.0, -9.0))
    told = report([right])
    assert lit_centre((right, left), slice(440, 720), told) > 2
    assert lit_centre((left, right), slice(440, 720), told) < -2


def test_turning_arrows_mirror_each_other():
    clockwise, other = (entry(rotation_deg_per_s=rate) for rate in (20.0, -20.0))
    told = report([clockwise])
    first, second = (render_panel(told, item, "clip", 720, 2.0)[440:, 30:80] for item in (clockwise, other))
    assert lit_centre((clockwise, other), slice(440, 720), told) > 2  # the head of a clockwise arc ends at the right
    assert np.abs(first.astype(int) - second).max() > 100


def test_panel_follows_the_windows_and_is_drawn_once_for_each(monkeypatch):
    timeline = [entry(0, 1, 0.1), entry(0.5, 1.5, 0.5), entry(1, 2, 0.9)]
    drawn = []
    module = __import__("sys").modules["phys_pipeline.media.overlay"]

    def counted(told, window, *rest):
        drawn.append(window["composite"])
        return render_panel(told, window, *rest)

    monkeypatch.setattr(module, "render_panel", counted)
    video = noise(20, 360, 400, fps=10.0)
    result = overlay_function(video, report(timeline))
    assert drawn == [0.1, 0.5, 0.9]
    panels = result.frames[:, :360, -int(PANEL_WIDTH) :]
    changes = [index for index in range(1, 20) if (panels[index] != panels[index - 1]).any()]
    assert changes == [8, 13]  # half way between the windows' centres 0.5, 1.0, 1.5 s: 0.75 and 1.25 s


def test_cursor_moves_evenly_from_start_to_end():
    video = noise(10, 360, 400, fps=5.0)
    result = overlay(video, report([entry(0, 2)]))
    strip = result.frames[:, 362:, :]
    middles = [np.flatnonzero((frame[30] == TEXT).all(-1)).mean() for frame in strip]
    length = result.width - 36
    np.testing.assert_allclose(middles, 18 + length * video.timestamps / 2.0, atol=1.5)


def test_reports_of_all_kinds():
    for told in (
        report([entry()], is_static=True, dominant="static"),
        report([entry(composite=0.0, translation=0.0, rotation=0.0, scaling=0.0, dynamic_degree=0.0)]),
        report([entry(composite=1.3, translation=-0.1, rotation_deg_per_s=-1234.5, zoom_percent_per_s=9999.0)]),
        report([entry(i / 50, i / 50 + 0.3, (i % 10) / 10) for i in range(600)]),
        report([entry()], source=""),
    ):
        assert len(overlay(noise(2), told)) == 2


def test_title():
    base, other = (overlay(noise(1), report([entry()]), title=title).frames for title in (None, "Physics LoRA: 漢字 " * 20))
    assert (base[:, :50] != other[:, :50]).any()
    same = overlay(noise(1), report([entry()]), title="clip.mp4").frames
    np.testing.assert_array_equal(base, same)  # the default is the file's name


def test_variable_rate_and_one_frame():
    frames = noise(3).frames
    assert len(overlay(Video(frames, np.array([0.0, 0.1, 3.0]), 1.0), report([entry(), entry(1, 2)]))) == 3
    assert len(overlay(noise(1), report([entry()]))) == 1


def test_what_is_no_report():
    for told in ({}, None, {"schema": "other"}, report([])):
        with pytest.raises(MediaError, match="report"):
            overlay(noise(1), told)


def test_memory_limit(monkeypatch):
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", "1000000")
    with pytest.raises(MediaError, match="over the limit"):
        overlay(noise(6), report([entry()]))


def test_window_edges():
    timeline = [entry(0, 1), entry(0.5, 1.5), entry(2, 3)]
    np.testing.assert_allclose(window_edges(timeline, 3.0), [0, 0.75, 1.75, 3])
    np.testing.assert_allclose(window_edges(timeline[:1], 3.0), [0, 3])


def test_colours_and_letters():
    assert loss_colour(0) == GOOD and loss_colour(1) == BAD == loss_colour(7) and loss_colour(-1) == GOOD
    assert font(12).getname()[0] == "DejaVu Sans"
    short = fitted("a long text that can't fit here", 80, 12)
    assert short.endswith("…") and font(12).getlength(short) <= 80
    assert fitted("short", 80, 12) == "short"
