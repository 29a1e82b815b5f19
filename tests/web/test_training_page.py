"""The training tab in a browser, with a stand-in for the trainer: preview, curves, stop, resume, publish."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from web_trainer import write_checkout

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.fixture
def local_app(tmp_path, monkeypatch):
    from phys_pipeline.web.app import build, launch_options
    from phys_pipeline.web.engine import training
    from phys_pipeline.web.engine.settings import AppSettings

    checkout = write_checkout(tmp_path / "checkout")
    monkeypatch.setattr(training, "CHECKOUT", checkout)
    monkeypatch.setattr(training, "CONFIGS", checkout / "training" / "configs")
    settings = AppSettings(tmp_path / "app")
    settings.root.mkdir()
    demo = build(settings)
    _, url, _ = demo.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, **launch_options(settings))
    yield url.rstrip("/")
    demo.close(verbose=False)


def test_preview_curves_stop_and_resume(new_page, local_app):
    page = new_page(local_app)
    page.get_by_role("tab", name="Training").click()
    status = page.locator("#training-status")
    page.locator("#training-dry").click()
    status.get_by_text("Done.").wait_for()
    assert page.locator("#training-report textarea").input_value() == "clips: 6 usable\n"
    page.locator("#training-lines textarea").fill("rm -rf /")
    page.locator("#training-start").click()
    page.get_by_test_id("toast-body").get_by_text("is no setting").wait_for()
    page.locator("#training-lines textarea").fill("max_train_steps=500")
    page.locator("#training-start").click()
    status.get_by_text(re.compile("Running: step [1-9]")).wait_for()
    page.locator("#training-denoising").locator("canvas, svg").first.wait_for()
    assert page.locator("#training-motion").is_hidden()  # no sample carried it yet
    page.locator("#training-stop").click()
    status.get_by_text(re.compile("^Stopped")).wait_for()
    page.locator("#training-resume").click()
    status.get_by_text(re.compile("Running: step")).wait_for()
    page.reload()
    page.get_by_role("tab", name="Training").click()
    status.get_by_text(re.compile("Running: step")).wait_for()  # the run went on
    page.locator("#training-stop").click()
    status.get_by_text(re.compile("^Stopped")).wait_for()
    page.get_by_role("button", name="Publish the adapter").click()
    page.get_by_label("Repository on the Hub").fill("owner/name")
    page.locator("#training-publish").click()
    page.get_by_test_id("toast-body").get_by_text("do the dry run").last.wait_for()


def test_data_samples_and_publishing(new_page, local_app):
    page = new_page(local_app)
    page.get_by_role("tab", name="Training").click()
    status, report = page.locator("#training-status"), page.locator("#training-report textarea")
    page.locator("#training-inspect").click()
    page.locator("#training-sheet img").wait_for()
    assert page.evaluate("document.querySelector('#training-sheet img').naturalWidth") == 60
    assert report.input_value() == "6 clips of samples/clips\n"
    page.locator("#training-start").click()
    caption = page.locator("#training-player .right figcaption")
    caption.get_by_text("step-5").wait_for()  # while it runs
    status.get_by_text(re.compile("Running: step [1-9]")).wait_for()
    caption.get_by_text("step-300").wait_for()
    page.locator("#training-stop").click()
    status.get_by_text(re.compile("^Stopped")).wait_for()
    videos = "[...document.querySelectorAll('#training-player video')]"
    page.wait_for_function(f"{videos}.length === 2 && {videos}.every((video) => video.readyState >= 3)")
    assert page.locator("#training-player .left figcaption").inner_text() == "Base model"
    assert caption.inner_text() == "step-300: a <b>red</b> square"
    page.get_by_role("button", name="Publish the adapter").click()
    page.get_by_label("Repository on the Hub").fill("owner/name")
    page.locator("#training-publish-dry").click()
    expect(report).to_have_value(re.compile(r"^would send tiny-.* to owner/name --private --dry-run\n$"))
    page.locator("#training-publish").click()
    expect(report).to_have_value(re.compile(r"^would send tiny-.* to owner/name --private\n$"))
