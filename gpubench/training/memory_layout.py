"""Chooses the memory layout of images and weights, for suites with the parameter `memory_format`."""

import re

import torch

from gpubench.suite.precisions import PRECISIONS
from gpubench.suite.trial import Case

TURING_WITHOUT = re.compile(r"\b(GTX 16\d0|MX[45]\d0|T\d{3,4})\b")
"""Cards of compute capability 7.5 without tensor cores: GTX 1650, T1000 and so on, but not the Tesla T4."""
INSTINCT_WITH_CHANNELS_LAST = ("gfx90a", "gfx942", "gfx950")
"""AMD's architectures (MI200, MI300, MI350) on which half-precision convolutions are faster with channels last.

On a Radeon they are slower (pytorch/pytorch#170947, #187600, lightvector/KataGo#1237).
"""


def memory_format(case: Case) -> str:
    """Return `contiguous` or `channels_last`: the parameter `memory_format`, or for `auto` the fastest layout."""
    chosen = str(case.params["memory_format"])
    return chosen if chosen != "auto" else fastest(case.precision, case.device)


def layout(case: Case) -> torch.memory_format:
    """Return the layout of `memory_format` as torch's constant."""
    return torch.channels_last if memory_format(case) == "channels_last" else torch.contiguous_format


def fastest(precision: str, device: str) -> str:
    """Return the layout that is fastest in this precision on `device`.

    With channels last, cuDNN is faster only on tensor cores, which IEEE fp32 does not use; elsewhere it is slower (a
    V100 in fp32: 2.76 s against 1.68 s, pytorch/pytorch#44943). MIOpen on Instinct cards in half precision and oneDNN
    (CPUs and Intel's cards) are also faster with channels last. Apple's Metal is faster with channels first.
    """
    kind = torch.device(device).type
    on_tensor_cores = PRECISIONS[precision].tf32 or not PRECISIONS[precision].full
    if kind == "mps" or (kind == "cuda" and not (on_tensor_cores and has_tensor_cores(device))):
        return "contiguous"
    return "channels_last"


def has_tensor_cores(device: str) -> bool:
    """Return whether channels last is faster on this CUDA or ROCm card, in precisions that use its tensor cores.

    NVIDIA's cards have tensor cores from Volta on, except small Turing cards.
    """
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.gcnArchName.startswith(INSTINCT_WITH_CHANNELS_LAST)
    if (properties.major, properties.minor) == (7, 5):
        return not TURING_WITHOUT.search(properties.name)
    return bool(properties.major >= 7)
