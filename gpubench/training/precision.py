"""Sets, applies and checks each precision: TF32, autocast, dtypes, loss scaler. Never replaces it by another one."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter

import torch
from fastai.fp16_utils import convert_network
from torch import nn

from gpubench.suite.precisions import PRECISIONS
from gpubench.suite.trial import rnn_refusal
from gpubench.training import low_precision


class PrecisionError(RuntimeError):
    """The computation did not use the precision of the case."""


@dataclass(frozen=True)
class Kind:
    """torch's dtypes of a precision; suite/precisions.py describes the fields."""

    autocast: torch.dtype | None
    weights: torch.dtype
    linears: frozenset[torch.dtype]

    @property
    def operand(self) -> torch.dtype:
        """The dtype of the operands of matmuls, convolutions and RNNs, except linear layers in 8 bits."""
        return self.autocast or self.weights


KINDS = {
    name: Kind(
        getattr(torch, precision.autocast) if precision.autocast else None,
        getattr(torch, precision.weights),
        frozenset(getattr(torch, dtype) for dtype in precision.linears),
    )
    for name, precision in PRECISIONS.items()
}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Layers whose weights and statistics stay float32 with master weights."""


@dataclass(frozen=True)
class Mode:
    """Applies a precision to a training step: autocast, the dtype of weights and inputs, and the loss scaler."""

    name: str
    device_type: str

    @property
    def adam_eps(self) -> float:
        """Adam's epsilon: 1e-8, but in pure fp16 2**-12, the square root of the smallest fp16 number."""
        return 2.0**-12 if PRECISIONS[self.name].pure and KINDS[self.name].weights is torch.float16 else 1e-8

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context for forward pass and loss."""
        dtype = KINDS[self.name].autocast
        if dtype is None:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=dtype)

    def prepare(self, model: nn.Module) -> nn.Module:
        """Cast `model` to the precision's weight dtype, in place, and return it. Call this before optimizer and DDP.

        In float8 and int8-mixed only large linear layers change (low_precision.py). Without one it raises Unsupported.

        With master weights everything but BatchNorm becomes 16-bit, as in Apex O2 and fastai's non-native mixed
        precision; BatchNorm's inputs are 16-bit, and it computes in float32. In a pure precision everything becomes
        16-bit, as in Apex O3. Other precisions do not change the model.
        """
        kind = KINDS[self.name]
        if kind.linears:
            low_precision.convert(model, self.name)
        if kind.weights is torch.float32:
            return model
        if not PRECISIONS[self.name].masters:
            return model.to(kind.weights)
        convert_network(model, kind.weights)
        for module in model.modules():
            if isinstance(module, BATCH_NORMS):
                module.float()  # convert_network only skips BatchNorms with weights
        return model

    def input(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` in the model's dtype: 16-bit if the model is; integers stay unchanged."""
        weights = KINDS[self.name].weights
        return x.to(weights) if weights is not torch.float32 and x.is_floating_point() else x

    def scaler(self, loss_scale: float = 0) -> torch.amp.GradScaler:
        """Return the loss scaler, disabled if the precision needs none; it begins at `loss_scale`, or 65536 if 0."""
        start = float(loss_scale or 2**16)
        return torch.amp.GradScaler(self.device_type, init_scale=start, enabled=PRECISIONS[self.name].scaled)


def mode_of(name: str, device: str) -> Mode:
    """Return the mode of precision `name` on `device` (`cuda:0`, `cpu`)."""
    return Mode(name, torch.device(device).type)


def set_flags(name: str, reduced_reduction: bool, cudnn_benchmark: bool) -> None:
    """Set every process-wide switch that affects the precision, independent of torch's defaults.

    By default torch allows TF32 in cuDNN, so that "fp32" convolutions use TF32 from Ampere on.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # deprecated, but torch.compile and cudnn.flags still read them
        # torch raises if these and the newer switches differ (pytorch/pytorch#166387): set both, these first.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISIONS[name].tf32
    for switch, value in _tf32_values(name).items():
        if switch.endswith("fp32_precision"):
            attrgetter(switch.removesuffix(".fp32_precision"))(torch.backends).fp32_precision = value
    for switch in _reductions():
        # 16-bit accumulation of whole products (off by default in torch) always stays off.
        setattr(torch.backends.cuda.matmul, switch, reduced_reduction and "reduction" in switch)
    torch.backends.cudnn.benchmark = cudnn_benchmark


def flags() -> dict[str, str]:
    """Return the value of every switch that `set_flags` sets, by its name in `torch.backends`."""
    switches = [*_tf32_values("fp32"), *(f"cuda.matmul.{name}" for name in _reductions()), "cudnn.benchmark"]
    values = {switch: str(attrgetter(switch)(torch.backends)) for switch in switches}
    return {switch: "ieee" if value == "none" else value for switch, value in values.items()}  # "none": not set


def check_flags(name: str, before: Mapping[str, str] | None = None) -> None:
    """Raise PrecisionError if a switch differs from what the precision needs.

    `before` has the values of `flags` at the start of the trial: the other switches must not have changed.
    """
    now = flags()
    for switch, value in {**(before or {}), **_tf32_values(name)}.items():
        if now[switch] != value:
            changed = f"torch.backends.{switch} was changed to {now[switch]}"
            raise PrecisionError(f"asked for {name}, but {changed} during the trial")


def _reductions() -> list[str]:
    """Return the names of this torch's switches of 16-bit reductions and accumulation (the last one is newer)."""
    names = (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    )
    return [name for name in names if hasattr(torch.backends.cuda.matmul, name)]


def _tf32_values(name: str) -> dict[str, str]:
    """Return the value that a precision needs for each TF32 switch; oneDNN's switches never allow TF32.

    From torch 2.9 on there is a switch for each kind of operation.
    """
    tf32 = PRECISIONS[name].tf32
    if not hasattr(torch.backends, "fp32_precision"):
        return {"cuda.matmul.allow_tf32": str(tf32), "cudnn.allow_tf32": str(tf32)}
    wanted = dict.fromkeys(("cuda.matmul", "cudnn.conv", "cudnn.rnn"), "tf32" if tf32 else "ieee")
    wanted |= dict.fromkeys(("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"), "ieee")
    return {f"{owner}.fp32_precision": value for owner, value in wanted.items()}


def probe(name: str, device: str, mode: Mode) -> dict[str, float]:
    """Return the relative errors of `parts_of(mode)` (matmul, convolution, GRU), compared with float64, by name.

    Raises PrecisionError if an error is outside the precision's range. RNNs are checked with a GRU,
    because torch has no fp16 LSTM on a CPU.
    """
    # cuDNN's benchmark may choose an fp32 algorithm for such a small convolution under TF32.
    searching, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        with torch.random.fork_rng(devices=[]):  # weights and inputs are drawn on the CPU
            torch.default_generator.manual_seed(0)  # torch.manual_seed would also seed the accelerator
            errors = {part: _error(make(), device, mode) for part, make in parts_of(mode).items()}
    finally:
        torch.backends.cudnn.benchmark = searching
    check_probe(name, errors)
    return errors


def check_probe(name: str, errors: Mapping[str, float]) -> None:
    """Raise PrecisionError if one of the relative errors is outside the range of precision `name`."""
    low, high = PRECISIONS[name].probe_errors
    if PRECISIONS[name].tf32 and max(errors.values()) >= low:
        low = 0.0  # cuDNN may use an exact algorithm for some of these small problems under TF32, but not for all
    for part, error in errors.items():
        if not low <= error <= high:
            ranges = {other: precision.probe_errors for other, precision in PRECISIONS.items()}
            looks = ", ".join(other for other, (least, most) in ranges.items() if least <= error <= most)
            raise PrecisionError(
                f"asked for {name}, but the probe's {part} has a relative error of {error:.1e},"
                f" which looks like {looks or 'no known precision'}"
            )


Part = tuple[nn.Module, torch.Tensor]


_PARTS: Mapping[str, Callable[[], Part]] = {
    "matmul": lambda: (nn.Linear(512, 256, bias=False), torch.randn(128, 512)),
    "convolution": lambda: (nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.randn(4, 64, 16, 16)),
    "RNN": lambda: (nn.GRU(256, 256), torch.randn(4, 16, 256)),
}


def parts_of(mode: Mode) -> dict[str, Callable[[], Part]]:
    """Return the functions that make the probe's computations in `mode`, by name."""
    if KINDS[mode.name].linears:
        return {"matmul": _PARTS["matmul"]}
    return {
        part: make for part, make in _PARTS.items() if part != "RNN" or not rnn_refusal(mode.name, mode.device_type)
    }


def _error(part: Part, device: str, mode: Mode) -> float:
    module, x = part
    with torch.no_grad():
        exact = _output(module.double()(x.double()))
        module = mode.prepare(module.float().to(device))
        with mode.autocast():
            computed = _output(module(mode.input(x.to(device))))
    return float((computed.cpu().double() - exact).norm() / exact.norm())


def _output(result: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def check_weights(name: str, counts: Mapping[str, int]) -> str:
    """Return the dtypes of the weights as text for the row; raises PrecisionError if they are wrong.

    `counts` has the number of tensors by owner and dtype (`{"model float16": 21}`), from a Stepper. Operands do not
    prove 16-bit weights: under autocast they have 16 bits too.
    """
    kind = KINDS[name]
    if not counts:
        if kind.weights is torch.float32:
            return ""
        raise PrecisionError(
            f"the weights of {name} cannot be checked: the suite must use mode.prepare and a Stepper"
            " (see docs/adding-a-suite.md)"
        )
    kept = torch.float32 if PRECISIONS[name].masters else kind.weights
    # In a pure precision BatchNorm may be fp32 or 16-bit; with masters or fp32 weights it is fp32.
    wanted = {"model": {kind.weights}, "BatchNorm": {kept, torch.float32}, "optimizer": {kept}}
    # Autocast would round a frozen weight to the operands' dtype anyway; 4-bit weights are stored as uint8.
    wanted["frozen"] = {kind.weights, kind.operand, torch.uint8}
    summary = ", ".join(f"{label} x{n}" for label, n in sorted(counts.items(), key=lambda item: item[0].lower()))
    for label, n in counts.items():
        owner, _, dtype = label.partition(" ")
        allowed = sorted(map(dtype_name, wanted[owner]))
        if dtype not in allowed:
            raise PrecisionError(
                f"asked for {name}, but {n} of the weights of the {owner} are {dtype},"
                f" not {' or '.join(allowed)}: {summary}"
            )
    return f"weights {summary}"


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype: `float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")
