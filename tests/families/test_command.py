"""``phys-pipeline families``."""

import json

from phys_pipeline import cli
from phys_pipeline.families import family_names, get_family


def test_every_family_has_its_line(capsys):
    assert cli.main(["families"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1::5]] == list(family_names()) and lines[0].split()[:2] == ["family", "predicts"]
    for name, first in zip(family_names(), range(1, len(lines), 5), strict=True):
        spec, own = get_family(name).spec, "\n".join(lines[first : first + 5])
        for fact in (
            spec.prediction,
            spec.frame_rule,
            spec.sizes,
            spec.licence,
            spec.memory,
            spec.hub_id,
            f"{spec.parameters:g}",
        ):
            assert fact in own


def test_json_and_single_families(capsys):
    assert cli.main(["families", "--json", "wan", "ltx"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "phys-pipeline/families" and [row["family"] for row in found["families"]] == ["wan", "ltx_video"]
    assert found["families"][0]["predicts"] == "noise - x0" and found["families"][1]["time"] == 8
    assert cli.main(["families", "wann"]) == 2
    assert "did you mean wan" in capsys.readouterr().err
