import numpy as np
import pytest
from tiny_evaluation import clip_of, noise

from phys_pipeline.errors import ModelError
from phys_pipeline.evaluation.metric import PROTOCOLS, Settings
from phys_pipeline.evaluation.metrics.dover import (
    Dover,
    aesthetic_frames,
    aesthetic_view,
    fragments,
    rescaled,
    technical_frames,
    technical_view,
)


def random(seed=0):
    return np.random.default_rng(seed)


def save_onnx(file, outputs=("aesthetic", "technical"), clips="clips", swap=False):
    """A model with DOVER's inputs: the aesthetic output is a tenth of its view's mean, the technical a hundredth, per clip."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    views = {"aes_view": (1, 0.1), "tech_view": (clips, 0.01)}
    nodes, constants, found = [], [], []
    for output, (view, (count, scale)) in zip(outputs, views.items(), strict=True):
        constants.append(helper.make_tensor(f"scale_{view}", TensorProto.FLOAT, [], [scale]))
        nodes.append(helper.make_node("ReduceMean", [view], [f"mean_{view}"], axes=[1, 2, 3, 4], keepdims=0))
        nodes.append(helper.make_node("Mul", [f"mean_{view}", f"scale_{view}"], [output]))
        found.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, [count]))
    inputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [n, 3, 32, 224, 224]) for v, (n, _) in views.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, found[::-1] if swap else found, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return save_onnx(tmp_path_factory.mktemp("dover") / "dover.onnx")


def ready(file, **settings):
    metric = Dover(Settings(options={"dover.onnx": str(file)}, **settings))
    assert metric.available().ok
    metric.setup()
    return metric


def test_aesthetic_frames_cover_the_clip():
    assert aesthetic_frames(63, "fixed", random()).tolist() == list(range(0, 63, 2))
    spread = aesthetic_frames(20, "fixed", random())
    assert spread[0] == 0 and spread[-1] == 19 and len(set(spread)) == 20


def test_evalcrafter_sees_one_frame_of_short_clips_and_the_first_half_of_longer_ones():
    assert set(aesthetic_frames(31, "evalcrafter", random())) == {0}
    assert aesthetic_frames(63, "evalcrafter", random()).tolist() == list(range(32))
    long = aesthetic_frames(320, "evalcrafter", random())
    assert (long // 10 == np.arange(32)).all() and len(set(long % 10)) > 1
    assert (long % 10).max() < 8  # two frames are kept free in each thirty-second


def test_technical_frames_reflect_or_jump():
    fixed, evalcrafter = (technical_frames(20, 3, protocol, random()) for protocol in PROTOCOLS)
    assert fixed.shape == evalcrafter.shape == (3, 32)
    assert np.abs(np.diff(fixed, axis=1)).max() == 2
    assert (np.abs(np.diff(evalcrafter, axis=1)) > 2).sum(axis=1).tolist() == [3, 3, 3]  # jump cuts
    spread = technical_frames(163, 3, "fixed", random())
    assert spread[:, 0].tolist() == [0, 50, 100] and spread[-1, -1] == 162
    assert (evalcrafter[:, 0] == 0).all()
    for seed in range(20):  # clips that fit lie whole in the video, at places of their own
        numbers = technical_frames(70, 3, "evalcrafter", random(seed))
        assert (np.diff(numbers, axis=1) == 2).all() and numbers.max() < 70
    assert len({technical_frames(200, 1, "evalcrafter", random(seed))[0, 0] for seed in range(20)}) > 5


def coordinates(height, width):
    """One frame whose red is the row and green the column."""
    rows, columns = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([rows, columns, np.zeros_like(rows)], -1)[None]


def test_fragments_of_a_frame_of_their_size_are_that_frame():
    frame = noise(2, 224, 224)
    np.testing.assert_array_equal(fragments(frame, "fixed", random()), frame)


def test_fragments_are_native_patches_each_from_its_own_cell():
    mosaic = fragments(coordinates(252, 250), "fixed", random())[0].astype(int)
    for row in range(7):
        for column in range(7):
            patch = mosaic[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32]
            assert (np.diff(patch[..., 0], axis=0) == 1).all() and (np.diff(patch[..., 1], axis=1) == 1).all()
            assert 36 * row <= patch[0, 0, 0] and patch[-1, 0, 0] < 36 * (row + 1)
            assert 35 * column <= patch[0, 0, 1] and patch[0, -1, 1] < 35 * (column + 1)
    assert len({mosaic[32 * row, 0, 0] - 36 * row for row in range(7)}) > 1  # offsets differ


def test_fragments_lie_at_the_same_place_in_every_frame():
    frames = np.repeat(coordinates(250, 250), 3, axis=0)
    mosaic = fragments(frames, "fixed", random())
    assert (mosaic == mosaic[:1]).all()


def test_small_frames_are_enlarged_and_evalcrafter_misses_most_of_them():
    frames = np.zeros((1, 64, 64, 3), np.uint8)
    frames[:, 40:, 40:] = 255
    assert fragments(frames, "fixed", random()).max() == 255
    assert fragments(frames, "evalcrafter", random()).max() == 0


def test_views_have_the_models_shape_and_range():
    grey = np.full((5, 30, 40, 3), 124, np.uint8)
    exact = [(124 - 123.675) / 58.395, (124 - 116.28) / 57.12, (124 - 103.53) / 57.375]
    for protocol in PROTOCOLS:
        aesthetic, technical = aesthetic_view(grey, protocol, random()), technical_view(grey, 3, protocol, random())
        assert aesthetic.shape == (1, 3, 32, 224, 224) and technical.shape == (3, 3, 32, 224, 224)
        assert aesthetic.dtype == technical.dtype == np.float32
        for view, tolerance in ((aesthetic, 1e-6), (technical, 1e-6 if protocol == "fixed" else 1 / 57)):  # rounded down
            assert view.min(axis=(0, 2, 3, 4)) == pytest.approx(exact, abs=tolerance)
            assert view.max(axis=(0, 2, 3, 4)) == pytest.approx(exact, abs=tolerance)


def test_rescaling_by_hand():
    assert rescaled(0.1253, 0.1253, 0.0318) == 50
    assert rescaled(0.1253 + 0.0318, 0.1253, 0.0318) == pytest.approx(100 / (1 + np.exp(-1)))
    assert rescaled(-100, 0.1253, 0.0318) == 0 and rescaled(100, 0.1253, 0.0318) == 100


def test_values_of_a_grey_clip_by_hand(file):
    clip = clip_of(np.full((40, 230, 230, 3), 124, np.uint8))
    mean = np.mean([(124 - 123.675) / 58.395, (124 - 116.28) / 57.12, (124 - 103.53) / 57.375])
    for protocol, (aesthetic, technical) in {
        "fixed": ((0.1 * mean + 0.08285) / 0.03774, (0.01 * mean - 0.1107) / 0.07355),
        "evalcrafter": ((0.1 * mean - 0.1253) / 0.0318, (0.01 * mean + 0.0758) / 0.0129),
    }.items():
        results = ready(file, protocol=protocol).compute(clip)
        assert results["vqa_a"].value == pytest.approx(100 / (1 + np.exp(-aesthetic)), rel=1e-2)
        assert results["vqa_t"].value == pytest.approx(100 / (1 + np.exp(-technical)), rel=1e-2)
        details = results["vqa_a"].details
        assert details["raw"] == pytest.approx(0.1 * mean, rel=2e-3) and not details["short"] and details["outputs_named"]
        assert {"rescaled_dover", "rescaled_evalcrafter"} < set(details)


def test_the_seed_fixes_the_patches(file):
    clip = clip_of(noise(20, 260, 300))
    first, again = (ready(file).compute(clip)["vqa_t"] for _ in range(2))
    assert first == again and first.details["short"]
    assert first.details["raw"] == pytest.approx(np.mean(first.details["raw_per_view"]))
    assert len(set(first.details["raw_per_view"])) == 3  # other patches in each of the three clips
    assert ready(file, seed=1).compute(clip)["vqa_t"].value != first.value


def test_outputs_are_found_by_name_else_by_order(file, tmp_path):
    clip = clip_of(noise(10))
    expected = ready(file).compute(clip)
    swapped = ready(save_onnx(tmp_path / "swapped.onnx", swap=True)).compute(clip)
    unnamed = ready(save_onnx(tmp_path / "unnamed.onnx", outputs=("1234", "1250"))).compute(clip)
    for key in ("vqa_a", "vqa_t"):
        assert swapped[key].value == unnamed[key].value == expected[key].value
    assert not unnamed["vqa_a"].details["outputs_named"]


def test_an_export_for_four_clips_gets_four(tmp_path):
    result = ready(save_onnx(tmp_path / "four.onnx", clips=4)).compute(clip_of(noise(10)))["vqa_t"]
    assert result.details["technical_clips"] == 4


def test_says_what_is_missing(tmp_path, monkeypatch):
    available = Dover(Settings(weights_dir=str(tmp_path))).available()
    assert not available.ok and "convert_to_onnx.py" in available.reason and str(tmp_path / "dover.onnx") in available.reason
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'phys-pipeline[dover]'" in Dover(Settings()).available().reason


def test_other_files_are_refused(tmp_path):
    (tmp_path / "dover.onnx").write_bytes(b"no model")
    metric = Dover(Settings(weights_dir=str(tmp_path)))
    with pytest.raises(ModelError, match="no usable ONNX model"):
        metric.setup()
    from onnx import TensorProto, helper, save

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "other",
        [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(tmp_path / "dover.onnx"))
    with pytest.raises(ModelError, match="inputs aes_view and tech_view"):
        metric.setup()
