"""What torch is asked of its devices, in the ways of its older versions too."""

import torch

from gpubench.measuring import device


def test_a_torch_that_refuses_to_name_an_accelerator_where_none_is_has_a_cpu(monkeypatch):
    """torch 2.6 with CUDA on a machine without a card."""

    def refuse():
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", refuse)
    assert [each["kind"] for each in device.describe()["devices"]] == ["cpu"]


def test_a_build_for_cpus_has_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert [each["kind"] for each in device.describe()["devices"]] == ["cpu"]
