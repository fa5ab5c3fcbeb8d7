"""What DDP sends and how it is summed: the average gradient of four processes, in either way and width."""

import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from gpubench.suites.scaling.training import Algorithm, Payload, wrong_sums
from torch.nn.parallel import DistributedDataParallel

from gpubench.training import all_reduce, flat, hierarchical, send_gradients

WAYS = [(way, dtype) for way in ("flat", "hierarchical", "hybrid") for dtype in (torch.float32, torch.float16)]
BETWEEN = 30 * 30 * 2 + 100
"""Bytes between the gradients in fp16, which `hybrid` sums in groups, and in fp32."""


def train(rank, folder):
    """Saves this process's gradient by way and width after one backward pass, and how many sums were wrong."""
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=4)
    trial = SimpleNamespace(rank=rank, case=SimpleNamespace(processes=4, nodes=1, device="cpu"))
    found = {}
    for way, dtype in WAYS:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(30, 30))
        send_gradients(model, trial, way, 2, dtype, BETWEEN)
        model(torch.randn(8, 30, generator=torch.Generator().manual_seed(rank))).square().mean().backward()
        found[way, str(dtype)] = model.module.weight.grad
    algorithms = (Algorithm("flat", 0, flat), Algorithm("hierarchical", 0, hierarchical(trial, 2)))
    payload, cpu = Payload("9 B", (9,)), torch.device("cpu")
    wrong = [wrong_sums(algorithm, payload, torch.float16, cpu, trial) for algorithm in algorithms]
    torch.save((found, wrong), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.e2e
def test_every_way_sends_the_same_average_and_exact_sums_in_two_groups_of_two(tmp_path):
    # Forks of a process that imports once what takes them seconds each.
    torch.multiprocessing.set_forkserver_preload(["gpubench.suites.scaling.training"])
    torch.multiprocessing.start_processes(train, (tmp_path,), 4, start_method="forkserver")
    (first, wrong), *others = (torch.load(tmp_path / f"{rank}.pt") for rank in range(4))
    assert wrong == [0, 0]
    whole = first["flat", "torch.float32"]
    for way, dtype in first:
        assert all(torch.equal(first[way, dtype], found[way, dtype]) for found, _ in others)
        exact = dtype == "torch.float32"
        assert torch.allclose(first[way, dtype], whole, rtol=1e-6, atol=1e-8) == exact
        assert torch.allclose(first[way, dtype], whole, rtol=2e-3, atol=1e-5)


def test_sums_in_steps_run_beside_the_backward_pass(monkeypatch):
    """The sum of the last layer's gradients waits for the first layer's, which come later."""
    backward_went_on, seen = threading.Event(), []

    def waiting(trial, group):
        return lambda tensor: seen.append(backward_went_on.wait(60))

    monkeypatch.setattr(all_reduce, "hierarchical", waiting)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        layers = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        model = DistributedDataParallel(layers, bucket_cap_mb=1e-5)
        trial = SimpleNamespace(rank=0, case=SimpleNamespace(processes=1, nodes=1, device="cpu"))
        send_gradients(model, trial, "hierarchical", 1, torch.float32)
        layers[0].weight.register_post_accumulate_grad_hook(lambda weight: backward_went_on.set())
        for _ in range(2):  # in the first pass DDP has a single bucket
            backward_went_on.clear()
            model(torch.ones(1, 4)).sum().backward()
    finally:
        dist.destroy_process_group()
    assert seen == [True] * 3


def test_hybrid_chooses_by_size_and_one_process_needs_no_group(monkeypatch):
    send_gradients(torch.nn.Linear(2, 2), SimpleNamespace(), "hierarchical", 0, torch.float16)
    summed = []
    monkeypatch.setattr(all_reduce, "hierarchical", lambda trial, group: lambda tensor: summed.append("hierarchical"))
    monkeypatch.setattr(all_reduce, "flat", lambda tensor: summed.append("flat"))
    sum_one = all_reduce.hybrid(None, 2, 1024)
    for count in (256, 257):
        sum_one(torch.zeros(count))
    assert summed == ["hierarchical", "flat"]
