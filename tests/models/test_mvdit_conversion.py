"""The official MVDiT file: every name and number of values accounted for, at full size, without its weights."""

import json
import shutil

import golden_data
import pytest
import torch
from tiny_mvdit import GOLDEN, golden_inputs, tiny_vae
from tiny_open_sora import TOKENIZER, tiny_text_encoder

from phys_pipeline.cli import main
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import load_model
from phys_pipeline.models.conversion import convert, plan
from phys_pipeline.models.mvdit import MVDiTTransformer3DModel
from phys_pipeline.models.mvdit_conversion import CONVERSIONS, SCHEDULER, TRANSFORMER_KEYS
from phys_pipeline.pipelines.mvdit import MVDiTPipeline

OFFICIAL_VALUES = 1_075_069_088


def official_shapes(width=1152, depth=28, tokens=120, caption=4096, frames=16, patches=32 * 32):
    """Names and shapes of the official file, as its authors' model has them."""

    def linear(name, rows, columns=width):
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    shapes = {
        "pos_embed": (1, patches, width), "pos_embed_temporal": (1, frames, width), "x_embedder.proj.weight": (width, 4, 1, 2, 2),
        "x_embedder.proj.bias": (width,), "y_embedder.y_embedding": (tokens, caption),
        "final_layer.scale_shift_table": (2, width),
    }  # fmt: skip
    shapes |= linear("t_embedder.mlp.0", width, 256) | linear("t_embedder.mlp.2", width)
    shapes |= linear("t_block.1", 6 * width) | linear("t_block_y.1", 6 * width)
    shapes |= linear("t_block_temp.1", 3 * width) | linear("t_block_y_temp.1", 3 * width)
    shapes |= linear("y_embedder.y_proj.fc1", width, caption) | linear("y_embedder.y_proj.fc2", width)
    shapes |= linear("final_layer.linear", 32)
    for i in range(depth):
        block = f"blocks.{i}."
        shapes |= {block + "scale_shift_table" + kind: (rows, width) for kind, rows in
                   (("", 6), ("_y", 6), ("_temp", 3), ("_y_temp", 3))}  # fmt: skip
        for attention in ("attn", "attn_temp"):
            shapes |= linear(f"{block}{attention}.qkv", 3 * width) | linear(f"{block}{attention}.proj", width)
        cross = block + "cross_attn."
        shapes |= linear(cross + "q_linear", width) | linear(cross + "kv_linear", 2 * width) | linear(cross + "proj", width)
        for mlp in ("mlp", "mlp_y"):
            shapes |= linear(f"{block}{mlp}.fc1", 4 * width) | linear(f"{block}{mlp}.fc2", width, 4 * width)
    return shapes


def numel(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes.values())


def test_full_size_accounts_for_every_value():
    shapes = official_shapes()
    assert numel(shapes) == OFFICIAL_VALUES
    _, made, settings = plan(shapes, {}, CONVERSIONS[0])
    tables = {name: shapes[name] for name in ("pos_embed", "pos_embed_temporal")}
    assert numel(made) == OFFICIAL_VALUES - numel(tables)
    with torch.device("meta"):
        default = MVDiTTransformer3DModel()
    assert settings == {name: value for name, value in default.config.items() if not name.startswith("_")}
    assert made == {name: tuple(value.shape) for name, value in default.state_dict().items()}


def test_golden_names_are_the_same_kind_of_names():
    tiny = official_shapes(width=72, depth=2, tokens=10, caption=48, frames=4, patches=15)
    assert {name: tuple(v.shape) for name, v in golden_data.group(GOLDEN, "weights.").items()} == tiny


def test_there_and_back_gives_every_weight_again():
    weights = golden_data.group(GOLDEN, "weights.")
    back = TRANSFORMER_KEYS.backward(TRANSFORMER_KEYS.forward(weights))
    assert back.keys() == {name for name in weights if not name.startswith("pos_embed")}
    assert all(torch.equal(back[name], weights[name]) for name in back)


def test_size_and_scale_of_positions_follow_the_tables():
    settings = plan(official_shapes(patches=16 * 16), {}, CONVERSIONS[0])[2]
    names = ("sample_frames", "sample_height", "sample_width", "space_scale")
    assert [settings[name] for name in names] == [16, 32, 32, 0.5]  # the authors' model of 256 pixels
    tiny = dict(golden_data.config(GOLDEN)["b"])
    settings = plan(official_shapes(72, 2, 10, 48, 3, 8), tiny, CONVERSIONS[0])[2]
    assert [settings[name] for name in names] == [3, 8, 4, 1.0] and settings["time_scale"] == 2.0


@pytest.mark.parametrize("outer", [None, "state_dict"])
def test_pickle_becomes_a_model_that_gives_the_golden_output(tmp_path, outer):
    weights = golden_data.group(GOLDEN, "weights.")
    (tmp_path / "config.json").write_text(json.dumps(golden_data.config(GOLDEN)["a"]))
    torch.save({outer: weights} if outer else weights, tmp_path / "MVDiT-16×512×512.pt")
    folder = convert(tmp_path / "MVDiT-16×512×512.pt", tmp_path / "model", CONVERSIONS)
    model = MVDiTTransformer3DModel.from_pretrained(folder)
    with torch.no_grad():
        out = model(**golden_inputs("a_basic")).sample
    torch.testing.assert_close(out, golden_data.group(GOLDEN, "outputs.a_basic.")["sample"], atol=2e-5, rtol=1e-4)


def test_from_the_hub_one_file_in_a_folder_is_fetched(tmp_path, monkeypatch):
    weights = tmp_path / "hub" / "model_weights"
    weights.mkdir(parents=True)
    torch.save(golden_data.group(GOLDEN, "weights."), weights / "MVDiT-16×512×512.pt")
    (weights / "config.json").write_text(json.dumps(golden_data.config(GOLDEN)["a"]))  # the released file has 16 heads, no config
    (weights / "STDiT-16×512×512.pt").write_bytes(b"another model")
    asked = {}

    def fetch(source, **options):
        asked.update(options, source=source)
        return str(tmp_path / "hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert main(["convert", "--family", "mvdit", "nkp37/OpenVid-1M", str(tmp_path / "model")]) == 0
    files = ["model_weights/MVDiT-16×512×512.pt", "model_weights/STDiT-16×512×512.pt", "videos/a.zip", "config.json"]
    from huggingface_hub.utils import filter_repo_objects

    patterns = {"allow_patterns": asked["allow_patterns"], "ignore_patterns": asked["ignore_patterns"]}
    assert list(filter_repo_objects(files, **patterns)) == [files[0], files[3]] and asked["source"] == "nkp37/OpenVid-1M"
    assert (tmp_path / "model" / "transformer" / "diffusion_pytorch_model.safetensors").is_file()


def test_pickle_with_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ModelError, match="can't read"):
        convert(tmp_path / "evil.pt", tmp_path / "model", CONVERSIONS)


def test_a_converted_folder_is_whole_once_its_other_parts_lie_in_it(tmp_path, capsys):
    torch.save(golden_data.group(GOLDEN, "weights."), tmp_path / "MVDiT-16×512×512.pt")
    (tmp_path / "config.json").write_text(json.dumps(golden_data.config(GOLDEN)["a"]))
    folder = tmp_path / "model"
    assert main(["convert", "--family", "mvdit", str(tmp_path / "MVDiT-16×512×512.pt"), str(folder)]) == 0
    said = capsys.readouterr().out
    assert all(f"still to do for {folder}: {part} (" in said for part in ("vae", "text_encoder", "tokenizer"))
    tiny_text_encoder().save_pretrained(folder / "text_encoder")
    tiny_vae().save_pretrained(folder / "vae")
    shutil.copytree(TOKENIZER, folder / "tokenizer")
    model = load_model(str(folder))
    assert model.family.spec.name == "mvdit"
    with torch.no_grad():
        out = model.pipeline.transformer(**golden_inputs("a_basic")).sample
    torch.testing.assert_close(out, golden_data.group(GOLDEN, "outputs.a_basic.")["sample"], atol=2e-5, rtol=1e-4)
    assert dict(model.pipeline.scheduler.config).items() >= SCHEDULER.items()
    assert type(MVDiTPipeline.from_pretrained(folder).scheduler).__name__ == "DDPMScheduler"  # diffusers alone reads it too


def without(shapes, *parts):
    return {name: shape for name, shape in shapes.items() if not any(part in name for part in parts)}


def test_what_is_not_mvdit_is_refused_by_name_and_shape():
    shapes = official_shapes()
    mistakes = {
        "lacks transformer_blocks.3.ff_text.net.2.bias": without(shapes, "blocks.3.mlp_y.fc2.bias"),
        "doesn't know: blocks.0.attn.q_norm.weight": {**shapes, "blocks.0.attn.q_norm.weight": (72,)},
        "wrong shapes: transformer_blocks.5.attn2.to_k.weight": {**shapes, "blocks.5.cross_attn.kv_linear.weight": (2304, 1000)},
        "pos_embed is missing": without(shapes, "pos_embed"),
        "1023 patches make no square": {**shapes, "pos_embed": (1, 1023, 1152)},
        "16 heads don't divide 1160 channels": {**shapes, "x_embedder.proj.weight": (1160, 4, 1, 2, 2)},
    }
    for message, wrong in mistakes.items():
        with pytest.raises(ConfigError, match=message):
            plan(wrong, {}, CONVERSIONS[0])
    with pytest.raises(ConfigError, match=r"config.json says depth=12 but the tensors say 28"):
        plan(shapes, {"depth": 12}, CONVERSIONS[0])


def test_the_one_stream_model_of_the_same_repository_is_refused(tmp_path):
    stdit = {name: value for name, value in golden_data.group(GOLDEN, "weights.").items() if "_y" not in name}
    torch.save(stdit, tmp_path / "STDiT-16×512×512.pt")
    with pytest.raises(ConfigError, match=r"not of this family.*none of t_block_y_temp.1.weight"):
        convert(tmp_path / "STDiT-16×512×512.pt", tmp_path / "model", CONVERSIONS)
