"""The direction of imports and what an import may load (docs: architecture)."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "phys_pipeline"
# a layer may import itself and lower layers; errors and atomic are the floor
LAYERS = {
    "errors": 0, "atomic": 0, "workers": 0, "progress": 0,
    "spectral": 1, "noise_path": 1, "tables": 1, "subcommands": 1, "hub": 1,
    "media": 2, "models": 2,
    "families": 3, "scoring": 3,
    "adapters": 4,
    "pipelines": 5,
    "evaluation": 6,
    "comfy": 2, "cli": 7, "web": 7, "__main__": 8, "__init__": 9,
}  # fmt: skip


def imports(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it, absolute names."""
    found: set[str] = set()
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "phys_pipeline" and len(parts) > 1 and parts[1] in LAYERS else None


def test_nothing_imports_upwards():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        assert own in LAYERS, f"{path} is in no layer: add it to LAYERS"
        for module in imports(path):
            other = layer(module)
            if other is not None and other != own and LAYERS[other] >= LAYERS[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_the_package_does_not_import_its_users():
    users = {"training", "comfy_nodes", "app", "tests", "benchmarks"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for module in imports(path)
        if module.split(".")[0] in users
    ]
    assert not wrong, "\n".join(wrong)


def test_spectral_imports_torch_and_the_standard_library_only():
    allowed = {"torch", "phys_pipeline", *sys.stdlib_module_names}
    for path in (PACKAGE / "spectral").glob("*.py"):
        for module in imports(path):
            assert module.split(".")[0] in allowed, f"{path.name} imports {module}"
            assert not module.startswith("phys_pipeline") or module.startswith("phys_pipeline.spectral"), f"{path.name}: {module}"


@pytest.mark.parametrize("optional", ["gradio", "cv2", "torchvision", "accelerate"])
def test_optional_packages_are_never_imported_at_the_top(optional):
    for path in PACKAGE.rglob("*.py"):
        if optional == "gradio" and path.parent == PACKAGE / "web":
            continue  # the page itself; its engine needs none
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert all(name.split(".")[0] != optional for name in names), f"{path} imports {optional} when it is loaded"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_no_torch_and_takes_under_a_fifth_of_a_second():
    modules = loaded_by("import phys_pipeline")
    assert not modules & {"torch", "numpy", "diffusers", "transformers", "av", "PIL", "matplotlib"}
    code = "import time; s = time.perf_counter(); import phys_pipeline; print(time.perf_counter() - s)"
    seconds = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(3)
    )
    assert seconds < 0.2


def test_help_loads_no_torch():
    modules = loaded_by("from phys_pipeline.cli import build_parser; build_parser().format_help()")
    assert not modules & {"torch", "diffusers", "av"}


def test_importing_media_loads_no_torch():
    assert "torch" not in loaded_by("import phys_pipeline.media")


def test_every_export_resolves():
    import phys_pipeline

    started = time.perf_counter()
    for name in phys_pipeline.__all__:
        assert getattr(phys_pipeline, name) is not None
    assert time.perf_counter() - started < 120
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = phys_pipeline.nonsense
