"""How processes sum tensors: by the backend's own all-reduce or in three steps over groups; also DDP's gradients so."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from gpubench.errors import UserError
from gpubench.suite.trial import Trial

Sum = Callable[[torch.Tensor], None]
"""Sums a tensor over all processes, in place. Every process has to call it."""


def flat(tensor: torch.Tensor) -> None:
    """The sum by the backend's own all-reduce."""
    dist.all_reduce(tensor)


def hierarchical(trial: Trial, group: int) -> Sum:
    """Reduce inside each group of `group` neighbours, all-reduce between their first, broadcast back.

    The three phases of Jia and others 2018 (arXiv 1807.11205). 0 makes a group of each machine. Every process has to
    call this at the same time; raises UserError where groups of that size do not go into all processes.
    """
    world, rank = trial.case.processes, trial.rank
    group = group_size(trial, group)
    first = rank // group * group
    inside: Any = None
    for start in range(0, world, group):  # every process has to take part in making each group
        made = dist.new_group(list(range(start, start + group)))
        inside = made if start == first else inside
    between: Any = dist.new_group(list(range(0, world, group)))

    def sum_one(tensor: torch.Tensor) -> None:
        dist.reduce(tensor, dst=first, group=inside)
        if rank == first:
            dist.all_reduce(tensor, group=between)
        dist.broadcast(tensor, src=first, group=inside)

    return sum_one


def group_size(trial: Trial, group: int) -> int:
    """Processes in a group: those of a machine where `group` is 0."""
    world = trial.case.processes
    size = group or world // trial.case.nodes
    if world % size:
        raise UserError(f"--set group={group}: {world} processes are no multiple of it")
    return size


def send_gradients(model: torch.nn.Module, trial: Trial, way: str, group: int, dtype: torch.dtype) -> None:
    """Have DDP send its gradients as `dtype` and sum them `flat`, or `hierarchical` over groups of `group`.

    Gradients of as few bits stay as they are; without DDP nothing is sent. A flat sum runs beside the backward pass.
    One over groups does not: its three parts have to follow each other, in one order everywhere.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    narrow = dtype.itemsize < max(weight.dtype.itemsize for weight in model.parameters())
    if way == "hierarchical":
        sum_one, world = hierarchical(trial, group), trial.case.processes

        def average(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            gradients = bucket.buffer().div_(world)  # before it is narrowed, so that it does not overflow
            sent = gradients.to(dtype) if narrow else gradients
            sum_one(sent)
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(gradients.copy_(sent) if narrow else sent)
            return done

        model.register_comm_hook(None, average)
    elif narrow:
        model.register_comm_hook(None, fp16_compress_hook)
