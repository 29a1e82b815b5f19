"""ComfyUI nodes of phys-pipeline: motion scores, comparisons, and motion adapters in any format."""

try:
    from .nodes import comfy_entrypoint
except ModuleNotFoundError as error:
    if error.name != "phys_pipeline":
        raise
    raise ModuleNotFoundError(
        "PhysMotion needs the package phys-pipeline in ComfyUI's Python: run `python -m pip install phys-pipeline` with it",
        name="phys_pipeline",
    ) from None

WEB_DIRECTORY = "./web"

__all__ = ["WEB_DIRECTORY", "comfy_entrypoint"]
