"""Takes a suite's network apart: its layers with shapes, weights and FLOPs, and its schedule. Trains nothing.

One step runs on torch's meta device, whose tensors have shapes and no numbers.
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
from gpubench.worker.run_trial import Message

POINTS = 240
"""Of a schedule, at least."""
SUMS = {"add", "add_", "__add__", "__iadd__", "__radd__"}
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
POOLS = {
    "max pool": (nn.MaxPool2d, nn.AdaptiveMaxPool2d),
    "average pool": (nn.AvgPool2d, nn.AdaptiveAvgPool2d),
}


def network_of(trial: Trial) -> Message:
    """What there is to show of a trial's model; raises UserError where the suite does not say."""
    suite = files.load(Path(trial.case.suite_path)).suite
    assert suite.blueprint is not None  # the parent has asked
    blueprint = suite.blueprint(trial)
    network = blueprint.network
    if not isinstance(network, nn.Module):
        raise UserError(f"its blueprint has a {type(network).__name__} for a network, not a torch module")
    weights = {name: weight.numel() for name, weight in network.named_parameters()}  # shared ones once
    trained = sum(weight.numel() for weight in network.parameters() if weight.requires_grad)
    network.to("meta").train()
    inputs = tuple(map(_on_meta, blueprint.inputs))
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
    """Every schedule at all whole epochs and as many points between them as a smooth curve needs."""
    parts = -(-POINTS // blueprint.epochs)
    epochs = [number / parts for number in range(blueprint.epochs * parts + 1)]
    # Rounded, so that what ends at zero does.
    return {name: [(at, round(float(value(at)), 12)) for at in epochs] for name, value in blueprint.schedule.items()}


@dataclass(eq=False)
class _Call:
    """One forward of a module."""

    name: str
    module: nn.Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    around: tuple["_Call", ...]
    """The calls inside which it ran, the network's own first."""
    source: "_Call | None"
    """The layer that its input comes from."""
    given: object = None
    leaf: bool = True
    sums: list[tuple["_Call | None", "_Call | None"]] = field(default_factory=list)
    """Of two tensors that it added itself, the layers that they come from."""

    @property
    def block(self) -> "_Call | None":
        """The outermost call around it that adds branches; the whole network is no block."""
        return next((call for call in self.around[1:] if call.sums), None)


class _Trace(TorchFunctionMode):
    """Follows a forward pass: which modules ran, where each tensor comes from, and where two branches are added."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._open: list[_Call] = []
        self._sources: dict[int, tuple[torch.Tensor, _Call | None]] = {}
        """By id, with the tensor, so that no other one gets that id."""

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
        source = next((self._source(tensor) for tensor in _tensors((args, kwargs))), None)
        call = _Call(name, module, args, kwargs, tuple(self._open), source)
        if self._open:
            self._open[-1].leaf = False
        self._open.append(call)
        self.calls.append(call)

    def end(self, given: object) -> None:
        call = self._open.pop()
        call.given = given
        if call.leaf:
            self._sources |= {id(tensor): (tensor, call) for tensor in _tensors(given)}


def _traced(network: nn.Module, inputs: tuple[object, ...]) -> list[_Call]:
    """The forwards of all its modules, in order."""
    trace, hooks = _Trace(), []
    for name, module in network.named_modules():

        def begin(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], name: str = name) -> None:
            trace.begin(name, module, args, kwargs)

        def end(module: nn.Module, args: object, given: object) -> None:
            trace.end(given)

        hooks += [module.register_forward_pre_hook(begin, with_kwargs=True), module.register_forward_hook(end)]
    with trace:
        network(*inputs)
    for hook in hooks:
        hook.remove()
    return trace.calls


def _layers(
    network: nn.Module, inputs: tuple[object, ...], weights: Mapping[str, int], blueprint: Blueprint
) -> Iterator[Message]:
    """Each module that calls no other, in the order in which they run; what runs twice has its weights once."""
    calls = _traced(network, inputs)
    beside = {id(layer) for call in calls for layer in _shortcut(call)}
    seen = set[str]()
    for call in calls:
        if not call.leaf:
            continue
        own = [name for name in weights if name.startswith(f"{call.name}." if call.name else "")]
        block = call.block
        yield {
            "name": call.name or "network",
            "kind": _kind(call.module),
            "shape": _shape(call.given, blueprint),
            "weights": sum(weights[name] for name in own if name not in seen),
            "flops": _flops(partial(_again, call)) / blueprint.samples,
            "block": block.name if block else "",
            "shortcut": id(call) in beside,
        }
        seen.update(own)


def _shortcut(block: _Call) -> list[_Call]:
    """The layers that only the shorter of two added branches goes through; none where that one is the identity."""
    found: list[_Call] = []
    for branches in block.sums:
        one, other = (_way(branch, block) for branch in branches)
        alone, beside = [each for each in one if each not in other], [each for each in other if each not in one]
        found += alone if len(alone) < len(beside) else beside
    return found


def _way(call: _Call | None, block: _Call) -> list[_Call]:
    """The layers inside `block` that led to this one, itself included."""
    found = []
    while call is not None and block in call.around:
        found.append(call)
        call = call.source
    return found


def _again(call: _Call) -> object:
    """Its forward once more, with inputs of its own."""

    def fresh(value: object) -> object:
        # A copy, because some layers write into their input, which autograd forbids for a leaf.
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().requires_grad_(value.requires_grad).clone()

    return call.module(*map(fresh, call.args), **{name: fresh(value) for name, value in call.kwargs.items()})


def _flops(forward: Callable[[], object]) -> int:
    """FLOPs of this and of its backward pass, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        losses = [tensor.sum() for tensor in _tensors(forward()) if tensor.requires_grad]
        torch.autograd.backward(losses)
    return int(counter.get_total_flops())


def _on_meta(value: object) -> object:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _shape(value: object, blueprint: Blueprint) -> list[int]:
    """Of the first tensor in it, without the batch."""
    shape = list(next((tensor.shape for tensor in _tensors(value)), ()))
    return [size for at, size in enumerate(shape) if at != blueprint.batch_dimension]


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _kind(module: nn.Module) -> str:
    """What a layer is, in a word or two; of a class that is not torch's own its name."""
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
