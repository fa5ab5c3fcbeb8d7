"""Tools for suites to train with: clock, precision, optimizer step, device, process group, fastai callbacks.

Suites import the names below from here (a public API, docs/adding-a-suite.md), and callbacks from fastai.py.
The modules here import suite, data and hardware. The package imports no torch until one of the names is first used.
The worker makes the clock, and sets up device, precision and processes.
"""

# ruff: noqa: F401
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpubench.training.all_reduce import Sum, flat, group_size, hierarchical, send_gradients
    from gpubench.training.clock.clock import Clock, Notes
    from gpubench.training.device import event_of, synchronize
    from gpubench.training.lars import Lars
    from gpubench.training.memory_layout import layout, memory_format
    from gpubench.training.networks import imagenet_network
    from gpubench.training.precision import Mode, mode_of
    from gpubench.training.process_group import distributed, quiet, weighted_mean
    from gpubench.training.sharding import Shard, shards
    from gpubench.training.stepper import Stepper, Tally, dtypes_of

_HOMES = {
    "all_reduce": ("Sum", "flat", "group_size", "hierarchical", "send_gradients"),
    "clock.clock": ("Clock", "Notes"),
    "device": ("event_of", "synchronize"),
    "lars": ("Lars",),
    "memory_layout": ("layout", "memory_format"),
    "networks": ("imagenet_network",),
    "precision": ("Mode", "mode_of"),
    "process_group": ("distributed", "quiet", "weighted_mean"),
    "sharding": ("Shard", "shards"),
    "stepper": ("Stepper", "Tally", "dtypes_of"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"gpubench.training has no {name!r}; it has {', '.join(sorted(_HOME_OF))}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
