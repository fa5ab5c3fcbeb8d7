"""The suite largebatch: the same step however it is divided, and fp16 norms that lose small gradients."""

import pytest
import torch
from gpubench.suites.largebatch import training

from gpubench.rows.read import load


def test_the_rate_warms_up_and_falls_to_nothing():
    rates = [training.rate_at(step, 10, 0.2) for step in range(11)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[2] == 1.0
    assert sorted(rates[2:], reverse=True) == rates[2:]
    assert rates[10] == 0


@pytest.mark.parametrize(("gradient", "lost"), [(1e-2, False), (1e-5, True)])
def test_norms_in_fp16_lose_small_gradients_and_those_in_fp32_do_not(gradient, lost):
    """With LARS a step is as long whatever the gradient's size; where fp16 squares it to nothing, it is not."""
    moved = {}
    for name in ("lars", "lars-fp16-norms"):
        layer = torch.nn.Linear(64, 64, bias=False)
        torch.nn.init.constant_(layer.weight, 0.1)
        optimizer, prepare = training.optimizer_of(name, layer)
        layer.weight.grad = torch.full_like(layer.weight, gradient)
        prepare()
        optimizer.step()
        moved[name] = float((layer.weight.detach() - 0.1).norm())
    assert moved["lars"] == pytest.approx(1e-3 * 6.4, rel=0.01)
    if lost:
        assert moved["lars-fp16-norms"] < moved["lars"] / 1.5
    else:
        assert moved["lars-fp16-norms"] == pytest.approx(moved["lars"], rel=0.05)


@pytest.mark.parametrize(
    ("name", "processes"),
    [("lars", 1), *(pytest.param(name, 2, marks=[pytest.mark.e2e, pytest.mark.slow]) for name in ("sgd", "lars"))],
)
def test_it_trains_with_steps_larger_than_a_batch(cli, cli_process, tmp_path, name, processes):
    run = cli if processes == 1 else cli_process
    done = run(
        "run", "--suite", "largebatch", "--device", "cpu", "--precision", "bf16", "--full", "--synthetic",
        "--batch", 8, "--processes", processes, "--set", "global_batch=50", "--set", "train_images=112", "--set",
        "valid_images=25", "--set", "epochs=2", "--set", f"optimizer={name}", "--out", "a.csv",
    )  # fmt: skip
    frame = load([tmp_path / "a.csv"]).frame
    assert done.returncode == 0, done.stderr + str(list(frame["reason"]))
    assert frame["samples"][0] == 224
