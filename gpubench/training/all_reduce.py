"""Sums tensors and DDP's gradients over processes: by the backend's all-reduce, or in three steps over groups."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from gpubench.errors import UserError
from gpubench.suite.trial import Trial

Future = torch.futures.Future[torch.Tensor]
Sum = Callable[[torch.Tensor], None]
"""Sums a tensor over all processes, in place. Every process must call it."""


def flat(tensor: torch.Tensor) -> None:
    """Sum a tensor with the backend's all-reduce, in place."""
    dist.all_reduce(tensor)


def hierarchical(trial: Trial, group: int) -> Sum:
    """Return a sum in three steps: reduce inside groups, all-reduce between their first processes, broadcast back.

    The method of Jia and others 2018 (arXiv 1807.11205). `group` is the number of processes in a group; 0 means one
    group per machine. Every process must call this at the same time. Raises UserError if `group` does not divide the
    number of processes.
    """
    world, rank = trial.case.processes, trial.rank
    group = group_size(trial, group)
    first = rank // group * group
    inside: Any = None
    for start in range(0, world, group):  # every process must take part in creating every group
        made = dist.new_group(list(range(start, start + group)))
        inside = made if start == first else inside
    between: Any = dist.new_group(list(range(0, world, group)))

    def sum_one(tensor: torch.Tensor) -> None:
        dist.reduce(tensor, dst=first, group=inside)
        if rank == first:
            dist.all_reduce(tensor, group=between)
        dist.broadcast(tensor, src=first, group=inside)

    return sum_one


def hybrid(trial: Trial, group: int, most_bytes: int) -> Sum:
    """Return a sum that is hierarchical for tensors of at most `most_bytes`, and flat for larger ones."""
    in_steps = hierarchical(trial, group)
    return lambda tensor: in_steps(tensor) if tensor.nbytes <= most_bytes else flat(tensor)


def group_size(trial: Trial, group: int) -> int:
    """Return the number of processes in a group (`group` 0: in a machine); raises UserError as `hierarchical` does."""
    world = trial.case.processes
    size = group or world // trial.case.nodes
    if world % size:
        raise UserError(f"--set group={group}: {world} processes are no multiple of it")
    return size


def _starter(device: torch.device) -> Callable[[torch.Tensor, Callable[[], torch.Tensor]], Future]:
    """Return a function that starts work on a tensor beside the backward pass, and returns the future of its result.

    On CUDA all work runs in one extra stream, on a CPU in one thread. So it stays in the order of DDP's buckets, which
    is the same in all processes. On other devices the backward pass waits for it.
    """
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    thread = ThreadPoolExecutor(1) if device.type == "cpu" else None

    def finish(done: Future, work: Callable[[], torch.Tensor]) -> None:
        try:
            done.set_result(work())
        except Exception as error:  # the backward pass raises a RuntimeError with its text
            done.set_exception(error)  # type: ignore[arg-type]

    def start(tensor: torch.Tensor, work: Callable[[], torch.Tensor]) -> Future:
        done: Future = torch.futures.Future(devices=[device] if stream else None)
        if thread:
            thread.submit(finish, done, work)
        elif stream:
            stream.wait_stream(torch.cuda.current_stream(device))
            tensor.record_stream(stream)
            with torch.cuda.stream(stream):
                done.set_result(work())
        else:
            done.set_result(work())
        return done

    return start


def send_gradients(
    model: torch.nn.Module, trial: Trial, way: str, group: int, dtype: torch.dtype, hybrid_bytes: int = 0
) -> None:
    """Make DDP send its gradients as `dtype`, and sum them in this `way`: `flat`, `hierarchical` or `hybrid`.

    `hierarchical` sums over groups of `group` processes. `hybrid` does so for buckets that are sent as `hybrid_bytes`
    or less, and is flat for larger ones. Gradients that are no wider than `dtype` are sent unchanged. On CPUs and CUDA
    all sums overlap with the backward pass. `dtype` must be float16 or as wide as the weights. Without DDP: no effect.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    narrow = dtype.itemsize < max(weight.dtype.itemsize for weight in model.parameters())
    if way != "flat":
        sum_one = hierarchical(trial, group) if way == "hierarchical" else hybrid(trial, group, hybrid_bytes)
        world, start = trial.case.processes, _starter(torch.device(trial.case.device))

        def average(state: object, bucket: dist.GradBucket) -> Future:
            gradients = bucket.buffer().div_(world)  # before the cast, so that it does not overflow
            sent = gradients.to(dtype) if narrow else gradients

            def work() -> torch.Tensor:
                sum_one(sent)
                return gradients.copy_(sent) if narrow else sent

            return start(sent, work)

        model.register_comm_hook(None, average)
    elif narrow:
        model.register_comm_hook(None, fp16_compress_hook)
