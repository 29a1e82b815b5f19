"""The app in a browser: the first pair, cancelling, reloading, odd uploads, a study from start to export, accessibility."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from phys_pipeline.adapters.embedded import demo_pair

pytestmark = [pytest.mark.web, pytest.mark.slow]

AXE_VERSION = "4.10.3"
QUIET = 2.0  # load per core above which a time means nothing
PLAYING = "[...document.querySelectorAll('{} video')].filter((v) => v.src).every((v) => v.readyState >= 3)"


def status(page, tab, start, timeout=180_000):
    page.locator(f"#{tab}-status").get_by_text(re.compile(f"^{start}")).wait_for(timeout=timeout)


def fewer_steps(page, steps):
    page.get_by_role("button", name="Size and steps").click()
    field = page.get_by_label("Steps", exact=True)
    for _ in range(20):  # what is filled in while that part of the page opens can be lost: the job then has the default 20 steps
        field.fill(str(steps))
        field.press("Tab")
        page.wait_for_timeout(300)
        if field.input_value() == str(steps):
            return
    raise AssertionError(f"the page doesn't keep {steps} steps")


def test_the_first_pair_downloads_and_a_reload(page, app):
    from phys_pipeline.media import probe, read_video

    began = time.monotonic()
    page.get_by_role("button", name="Generate the pair").click()
    status(page, "compare", "Done", 300_000)
    seconds = time.monotonic() - began
    page.wait_for_function(PLAYING.format("#compare-player"))
    page.wait_for_function("[...document.querySelectorAll('#compare-player video')].every((v) => !v.paused)")
    drift = page.evaluate("Math.abs(document.querySelectorAll('#compare-player video')[0].currentTime - "
                          "document.querySelectorAll('#compare-player video')[1].currentTime)")  # fmt: skip
    assert drift < 0.5 / 8
    if os.getloadavg()[0] / (os.cpu_count() or 1) < QUIET:
        assert seconds < 60
    assert page.locator("#compare-player figcaption").all_inner_texts() == ["Baseline", "Physics"]
    assert "Motion loss" in page.locator("#compare-table").inner_text()
    page.get_by_role("button", name="Download and repeat").click()
    command = page.locator("#compare-command textarea").input_value()
    assert command.startswith(f"phys-pipeline generate '{demo_pair()[0]}' --adapter phys_pipeline/assets/")
    links = page.locator("#compare-files a[href*='file=']")
    names = {}
    for index in range(links.count()):
        link = links.nth(index)
        with page.expect_download() as waiting:
            link.click()
        names[waiting.value.suggested_filename] = Path(waiting.value.path())
    assert sorted(names) == ["baseline-seed-0.mp4", "comparison-seed-0.mp4", "physics-seed-0.mp4", "scores-seed-0.json"]
    scores = json.loads(names["scores-seed-0.json"].read_text())
    assert scores["videos"].keys() == {"baseline", "physics"} and scores["schema"] == "phys-pipeline/scores"
    for name in ("baseline-seed-0.mp4", "comparison-seed-0.mp4"):
        info = probe(names[name])
        assert info.codec == "h264" and info.frames == 16 and info.width % 2 == info.height % 2 == 0
    assert read_video(names["comparison-seed-0.mp4"]).width > 700
    page.reload()
    status(page, "compare", "Your last results")
    page.wait_for_function(PLAYING.format("#compare-player"))
    assert "Motion loss" in page.locator("#compare-table").inner_text()


def test_every_tab_keeps_its_results_over_a_reload(page, make_clip):
    def shown():
        page.get_by_role("tab", name="Score your video").click()
        page.locator("#score-summary .summary").wait_for()
        page.wait_for_function(PLAYING.format("#score-player"))
        page.get_by_role("tab", name="Compare two videos").click()
        page.locator("#two-table table").first.wait_for()
        page.wait_for_function(PLAYING.format("#two-player"))

    page.get_by_role("tab", name="Score your video").click()
    page.locator("#score-upload input[type=file]").set_input_files(make_clip("first.mp4"))
    page.locator("#score-upload").get_by_text("first").first.wait_for()
    page.get_by_role("button", name="Score it").click()
    status(page, "score", "Done")
    page.get_by_role("tab", name="Compare two videos").click()
    for side in "ab":
        page.locator(f"#two-{side} input[type=file]").set_input_files(make_clip(f"{side}.mp4"))
        page.locator(f"#two-{side}").get_by_text(f"{side}.").first.wait_for()
    page.get_by_role("button", name="Compare them").click()
    status(page, "two", "Done")
    shown()
    page.reload()
    page.get_by_role("button", name="Generate the pair").wait_for()
    shown()


def test_a_phone_needs_no_sideways_scroll(new_page, app):
    page = new_page(app.url, viewport={"width": 390, "height": 800})
    page.get_by_role("button", name="Generate the pair").wait_for()
    page.evaluate("document.querySelectorAll('[role=tabpanel] .label-wrap').forEach((heading) => heading.click())")
    for index in range(5):
        tabs = page.get_by_role("tab").filter(visible=True)
        if index < tabs.count():
            tabs.nth(index).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, index


def test_several_seeds_are_cards_sorted_by_score(page):
    fewer_steps(page, 2)
    page.get_by_label("number input for Seeds, from this one on").fill("3")
    page.get_by_role("button", name="Generate the pair").click()
    status(page, "compare", "Done")
    cards = page.locator("#compare-grid button")
    assert cards.count() == 3 and cards.first.get_attribute("aria-pressed") == "true"
    losses = [float(re.search(r"physics ([\d.]+)", text).group(1)) for text in cards.all_inner_texts() if "hardly" not in text]
    assert losses == sorted(losses)
    cards.nth(2).click()
    page.wait_for_function("document.querySelectorAll('#compare-grid button')[2].getAttribute('aria-pressed') === 'true'")
    seed = re.search(r"Seed (\d+)", cards.nth(2).inner_text()).group(1)
    page.get_by_role("button", name="Download and repeat").click()
    expect(page.locator("#compare-command textarea")).to_have_value(re.compile(f"--seed {seed} "))


def test_cancel_stops_the_work(page, app):
    fewer_steps(page, 200)
    page.get_by_role("button", name="Generate the pair").click()
    page.locator("#compare-status").get_by_text(re.compile(r"step \d+ of 200")).wait_for(timeout=180_000)
    (job,) = app.context.jobs.running()
    page.get_by_role("button", name="Cancel").click()
    status(page, "compare", "Cancelled")
    assert job.finished.wait(20)
    done = job.steps
    time.sleep(1.5)
    assert job.steps == done < 2 * 200  # of both videos
    assert not app.context.jobs.running()
    page.get_by_role("button", name="Generate the pair").and_(page.locator(":enabled")).wait_for()


def test_closing_the_page_stops_the_work(new_page, app):
    page = new_page(app.url)
    fewer_steps(page, 200)
    page.get_by_role("button", name="Generate the pair").click()
    page.locator("#compare-status").get_by_text(re.compile(r"step \d+ of 200")).wait_for(timeout=180_000)
    (job,) = app.context.jobs.running()
    page.context.close()
    assert job.finished.wait(60) and job.steps < 2 * 200


def odd_files(folder, make_clip):
    """Name -> what the page says about it."""
    from phys_pipeline.media import Video, write_video
    from phys_pipeline.media.synthetic import textured_clip

    def video(frames, height, width, fps=8.0):
        return Video.from_tensor(textured_clip(frames, height, width, seed=1, velocity=(1.5, 0.0)).video, fps)

    import av

    avi = folder / "old & <b>odd.avi"
    with av.open(str(avi), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for picture in video(12, 48, 64).frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode(None))
    text = folder / "text.mp4"
    text.write_text("this is no video\n" * 50)
    cut = folder / "cut off.mp4"
    cut.write_bytes(make_clip("whole.mp4", frames=60, height=120, width=160).read_bytes()[:6000])
    return {
        write_video(folder / "längs.gif", video(12, 61, 33)): "Mostly translation",
        avi: "Mostly translation",
        make_clip("long.mp4", frames=50, fps=8.0): "Only the first 4 of 6 seconds were read",
        text: "error",
        cut: "error or result",
        write_video(folder / "still.png", video(1, 48, 64)): "needs at least 3",
    }


def test_odd_files_give_a_result_or_a_clear_message(page, tmp_path, make_clip):
    page.get_by_role("tab", name="Score your video").click()
    for path, expected in odd_files(tmp_path, make_clip).items():
        if page.locator("#score-upload").get_by_label("Clear").count():
            page.locator("#score-upload").get_by_label("Clear").click()
        page.locator("#score-upload input[type=file]").set_input_files(path)
        page.locator("#score-upload").get_by_text(path.stem.partition(" ")[0]).first.wait_for()
        page.get_by_role("button", name="Score it").click()
        begin = path.name[:3]  # Gradio takes some characters out of names
        page.wait_for_function(
            "(begin) => document.querySelector('[data-testid=toast-body]') || "
            "document.querySelector('#score-player figcaption')?.textContent.startsWith(begin)", arg=begin,
        )  # fmt: skip
        page.locator("#score-start:enabled").wait_for()
        said = page.locator("#score-status").inner_text()
        toasts = " ".join(page.get_by_test_id("toast-body").all_inner_texts())
        assert "Traceback" not in page.content() and "site-packages" not in page.content()
        if expected.startswith("error"):
            assert ("Stopped" in said and path.name in toasts) or expected.endswith("result")
        elif "Stopped" in said:
            assert expected in toasts
        else:
            assert expected in page.locator("#score-summary").inner_text()
            page.wait_for_function(PLAYING.format("#score-player"))
        page.evaluate("document.querySelectorAll('[data-testid=toast-close]').forEach((button) => button.click())")
        page.wait_for_function("!document.querySelector('[data-testid=toast-body]')")


def test_two_videos(page, make_clip):
    page.get_by_role("tab", name="Compare two videos").click()
    page.locator("#two-a input[type=file]").set_input_files(make_clip("steady.mp4", frames=16))
    page.locator("#two-b input[type=file]").set_input_files(make_clip("slower.mp4", frames=20, velocity=(0.3, 0.0)))
    page.locator("#two-b").get_by_text("slower").first.wait_for()
    page.get_by_role("button", name="Compare them").click()
    status(page, "two", "Done")
    table = page.locator("#two-table").inner_text()
    assert "slower.mp4: temporal gains are not separable from reduced motion" in table and "Plausibility" in table
    assert "The lengths differ" in page.locator("#two-notes").inner_text()
    page.wait_for_function(PLAYING.format("#two-player"))


def answer(page, again=False):
    """Watch the pair to its end, once more if ``again``, and answer both questions; says what the page shows."""
    page.wait_for_function(PLAYING.format("#study-player"))
    page.locator("#study-next:enabled").wait_for(timeout=60_000)
    if again:
        page.locator("#study-player .seek").fill("8")
        page.locator("#study-player .home").click()
        page.locator("#study-player .play").click()
    shown = page.locator("#study-count").inner_text(), page.content()
    page.locator("#study-overall").get_by_label("Left").check()
    page.locator("#study-motion").get_by_label("Right").check()
    page.locator("#study-next").click()
    return shown


def test_a_study_from_start_to_export(new_page, app, host_key, study_folder):
    page = new_page(app.url)
    page.get_by_role("tab", name="Blind study").click()
    page.get_by_role("button", name="Start", exact=True).last.click()
    page.get_by_test_id("toast-body").get_by_text("tick the box first").wait_for()
    page.get_by_label("I am of age").check()
    page.locator("#study-begin").click()
    for number in range(5):  # three pairs, two checks
        page.locator("#study-count").get_by_text(f"{number} of 5 answered").wait_for()
        text, content = answer(page, again=number == 0)
        assert "swift" not in content and "slow/" not in content
        assert page.locator("#study-player .swap").is_hidden()  # left stays left
        assert ("Prompt <b>" in text) or "attentive" in text
        urls = page.evaluate("[...document.querySelectorAll('#study-player video')].map((v) => v.src)")
        assert all(re.search(r"/[0-9a-f]{16}\.mp4$", url) for url in urls if url)
        if number == 1:  # pause and come back
            page.locator("#study-count").get_by_text("2 of 5 answered").wait_for()
            page.reload()
            page.get_by_role("tab", name="Blind study").click()
            page.get_by_label("I am of age").check()
            page.locator("#study-begin").click()
    page.get_by_role("heading", name="Thank you").wait_for()
    stored = [json.loads(line) for line in (study_folder.study / "answers.jsonl").read_text().splitlines()][-5:]
    assert [entry["replays"] for entry in stored] == [1, 0, 0, 0, 0] and all(entry["plays"] > 0 for entry in stored)
    assert all(9 / 12 <= entry["seconds"] < 120 for entry in stored)  # nine frames at 12 a second were seen whole
    page.get_by_role("button", name="For the host of the study").click()
    page.get_by_label("Host's key").fill("a guess")
    page.get_by_role("button", name="Show the results so far").click()
    page.get_by_test_id("toast-body").get_by_text("not the host's key").wait_for()
    page.get_by_label("Host's key").fill(host_key)
    page.get_by_role("button", name="Show the results so far").click()
    page.locator("#study-results").get_by_text("1 participants").first.wait_for()
    page.locator("#study-files").get_by_text("answers").first.wait_for()


def test_too_large_an_upload_is_refused(page, tmp_path):
    large = tmp_path / "large.mp4"
    large.write_bytes(os.urandom(1_300_000))
    page.get_by_role("tab", name="Score your video").click()
    page.locator("#score-upload input[type=file]").set_input_files(large)
    page.get_by_test_id("toast-body").get_by_text("exceed the maximum allowed size").wait_for()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """axe-core (MPL-2.0), fetched by npm into an ignored folder, never part of this repository."""
    folder = Path(__file__).parents[2] / "out" / "axe"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        npm, problem = shutil.which("npm"), "npm is not installed"
        if npm is not None:
            folder.mkdir(parents=True, exist_ok=True)
            command = [
                npm,
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                str(folder),
                f"axe-core@{AXE_VERSION}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
            problem = f"npm can't fetch axe-core: {done.stderr[-300:]}"
        if not script.is_file():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(problem)
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(new_page, app, axe, scheme):
    page = new_page(f"{app.url}/?__theme={scheme}", color_scheme=scheme)
    page.get_by_role("button", name="Generate the pair").wait_for()
    page.evaluate(axe)
    found = []
    for tab in ("Compare", "Score your video", "Compare two videos", "Blind study", "Training"):
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_timeout(300)
        for heading in page.get_by_role("button", expanded=False).all():
            if heading.is_visible():
                heading.click()
        if tab == "Score your video":
            page.get_by_label("Or a sample").click()
            page.get_by_role("option", name="known motion: clockwise turn").click()
            page.get_by_role("button", name="Score it").click()
            status(page, "score", "Done")
            page.wait_for_timeout(1000)  # the buttons fade to their new state
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        for violation in result["violations"]:
            if violation["impact"] in ("serious", "critical"):
                targets = [node["target"][-1] for node in violation["nodes"]][:4]
                found.append(
                    f"{tab}, {violation['id']} ({violation['impact']}): {targets} {violation['nodes'][0]['failureSummary'][:200]}"
                )
    assert not found, "\n".join(found)
