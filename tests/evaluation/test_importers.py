import json

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.importers import evalcrafter_averages, evalcrafter_rows, vbench_rows
from phys_pipeline.evaluation.metrics.aggregates import ALIGNMENT_PARTS, text_video_alignment

LOG = """2024-10-01 10:00:00 Vid: 0001.mp4,  Current {0}: 0.25, Current avg. {0}: 0.25,  
2024-10-01 10:00:01 Vid: 0002.mp4,  Current {0}: 7.5e-01, Current avg. {0}: 0.5,  
2024-10-01 10:00:02 Final average {0}: 0.5, Total videos: 2
"""


def test_evalcrafter_logs_become_rows_and_averages(tmp_path):
    for name in ALIGNMENT_PARTS:
        (tmp_path / f"{name}_record.txt").write_text(LOG.format(name))
    rows = evalcrafter_rows(tmp_path, "theirs")
    assert len(rows) == 2 * len(ALIGNMENT_PARTS)
    first = next(row for row in rows if row.metric == "evalcrafter_clip_score" and row.id == "0002")
    assert (first.value, first.status, first.sample, first.protocol) == (0.75, "ok", "theirs/0002", "evalcrafter")
    assert text_video_alignment(evalcrafter_averages(tmp_path)) == pytest.approx(
        text_video_alignment(dict.fromkeys(ALIGNMENT_PARTS, 0.5))
    )


def test_tensors_several_objects_and_nan_in_logs(tmp_path):
    (tmp_path / "action_score_record.txt").write_text(
        "t Vid: 0003,  Current action_score: tensor(0.5, device='cuda:0'), Current avg. action_score: tensor(0.5)\n"
        "t Final average action_score: tensor(0.5, device='cuda:0'), Total videos: 1\n"
    )
    (tmp_path / "detection_score_record.txt").write_text(
        "t Vid: 0003,  Current detection_score: 1.0, x\nt Vid: 0003,  Current detection_score: 0.5, x\n"
        "t Vid: 0004,  Current detection_score: nan, x\n"
    )
    rows = {(row.id, row.metric): row for row in evalcrafter_rows(tmp_path, "theirs")}
    assert rows["0003", "evalcrafter_action_score"].value == 0.5
    assert rows["0003", "evalcrafter_detection_score"].value == 0.75
    assert rows["0004", "evalcrafter_detection_score"].status == "failed"
    assert rows["0004", "evalcrafter_detection_score"].value is None
    assert evalcrafter_averages(tmp_path) == {"action_score": 0.5}


def test_a_folder_without_logs_is_an_error(tmp_path):
    for read in (lambda: evalcrafter_rows(tmp_path, "theirs"), lambda: evalcrafter_averages(tmp_path)):
        with pytest.raises(DataError, match="give the folder results of EvalCrafter"):
            read()


def test_vbench_results_become_rows(tmp_path):
    file = tmp_path / "run_eval_results.json"
    videos = [{"video_path": "out/a dog-0.mp4", "video_results": 0.9}, {"video_path": "out/a dog-1.mp4", "video_results": True}]
    file.write_text(json.dumps({"subject_consistency": [0.95, videos]}))
    rows = vbench_rows(file, "theirs")
    assert [(row.id, row.metric, row.value) for row in rows] == [
        ("a dog-0", "vbench_subject_consistency", 0.9),
        ("a dog-1", "vbench_subject_consistency", 1.0),
    ]


@pytest.mark.parametrize("text", ["not json", "[1]", '{"a": 3}', '{"a": [1, [{"video_path": "x"}]]}'])
def test_other_files_are_no_vbench_results(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(DataError, match="not VBench's"):
        vbench_rows(file, "theirs")
