"""Lets ComfyUI start beside a torch without CUDA: read by Python at its start when this folder is on PYTHONPATH.

torchvision from PyPI is built for CUDA; beside another torch it fails on import for want of two operators, which are declared
here and never called. torchaudio can't be loaded at all; an empty module stands in for it.
"""

import importlib.abc
import importlib.machinery
import sys
import types

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class _Torchvision(importlib.abc.MetaPathFinder):
    """Declares the operators just before torchvision is imported, and leaves the import to others."""

    library = None

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "FRAGMENT")  # lives as long as this finder
            for operator in _OPERATORS:
                self.library.define(operator)
        return None


class _Torchaudio(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import of torchaudio with a module in which every public name is an empty class."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "torchaudio":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        module.__path__ = []


class _Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


sys.meta_path[:0] = [_Torchvision(), _Torchaudio()]
