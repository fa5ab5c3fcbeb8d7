"""The memory layout of images and weights, for suites with the parameter `memory_format`."""

import re

import torch

from gpubench.suite.trial import Case

AUTO = "auto"
TURING_WITHOUT = re.compile(r"\b(GTX 16\d0|MX[45]\d0|T\d{3,4})\b")
"""Cards of compute capability 7.5 that have no tensor cores: GTX 1650, T1000 and so on, but not the Tesla T4."""


def memory_format(case: Case) -> str:
    """`contiguous` or `channels_last`: what was asked for, or what `auto` means in this precision on this device."""
    asked = str(case.params["memory_format"])
    return asked if asked != AUTO else fastest(case.precision, case.device)


def layout(case: Case) -> torch.memory_format:
    """The same as torch's constant."""
    return torch.channels_last if memory_format(case) == "channels_last" else torch.contiguous_format


def fastest(precision: str, device: str) -> str:
    """The layout in which libraries are fast in this precision on `device`.

    cuDNN gains from channels last by tensor cores alone, which IEEE fp32 does not use; without them it is slower
    (a V100 in fp32: 2.76 s against 1.68 s, pytorch/pytorch#44943). AMD's MIOpen and Apple's Metal compute with
    channels first. oneDNN, for CPUs and Intel's cards, is made for channels last.
    """
    kind = torch.device(device).type
    if kind == "mps" or (kind == "cuda" and torch.version.hip):
        return "contiguous"
    if kind == "cuda" and (precision == "fp32" or not has_tensor_cores(device)):
        return "contiguous"
    return "channels_last"


def has_tensor_cores(device: str) -> bool:
    """Whether this NVIDIA card has them, from Volta on but for the small Turings."""
    properties = torch.cuda.get_device_properties(device)
    if (properties.major, properties.minor) == (7, 5):
        return not TURING_WITHOUT.search(properties.name)
    return bool(properties.major >= 7)
