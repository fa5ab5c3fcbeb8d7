"""Commands on a card that torch only believes in: host memory behind torch's own allocator, streams and errors.

The stand-in is no part of this project; without it these tests skip themselves. It shows devices, memory and errors
as torch's CUDA build meets them, and no times.
"""

import os

import pytest

from gpubench.rows.read import load

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif("FAKECUDA_STATE" not in os.environ, reason="needs the stand-in for CUDA"),
]


@pytest.mark.parametrize("capability", ["61", "70"])
def test_an_old_card_is_told_which_torch_to_install(cli_process, monkeypatch, capability):
    monkeypatch.setenv("FAKECUDA_CC", capability)  # read once by a process, so each needs one of its own
    done = cli_process("doctor")
    assert f"no kernels for sm_{capability}" in done.stdout, done.stderr
    assert "whl/cu126" in done.stdout


def test_the_cpu_of_a_machine_with_an_old_card_is_measured(cli_process, monkeypatch):
    monkeypatch.setenv("FAKECUDA_CC", "61")
    done = cli_process(
        "run", "--suite", "resnet", "--models", "resnet18", "--device", "cpu", "--precision", "fp32", "--quick",
        "--synthetic", "--batch", "8", "--set", "image_size=32", "--out", "a.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_largest_batch_within_a_limit_is_found_in_few_probes_and_confirmed(cli, tmp_path):
    done = cli("run", "--suite", "resnet", "--models", "resnet18", "--precision", "fp32,fp16", "--quick", "--synthetic",
               "--batch", "max", "--memory-limit", "2GiB", "--set", "image_size=32", "--set", "train_images=1280",
               "--out", "a.csv")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("samples/s\n") <= 4
    rows = load([tmp_path / "a.csv"]).frame
    assert list(rows["status"]) == ["ok", "ok"]
    assert (rows["peak_memory_bytes"] < 2 * 2**30).all()


def test_a_memory_limit_above_the_cards_is_refused(cli):
    done = cli("run", "--suite", "resnet", "--memory-limit", "100GiB", "--quick", "--synthetic")
    assert done.returncode == 2
    assert "give no more than that" in done.stderr
