"""Sums of tensors over all processes, checked and timed; and networks that train on random images with LARS."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.training import (
    Lars,
    Stepper,
    Sum,
    distributed,
    flat,
    group_size,
    hierarchical,
    imagenet_network,
    layout,
    mode_of,
    quiet,
    send_gradients,
    synchronize,
)

from . import CLASSES, NETWORKS

BUNDLES, BUNDLE_SECONDS = 6, 0.1
"""Calls are timed in BUNDLES bundles of about BUNDLE_SECONDS: launches and waits take a small part of a bundle."""
LEAST_CALLS = {"cpu": 8, "cuda": 20}
"""Fewest timed calls of a payload."""
MOST_CALLS = 10_000
"""Most calls in one bundle: the smallest messages take microseconds."""
POOL = 4
"""Number of different batches; the time of a step does not depend on the images."""


@dataclass(frozen=True)
class Payload:
    """Tensors to sum over all processes, as their numbers of elements."""

    name: str
    elements: tuple[int, ...]


def payloads_of(smallest: int, largest: int, width: int, gradients: bool) -> list[Payload]:
    """Return messages of `smallest` to `largest` bytes, each 4 times the one before, then both networks' gradients.

    Gradients are in the order of a backward pass: the last layer's first.
    """
    payloads, size = [], smallest
    while size <= largest:
        payloads.append(Payload(f"{size} B", (size // width,)))
        size *= 4
    if gradients:
        for name in NETWORKS:
            weights = reversed(list(imagenet_network(name).parameters()))
            payloads.append(Payload(name, tuple(weight.numel() for weight in weights)))
    return payloads


@dataclass(frozen=True)
class Algorithm:
    """A way to sum tensors in place over all processes. `fusion_bytes`: largest bucket; 0: one tensor at a time."""

    name: str
    fusion_bytes: int
    sum_one: Sum

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sum the tensors."""
        if not self.fusion_bytes:
            for tensor in tensors:
                self.sum_one(tensor)
            return
        for bucket in buckets_of(tensors, self.fusion_bytes):
            together = torch.cat(bucket)
            self.sum_one(together)
            for tensor, part in zip(bucket, together.split([len(tensor) for tensor in bucket]), strict=True):
                tensor.copy_(part)


def buckets_of(tensors: Sequence[torch.Tensor], fusion_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Yield neighbouring tensors of at most `fusion_bytes` together; a larger tensor alone."""
    bucket: list[torch.Tensor] = []
    for tensor in tensors:
        if bucket and sum(part.nbytes for part in bucket) + tensor.nbytes > fusion_bytes:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def algorithms_of(trial: Trial) -> list[Algorithm]:
    """Return `flat`, and `hierarchical` if a group has several processes, but not all; each also with fusion."""
    params = trial.params
    ways: list[tuple[str, Sum]] = [("flat", flat)]
    if 1 < group_size(trial, params.group) < trial.case.processes:
        ways.append(("hierarchical", hierarchical(trial, params.group)))
    return [Algorithm(name, fused, way) for name, way in ways for fused in (0, params.fusion_mib << 20)]


def wrong_sums(algorithm: Algorithm, payload: Payload, dtype: torch.dtype, device: torch.device, trial: Trial) -> int:
    """Return the number of wrong elements of sums of a test pattern: whole numbers up to 201, which bf16 has."""
    world = trial.case.processes
    cycle = [0, 1, 2] + [0, 0, 0] * (world // 200)  # element i of process r is the one at i + r
    by_rank = [cycle[rank % len(cycle) :] + cycle[: rank % len(cycle)] for rank in range(world)]
    exact = [sum(values) for values in zip(*by_rank, strict=True)]

    def pattern(count: int, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device).repeat(-(-count // len(values)))[:count].clone()

    tensors = [pattern(count, by_rank[trial.rank]) for count in payload.elements]
    algorithm.sum(tensors)
    wrong = sum(
        int((tensor != pattern(count, exact)).sum()) for tensor, count in zip(tensors, payload.elements, strict=True)
    )
    everywhere = torch.tensor([wrong], device=device)
    dist.all_reduce(everywhere)
    return int(everywhere)


def seconds_of_a_call(algorithm: Algorithm, tensors: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the approximate seconds of a call, the same in every process."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(3):
        algorithm.sum(tensors)
    synchronize(device)
    slowest = torch.tensor([(time.perf_counter() - began) / 3], device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def calls_in_a_bundle(call_seconds: float, kind: str) -> int:
    """Return the number of calls in a bundle. The bundles after the warm-up have at least LEAST_CALLS together."""
    least = -(-LEAST_CALLS.get(kind, LEAST_CALLS["cuda"]) // (BUNDLES - 1))
    return max(least, min(MOST_CALLS, math.ceil(BUNDLE_SECONDS / max(call_seconds, 1e-9))))


def prove(trial: Trial, clock: Clock) -> None:
    """Train a linear layer in the precision, so that its operands prove the precision."""
    mode, device = mode_of(trial.case.precision, trial.case.device), torch.device(trial.case.device)
    model = distributed(torch.nn.Linear(256, 256).to(device), trial)
    batch = torch.randn(trial.batch_size, 256, device=device)

    def step(x: torch.Tensor) -> None:
        model.zero_grad()
        with quiet(model, clock.together):
            with mode.autocast():
                loss = model(x).float().square().mean()
            loss.backward()

    for x in clock.steps([batch] * 64, "train"):
        step(x)
    for x in clock.resident():
        step(x)


def measure_allreduce(trial: Trial, clock: Clock) -> None:
    """Time each payload with each algorithm: each pair is a phase of the clock and a line of the table."""
    params, device = trial.params, torch.device(trial.case.device)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(trial.case.precision, torch.float32)
    algorithms = algorithms_of(trial)
    # Bytes that each process sends for one byte of all-reduce (nccl-tests, PERFORMANCE.md).
    sent_share = 2 * (trial.case.processes - 1) / trial.case.processes
    for _ in clock.epochs(1):
        for payload in payloads_of(params.smallest, params.largest, dtype.itemsize, params.gradients):
            size = sum(payload.elements) * dtype.itemsize
            for algorithm in algorithms:
                if algorithm.fusion_bytes and len(payload.elements) == 1:
                    continue  # a single tensor cannot be fused
                wrong = wrong_sums(algorithm, payload, dtype, device, trial)
                if wrong:
                    raise RuntimeError(f"{algorithm.name}: {wrong} of {payload.name}'s sums are not exact")
                # Zeros, because repeated sums of other values would overflow.
                tensors = [torch.zeros(count, dtype=dtype, device=device) for count in payload.elements]
                calls = calls_in_a_bundle(seconds_of_a_call(algorithm, tensors, device), device.type)
                repeats = [tensors] * BUNDLES
                fused = " fused" if algorithm.fusion_bytes else ""
                phase = f"{algorithm.name}{fused} {payload.name}"
                for step in clock.steps(repeats, phase, len(repeats), count=lambda _: int(trial.rank == 0)):
                    for _ in range(calls):
                        algorithm.sum(step)
                seconds = clock.step_seconds(phase) / calls
                clock.table.append(
                    {
                        "algorithm": algorithm.name,
                        "fusion_bytes": algorithm.fusion_bytes,
                        "what": payload.name if len(payload.elements) > 1 else "message",
                        "tensors": len(payload.elements),
                        "bytes": size,
                        "type": str(dtype).removeprefix("torch."),
                        "seconds": seconds,
                        "algbw": size / seconds / 1e9,
                        "busbw": size / seconds / 1e9 * sent_share,
                        "wrong": wrong,
                    }
                )
        prove(trial, clock)


class Images:
    """The steps of an epoch: each takes `accumulate` batches, in turn from POOL batches of random images."""

    def __init__(self, trial: Trial, device: torch.device, layout: torch.memory_format) -> None:
        size, batch, self.parts = trial.params.image_size, trial.batch_size, trial.params.accumulate
        self.images_a_step: int = batch * self.parts
        generator = torch.Generator(device).manual_seed(trial.seed + trial.rank)
        self.pool = [
            (
                torch.randn(batch, 3, size, size, device=device, generator=generator).contiguous(memory_format=layout),
                torch.randint(0, CLASSES, (batch,), device=device, generator=generator),
            )
            for _ in range(POOL)
        ]
        # Only whole steps; the clock scales the time up to all images.
        self.steps: int = max(1, trial.params.train_images // (self.images_a_step * trial.case.processes))

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
        for step in range(self.steps):
            first = step * self.parts
            yield [self.pool[number % POOL] for number in range(first, first + self.parts)]


def train_network(trial: Trial, clock: Clock) -> None:
    """Train for all epochs; a step takes `accumulate` batches before processes communicate."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    network = imagenet_network(trial.case.model).to(device).to(memory_format=layout(trial.case))
    model = distributed(network, trial, bucket_cap_mb=params.bucket_mib)
    sent = torch.float16 if params.gradients_as == "fp16" else torch.float32
    send_gradients(model, trial, params.all_reduce, params.group, sent, params.hybrid_kib << 10)
    gradients = sum(weight.numel() * sent.itemsize for weight in network.parameters())
    clock.table.append(
        {
            "gradient_bytes": gradients,
            "gradient_type": str(sent).removeprefix("torch."),
            "images_a_step": trial.batch_size * params.accumulate,
        }
    )
    optimizer = Lars(network.parameters(), params.lr, momentum=0.9, decay=5e-5)
    stepper = Stepper(mode, network, optimizer, clock, loss_scale=params.loss_scale)

    def step(parts: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for number, (images, labels) in enumerate(parts, start=1):
            with quiet(model, clock.together and number == len(parts)):
                with mode.autocast():
                    loss = cross_entropy(model(images).float(), labels) / len(parts)
                stepper.backward(loss)
        stepper.step()

    model.train()
    loader = Images(trial, device, layout(trial.case))
    for _ in clock.epochs(params.epochs):
        for parts in clock.steps(loader, "train", params.train_images, count=lambda _: loader.images_a_step):
            step(parts)
    for parts in clock.resident():
        step(parts)


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, and the constant learning rate."""
    params, size = trial.params, trial.params.image_size
    if trial.case.model not in NETWORKS:
        raise UserError(f"{trial.case.model} trains no network; {' and '.join(NETWORKS)} do")
    return Blueprint(
        network=imagenet_network(trial.case.model),
        inputs=(torch.zeros(2, 3, size, size),),
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr},
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the trial's model; there is no accuracy to return."""
    if trial.case.model == "allreduce":
        measure_allreduce(trial, clock)
    else:
        train_network(trial, clock)
    return {}
