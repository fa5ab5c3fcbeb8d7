"""Many processes: all-reduce, ResNet-50 and AlexNet-BN.

After "Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four Minutes" (Jia and
others 2018, arXiv 1807.11205). There a cluster's speed is T = S x N x e: S of one process, N processes, and the share
e of it that each keeps. `gpubench compare` works out S, T(N) and e(N) from rows of several N.

`allreduce` times single messages and the gradients of both networks, tensor by tensor and fused. It does so with the
backend's own algorithm (`flat`) and in three steps (`hierarchical`). Those are: reduce inside a group, all-reduce
between the groups' first processes, broadcast back. Every sum is compared with the exact one before it is timed. The
columns of `table` are those of nccl-tests. A linear layer that trains meanwhile proves the precision; the row's
`samples_per_second` counts its samples.

`resnet50` and `alexnet-bn` train on made-up images on the device, as many and as large as ImageNet's. So neither disk
nor decoder hides what communication costs. Forward and backward are in the precision, weights in fp32. The optimizer is
LARS, without weight decay on biases and BatchNorm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import torch

    from gpubench import Case, Clock, Trial

CLASSES = 1000
IMAGES = 1_281_167
"""Training images of ImageNet."""
POOL = 4
"""Different batches that lie ready; what a network computes does not depend on the image."""
BUNDLES, BUNDLE_SECONDS = 6, 0.1
"""Calls are timed in bundles of about this length, so that launching and waiting for each other is a small part."""
LEAST_CALLS = {"cpu": 8, "cuda": 20}
"""Timed calls of a payload, however long they take."""
MOST_CALLS = 10_000
"""In one bundle: the smallest messages take microseconds."""


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the trial's model; it has no accuracy to return."""
    if trial.case.model == "allreduce":
        measure_allreduce(trial, clock)
    else:
        train_network(trial, clock)
    return {}


# All-reduce


@dataclass(frozen=True)
class Payload:
    """What is summed over all processes: tensors of these many elements."""

    name: str
    elements: tuple[int, ...]


@dataclass(frozen=True)
class Algorithm:
    """A way to sum tensors in place over all processes; with `fusion_bytes` in buckets of about that size."""

    name: str
    fusion_bytes: int
    sum_one: Callable[[torch.Tensor], None]

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sum each of them."""
        import torch

        if not self.fusion_bytes:
            for tensor in tensors:
                self.sum_one(tensor)
            return
        for bucket in buckets_of(tensors, self.fusion_bytes):
            together = torch.cat(bucket)
            self.sum_one(together)
            for tensor, part in zip(bucket, together.split([len(each) for each in bucket]), strict=True):
                tensor.copy_(part)


def measure_allreduce(trial: Trial, clock: Clock) -> None:
    """A phase for each payload and algorithm, and a row of the table for each."""
    import torch

    params, device = trial.params, torch.device(trial.case.device)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(trial.case.precision, torch.float32)
    algorithms = algorithms_of(trial)
    for _ in clock.epochs(1):
        for payload in payloads_of(params.smallest, params.largest, dtype.itemsize, params.gradients):
            size = sum(payload.elements) * dtype.itemsize
            for algorithm in algorithms:
                if algorithm.fusion_bytes and len(payload.elements) == 1:
                    continue  # one tensor is fused already
                wrong = wrong_sums(algorithm, payload, dtype, device, trial)
                if wrong:
                    raise RuntimeError(f"{algorithm.name}: {wrong} of {payload.name}'s sums are not exact")
                # Zeros stay what they are, however often they are summed.
                tensors = [torch.zeros(count, dtype=dtype, device=device) for count in payload.elements]
                calls = calls_in_a_bundle(seconds_of_a_call(algorithm, tensors, device), device.type)
                repeats = [tensors] * BUNDLES
                fused = " fused" if algorithm.fusion_bytes else ""
                phase = f"{algorithm.name}{fused} {payload.name}"
                for each in clock.steps(repeats, phase, len(repeats), count=lambda _: int(trial.rank == 0)):
                    for _ in range(calls):
                        algorithm.sum(each)
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
                        "busbw": size / seconds / 1e9 * bus_share(trial.case.processes),
                        "wrong": wrong,
                    }
                )
        prove(trial, clock)


def calls_in_a_bundle(call_seconds: float, kind: str) -> int:
    """So many that a bundle has its length, and all but the first, which warms up, have the least number of calls."""
    least = -(-LEAST_CALLS.get(kind, LEAST_CALLS["cuda"]) // (BUNDLES - 1))
    return max(least, min(MOST_CALLS, math.ceil(BUNDLE_SECONDS / max(call_seconds, 1e-9))))


def seconds_of_a_call(algorithm: Algorithm, tensors: Sequence[torch.Tensor], device: torch.device) -> float:
    """About what a call takes, the same number in every process."""
    import torch

    from gpubench.training import synchronize

    synchronize(device)
    began = time.perf_counter()
    for _ in range(3):
        algorithm.sum(tensors)
    synchronize(device)
    slowest = torch.tensor([(time.perf_counter() - began) / 3], device=device)
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    return float(slowest)


def bus_share(processes: int) -> float:
    """Bytes that each process must send for one byte of all-reduce (nccl-tests, PERFORMANCE.md)."""
    return 2 * (processes - 1) / processes


def algorithms_of(trial: Trial) -> list[Algorithm]:
    """`flat` always; `hierarchical` where groups are neither single processes nor everyone."""
    import torch.distributed as dist

    def flat(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    world, fusion = trial.case.processes, trial.params.fusion_mib << 20
    ways: list[tuple[str, Callable[[torch.Tensor], None]]] = [("flat", flat)]
    group = trial.params.group or world // trial.case.nodes
    if world % group:
        raise ValueError(f"--set group={group}: {world} processes are no multiple of it")
    if 1 < group < world:
        ways.append(("hierarchical", hierarchical(world, group, trial.rank)))
    return [Algorithm(name, fused, way) for name, way in ways for fused in (0, fusion)]


def hierarchical(world: int, group: int, rank: int) -> Callable[[torch.Tensor], None]:
    """Reduce inside each group of neighbours, all-reduce between their first, broadcast back."""
    import torch.distributed as dist

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


def buckets_of(tensors: Sequence[torch.Tensor], fusion_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Neighbours together until they reach `fusion_bytes`; a larger tensor is a bucket of its own."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        more = tensor.numel() * tensor.element_size()
        if bucket and size + more > fusion_bytes:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += more
    if bucket:
        yield bucket


def wrong_sums(algorithm: Algorithm, payload: Payload, dtype: Any, device: Any, trial: Trial) -> int:
    """Elements that differ from the exact sum: element i of process r is (i + r) % 3, whose sums fp16 holds."""
    import torch

    world = trial.case.processes
    exact = [sum((index + rank) % 3 for rank in range(world)) for index in range(3)]

    def pattern(count: int, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device).repeat(-(-count // 3))[:count].clone()

    tensors = [pattern(count, [(index + trial.rank) % 3 for index in range(3)]) for count in payload.elements]
    algorithm.sum(tensors)
    wrong = sum(
        int((tensor != pattern(count, exact)).sum()) for tensor, count in zip(tensors, payload.elements, strict=True)
    )
    everywhere = torch.tensor([wrong], device=device)
    torch.distributed.all_reduce(everywhere)
    return int(everywhere)


def payloads_of(smallest: int, largest: int, width: int, gradients: bool) -> list[Payload]:
    """Messages of `smallest` bytes and every fourfold up to `largest`, then both networks' gradients.

    Gradients come in the order in which a backward pass makes them: the last layer's first.
    """
    found, size = [], smallest
    while size <= largest:
        found.append(Payload(f"{size} B", (size // width,)))
        size *= 4
    if gradients:
        for name, make in NETWORKS.items():
            found.append(Payload(name, tuple(weight.numel() for weight in reversed(list(make().parameters())))))
    return found


def prove(trial: Trial, clock: Clock) -> None:
    """Train a linear layer in the precision, so that the dtypes of its operands can be seen."""
    import torch

    from gpubench.training import distributed, mode_of, quiet

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


# Networks


def train_network(trial: Trial, clock: Clock) -> None:
    """Epochs of ImageNet's size; each step takes `accumulate` batches before processes communicate."""
    import torch
    from torch.nn.functional import cross_entropy

    from gpubench.training import Lars, LossScale, Notes, distributed, layout, mode_of, quiet

    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    network = NETWORKS[trial.case.model]().to(device).to(memory_format=layout(trial.case))
    model = distributed(network, trial, bucket_cap_mb=params.bucket_mib)
    sent = compress(model, params.gradients_as)
    gradients = sum(weight.numel() * sent.itemsize for weight in network.parameters())
    clock.table.append(
        {
            "gradient_bytes": gradients,
            "gradient_type": str(sent).removeprefix("torch."),
            "images_a_step": trial.batch_size * params.accumulate,
        }
    )
    optimizer = Lars(network.parameters(), params.lr, momentum=0.9, decay=5e-5)
    scale = LossScale(mode, params.loss_scale)
    clock.note(lambda: Notes(loss_scale=scale.value, skipped_steps=scale.skipped))

    def step(parts: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for number, (images, labels) in enumerate(parts, start=1):
            with quiet(model, clock.together and number == len(parts)):
                with mode.autocast():
                    loss = cross_entropy(model(images).float(), labels) / len(parts)
                scale.apply(loss).backward()
        scale.step([optimizer])
        optimizer.zero_grad()

    model.train()
    loader = Images(trial, device, layout(trial.case))
    for _ in clock.epochs(params.epochs):
        for parts in clock.steps(loader, "train", params.train_images, count=lambda _: loader.images_a_step):
            step(parts)
    for parts in clock.resident():
        step(parts)


def compress(model: torch.nn.Module, precision: str) -> torch.dtype:
    """Have gradients sent in `precision`, whatever they are computed in; returns its dtype."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    if precision == "fp32":
        return torch.float32
    if isinstance(model, DistributedDataParallel):  # alone, nothing is sent
        model.register_comm_hook(None, fp16_compress_hook)
    return torch.float16


class Images:
    """Random images on the device, a few batches of them over and over, as many as an epoch has steps.

    A step is so many batches one after the other, of which there are no more than POOL however many they are.
    """

    def __init__(self, trial: Trial, device: torch.device, layout: torch.memory_format) -> None:
        import torch

        size, many, self.parts = trial.params.image_size, trial.batch_size, trial.params.accumulate
        self.images_a_step: int = many * self.parts
        dice = torch.Generator(device).manual_seed(trial.seed + trial.rank)
        self.pool = [
            (
                torch.randn(many, 3, size, size, device=device, generator=dice).contiguous(memory_format=layout),
                torch.randint(0, CLASSES, (many,), device=device, generator=dice),
            )
            for _ in range(POOL)
        ]
        # Only whole steps: what is left is less than one, and the clock scales the time.
        self.steps: int = max(1, trial.params.train_images // (self.images_a_step * trial.case.processes))

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
        for step in range(self.steps):
            first = step * self.parts
            yield [self.pool[number % POOL] for number in range(first, first + self.parts)]


def resnet50() -> torch.nn.Module:
    """torchvision's: 25.6 million weights in 161 tensors."""
    from torchvision.models import resnet

    network: torch.nn.Module = resnet.resnet50(num_classes=CLASSES)
    return network


def alexnet_bn() -> torch.nn.Module:
    """AlexNet (Krizhevsky and others 2012, in one column) with BatchNorm in the place of its normalisation."""
    from torch import nn

    def block(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *block(3, 96, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *block(96, 256, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *block(256, 384, 3, 1, 1),
        *block(384, 384, 3, 1, 1),
        *block(384, 256, 3, 1, 1),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        *dense(256 * 6 * 6, 4096),
        *dense(4096, 4096),
        nn.Linear(4096, CLASSES),
    )


def refuse(case: Case) -> str:
    """Why a case cannot run: `allreduce` needs several processes, the networks keep their weights in fp32."""
    if case.model == "allreduce" and case.processes == 1:
        return "allreduce needs --processes 2 or more"
    return "its weights are fp32: ask for fp32, tf32, fp16 or bf16" if case.precision.startswith("fp16-") else ""


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Of an image: what the first convolution makes (AlexNet's has 96 channels at a quarter of the size)."""
    channels, stride = (96, 4) if model == "alexnet-bn" else (64, 2)
    return int(channels * math.ceil(int(params["image_size"]) / stride) ** 2)


NETWORKS: dict[str, Callable[[], Any]] = {"resnet50": resnet50, "alexnet-bn": alexnet_bn}

SUITE = Suite(
    train=train,
    version=3,
    models=("allreduce", *NETWORKS),
    refuse=refuse,
    params={
        "smallest": Param(1 << 10, "bytes of the smallest message of allreduce", least=4),
        "largest": Param(1 << 28, "bytes of the largest", least=1),
        "gradients": Param(True, "also sum the gradients of resnet50 and alexnet-bn"),
        "fusion_mib": Param(64, "MiB up to which gradients are put together", least=1),
        "group": Param(0, "processes in a group of hierarchical; 0 is those of one machine"),
        "epochs": Param(90, "epochs of the whole run of a network", least=1),
        "train_images": Param(IMAGES, "images in an epoch", least=1),
        "image_size": Param(224, "pixels of an image", least=63),
        "accumulate": Param(1, "batches whose gradients are added up before processes communicate", least=1),
        "gradients_as": Param("fp32", "what DDP sends: fp16 halves it, as the paper does", choices=("fp32", "fp16")),
        "bucket_mib": Param(25, "MiB of gradients that DDP sends together", least=1),
        "lr": Param(1.0, "learning rate of LARS"),
        "memory_format": Param(
            "auto",
            "layout of images and weights; auto is the faster one in this precision on this device",
            choices=("auto", "channels_last", "contiguous"),
        ),
    },
    studies=("scaling",),
    processes=True,
    unit="images",
    batch="max",
    cpu_batch=8,
    train_samples=IMAGES,
    most_elements=most_elements,
)
