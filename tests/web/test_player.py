"""The player alone: in step, frame by frame, with keys, views, plot and playhead, in every theme and width."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.web

FPS, FRAMES, BITS = 16, 48, 6
READ = """() => {
  const videos = [...document.querySelectorAll('#player video')];
  const canvas = document.createElement('canvas');
  canvas.width = 192; canvas.height = 32;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  return videos.map((video) => {
    pen.drawImage(video, 0, 0, 192, 32, 0, 0, 192, 32);
    let code = 0;
    for (let bit = 0; bit < 6; bit++) code |= (pen.getImageData(bit * 32 + 16, 16, 1, 1).data[0] > 127 ? 1 : 0) << bit;
    return code;
  });
}"""
SAMPLE = f"""async ([seconds, seekEvery]) => {{
  const read = {READ}, video = document.querySelector('#player video'), seek = document.querySelector('#player .seek');
  const pairs = [], began = performance.now();
  let sought = began;
  while (performance.now() - began < seconds * 1000) {{
    await new Promise((done) => setTimeout(done, 50));
    if (seekEvery && performance.now() - sought > seekEvery * 1000) {{
      sought = performance.now();
      seek.value = String(Math.floor(Math.random() * {FRAMES}));
      seek.dispatchEvent(new Event('input'));
      await new Promise((done) => setTimeout(done, 150));
      document.querySelector('#player .play').click();
      await new Promise((done) => setTimeout(done, 300));
    }}
    pairs.push(read());
  }}
  return pairs;
}}"""


def coded(path, shade):
    """A video whose frame k carries k as black and white blocks along its top."""
    from phys_pipeline.media import Video, write_video

    frames = np.full((FRAMES, 128, 192, 3), shade, np.uint8)
    for frame in range(FRAMES):
        for bit in range(BITS):
            frames[frame, :32, 32 * bit : 32 * bit + 32] = 255 * (frame >> bit & 1)
        frames[frame, 40:120, 3 * frame : 3 * frame + 40] = 200
    return write_video(path, Video.from_frames(frames, FPS))


def windows(losses):
    return [
        {"start_s": 0.5 * index, "end_s": 0.5 * index + 1, "composite": loss, "translation": loss, "rotation": loss,
         "scaling": loss, "dynamic_degree": 0.5} for index, loss in enumerate(losses)
    ]  # fmt: skip


def report(losses):
    names = ("composite", "translation", "rotation", "scaling")
    return {
        "timeline": windows(losses), "loss": dict.fromkeys(names, losses[0]), "dynamic_degree": 0.5, "dominant": "translation",
        "velocity": {"x_percent_per_s": 1.0, "y_percent_per_s": 0.0}, "rotation_deg_per_s": 0.0, "zoom_percent_per_s": 0.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def player_app(tmp_path_factory):
    import gradio as gr

    from phys_pipeline.web.component import sync_compare
    from phys_pipeline.web.engine.player import player_value
    from phys_pipeline.web.theme import CSS, theme

    folder = tmp_path_factory.mktemp("player")
    os.environ.setdefault("GRADIO_TEMP_DIR", str(folder / "gradio"))
    files = {"left": coded(folder / "left.mp4", 60), "right": coded(folder / "right.mp4", 120)}
    value = player_value(
        files, {"left": report([0.2, 0.3, 0.4, 0.9]), "right": report([0.3, 0.3, 0.2, 0.2])},
        labels=("Baseline <b>x</b>", "Physics"), about="<img src=x onerror=window.hacked=1>",
    )  # fmt: skip
    with gr.Blocks(analytics_enabled=False) as demo:
        player = sync_compare(value, elem_id="player")
        empty = gr.Button("Empty")
        empty.click(lambda: None, None, player)
    _, url, _ = demo.launch(
        server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, theme=theme(), css=CSS, ssr_mode=False, run_history=False
    )
    yield SimpleNamespace(url=url.rstrip("/"))
    demo.close(verbose=False)


@pytest.fixture
def player(new_page, player_app):
    page = new_page(player_app.url)
    page.wait_for_function("[...document.querySelectorAll('#player video')].length === 2 && "
                           "[...document.querySelectorAll('#player video')].every((v) => v.readyState >= 3)")  # fmt: skip
    return page


def share_same(pairs):
    assert len(pairs) > 40
    differences = [min(abs(a - b), FRAMES - abs(a - b)) for a, b in pairs]  # at the seam of a loop 47 and 0 are neighbours
    return sum(difference == 0 for difference in differences) / len(differences), len({a for a, _ in pairs})


def pause(page):
    page.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => !v.paused)")  # they start by themselves
    page.locator("#player .play.playing").click()
    page.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => v.paused && !v.seeking)")


def frame(page):
    return page.evaluate(READ), page.locator("#player .time").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(("speed", "seconds", "seek_every"), [("1", 30, 0), ("1", 6, 1.5), ("2", 6, 0)])
def test_both_videos_show_the_same_frame(player, speed, seconds, seek_every):
    player.locator("#player .rate").select_option(speed)
    same, seen = share_same(player.evaluate(SAMPLE, [seconds, seek_every]))
    assert same >= 0.95 and seen > 30


def test_every_frame_can_be_stepped_to(player):
    pause(player)
    player.locator("#player .player").focus()
    player.keyboard.press("Home")
    for wanted in range(FRAMES):
        player.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => !v.seeking)")
        player.wait_for_function(f"(({READ})()).every((code) => code === {wanted})")
        expect(player.locator("#player .time")).to_have_text(re.compile(rf"^frame {wanted + 1} of {FRAMES}"))
        player.keyboard.press(".")
    player.keyboard.press("Home")
    for key, wanted in (("End", FRAMES), ("ArrowLeft", FRAMES - 1)):
        player.keyboard.press(key)
        expect(player.locator("#player .time")).to_have_text(re.compile(rf"^frame {wanted} of {FRAMES}"))


def test_keys_views_and_swap(player):
    pause(player)
    root, stage = player.locator("#player .player"), player.locator("#player .stage")
    root.focus()
    for wanted in ("wipe", "difference", "side"):
        player.keyboard.press("v")
        expect(stage).to_have_attribute("data-view", wanted)
    player.keyboard.press("s")
    expect(root).to_have_class(re.compile("swapped"))
    boxes = [player.locator(f"#player .{side}").bounding_box()["x"] for side in ("left", "right")]
    assert boxes[0] > boxes[1]
    player.keyboard.press("l")
    expect(player.locator("#player .rate")).to_have_value("1.5")
    player.keyboard.press("j")
    player.keyboard.press("j")
    expect(player.locator("#player .rate")).to_have_value("0.5")
    player.keyboard.press("?")
    expect(player.locator("#player .keys")).to_be_visible()
    player.keyboard.press(" ")
    player.wait_for_function("!document.querySelector('#player video').paused")
    player.keyboard.press("k")
    player.wait_for_function("document.querySelector('#player video').paused")
    player.locator("#player .view").select_option("wipe")
    player.locator("#player .wipe").fill("20")
    assert stage.evaluate("(node) => node.style.getPropertyValue('--wipe')") == "20%"
    box = stage.bounding_box()
    player.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 60)
    player.mouse.down()
    player.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60, steps=4)
    player.mouse.up()
    expect(player.locator("#player .wipe")).to_have_value(re.compile("^(6[89]|7[0-2])$"))


def test_replays_are_counted_after_the_first_full_play(player):
    def watched():
        return player.evaluate("document.querySelector('#player .player').watched()")

    def speed(value):
        player.locator("#player .rate").select_option(value)

    speed("0.1")  # so that the end does not come by itself
    pause(player)
    player.locator("#player .seek").fill("40")
    for _ in range(2):  # not seen whole yet: going back counts nothing
        player.locator("#player .home").click()
        player.locator("#player .play").click()
        pause(player)
    assert (watched()["plays"], watched()["replays"]) == (0, 0) and watched()["seconds"] > 0
    speed("2")
    player.locator("#player .play").click()
    player.wait_for_function("document.querySelector('#player .player').watched().plays >= 2")  # the second one loops by itself
    speed("0.1")
    assert watched()["replays"] == 0
    pause(player)
    player.locator("#player .play").click()  # goes on
    pause(player)
    assert watched()["replays"] == 0
    player.locator("#player .seek").fill("40")
    player.locator("#player .home").click()
    player.locator("#player .play").click()
    pause(player)
    assert watched()["replays"] == 1


def test_playhead_can_be_dragged_and_numbers_are_a_table(player):
    pause(player)
    plot = player.locator("#player .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    middle = box["y"] + box["height"] / 2
    player.mouse.move(box["x"] + 45, middle)
    player.mouse.down()
    player.mouse.move(box["x"] + 40 + (box["width"] - 52) / 2, middle, steps=5)
    player.mouse.up()
    player.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => !v.seeking)")
    assert abs(int(player.locator("#player .seek").input_value()) - FRAMES // 2) <= 1
    assert "motion loss 0.20" in plot.get_attribute("aria-label")
    player.locator("#player summary").click()
    rows = player.locator("#player tbody tr").all_inner_texts()
    assert len(rows) == 8 and rows[0].split("\t") == ["Baseline <b>x</b>", "0.00", "1.00", "0.20", "0.20", "0.20", "0.20"]


def test_texts_are_no_html_and_none_empties_the_player(player):
    assert player.locator("#player .left figcaption").inner_text() == "Baseline <b>x</b>"
    assert "onerror" in player.locator("#player video").first.get_attribute("aria-label")
    assert player.evaluate("window.hacked") is None
    player.get_by_role("button", name="Empty").click()
    player.get_by_text("Nothing to show yet.").wait_for()
    assert player.locator("#player .stage").is_hidden()


def test_reduced_motion_starts_nothing(new_page, player_app):
    page = new_page(player_app.url, reduced_motion="reduce")
    page.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => v.readyState >= 3)")
    page.wait_for_timeout(700)
    assert page.evaluate("[...document.querySelectorAll('#player video')].every((v) => v.paused && v.currentTime === 0)")


def test_a_phone_needs_no_sideways_scroll(new_page, player_app):
    page = new_page(player_app.url, viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.wait_for_function("[...document.querySelectorAll('#player video')].every((v) => v.readyState >= 3)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = [page.locator(f"#player .{side}").bounding_box() for side in ("left", "right")]
    assert boxes[1]["y"] > boxes[0]["y"] + boxes[0]["height"] - 2
