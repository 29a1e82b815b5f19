import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_evaluation import clip_of, noise, save_clip, save_sdxl

from phys_pipeline.errors import DataError, ModelError
from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.metrics import sd_score
from phys_pipeline.evaluation.metrics.clip_encoder import ClipEncoder
from phys_pipeline.evaluation.metrics.sd_score import SdScore, make_references, read_manifest, reference_files

PROMPTS = {"0001": "a red square moves right", "0002": "a dog"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd")
    return Settings(
        options={"clip.model": str(save_clip(folder / "tiny_clip")), "sd_score.model": str(save_sdxl(folder / "tiny_sdxl"))}
    )


@pytest.fixture(scope="module")
def made(settings, tmp_path_factory):
    return make_references(PROMPTS, tmp_path_factory.mktemp("made") / "pack", settings, count=2, size=16)


@pytest.fixture
def pack(made, tmp_path):
    """A pack of two prompts with two images each."""
    return Path(shutil.copytree(made, tmp_path / "pack"))


def ready(settings, folder, protocol="fixed"):
    options = {**settings.options, "sd_score.references": str(folder)}
    metric = SdScore(dataclasses.replace(settings, protocol=protocol, options=options))
    assert metric.available().ok
    metric.setup()
    return metric


def pictures(folder, frames, id="0001"):
    (folder / id).mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / id / f"{number}.png")
    return folder


def test_a_pack_holds_seeded_images_with_hashes(pack, settings, tmp_path):
    manifest = read_manifest(pack)
    assert manifest["made_with"] == {"model": "tiny_sdxl", "seed": 0, "count": 2, "size": 16, "steps": 20}
    assert manifest["images"]["0002"]["prompt"] == "a dog" and set(manifest["images"]) == set(PROMPTS)
    files = reference_files(pack, "0001")
    assert [file.name for file in files] == ["0.png", "1.png"] and Image.open(files[0]).size == (16, 16)
    assert files[0].read_bytes() != files[1].read_bytes()
    again = make_references({"0001": PROMPTS["0001"]}, tmp_path / "again", settings, count=2, size=16)
    assert [file.read_bytes() for file in reference_files(again, "0001")] == [file.read_bytes() for file in files]
    other = dataclasses.replace(settings, seed=1)
    make_references({"0001": PROMPTS["0001"]}, again, other, count=2, size=16)
    assert reference_files(again, "0001")[0].read_bytes() != files[0].read_bytes()
    make_references({"0001": PROMPTS["0001"]}, again, settings, count=1, size=16)
    assert [file.read_bytes() for file in reference_files(again, "0001")] == [files[0].read_bytes()]  # no image of before


def test_only_missing_images_are_made(pack, settings, monkeypatch):
    made = []
    own = sd_score._image
    monkeypatch.setattr(sd_score, "_image", lambda pipeline, prompt, *rest: made.append(prompt) or own(pipeline, prompt, *rest))
    make_references(PROMPTS, pack, settings, count=2, size=16)
    assert made == []
    (pack / "0001" / "0.png").write_bytes(b"damaged")
    make_references({**PROMPTS, "0002": "a cat"}, pack, settings, count=2, size=16)
    assert made == ["a red square moves right"] * 2 + ["a cat"] * 2


def test_evalcrafters_images_are_512_pixels_and_ours_1024(settings, tmp_path, monkeypatch):
    sizes = []

    def image(pipeline, prompt, seed, size):
        sizes.append(size)
        return Image.new("RGB", (4, 4))

    monkeypatch.setattr(sd_score, "_image", image)
    for protocol in ("fixed", "evalcrafter"):
        make_references({"a": "b"}, tmp_path / protocol, dataclasses.replace(settings, protocol=protocol), count=1)
    assert sizes == [1024, 512]


def test_references_that_equal_a_frozen_clip_score_100_only_when_both_are_prepared_alike(settings, tmp_path):
    frames = np.repeat(noise(1, 32, 32), 3, axis=0)
    folder = pictures(tmp_path / "own", [frames[0]] * 2)
    result = ready(settings, folder).compute(clip_of(frames))["sd_score"]
    assert result.value == pytest.approx(100) and result.per_frame == pytest.approx([100] * 3)
    assert result.details == {"images": 2, "pack": None}
    assert ready(settings, folder, "evalcrafter").compute(clip_of(frames))["sd_score"].value < 99.999


@pytest.mark.parametrize(("protocol", "ranges"), [("fixed", ["processor", "processor"]), ("evalcrafter", ["raw", "unit"])])
def test_evalcrafter_compares_frames_to_255_with_images_to_1(settings, tmp_path, monkeypatch, protocol, ranges):
    prepared = []
    own = ClipEncoder.images
    monkeypatch.setattr(ClipEncoder, "images", lambda self, frames, how: prepared.append(how) or own(self, frames, how))
    ready(settings, pictures(tmp_path / "own", noise(1)), protocol).compute(clip_of(noise(2)))
    assert sorted(prepared) == ranges


def test_mean_over_frames_and_images(settings, tmp_path):
    frames = noise(2, 32, 32)
    both = ready(settings, pictures(tmp_path / "both", frames)).compute(clip_of(frames))["sd_score"]
    one = [ready(settings, pictures(tmp_path / str(i), frames[i : i + 1])).compute(clip_of(frames))["sd_score"] for i in (0, 1)]
    assert both.value == pytest.approx((one[0].value + one[1].value) / 2)
    assert one[0].per_frame == pytest.approx([100, one[1].per_frame[0]])


def test_a_pack_is_scored_and_named_by_its_digest(pack, settings):
    result = ready(settings, pack).compute(clip_of(noise(3)))["sd_score"]
    assert result.status == "ok" and result.details["images"] == 2 and len(result.details["pack"]) == 64


def test_changed_images_and_other_prompts_are_refused(pack, settings):
    metric = ready(settings, pack)
    with pytest.raises(DataError, match="another prompt"):
        metric.compute(clip_of(noise(2), prompt="a blue circle"))
    (pack / "0001" / "1.png").unlink()
    with pytest.raises(DataError, match="not those of its manifest"):
        metric.compute(clip_of(noise(2)))


def test_a_prompt_without_images_is_skipped(settings, tmp_path):
    result = ready(settings, pictures(tmp_path / "own", noise(1), "0009")).compute(clip_of(noise(2)))["sd_score"]
    assert result.status == "skipped" and "0001" in result.reason


@pytest.mark.parametrize("text", ["{", "[]", '{"images": {}}', '{"schema": 99}'])
def test_other_manifests_are_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="make the pack again"):
        read_manifest(tmp_path)


def test_ids_never_leave_the_folder(settings, tmp_path):
    for id in ("../up", "a/b", "a\\b", ".hidden", ""):
        with pytest.raises(DataError, match="can't be a folder"):
            make_references({id: "text"}, tmp_path, settings, count=1, size=16)


def test_says_what_is_missing(settings, tmp_path):
    assert "phys-pipeline evaluate references" in SdScore(settings).available().reason
    lost = dataclasses.replace(settings, options={**settings.options, "sd_score.model": str(tmp_path)})
    with pytest.raises(ModelError, match="doctor --fetch sd_score"):
        make_references({"a": "b"}, tmp_path / "pack", lost, count=1, size=16)


def test_frames_are_encoded_once_for_clip_scores_and_sd_score(pack, settings, tmp_path, monkeypatch):
    prepared = []
    own = ClipEncoder.images

    def images(self, frames, preparation):
        prepared.append(len(frames))
        return own(self, frames, preparation)

    monkeypatch.setattr(ClipEncoder, "images", images)
    options = {**settings.options, "sd_score.references": str(pack)}
    evaluator = Evaluator(("sd_score", "clip_score"), dataclasses.replace(settings, options=options), tmp_path / "rows")
    rows = evaluator.run([clip_of(noise(7)).sample])
    assert {row.metric: row.status for row in rows} == {"sd_score": "ok", "clip_score": "ok"}
    assert sorted(prepared) == [2, 7]  # references, frames


def test_the_command_makes_the_pack(settings, tmp_path, capsys):
    from phys_pipeline.evaluation import evaluate_command

    (tmp_path / "prompts.jsonl").write_text('{"id": "0001", "prompt": "a cube"}')
    model = str(settings.options["sd_score.model"])
    arguments = ["references", "--prompts", str(tmp_path / "prompts.jsonl"), "-o", str(tmp_path / "pack"), "--device", "cpu"]
    assert evaluate_command.main([*arguments, "--model", model, "--size", "16"]) == 0
    assert len(reference_files(tmp_path / "pack", "0001")) == 5 and "references of 1 prompts" in capsys.readouterr().out
