"""Base models and adapters that the page offers, and the one model that is in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phys_pipeline.adapters.embedded import embedded_adapters
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.web.engine.settings import TINY, AppSettings

if TYPE_CHECKING:
    from phys_pipeline.families import LoadedModel
    from phys_pipeline.media import Video
    from phys_pipeline.pipelines.ab import Progress

RECOGNISED = "recognised from the model"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w.-]+)?")
_IN_MEMORY: dict[str, LoadedModel] = {}  # of the module, so that a process that ZeroGPU forks finds it


class Models:
    """The model in memory, one at a time; whoever uses it owns the device."""

    def __init__(self, settings: AppSettings) -> None:
        self.settings = settings
        self.seconds_per_step: dict[tuple[Any, ...], float] = {}  # measured, by model, size and guidance

    def sources(self) -> list[str]:
        """What can be chosen without typing."""
        return [TINY, *self.settings.models]

    def source(self, chosen: Any) -> str:
        """A base model by what the page sent. Raises ConfigError for one that this server does not offer."""
        name = chosen.strip() if isinstance(chosen, str) else ""
        if name in ("", TINY):
            return TINY
        if name in self.settings.models:
            return name
        if not self.settings.local:
            raise ConfigError(f"this server offers {', '.join(self.sources())}: choose one of them")
        if not HUB_ID.fullmatch(name) and not Path(name).is_dir():
            raise ModelError("there is no such model: give a local folder in the diffusers layout, or a Hub id owner/name")
        return name

    def family(self, chosen: Any, source: str) -> str | None:
        """The family as which to load a model that does not say it itself; None for one that does. Never downloads.

        Raises ConfigError for an unknown family, and where a local model says that it is of another one.
        """
        from phys_pipeline.families import find_family, get_family

        name = chosen.strip() if isinstance(chosen, str) else ""
        if name in ("", RECOGNISED):
            return None
        wanted = get_family(name).spec.name
        if source != TINY and not Path(source).is_dir():
            return wanted  # loading checks it
        try:
            said = find_family(source).spec.name
        except ModelError:
            return wanted
        if said != wanted:
            raise ConfigError(f"the model says that it is of the family {said}, not {wanted}: choose '{RECOGNISED}'")
        return None

    def adapter(self, chosen: Any, uploaded: Any = None) -> tuple[Path | str | None, str]:
        """What to load and how a command line names it, by an embedded name, an uploaded file, a folder, or a Hub id.

        "none" and "" are no adapter. Raises ConfigError for one that this server does not offer.
        """
        if uploaded:
            file = Path(str(uploaded))
            if file.suffix != ".safetensors":
                raise ConfigError("an adapter is a .safetensors file: pickles are never loaded")
            return file, file.name
        name = chosen.strip() if isinstance(chosen, str) else ""
        if name in ("", "none"):
            return None, ""
        embedded = embedded_adapters().get(name)
        if embedded is not None:
            return embedded.folder, embedded.shown
        if not self.settings.local:
            raise ConfigError("this server has no such adapter: choose one of the list, or upload a .safetensors file")
        if Path(name).exists() or HUB_ID.fullmatch(name):
            return name, name
        raise ConfigError("there is no such adapter: give a file, a folder, or a Hub id owner/name")

    def load(self, source: str, family: str | None = None) -> LoadedModel:
        """The model, from memory or loaded; another one is dropped. Call it while the job owns the device."""
        known = _IN_MEMORY.get(source)
        if known is None or family not in (None, known.family.spec.name):
            from phys_pipeline.families import load_model

            _IN_MEMORY.clear()
            device, dtype = default_device(source)
            model = load_model(source, dtype, family)
            model.pipeline.to(device)
            _IN_MEMORY[source] = model
        return _IN_MEMORY[source]


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a GPU that a Space lends for the call (``spaces.GPU``), where that package is; else as it is."""
    try:
        import spaces
    except ImportError:
        return function
    lent: Callable[..., Any] = spaces.GPU(duration=_seconds_to_ask_for)(function)
    return lent


def _seconds_to_ask_for(*arguments: Any, **keywords: Any) -> int:
    """Generous: two seconds a step, and half a minute."""
    settings = next(argument for argument in arguments if isinstance(argument, dict) and "num_inference_steps" in argument)
    return 30 + 2 * int(settings["num_inference_steps"])


@_on_gpu
def sample(
    source: str,
    prompt: str,
    seed: int,
    settings: dict[str, Any],
    conditioning: dict[str, Any],
    adapter: str | None,
    weight: float,
    progress: Progress | None,
) -> Video:
    """One video of the model in memory, with the loaded ``adapter`` alone at ``weight``, or with none.

    Plain arguments only: ZeroGPU runs this in another process, where ``progress`` must be None.
    """
    from phys_pipeline.adapters import adapter_at
    from phys_pipeline.pipelines.ab import generate

    model = _IN_MEMORY[source]
    with adapter_at(model.pipeline.transformer, adapter, weight):
        return generate(model, prompt, seed, conditioning=conditioning, progress=progress, **settings)


def is_zero_gpu() -> bool:
    """Whether :func:`sample` runs in another process."""
    return bool(os.environ.get("SPACES_ZERO_GPU"))


def default_device(source: str) -> tuple[str, Any]:
    """The accelerator if there is one, else the CPU. Large models take bfloat16."""
    import torch

    if torch.cuda.is_available():
        return "cuda", torch.float32 if source == TINY else torch.bfloat16
    if source != TINY and not Path(source).is_dir():
        raise ModelError(
            f"{source} is a Hub model and this machine has no GPU that torch can use: choose the embedded model, or start the "
            "app where there is a GPU"
        )
    return "cpu", torch.float32


def defaults_of(source: str, family: str | None = None) -> dict[str, Any]:
    """Sampling settings of a model, without loading or downloading it; ``family`` as :meth:`Models.family` gives it."""
    from phys_pipeline.families import find_family

    return find_family(source, family).generation_defaults(source)
