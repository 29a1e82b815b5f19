"""diffusers pipelines in a server: the command line's and the app's numbers, lists of videos, interruption, the embedded demo."""

import json
import shutil
import time
from functools import partial

import pytest
import tiny_families
import tiny_mvdit
import tiny_open_sora
import tiny_open_sora_2
import torch
from assets import EMBEDDED, OTHER
from graphs import look, node, own, pipeline, pipeline_sampler, score
from server import Refused

from phys_pipeline.adapters import save_adapter, transformers_of
from phys_pipeline.adapters.embedded import embedded_adapters
from phys_pipeline.cli import main
from phys_pipeline.families import family_names, load_model
from phys_pipeline.families.sources import tiny_folder
from phys_pipeline.web.engine.compare import choices_of, make_pairs
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.models import Models
from phys_pipeline.web.engine.runs import Runs
from phys_pipeline.web.engine.settings import AppSettings

FAMILIES = {
    "open_sora_1_2": tiny_open_sora.save_tiny,
    "open_sora_2": tiny_open_sora_2.save_tiny,
    "mvdit": tiny_mvdit.save_tiny,
    "wan": partial(tiny_families.save, "wan_two_experts"),
    **{name: partial(tiny_families.save, name) for name in ("cogvideox", "ltx_video", "hunyuan_video_1_5", "mochi")},
}
PROMPT, SEED, STEPS = "a red square moves right", 5, 2


def lora(**inputs):
    return own("PipelineLoRA", **{"pipeline": ["1", 0], "lora_name": EMBEDDED, "weight": 1.0, **inputs})


@pytest.fixture(scope="module")
def command_line(models, tmp_path_factory):
    """Scores that `phys-pipeline generate` writes for the same adapter, prompt and seed."""
    folder = tmp_path_factory.mktemp("command-line")
    arguments = ["generate", PROMPT, "--adapter", str(models / "loras" / EMBEDDED), "--baseline", "--seed", str(SEED)]
    arguments += ["--steps", str(STEPS), "--true-cfg", "1", "--device", "cpu", "--no-scores"]
    assert main([*arguments, "--output", str(folder / "pair.mp4"), "--scores", str(folder / "scores.json")]) == 0
    return json.loads((folder / "scores.json").read_text())["videos"]


@pytest.fixture(scope="module")
def app(models, tmp_path_factory):
    """Scores that the app writes for the same."""
    held, folder = Models(AppSettings(tmp_path_factory.mktemp("app"))), tmp_path_factory.mktemp("runs")
    defaults = load_model("tiny").defaults
    given = {
        "prompt": PROMPT, "adapter_file": str(models / "loras" / EMBEDDED), "weight": 1.0, "seed": SEED, "count": 1,
        "frames": defaults["num_frames"], "height": defaults["height"], "width": defaults["width"], "steps": STEPS,
        "guidance": defaults["guidance_scale"], "true_cfg": 1.0,
    }  # fmt: skip
    job, runs = Job(), Runs(folder)
    run = list(job.follow(lambda job: make_pairs(held, runs, choices_of(held, given), job)))[-1].value
    return json.loads(run.path(f"scores-seed-{SEED}.json").read_text())["videos"]


def test_same_scores_as_the_command_line_and_the_app(server, command_line, app):
    graph = {"1": pipeline(), "2": lora(), "3": pipeline_sampler(["2", 0], prompt=PROMPT, seed=SEED, steps=STEPS)}
    for number in range(2):
        graph[f"4{number}"] = score(["3", number], fps=["3", 2])
        graph[f"5{number}"] = look([f"4{number}", 1])
    result = server.run(graph).ok()
    for number, side in enumerate(("baseline", "physics")):
        found = json.loads(result.text(f"5{number}"))["value"]
        for name in set(found) - {"source", "start_frame"}:
            assert found[name] == command_line[side][name] == app[side][name], name
    assert server.run(graph).ok().cached >= {"1", "2", "3", "40"}


def test_sides_and_seeds(newest):
    """Several seeds give a list; a side that isn't asked for skips what follows; the pipeline is afterwards as before."""
    graph = {"1": pipeline(), "2": lora(weight=2.0)}
    graph["3"] = pipeline_sampler(["2", 0], count=2, seed=7, mode="baseline only")
    graph["4"] = pipeline_sampler(["2", 0], seed=8)
    graph["5"], graph["6"] = look(["3", 0], ["4", 0]), look(["3", 1])
    graph["7"] = look(["4", 0], ["4", 1])
    result = newest.run(graph).ok()
    seeds = [json.loads(text) for text in result.outputs["5"]["text"]]
    assert len(seeds) == 2 and seeds[0]["digest"] != seeds[1]["digest"]
    assert [seed["difference"] == 0 for seed in seeds] == [False, True]  # seed 8 is the second of one, the only of the other
    assert "6" not in result.outputs
    assert json.loads(result.text("7"))["difference"] > 0


def test_adapters_add_up(newest):
    """One adapter twice at half its weight is, but for rounding, the adapter; once at half is not."""
    half = lora(weight=0.5)
    graph = {"1": pipeline(), "2": lora(), "3": half, "4": {**half, "inputs": {**half["inputs"], "pipeline": ["3", 0]}}}
    for number in ("2", "3", "4"):
        graph[f"1{number}"] = pipeline_sampler([number, 0], mode="physics only", steps=1)
    graph["5"], graph["6"] = look(["14", 1], ["12", 1]), look(["13", 1], ["12", 1])
    result = newest.run(graph).ok()
    twice, once = (json.loads(result.text(number))["difference"] for number in ("5", "6"))
    assert twice <= 1.01 / 255 < once


@pytest.fixture
def family(request, models, tmp_path):
    """A random model of a family in models/diffusers, and random adapters in models/loras: one for each expert of Wan."""
    from peft import LoraConfig

    name = request.param
    folder = FAMILIES[name](models / "diffusers" / name)
    model = load_model(str(folder))
    assert model.family.spec.name == name
    for place, transformer in enumerate(transformers_of(model.pipeline)):
        transformer.add_adapter(LoraConfig(target_modules=model.family.spec.lora_target_regex, r=2, lora_alpha=2))
        with torch.no_grad():
            for parameter_name, parameter in transformer.named_parameters():
                if "lora" in parameter_name:
                    parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(place))
        more = {"extra_metadata": {"expert": ("high", "low")[place]}} if name == "wan" else {}
        adapter = save_adapter(transformer, tmp_path / f"adapter-{place}", family=name, base_model=name, **more)
        shutil.copy(adapter / "pytorch_lora_weights.safetensors", models / "loras" / f"{name}_{place}.safetensors")
    yield name
    shutil.rmtree(folder)


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_every_family(newest, family, models):
    """From the folder in models/diffusers to two videos; each adapter changes the video, and both experts' together."""
    files = sorted(path.name for path in (models / "loras").glob(f"{family}_?.safetensors"))
    assert len(files) == (2 if family == "wan" else 1)
    graph, last = {"1": pipeline(source=family)}, "1"
    for place, file in enumerate(files):
        graph[f"2{place}"] = own("PipelineLoRA", pipeline=[last, 0], lora_name=file, weight=1.0)
        last = f"2{place}"
        graph[f"3{place}"] = pipeline_sampler([last, 0], true_cfg=0.0, steps=4)
        graph[f"4{place}"] = look([f"3{place}", 0], [f"3{place}", 1])
        graph[f"5{place}"] = look([f"3{place}", 1])
    result = newest.run(graph).ok()
    assert all(json.loads(result.text(f"4{place}"))["difference"] > 0 for place in range(len(files)))
    assert len({json.loads(result.text(f"5{place}"))["digest"] for place in range(len(files))}) == len(files)


def test_no_family_is_forgotten():
    assert {*FAMILIES, "hunyuan_video"} == set(family_names())  # the embedded model is a HunyuanVideo


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"2": lora(lora_name=OTHER)}, "for another model"),
        ({"2": pipeline()}, "no adapter"),
        ({"1": pipeline(repo_id="/etc"), "2": lora()}, "no repository of the Hub"),
        ({"3": pipeline_sampler(["2", 0], width=24)}, "not a multiple"),
        ({"3": pipeline_sampler(["2", 0], prompt=" ")}, "prompt is empty"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(newest, change, words):
    graph = {"1": pipeline(), "2": lora(), "3": pipeline_sampler(["2", 0]), "4": look(["3", 0]), **change}
    result = newest.run(graph)
    assert result.status == "error" and words in result.error, result.error


def calls(file):
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_interrupt_ends_within_a_step_and_the_next_prompt_is_right(server, tmp_path):
    """A run of a thousand steps ends in the step that went on, and so does one that fails. The same pipeline then gives the
    videos of before, without and with the adapter that was on it."""
    steps = tmp_path / "steps"

    def graph(fps, seconds=0.0, fail_at=0, **sampling):
        return {
            "1": pipeline(vae_tiling=True),
            "2": node("Test_SlowPipeline", pipeline=["1", 0], seconds=seconds, file=str(steps), fail_at=fail_at),
            "3": lora(pipeline=["2", 0]),
            "4": pipeline_sampler(["3", 0], fps=fps, **sampling),
            "5": look(["4", 0]),
            "6": look(["4", 1]),
        }

    def videos(fps):  # the rate is another each time, so that nothing is taken from the cache; it changes no picture
        result = server.run(graph(fps)).ok()
        return [json.loads(result.text(number))["digest"] for number in "56"]

    before = videos(7.0)
    assert calls(steps) == 2 * STEPS and before[0] != before[1]
    steps.unlink()
    prompt = server.queue(graph(8.0, seconds=0.3, steps=1000, mode="physics only"))
    while calls(steps) < 2:
        time.sleep(0.02)
    server.post("/interrupt", {})
    come = calls(steps)
    assert server.finished(prompt).message("execution_interrupted") is not None
    assert calls(steps) <= come + 1  # one may have begun as the word came
    assert videos(9.0) == before
    steps.unlink()
    assert "out of luck" in server.run(graph(10.0, fail_at=2, steps=5, mode="physics only")).error
    assert calls(steps) == 2
    assert videos(11.0) == before


def test_best_of_several_seeds(newest):
    graph = {"1": pipeline(), "3": pipeline_sampler(["1", 0], mode="baseline only", count=3)}
    settings = {"frames_per_video": 0, "keep": "best", "count": 1, "max_loss": 0.5, "motion_class": "auto"}
    graph["4"] = own("MotionFilter", images=["3", 0], fps=["3", 2], **settings)
    graph["5"], graph["6"] = look(["4", 0]), look(["4", 3])
    result = newest.run(graph).ok()
    about = json.loads(json.loads(result.text("6"))["value"])
    assert len(result.outputs["5"]["text"]) == 1 and len(about) == 3
    assert sum(entry["kept"] for entry in about) == 1 and about[0]["kept"]


def test_embedded_demo(server):
    """Without an adapter the first seed and the best; with one the baseline and the adapter's video."""
    settings = {"prompt": PROMPT, "seed": SEED, "steps": STEPS, "count": 2}
    graph = {
        "1": own("EmbeddedDemo", **settings, lora_name="none"),
        "2": own("EmbeddedDemo", **settings, lora_name=EMBEDDED),
        "3": look(["1", 0], ["2", 0]),
        "4": look(["2", 0], ["2", 1]),
        "5": look(["1", 3]),
        "6": own("EmbeddedDemo", **settings, lora_name="embedded"),
        "7": look(["6", 0], ["6", 1]),
        "8": look(["6", 3]),
    }
    if not embedded_adapters():  # made for an embedded model before this one
        graph = {number: graph[number] for number in "12345"}
    result = server.run(graph).ok()
    assert json.loads(result.text("3"))["difference"] == 0
    assert json.loads(result.text("4"))["difference"] > 0
    assert "best of 2" in json.loads(result.text("5"))["value"]
    if embedded_adapters():
        assert json.loads(result.text("7"))["difference"] > 0
        assert "physics" in json.loads(result.text("8"))["value"]


def test_a_model_folder_of_the_user(server, models):
    """A folder in models/diffusers is offered and loads; an unknown one is refused before anything runs."""
    if not (models / "diffusers" / "mine").exists():  # both versions share the folder
        (models / "diffusers" / "mine").symlink_to(tiny_folder())
    offered = server.get("/object_info/PhysMotion_LoadPipeline")["PhysMotion_LoadPipeline"]["input"]["required"]["source"]
    options = offered[1]["options"]
    assert options[0] == "tiny (embedded)" and "mine" in options
    graph = {"1": pipeline(), "2": pipeline(source="mine")}
    graph |= {f"1{n}": pipeline_sampler([n, 0], mode="baseline only", steps=1) for n in graph}
    assert json.loads(server.run({**graph, "3": look(["11", 0], ["12", 0])}).ok().text("3"))["difference"] == 0
    with pytest.raises(Refused, match="there is no model"):
        server.queue({"1": pipeline(source="missing"), "2": pipeline_sampler(["1", 0]), "3": look(["2", 0])})
