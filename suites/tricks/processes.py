"""The other training processes: started, told what to do next, and ended."""

import multiprocessing
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from gpubench import Trial
from gpubench.errors import Unsupported
from gpubench.training.process_group import leave, loopback_store, stay_on_loopback

from .recipe import ranks_of

PATIENCE_SECONDS = 120
"""How long a process waits for the others before it says that they are lost."""
LOST = "lost"
"""Key in the store under which a process that fails says why."""
LEAVING_SECONDS = 30.0
"""Whoever has not ended so long after the training is killed."""
TRAIN, VALID, TEST, STEP, SUM, AGAIN, DONE = range(7)
"""What the first process tells the others: begin a pass over a loader, take a step of it, add up, train on the
last batch again, end."""


def say(word: int) -> int:
    """Send `word` from the first process to all; returns what was sent."""
    sent = torch.tensor([word])
    dist.broadcast(sent, 0)
    return int(sent.item())


def share_cores(ranks: int) -> None:
    """Give every process its share of the threads that one would use."""
    torch.set_num_threads(max(1, torch.get_num_threads() // ranks))


def join(store: dist.TCPStore, rank: int, ranks: int, device: torch.device) -> None:
    """Join the process group: Gloo on a CPU; on NVIDIA's cards NCCL, with Gloo for what lies in the host's memory."""
    # Lightning finds a group that is there already, and takes these for who is who in it.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    os.environ |= {
        "TORCHELASTIC_RUN_ID": secrets.token_hex(16),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
    }
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE_SECONDS),
    )


def torch_device_type(device: str) -> str:
    """`cuda` of `cuda:0`."""
    return device.partition(":")[0]


@contextmanager
def other_processes(trial: Trial, other: Callable[[Trial, int, int], None]) -> Iterator[dist.TCPStore | None]:
    """Start the other training processes, each with `other(trial, rank, port)`, and end them.

    Yields the store where all meet, or None.
    """
    ranks, kind = ranks_of(trial.case.params), torch_device_type(trial.case.device)
    if ranks == 1:
        yield None
        return
    there = torch.cuda.device_count() - (torch.device(trial.case.device).index or 0)
    if kind not in {"cpu", "cuda"}:
        raise Unsupported(f"{kind} has no process group for several devices")
    if kind == "cuda" and there < ranks:
        raise Unsupported(f"{ranks} processes need {ranks} devices; torch sees {there} from {trial.case.device} on")
    share_cores(ranks)
    stay_on_loopback()
    store = loopback_store(PATIENCE_SECONDS)
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=other, args=(trial, rank, store.port)) for rank in range(1, ranks)]
    try:
        for process in others:
            process.start()
        yield store
        leave()  # with the others: NCCL waits for all that are left
        for process in others:
            process.join(LEAVING_SECONDS)
    except Exception as error:
        if store.check([LOST]):  # this one only noticed that it is gone
            raise RuntimeError(store.get(LOST).decode()) from error
        raise
    finally:
        for process in others:
            process.kill()
        if dist.is_initialized() and kind == "cpu":  # NCCL would wait for those that are gone
            dist.destroy_process_group()
