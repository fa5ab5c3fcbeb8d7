"""Commands on a card that torch only believes in: host memory behind torch's own allocator, streams and errors.

The stand-in is no part of this project; without it these tests skip themselves. It shows devices, memory and errors
as torch's CUDA build meets them, and no times.
"""

import os

import pytest

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif("FAKECUDA_STATE" not in os.environ, reason="needs the stand-in for CUDA"),
]


@pytest.mark.parametrize("capability", ["61", "70"])
def test_an_old_card_is_told_which_torch_to_install(cli, monkeypatch, capability):
    monkeypatch.setenv("FAKECUDA_CC", capability)
    done = cli("doctor")
    assert f"no kernels for sm_{capability}" in done.stdout, done.stderr
    assert "whl/cu126" in done.stdout


def test_the_cpu_of_a_machine_with_an_old_card_is_measured(cli, monkeypatch):
    monkeypatch.setenv("FAKECUDA_CC", "61")
    done = cli("run", "--suite", "resnet", "--models", "resnet18", "--device", "cpu", "--precision", "fp32", "--quick",
               "--synthetic", "--batch", "8", "--set", "image_size=32", "--out", "a.csv")  # fmt: skip
    assert done.returncode == 0, done.stderr
