"""What is published of a run's folder: an allowlist, checked; nothing that names this machine or holds a secret."""

import json

import pytest
from hub_adapter import layers, make_run
from safetensors.torch import load_file, save_file

from phys_pipeline.adapters.contents import collect
from phys_pipeline.adapters.formats import PHYS_METADATA
from phys_pipeline.adapters.writers import write_adapter
from phys_pipeline.errors import AdapterError

WEIGHTS = "pytorch_lora_weights.safetensors"
EXPECTED = {
    "README.md", WEIGHTS, "comfyui/run.safetensors", "provenance.json", "report.md", "validation/base/results.json",
    "validation/base/prompt-0-seed-0.mp4", "validation/step-10/results.json", "validation/step-10/prompt-0-seed-0.mp4",
    "validation/step-10/prompt-0-seed-0-pair.mp4",
}  # fmt: skip


@pytest.fixture
def run_folder(tmp_path):
    return make_run(tmp_path / "run")


def test_only_the_allowlist_goes_along(run_folder):
    for name in (".env", "training_state.bin", "optimizer.pt", "notes.txt", "log.jsonl"):
        (run_folder / name).write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuv")
    (run_folder / "tensorboard").mkdir()
    contents = collect(run_folder, "owner/name")
    assert set(contents.files) == EXPECTED
    (note,) = contents.notes
    assert note.startswith("tencent-hunyuan-community is a licence of its own") and str(run_folder / "LICENSE") in note
    assert contents.missing({}) == list(contents.files)


def test_the_licence_and_notice_of_the_base_model_go_along(run_folder):
    (run_folder / "LICENSE").write_text("Terms of the base model")
    (run_folder / "NOTICE").write_text("a notice")
    contents = collect(run_folder, "owner/name")
    assert set(contents.files) == EXPECTED | {"LICENSE", "NOTICE"} and contents.notes == ()
    (run_folder / "NOTICE").write_text("made in /home/someone/here")
    with pytest.raises(AdapterError, match="NOTICE, line 1, holds a path"):
        collect(run_folder, "owner/name")


@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.parametrize("file", ["curves.png", "validation/step-10/prompt-0-seed-0.mp4"])
def test_what_a_program_noted_in_a_picture_or_video_is_seen(file, secret, run_folder):
    text = "hf_abcdefghijklmnopqrstuvwxyz" if secret else f"{run_folder}/clips/a.mp4"
    kept = (run_folder / file).read_bytes() if (run_folder / file).is_file() else b"\x89PNG"
    (run_folder / file).write_bytes(kept + b"\0\xff~/x\0" + text.encode() + b"\0")
    with pytest.raises(AdapterError, match=f"{file} holds " + ("what looks like an access token" if secret else "a path")):
        collect(run_folder, "owner/name")
    (run_folder / file).write_bytes(kept + b"\0\xff~/x and /tmp/y\0")
    collect(run_folder, "owner/name")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/home/someone/clips/a.mp4", "path of this machine"),
        ("see /mnt/big/data for it", "path of this machine"),
        ("C:\\Users\\me\\a", "path of this machine"),
        ("~/runs/one", "path of this machine"),
        ("\\\\server\\share\\a", "path of this machine"),
        ("file:///etc/x", "path of this machine"),
        ("hf_abcdefghijklmnopqrstuvwxyz", "access token"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "access token"),
        ("the-secret-of-another-service", "access token"),
    ],
)
@pytest.mark.parametrize("file", ["provenance.json", "report.md", "README.md", "validation/step-10/results.json", "weights"])
def test_paths_and_secrets_stop_it(text, what, file, run_folder, monkeypatch):
    monkeypatch.setenv("OTHER_SERVICE_API_KEY", "the-secret-of-another-service")
    if file == "weights":
        write_adapter(run_folder / WEIGHTS, layers(), "diffusers", {PHYS_METADATA: json.dumps({"note": text})})
    elif file.endswith(".json"):
        content = json.loads((run_folder / file).read_text())
        (run_folder / file).write_text(json.dumps({**content, "note": text}))
    elif file == "README.md":
        (run_folder / file).write_text(f"---\nlicense: mit\n---\n{text}\n")
    else:
        (run_folder / file).write_text(f"# Report\n{text}\n")
    with pytest.raises(AdapterError, match=what) as caught:
        collect(run_folder, "owner/name")
    assert "hf_abc" not in str(caught.value) and "\n" not in str(caught.value)


def test_ordinary_text_is_no_path(run_folder):
    (run_folder / "report.md").write_text("https://huggingface.co/lab/data/var/x, 3/4, and/or, validation/step-3/a.mp4, 10:30\n")
    targets = {PHYS_METADATA: json.dumps({"targets": r"blocks\.\d+\.attn\.(to_q|to_out\.0)", "again": json.dumps(r"\.\d+\.to")})}
    write_adapter(run_folder / WEIGHTS, layers(), "diffusers", targets)
    assert collect(run_folder, "owner/name")


def test_weights_must_be_whole_finite_trained_and_the_same_in_both_files(run_folder):
    weights, copy = run_folder / WEIGHTS, run_folder / "comfyui" / "run.safetensors"
    good = weights.read_bytes(), copy.read_bytes()

    def refused(message):
        with pytest.raises(AdapterError, match=message):
            collect(run_folder, "owner/name")
        weights.write_bytes(good[0])
        copy.write_bytes(good[1])

    weights.write_bytes(good[0][:-8])
    refused("readable safetensors")
    write_adapter(copy, layers(seed=1), "comfyui", {})
    refused("not the same adapter.*adapter convert")
    tensors = load_file(copy)
    next(iter(tensors.values())).fill_(float("nan"))
    save_file(tensors, copy)
    refused("not the same adapter")
    copy.unlink()
    refused("no file for ComfyUI.*adapter convert")
    (copy.parent / "old.safetensors").write_bytes(good[1])
    refused("holds 2 files")
    (copy.parent / "old.safetensors").unlink()
    zero = {name: type(layer)(layer.down, 0 * layer.up, layer.alpha) for name, layer in layers().items()}
    write_adapter(weights, zero, "diffusers", {})
    refused("changes nothing")
    assert collect(run_folder, "owner/name")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "provenance.json").unlink(), "no readable provenance.json"),
        (lambda folder: (folder / "provenance.json").write_text("{}"), "names no family"),
        (lambda folder: (folder / "pytorch_lora_weights.safetensors").unlink(), "finished run that trained an adapter"),
        (lambda folder: (folder / "validation/step-10/prompt-0-seed-0.mp4").unlink(), "is missing"),
        (lambda folder: (folder / "validation/step-10/results.json").write_text("[1]"), "not as the trainer writes it"),
        (lambda folder: (folder / "README.md").write_text("no yaml"), "no YAML"),
        (lambda folder: (folder / "README.md").write_text("---\nlicense: [\n---\n"), "not valid"),
    ],
)
def test_a_folder_that_is_not_a_finished_run_is_refused(change, message, run_folder):
    change(run_folder)
    with pytest.raises(AdapterError, match=message) as caught:
        collect(run_folder, "owner/name")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["name", "/a", "a/b/c", "../a", "owner/na me", "owner/-x", "owner/a--b", "hf://owner/name"])
def test_names_are_checked_first(name, run_folder):
    with pytest.raises(AdapterError, match="OWNER/NAME"):
        collect(run_folder, name)


@pytest.mark.parametrize("tag", ["main", "a b", "../x", "0" * 40, "v1..2", "-x"])
def test_tags_are_plain_names(tag, run_folder):
    with pytest.raises(AdapterError, match="no name for a tag"):
        collect(run_folder, "owner/name", tag)


def test_a_link_out_of_the_folder_is_not_followed(run_folder, tmp_path):
    outside = tmp_path / "outside.md"
    outside.write_text("x")
    (run_folder / "report.md").unlink()
    (run_folder / "report.md").symlink_to(outside)
    with pytest.raises(AdapterError, match="link out of the folder"):
        collect(run_folder, "owner/name")


@pytest.mark.parametrize("name", ["comfyui", "validation"])
def test_nor_is_a_folder_that_is_one(run_folder, tmp_path, name):
    (run_folder / name).rename(tmp_path / "outside")
    (run_folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(AdapterError, match="link out of the folder"):
        collect(run_folder, "owner/name")


def test_a_fully_trained_transformer_is_refused_with_the_reason(run_folder):
    (run_folder / WEIGHTS).unlink()
    (run_folder / "transformer").mkdir()
    with pytest.raises(AdapterError, match=r"holds a whole transformer.*adapters only.*hf upload"):
        collect(run_folder, "owner/name")
