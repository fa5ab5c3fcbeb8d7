"""On a real card: every precision of the resnet suite, memory, TF32 for real. Run with `pytest -n 0 -m gpu`."""

import pytest
import torch

from gpubench.rows.read import load
from gpubench.training import device, precision

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_every_precision_of_resnet_or_a_reason(cli_process, tmp_path):
    done = cli_process(
        "run", "--suite", "resnet", "--models", "resnet18", "--precision", "all", "--quick",
        "--synthetic", "--batch", "64", "--set", "image_size=64", "--out", "a.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    frame = load([tmp_path / "a.csv"]).frame
    assert set(frame["status"]) <= {"ok", "unsupported"}
    assert (frame["status"] == "ok").sum() >= 2
    assert (frame["peak_memory_bytes"].dropna() > 10**7).all()


def test_tf32_left_on_is_caught_for_real():
    if torch.cuda.get_device_capability()[0] < 8:
        pytest.skip("this card has no TF32")
    precision.set_flags("tf32", reduced_reduction=False, cudnn_benchmark=False)
    try:
        with pytest.raises(precision.PrecisionError, match="asked for fp32"):
            precision.probe("fp32", "cuda:0", precision.mode_of("fp32", "cuda:0"))
    finally:
        precision.set_flags("fp32", reduced_reduction=False, cudnn_benchmark=False)


def test_a_memory_limit_is_kept():
    cuda = device.open_device("cuda:0", 2 * 2**30)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(3 * 2**30, dtype=torch.uint8, device=cuda)
    assert device.is_out_of_memory(caught.value)
    torch.cuda.set_per_process_memory_fraction(1.0)
