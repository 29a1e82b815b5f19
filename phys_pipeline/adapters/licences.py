"""The licence of an adapter: that of the model it changes, as the Hub names it."""

from __future__ import annotations

from phys_pipeline.hub import is_hub_source

_APACHE = {"license": "apache-2.0"}


def _hunyuan(repository: str) -> dict[str, str]:
    link = f"https://huggingface.co/tencent/{repository}/blob/main/LICENSE"
    return {"license": "other", "license_name": "tencent-hunyuan-community", "license_link": link}


_LICENCES = {
    "hunyuan_video": _hunyuan("HunyuanVideo"),
    "hunyuan_video_1_5": _hunyuan("HunyuanVideo-1.5"),
    "open_sora_1_2": _APACHE,
    "open_sora_2": _APACHE,
    "wan": _APACHE,
    "mochi": _APACHE,
    "mvdit": {"license": "cc-by-4.0"},
}


def licence_of(family: str, base_model: str | None) -> dict[str, str]:
    """``license``, and for one that the Hub has no name for ``license_name`` and ``license_link``.

    The embedded model has this package's. A family whose models differ in their licences points to the base model's
    page; of a model without one the licence is unknown.
    """
    if base_model == "tiny":
        return dict(_APACHE)
    if family in _LICENCES:
        return dict(_LICENCES[family])
    if not base_model or not is_hub_source(base_model):
        return {"license": "unknown"}
    page = f"https://huggingface.co/{base_model}"
    return {"license": "other", "license_name": "that-of-the-base-model", "license_link": page}
