"""The model card: YAML that the Hub's own classes read, true to the commit, and the same bytes every time."""

import ast
import re
import shlex

import pytest
from hub_adapter import PROVENANCE, make_run
from huggingface_hub import ModelCard

from phys_pipeline.adapters.card import CardFacts, Sample, check_card, make_card
from phys_pipeline.adapters.contents import collect
from phys_pipeline.adapters.licences import licence_of
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import family_names

SAMPLE = Sample("a ball: falls", "validation/step-10/a.mp4", "validation/step-10/a-pair.mp4")


def facts(**changes):
    given = {
        "repo_id": "owner/name",
        "provenance": PROVENANCE,
        "base_model": "lab/tiny-video",
        "revision": "main",
        "samples": [SAMPLE],
    }
    return CardFacts(**{**given, "comfyui": ["comfyui/name.safetensors"], **changes})


def test_the_yaml_says_what_the_adapter_is(tmp_path):
    contents = collect(make_run(tmp_path / "run"), "owner/name", "v1.0")
    card = ModelCard(contents.files["README.md"].text)
    data = card.data.to_dict()
    assert data["base_model"] == "lab/tiny-video" and data["base_model_relation"] == "adapter"
    assert (data["library_name"], data["pipeline_tag"], data["license"]) == ("diffusers", "text-to-video", "other")
    assert data["license_name"] == "tencent-hunyuan-community" and data["license_link"].startswith("https://")
    assert {"lora", "diffusers", "template:diffusion-lora"} <= set(data["tags"])
    assert {entry["output"]["url"] for entry in data["widget"]} <= set(contents.files)
    assert data["widget"][0]["text"] == 'a "red" ball | falls' and len(data["widget"]) == 2
    assert "<Gallery />" in card.text and "v1.0" in card.text and "[-0.15000, -0.05000]" in card.text


def test_equal_runs_have_equal_cards(tmp_path):
    texts = {collect(make_run(tmp_path / name / "run"), "owner/name").files["README.md"].text for name in "ab"}
    assert len(texts) == 1


@pytest.mark.parametrize("base", ["tiny", "model", "../somewhere"])
def test_a_base_that_is_no_hub_id_is_never_linked(base, tmp_path):
    contents = collect(make_run(tmp_path / "run", base_model=base), "owner/name")
    assert "base_model" not in ModelCard(contents.files["README.md"].text).data.to_dict()
    assert "--base-model" in contents.notes[0] and "from_pretrained" not in contents.files["README.md"].text
    named = collect(tmp_path / "run", "owner/name", base_model="lab/base")
    assert ModelCard(named.files["README.md"].text).data.base_model == "lab/base"


def test_a_run_without_measurements_says_so_and_odd_text_breaks_nothing():
    odd = {
        **PROVENANCE,
        "scores": None,
        "clips": [{"caption": "a | `b` <script>\n# x"}],
        "objective": ["none"],
        "loss_weights": {},
    }
    text = make_card(facts(provenance=odd, samples=[], base_model=None))
    assert "Nothing was measured" in text and "<Gallery" not in text and "denoising loss alone" in text
    check_card(text, [])
    assert "<script>" not in text.replace("'a | `b` <script> # x'", "")  # in a code block only


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("base_model: lab/tiny-video", "base_model: /x/y", "no Hub id"),
        ("base_model_relation: adapter", "base_model_relation: child", "must be one of"),
        ("license: other", "license: 3", "short name"),
        ("license_link: https", "license_link: ftp", "license_link"),
        ("url: validation/step-10/a.mp4", "url: elsewhere.mp4", "not among the files"),
        ("pipeline_tag: text-to-video", "pipeline_tag: [", "not valid"),
    ],
)
def test_a_broken_card_is_found_before_anything_is_sent(old, new, message):
    text = make_card(facts())
    files = [SAMPLE.file, SAMPLE.pair]
    check_card(text, files)
    assert old in text
    with pytest.raises(AdapterError, match=message):
        check_card(text.replace(old, new), files)


def test_the_licence_is_that_of_the_base_model():
    assert licence_of("hunyuan_video", "tiny") == {"license": "apache-2.0"}
    assert licence_of("new_family", "lab/base")["license_link"] == "https://huggingface.co/lab/base"
    noted = {**PROVENANCE, "license": {"license": "mit"}}
    assert "\nlicense: mit\n" in make_card(facts(provenance=noted))
    for name in family_names():
        fields = licence_of(name, "lab/base")
        assert fields["license"] != "other" or {"license_name", "license_link"} <= set(fields)


@pytest.mark.parametrize(
    "prompt", ["a ball falls!", 'it\'s "red"', "costs $5 `here` \\ there", "\U0001f3c0 rolls", "```\n# title"]
)
def test_any_prompt_reaches_both_programs_as_it_is(prompt):
    text = make_card(facts(samples=[Sample(prompt, SAMPLE.file)]))
    command, python = (re.search(rf"```{language}\n(.*?)\n```\n", text, re.DOTALL)[1] for language in ("sh", "python"))
    assert shlex.split(command)[2] == " ".join(prompt.split()) and "\n" not in command
    calls = [node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.keyword) and node.arg == "prompt"]
    assert ast.literal_eval(calls[0].value) == prompt and calls[0].value.value.encode()


def test_an_adapter_of_the_low_noise_expert_goes_there():
    low = make_card(facts(provenance={**PROVENANCE, "family": "wan", "expert": "low"}))
    assert "load_into_transformer_2=True" in low and "low-noise model" in low
    high = make_card(facts(provenance={**PROVENANCE, "family": "wan", "expert": "high"}))
    assert "load_into_transformer_2" not in high and "high-noise model" in high
    assert "noise model" not in make_card(facts(provenance={**PROVENANCE, "family": "wan"}))


def test_an_unknown_licence_is_said_to_be_unknown():
    fields = licence_of("ltx_video", None)
    assert fields == licence_of("ltx_video", "folder") == {"license": "unknown"}
    text = make_card(facts(provenance={**PROVENANCE, "family": "ltx_video", "base_model": "folder"}, base_model=None))
    check_card(text, [SAMPLE.file, SAMPLE.pair])
    assert "not known" in text.split("## Licence")[1] and "as the base model" not in text
    assert licence_of("mvdit", "lab/base") == {"license": "cc-by-4.0"}
