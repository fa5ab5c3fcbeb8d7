"""Many processes: all-reduce, ResNet-50 and AlexNet-BN.

After "Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four Minutes" (Jia and
others 2018, arXiv 1807.11205). There the rate of a cluster is T = S x N x e: S is the rate of one process, N the number
of processes, e the share of S that each keeps. `gpubench compare` computes S, T(N) and e(N) from rows of several N.
Published: ResNet-50 in 6.6 minutes on 2,048 Tesla P40 and AlexNet-BN in 4 minutes on 1,024.

`allreduce` times single messages and the gradients of both networks, tensor by tensor and fused. It does so with the
backend's own algorithm (`flat`) and in three steps (`hierarchical`). Those are: reduce inside a group, all-reduce
between the groups' first processes, broadcast back. Every sum is compared with the exact one before it is timed. The
columns algbw and busbw of `table` are computed as in nccl-tests, in GB/s. After the sums a linear layer is trained, to
prove the precision; the row's `samples_per_second` counts its samples.

`resnet50` and `alexnet-bn` train on random images on the device, so neither disk nor decoder hides the cost of
communication. An epoch has as many images as ImageNet. Forward and backward are in the precision, weights in fp32. LARS
is the optimizer, without weight decay on biases and BatchNorm. Jia and others sent gradients in fp16 (`gradients_as`).

training.py has all models.
"""

import math
from collections.abc import Mapping

from gpubench import MEMORY_FORMAT, Case, Param, ParamValue, Suite, imported
from gpubench.suite.trial import autocast_refusal

NETWORKS = ("resnet50", "alexnet-bn")
CLASSES, IMAGES = 1000, 1_281_167
"""Classes and training images of ImageNet."""


def refuse(case: Case) -> str:
    """Return why a case cannot run: `allreduce` needs several processes, the networks have fp32 weights."""
    if case.model == "allreduce" and case.processes == 1:
        return "allreduce needs --processes 2 or more"
    return autocast_refusal(case.precision)


def most_elements(model: str, params: Mapping[str, ParamValue]) -> int:
    """Return the elements per image after the first convolution (AlexNet's: 96 channels at a quarter of the size)."""
    channels, stride = (96, 4) if model == "alexnet-bn" else (64, 2)
    return int(channels * math.ceil(int(params["image_size"]) / stride) ** 2)


SUITE = Suite(
    train=imported(f"{__name__}.training", "train"),
    blueprint=imported(f"{__name__}.training", "blueprint"),
    version=7,
    models=("allreduce", *NETWORKS),
    refuse=refuse,
    params={
        "smallest": Param(1 << 10, "bytes of the smallest message of allreduce", least=4),
        "largest": Param(1 << 28, "bytes of the largest message of allreduce", least=1),
        "gradients": Param(True, "also sum the gradients of resnet50 and alexnet-bn"),
        "fusion_mib": Param(64, "allreduce: MiB up to which gradients are fused", least=1),
        "group": Param(0, "hierarchical: processes in a group; 0: those of one machine"),
        "epochs": Param(90, "epochs of the whole run of a network", least=1),
        "train_images": Param(IMAGES, "images in an epoch", least=1),
        "image_size": Param(224, "pixels of an image", least=63),
        "accumulate": Param(1, "batches whose gradients are added up before processes communicate", least=1),
        "gradients_as": Param("fp32", "dtype in which DDP sends gradients", choices=("fp32", "fp16")),
        "all_reduce": Param("flat", "how DDP sums gradients", choices=("flat", "hierarchical", "hybrid")),
        "hybrid_kib": Param(64, "all_reduce=hybrid: KiB up to which a bucket is summed hierarchically", least=1),
        "bucket_mib": Param(25, "MiB of gradients that DDP sends together", least=1),
        "lr": Param(1.0, "learning rate of LARS"),
        "memory_format": MEMORY_FORMAT,
    },
    studies=("scaling",),
    processes=True,
    unit="images",
    large_linears=False,
    cpu_batch=8,
    train_samples=lambda params: int(params["train_images"]),
    most_elements=most_elements,
)
