"""All but one thing is in pyproject.toml: a wheel also holds the ComfyUI nodes, which lie beside the package here."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithNodes(build_py):
    """Copies ``comfy_nodes`` to where ``phys-pipeline comfy install`` finds it; an editable install needs no copy."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "phys_pipeline" / "comfy_nodes"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("comfy_nodes", target, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithNodes})
