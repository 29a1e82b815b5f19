"""Scores within the picture."""

import numpy as np
import pytest
import torch

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media.batch import ImageBatch
from phys_pipeline.media.card import POSITIONS, STYLES, draw_scores, score_plot
from phys_pipeline.scoring import score_video


@pytest.fixture(scope="module")
def images():
    pictures = torch.rand(10, 120, 160, 3, generator=torch.Generator().manual_seed(1))
    for number in range(10):
        pictures[number] = pictures[0].roll(2 * number, dims=1)
    return pictures


@pytest.fixture(scope="module")
def report(images):
    return score_video(ImageBatch(images, 8.0)).to_dict()


@pytest.mark.parametrize("style", STYLES)
def test_only_the_card_changes(images, report, style):
    before = images.clone()
    drawn = draw_scores(images, report, style=style, position="bottom left", size=15)
    assert torch.equal(images, before) and drawn.shape == images.shape
    rows, columns = (drawn != images).any(dim=(0, 3)).nonzero(as_tuple=True)
    assert rows.min() >= 40 and columns.max() < 140  # the lower left
    assert 0 < len(rows) < 0.8 * 120 * 160


def test_positions(images, report):
    for position in POSITIONS:
        changed = (draw_scores(images, report, style="minimal", position=position, graph=False) != images).any(dim=(0, 3))
        rows, columns = (float(c.float().mean()) for c in changed.nonzero(as_tuple=True))
        assert (rows < 60) == position.startswith("top"), position
        assert (columns < 70) == position.endswith("left") and (columns > 90) == position.endswith("right"), position


@pytest.mark.parametrize(("dtype", "channels"), [(torch.float16, 3), (torch.float32, 4), (torch.float64, 3)])
def test_number_type_and_alpha_are_kept(images, report, dtype, channels):
    given = torch.cat([images, torch.full((10, 120, 160, 1), 0.25)], dim=-1)[..., :channels].to(dtype)
    drawn = draw_scores(given, report)
    assert drawn.dtype == dtype and drawn.shape == given.shape
    assert torch.equal(drawn[..., 3:], given[..., 3:])


def test_cursor_moves_and_opacity(images, report):
    drawn = draw_scores(images, report, style="bar", size=40, opacity=1.0)
    assert not torch.equal(drawn[1], drawn[8].roll(0, 0))
    invisible = draw_scores(images, report, style="bar", opacity=0.0)
    torch.testing.assert_close(invisible, images)


def test_a_card_fits_into_any_picture(report):
    for height, width in ((9, 9), (8, 200), (200, 8), (37, 51)):
        drawn = draw_scores(torch.zeros(2, height, width, 3), report, size=100.0)
        assert drawn.shape == (2, height, width, 3) and torch.isfinite(drawn).all()


def test_plot(report):
    one, two = score_plot([report], ["a"]), score_plot([report, report], ["a", "b"])
    assert one.dtype == np.uint8 and two.shape == (one.shape[0], 2 * one.shape[1], 3)
    assert len(np.unique(one.reshape(-1, 3), axis=0)) > 50


def test_errors(images, report):
    with pytest.raises(ConfigError, match="style"):
        draw_scores(images, report, style="neon")
    with pytest.raises(ConfigError, match="position"):
        draw_scores(images, report, position="left")
    with pytest.raises(MediaError, match="report"):
        draw_scores(images, {"schema": "other"})
