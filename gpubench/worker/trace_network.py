"""Lists the layers of a suite's network with shapes, weights and FLOPs, and its schedule. Does not train.

Runs forward and backward on torch's meta device, whose tensors have no data. Called by __main__.py for `gpubench show`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from gpubench.errors import UserError
from gpubench.suite import files
from gpubench.suite.suite import Blueprint
from gpubench.suite.trial import Trial
from gpubench.training.flops import tensors_in
from gpubench.worker.run_trial import Message

POINTS = 240
"""Least number of points of a schedule."""
SUMS = {"add", "add_", "__add__", "__iadd__", "__radd__"}
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
POOLS = {"max pool": (nn.MaxPool2d, nn.AdaptiveMaxPool2d), "average pool": (nn.AvgPool2d, nn.AdaptiveAvgPool2d)}


def network_of(trial: Trial) -> Message:
    """Return the layers and schedule of a trial's model; raises UserError if the blueprint has no torch module."""
    suite = files.load(Path(trial.case.suite_path)).suite
    assert suite.blueprint is not None  # checked by the parent
    blueprint = suite.blueprint(trial)
    network = blueprint.network
    if not isinstance(network, nn.Module):
        raise UserError(f"its blueprint has a {type(network).__name__} for a network, not a torch module")
    weights = {name: weight.numel() for name, weight in network.named_parameters()}  # shared ones once
    trained = sum(weight.numel() for weight in network.parameters() if weight.requires_grad)
    network.to("meta").train()
    inputs = tuple(value.to("meta") if isinstance(value, torch.Tensor) else value for value in blueprint.inputs)
    return {
        "input": _shape(inputs, blueprint),
        "layers": list(_layers(network, inputs, weights, blueprint)),
        "weights": sum(weights.values()),
        "trained": trained,
        "flops": _flops(partial(network, *inputs)) / blueprint.samples,
        "epochs": blueprint.epochs,
        "schedule": _points(blueprint),
        "note": blueprint.note,
    }


def _points(blueprint: Blueprint) -> dict[str, list[tuple[float, float]]]:
    """Return the (epoch, value) points of each schedule: all whole epochs, and enough between for a smooth curve."""
    parts = -(-POINTS // blueprint.epochs)
    epochs = [number / parts for number in range(blueprint.epochs * parts + 1)]
    # Rounded, so that a schedule that ends at zero is exactly zero.
    return {name: [(at, round(float(value(at)), 12)) for at in epochs] for name, value in blueprint.schedule.items()}


@dataclass(eq=False)
class _Call:
    """One forward call of a module."""

    name: str
    module: nn.Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    around: tuple["_Call", ...]
    """The enclosing calls, outermost first."""
    source: "_Call | None"
    """The layer that its input comes from."""
    output: object = None
    leaf: bool = True
    sums: list[tuple["_Call | None", "_Call | None"]] = field(default_factory=list)
    """For each sum of two tensors in it, the layers that the tensors come from."""

    @property
    def block(self) -> "_Call | None":
        """The outermost enclosing call that adds branches, except for the whole network."""
        return next((call for call in self.around[1:] if call.sums), None)


class _Trace(TorchFunctionMode):
    """Records a forward pass: which modules ran, where tensors come from, and where two branches are added."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._open: list[_Call] = []
        self._sources: dict[int, tuple[torch.Tensor, _Call | None]] = {}
        """Source by tensor id. The tensor is kept too, so that its id is not reused."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if isinstance(out, torch.Tensor) and tensors:
            sources = [self._source(tensor) for tensor in tensors]
            added = getattr(func, "__name__", "") in SUMS and len(tensors) == 2
            if added and self._open and tensors[0].shape == tensors[1].shape:
                self._open[-1].sums.append((sources[0], sources[1]))
            self._sources[id(out)] = out, sources[0]
        return out

    def _source(self, tensor: torch.Tensor) -> _Call | None:
        return self._sources.get(id(tensor), (tensor, None))[1]

    def begin(self, name: str, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        source = next((self._source(tensor) for tensor in tensors_in((args, kwargs))), None)
        call = _Call(name, module, args, kwargs, tuple(self._open), source)
        if self._open:
            self._open[-1].leaf = False
        self._open.append(call)
        self.calls.append(call)

    def end(self, module: nn.Module, args: object, output: object) -> None:
        call = self._open.pop()
        call.output = output
        if call.leaf:
            self._sources |= {id(tensor): (tensor, call) for tensor in tensors_in(output)}


def _traced(network: nn.Module, inputs: tuple[object, ...]) -> list[_Call]:
    trace, hooks = _Trace(), []
    for name, module in network.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(trace.begin, name), with_kwargs=True))
        hooks.append(module.register_forward_hook(trace.end))
    with trace:
        network(*inputs)
    for hook in hooks:
        hook.remove()
    return trace.calls


def _layers(
    network: nn.Module, inputs: tuple[object, ...], weights: Mapping[str, int], blueprint: Blueprint
) -> Iterator[Message]:
    """Yield each module that calls no other, in the order of their calls; weights count only in the first call."""
    calls = _traced(network, inputs)
    shortcuts = {id(layer) for call in calls for layer in _shortcut(call)}
    counted = set[str]()
    for call in calls:
        if not call.leaf:
            continue
        names = [name for name in weights if name.startswith(f"{call.name}." if call.name else "")]
        block = call.block
        yield {
            "name": call.name or "network",
            "kind": _kind(call.module),
            "shape": _shape(call.output, blueprint),
            "weights": sum(weights[name] for name in names if name not in counted),
            "flops": _flops(partial(_again, call)) / blueprint.samples,
            "block": block.name if block else "",
            "shortcut": id(call) in shortcuts,
        }
        counted.update(names)


def _shortcut(block: _Call) -> list[_Call]:
    """Return the layers that are only in the shorter of two added branches; none if this branch is the identity."""
    layers: list[_Call] = []
    for branches in block.sums:
        first, second = (_path(branch, block) for branch in branches)
        only_first = [layer for layer in first if layer not in second]
        only_second = [layer for layer in second if layer not in first]
        layers += only_first if len(only_first) < len(only_second) else only_second
    return layers


def _path(call: _Call | None, block: _Call) -> list[_Call]:
    """Return this layer and those before it that lead to it, inside `block`."""
    layers = []
    while call is not None and block in call.around:
        layers.append(call)
        call = call.source
    return layers


def _again(call: _Call) -> object:
    """Run the forward call again, with copies of its inputs, and return the output."""

    def fresh(value: object) -> object:
        # A copy, because some layers write into their input, which autograd forbids for a leaf tensor.
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().requires_grad_(value.requires_grad).clone()

    return call.module(*map(fresh, call.args), **{name: fresh(value) for name, value in call.kwargs.items()})


def _flops(forward: Callable[[], object]) -> int:
    """Return the FLOPs of this forward and its backward pass, counted by torch."""
    with FlopCounterMode(display=False) as counter:
        losses = [tensor.sum() for tensor in tensors_in(forward()) if tensor.requires_grad]
        torch.autograd.backward(losses)
    return int(counter.get_total_flops())


def _shape(value: object, blueprint: Blueprint) -> list[int]:
    """Return the shape of the first tensor in `value`, without the batch dimension."""
    shape = list(next((tensor.shape for tensor in tensors_in(value)), ()))
    return [size for dimension, size in enumerate(shape) if dimension != blueprint.batch_dimension]


def _kind(module: nn.Module) -> str:
    """Return a short name of the kind of layer, or else its class name."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        stride = f" /{module.stride[0]}" if module.stride[0] > 1 else ""
        return f"conv {'x'.join(map(str, module.kernel_size))}{stride}"
    if isinstance(module, nn.RNNBase):
        return f"{module.num_layers}-layer {type(module).__name__}"
    if isinstance(module, nn.MultiheadAttention):
        return f"{module.num_heads}-head attention"
    if isinstance(module, NORMS):
        return "norm"
    pools = [name for name, kinds in POOLS.items() if isinstance(module, kinds)]
    return pools[0] if pools else "linear" if type(module) is nn.Linear else type(module).__name__
