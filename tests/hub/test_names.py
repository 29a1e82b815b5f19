"""Names that could lead elsewhere are refused before anything is asked or written."""

import pytest

from phys_pipeline.errors import HubError
from phys_pipeline.hub import check_file_name, is_hub_source, parse_source
from phys_pipeline.hub.names import leads_out


def test_sources():
    assert parse_source("owner/na.me-1") == parse_source("owner/na.me-1@main")
    assert parse_source("owner/name@refs/pr/1").revision == "refs/pr/1" and parse_source(f"o/n@{'a' * 40}").pinned
    assert str(parse_source("owner/name@v1")) == "owner/name@v1"
    for wrong in (
        "name",
        "a/b/c",
        "../name",
        "a/..",
        "/a/b",
        "a/b@",
        "a/b@../x",
        "a/b@-x",
        "a b/c",
        "a/b\n",
        "a/b.safetensors",
        "~/x",
        "C:/x",
    ):
        with pytest.raises(HubError, match="OWNER/NAME"):
            parse_source(wrong)
    assert not is_hub_source("out/adapter.safetensors")


@pytest.mark.parametrize("name", ["a.safetensors", "comfyui/a b.safetensors", "validation/step-1/prompt-0-seed-0.mp4"])
def test_plain_files(name):
    assert check_file_name(name) == name and not leads_out(name)


@pytest.mark.parametrize(
    "name", ["", "../a", "a/../b", "/a", "a//b", "a\\b", "C:a", "a\0b", "a\nb", ".git/config", "a/.hidden", "-x", "x" * 400, "é"]
)
def test_odd_files(name):
    with pytest.raises(HubError, match="out of its folder") as caught:
        check_file_name(name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
