"""diffusers pipelines in a server: the command line's numbers, lists of videos, interruption, the embedded demo."""

import json
import time

import pytest
from assets import EMBEDDED, OTHER
from graphs import look, own, pipeline, pipeline_sampler, score
from server import Refused

from phys_pipeline.cli import main
from phys_pipeline.families.sources import tiny_folder

PROMPT, SEED, STEPS = "a red square moves right", 5, 2


def lora(**inputs):
    return own("PipelineLoRA", pipeline=["1", 0], **{"lora_name": EMBEDDED, "weight": 1.0, **inputs})


@pytest.fixture(scope="module")
def command_line(models, tmp_path_factory):
    """Scores that `phys-pipeline generate` writes for the same adapter, prompt and seed."""
    folder = tmp_path_factory.mktemp("command-line")
    arguments = ["generate", PROMPT, "--adapter", str(models / "loras" / EMBEDDED), "--baseline", "--seed", str(SEED)]
    arguments += ["--steps", str(STEPS), "--true-cfg", "1", "--device", "cpu", "--no-scores"]
    assert main([*arguments, "--output", str(folder / "pair.mp4"), "--scores", str(folder / "scores.json")]) == 0
    return json.loads((folder / "scores.json").read_text())["videos"]


def test_same_scores_as_the_command_line(server, command_line):
    graph = {"1": pipeline(), "2": lora(), "3": pipeline_sampler(["2", 0], prompt=PROMPT, seed=SEED, steps=STEPS)}
    for number in range(2):
        graph[f"4{number}"] = score(["3", number], fps=["3", 2])
        graph[f"5{number}"] = look([f"4{number}", 1])
    result = server.run(graph).ok()
    for number, side in enumerate(("baseline", "physics")):
        found = json.loads(result.text(f"5{number}"))["value"]
        expected = command_line[side]
        assert {k: found[k] for k in ("loss", "fps", "frames", "timeline")} == {
            k: expected[k] for k in ("loss", "fps", "frames", "timeline")
        }
    assert server.run(graph).ok().cached >= {"1", "2", "3", "40"}


def test_sides_and_seeds(server):
    """Several seeds give a list; a side that isn't asked for skips what follows; the pipeline is afterwards as before."""
    graph = {"1": pipeline(), "2": lora(weight=2.0)}
    graph["3"] = pipeline_sampler(["2", 0], count=2, seed=7, mode="baseline only")
    graph["4"] = pipeline_sampler(["2", 0], seed=8)
    graph["5"], graph["6"] = look(["3", 0], ["4", 0]), look(["3", 1])
    graph["7"] = look(["4", 0], ["4", 1])
    result = server.run(graph).ok()
    seeds = [json.loads(text) for text in result.outputs["5"]["text"]]
    assert len(seeds) == 2 and seeds[0]["digest"] != seeds[1]["digest"]
    assert [seed["difference"] == 0 for seed in seeds] == [False, True]  # seed 8 is the second of one, the only of the other
    assert "6" not in result.outputs
    assert json.loads(result.text("7"))["difference"] > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"2": lora(lora_name=OTHER)}, "for another model"),
        ({"2": pipeline()}, "no adapter"),
        ({"3": pipeline_sampler(["2", 0], width=24)}, "not a multiple"),
        ({"3": pipeline_sampler(["2", 0], prompt=" ")}, "prompt is empty"),
        ({"2": lora(), "21": own("PipelineLoRA", pipeline=["2", 0], lora_name=EMBEDDED, weight=1.0),
          "3": pipeline_sampler(["21", 0])}, "already"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(server, change, words):
    graph = {"1": pipeline(), "2": lora(), "3": pipeline_sampler(["2", 0]), "4": look(["3", 0]), **change}
    result = server.run(graph)
    assert result.status == "error" and words in result.error, result.error


def test_interrupt_ends_within_a_step_and_the_next_prompt_runs(server):
    """A run of a thousand steps, which would take minutes, ends."""

    def run(steps, seed):
        sampler = pipeline_sampler(["1", 0], mode="baseline only", steps=steps, seed=seed)
        return {"1": pipeline(), "3": sampler, "4": look(["3", 0])}

    server.run(run(1, 76)).ok()
    prompt = server.queue(run(1000, 77))
    while not server.get("/queue")["queue_running"]:  # an interruption before its start is forgotten
        time.sleep(0.05)
    time.sleep(1.5)
    server.post("/interrupt", {})
    assert server.finished(prompt).message("execution_interrupted") is not None
    server.run(run(1, 78)).ok()


def test_best_of_several_seeds(server):
    graph = {"1": pipeline(), "3": pipeline_sampler(["1", 0], mode="baseline only", count=3)}
    settings = {"frames_per_video": 0, "keep": "best", "count": 1, "max_loss": 0.5, "motion_class": "auto"}
    graph["4"] = own("MotionFilter", images=["3", 0], fps=["3", 2], **settings)
    graph["5"], graph["6"] = look(["4", 0]), look(["4", 3])
    result = server.run(graph).ok()
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
    }
    result = server.run(graph).ok()
    assert json.loads(result.text("3"))["difference"] == 0
    assert json.loads(result.text("4"))["difference"] > 0
    assert "best of 2" in json.loads(result.text("5"))["value"]


def test_a_model_folder_of_the_user(server, models):
    """A folder in models/diffusers is offered and loads; an unknown one is refused before anything runs."""
    if not (models / "diffusers" / "mine").exists():  # both versions share the folder
        (models / "diffusers" / "mine").symlink_to(tiny_folder())
    offered = server.get("/object_info/PhysMotion_LoadPipeline")["PhysMotion_LoadPipeline"]["input"]["required"]["source"]
    options = offered[1]["options"]
    assert options == ["tiny (embedded)", "mine"]
    graph = {"1": pipeline(), "2": pipeline(source="mine")}
    graph |= {f"1{n}": pipeline_sampler([n, 0], mode="baseline only", steps=1) for n in graph}
    assert json.loads(server.run({**graph, "3": look(["11", 0], ["12", 0])}).ok().text("3"))["difference"] == 0
    with pytest.raises(Refused, match="there is no model"):
        server.queue({"1": pipeline(source="missing"), "2": pipeline_sampler(["1", 0]), "3": look(["2", 0])})
