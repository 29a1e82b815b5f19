"""Products of complex spectra with hand-written gradients: one pass where automatic differentiation takes five.

Gradients follow PyTorch's convention: for a real loss, d loss / d Re + i d loss / d Im. They can't be differentiated again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _sum_of_squares(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    real, imaginary = values.real, values.imag
    return real.square().addcmul_(imaginary, imaginary).sum(dim=dims)


class _Power(Function):
    @staticmethod
    def forward(context: Any, values: Tensor, dims: tuple[int, ...]) -> Tensor:
        context.save_for_backward(values)
        context.dims = dims
        return _sum_of_squares(values, dims)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = context.saved_tensors
        for dim in sorted(dim % values.dim() for dim in context.dims):
            gradient = gradient.unsqueeze(dim)
        return values * (2 * gradient), None


def power(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``sum |values|^2`` over ``dims`` of a complex tensor."""
    if not (values.requires_grad and torch.is_grad_enabled()):
        return _sum_of_squares(values, dims)
    return _Power.apply(values, dims)  # type: ignore[no-untyped-call]


class _Magnitude(Function):
    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        size = values.real.square()
        size = size.addcmul_(values.imag, values.imag).sqrt_()
        context.save_for_backward(values, size)
        return size

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> Tensor:
        values, size = context.saved_tensors
        return values * torch.where(size > 0, gradient / size, 0)


def magnitude(values: Tensor) -> Tensor:
    """``|values|`` of a complex tensor, with gradient zero at zero."""
    return _Magnitude.apply(values)  # type: ignore[no-untyped-call]


class _Neighbours(Function):
    @staticmethod
    def forward(context: Any, spectrum: Tensor) -> Tensor:
        context.save_for_backward(spectrum)
        return (spectrum[..., 1:, :, :] * spectrum[..., :-1, :, :].conj()).sum(dim=2)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (spectrum,) = context.saved_tensors
        gradient = gradient.unsqueeze(2)
        result = torch.zeros_like(spectrum)
        torch.mul(gradient, spectrum[..., :-1, :, :], out=result[..., 1:, :, :])
        result[..., :-1, :, :].addcmul_(gradient.conj().resolve_conj(), spectrum[..., 1:, :, :])
        return result


def neighbour_product(spectrum: Tensor) -> Tensor:
    """Cross-spectra of neighbouring frames, ``sum_c S_c(t + 1) conj S_c(t)``: (B, P, W, T - 1, Ky, Kx)."""
    # spectrum: (B, P, C, W, T, Ky, Kx)
    return _Neighbours.apply(spectrum)  # type: ignore[no-untyped-call]
