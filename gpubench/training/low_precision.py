"""Linear layers whose three products (forward, both gradients) have float8 or int8 operands.

`Mode.prepare` puts them into a model. The recipes are torchao's: tensorwise dynamic float8 (Micikevicius et al., "FP8
Formats for Deep Learning", 2022) and int8 mixed precision with a scale for each row. Weights stay float32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gpubench.errors import Unsupported
from gpubench.suite.precisions import NO_LARGE_LINEAR

MULTIPLE = 16
"""`torch._scaled_mm` only takes dimensions that are multiples of this number."""
LEAST = 32
"""Smallest dimension: on CUDA `torch._int_mm` needs more than 16 rows."""
INT8_MOST = 127
SMALLEST = 1e-12
"""Least divisor when a scale is computed, so that the scale of a tensor of zeros is finite."""


def float8_types() -> tuple[torch.dtype, torch.dtype]:
    """Return the dtype of activations and weights, and the dtype of gradients. AMD's MI300 has another encoding."""
    if torch.version.hip and torch.cuda.get_device_properties().gcnArchName.startswith("gfx94"):
        return torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
    return torch.float8_e4m3fn, torch.float8_e5m2


def to_float8(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor in float8, scaled to float8's largest absolute value, and the inverse of the scale."""
    most = torch.finfo(dtype).max
    # In float64, because compiled code rounds a division in float32 differently (torchao, float8_utils.py).
    scale = (most / tensor.abs().amax().double().clamp(min=SMALLEST)).float()
    return (tensor.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


def to_int8(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix in int8, each row scaled to the largest absolute value 127, and the inverse scales (rows, 1)."""
    inverse = tensor.abs().amax(1, keepdim=True).float() / INT8_MOST
    scaled = tensor.float() * (1.0 / inverse.clamp(min=SMALLEST))
    return scaled.round().clamp(-INT8_MOST - 1, INT8_MOST).to(torch.int8), inverse


def float8_product(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, dtype: torch.dtype, fast: bool
) -> torch.Tensor:
    """Return a x b in `dtype`, of float8 a (row-major) and b (column-major). `fast` sums with fewer bits."""
    if torch.__version__ >= "2.15":
        tensorwise = functional.ScalingType.TensorWise
        return functional.scaled_mm(
            a, b, a_scale, tensorwise, b_scale, tensorwise, output_dtype=dtype, use_fast_accum=fast
        )
    # `scaled_mm` came in 2.10. In 2.11 it lacks a kernel for CPUs, and torch.compile fails (pytorch/pytorch#180604).
    return torch._scaled_mm(a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=dtype, use_fast_accum=fast)


def int8_product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a x b in `dtype`; both are quantised here, a by rows and b by columns."""
    (a8, a_scale), (b8, b_scale) = to_int8(a), to_int8(b.t())
    # No release has a public name for `torch._int_mm`.
    return (torch._int_mm(a8.contiguous(), b8.contiguous().t()).float() * b_scale.t() * a_scale).to(dtype)


def random_product(name: str, side: int, device: torch.device) -> Callable[[], torch.Tensor]:
    """Return a function that multiplies two square 8-bit matrices, to measure the peak FLOP/s of precision `name`."""
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    if name == "int8-mixed":
        return partial(torch._int_mm, to_int8(a)[0], to_int8(b)[0].t())
    dtype, _ = float8_types()
    (a8, a_scale), (b8, b_scale) = to_float8(a, dtype), to_float8(b, dtype)
    return partial(float8_product, a8, b8.t(), a_scale, b_scale, torch.bfloat16, True)


class _Float8(torch.autograd.Function):
    """x (N, in) times the transposed weight (out, in). Both gradients reuse the float8 values of x and weight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        forward_type, _ = float8_types()
        (x8, x_scale), (weight8, weight_scale) = to_float8(x, forward_type), to_float8(weight, forward_type)
        ctx.save_for_backward(x8, x_scale, weight8, weight_scale)
        return float8_product(x8, weight8.t(), x_scale, weight_scale, x.dtype, True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x8, x_scale, weight8, weight_scale = ctx.saved_tensors
        _, backward_type = float8_types()
        gradient8, scale = to_float8(gradient.contiguous(), backward_type)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            columns = weight8.t().contiguous().t()
            of_x = float8_product(gradient8, columns, scale, weight_scale, gradient.dtype, False)
        if ctx.needs_input_grad[1]:
            rows, columns = gradient8.t().contiguous(), x8.t().contiguous().t()
            of_weight = float8_product(rows, columns, scale, x_scale, gradient.dtype, False)
        return of_x, of_weight


class _Int8(torch.autograd.Function):
    """Like _Float8, in int8. The three products sum over different dimensions, so each quantises its operands anew."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return int8_product(x, weight.to(x.dtype).t(), x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        of_x = int8_product(gradient, weight.to(x.dtype), gradient.dtype) if needs_x else None
        return of_x, int8_product(gradient.t(), x, gradient.dtype) if needs_weight else None


class LowPrecisionLinear(nn.Linear):
    """A linear layer that multiplies in 8 bits and returns autocast's dtype."""

    product: type[torch.autograd.Function]
    multiplied = 0
    """Number of 8-bit products in the layer's last forward pass with gradients, and in the backward pass after it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output (..., out_features) for `x` (..., in_features), computed in a multiple of 32 rows."""
        device = x.device.type
        if torch.is_autocast_enabled(device):
            x = x.to(torch.get_autocast_dtype(device))
        if torch.is_grad_enabled():
            self.multiplied = 1 + x.requires_grad + self.weight.requires_grad
        rows = x.reshape(-1, self.in_features).contiguous()
        if missing := max(LEAST - len(rows), -len(rows) % LEAST):  # only if needed, because padding copies the rows
            filled = functional.pad(rows, (0, 0, 0, missing))
            output: torch.Tensor = self.product.apply(filled, self.weight)[: len(rows)]
        else:
            output = self.product.apply(rows, self.weight)
        if self.bias is not None:
            output = output + self.bias.to(output.dtype)
        return output.view(*x.shape[:-1], self.out_features)


class Float8Linear(LowPrecisionLinear):
    """A linear layer in `float8`."""

    product = _Float8


class Int8Linear(LowPrecisionLinear):
    """A linear layer in `int8-mixed`."""

    product = _Int8


LAYERS: dict[str, type[LowPrecisionLinear]] = {"float8": Float8Linear, "int8-mixed": Int8Linear}


def convert(model: nn.Module, name: str) -> None:
    """Make the linear layers of `model` that `fits` accepts multiply in 8 bits, in place, except the last (the head).

    A model that is one linear layer is converted whatever its sizes. Raises Unsupported if no layer is converted.
    """
    # Subclasses of nn.Linear are left out, because they may compute something else.
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    layers = [layer for layer in linears if layer is model or (layer is not linears[-1] and fits(layer))]
    if not layers:
        raise Unsupported(NO_LARGE_LINEAR)
    for layer in layers:
        layer.__class__ = LAYERS[name]  # keeps weights, names and hooks


def fits(layer: nn.Linear) -> bool:
    """Return whether 8-bit products take the layer's dimensions: multiples of 16, at least 32."""
    sizes = (layer.in_features, layer.out_features)
    return all(size % MULTIPLE == 0 and size >= LEAST for size in sizes)


def products_of(model: nn.Module) -> int:
    """Return the number of 8-bit products in a forward and backward pass; a layer that is used twice counts once."""
    return sum(layer.multiplied for layer in model.modules() if isinstance(layer, LowPrecisionLinear))
