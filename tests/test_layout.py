"""`memory_format=auto`: the layout that is fast in a precision on a device, the one that was asked for otherwise."""

from types import SimpleNamespace

import pytest
import torch

from gpubench.training import memory_layout

CARDS = {
    "NVIDIA GeForce GTX 1080 Ti": (6, 1), "Tesla V100-SXM2-16GB": (7, 0), "NVIDIA GeForce GTX 1650": (7, 5),
    "NVIDIA T1000": (7, 5), "Tesla T4": (7, 5), "NVIDIA GeForce RTX 2080 Ti": (7, 5), "NVIDIA H200": (9, 0),
}  # fmt: skip
WITH_TENSOR_CORES = {"Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA H200"}


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "fp16-pure"])
def test_channels_last_is_for_tensor_cores(monkeypatch, card, precision):
    major, minor = CARDS[card]
    properties = SimpleNamespace(name=card, major=major, minor=minor)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    wanted = "channels_last" if card in WITH_TENSOR_CORES and precision != "fp32" else "contiguous"
    assert memory_layout.fastest(precision, "cuda:0") == wanted


@pytest.mark.parametrize(("architecture", "precision", "wanted"), [
    ("gfx942:sramecc+:xnack-", "fp16", "channels_last"),
    ("gfx950:sramecc+:xnack-", "bf16", "channels_last"),
    ("gfx942:sramecc+:xnack-", "fp32", "contiguous"),
    ("gfx906:sramecc+:xnack-", "fp16", "contiguous"),
    ("gfx1100", "fp16", "contiguous"),
    ("gfx1201", "bf16", "contiguous"),
])  # fmt: skip
def test_of_amds_cards_only_instinct_is_fast_with_channels_last(monkeypatch, architecture, precision, wanted):
    properties = SimpleNamespace(name="AMD", major=9, minor=4, gcnArchName=architecture)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.version, "hip", "7.2")
    assert memory_layout.fastest(precision, "cuda:0") == wanted


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_devices_and_what_was_asked_for(precision):
    assert memory_layout.fastest(precision, "cpu") == "channels_last"
    assert memory_layout.fastest(precision, "mps:0") == "contiguous"
    case = SimpleNamespace(precision=precision, device="cpu", params={"memory_format": "contiguous"})
    assert (memory_layout.memory_format(case), memory_layout.layout(case)) == ("contiguous", torch.contiguous_format)
    case.params["memory_format"] = "auto"
    assert memory_layout.layout(case) is torch.channels_last
