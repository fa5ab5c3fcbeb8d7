"""The work of a step: FLOPs, bytes and calls of shapes that can be counted by hand, and of a ResNet."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import resnet18

from gpubench.training.flops import Work


def work_of(step):
    work = Work()
    with work:
        step()
    return work


def test_flops_are_torchs_or_unknown_where_no_formula_covers_them():
    layer, x = nn.Linear(32, 16, bias=False), torch.randn(8, 32)
    work = work_of(lambda: layer(x).sum().backward())
    assert work.flops == 2 * (2 * 8 * 32 * 16)  # the product, and the weight's gradient; x needs none
    assert work.odd_flops == 0
    with torch.device("meta"):
        network, images = resnet18(), torch.randn(2, 3, 32, 32)
    with FlopCounterMode(display=False) as torchs:
        network(images).sum().backward()
    assert work_of(lambda: network(images).sum().backward()).flops == torchs.get_total_flops()
    network = nn.LSTM(16, 16)
    x = torch.randn(5, 2, 16)
    head = nn.Linear(16, 16)
    work = work_of(lambda: head(network(x)[0]))
    with FlopCounterMode(display=False) as torchs:
        head(network(x)[0])
    assert work.flops in {None, torchs.get_total_flops()}
    assert bool(work.unseen) == (work.flops is None)


def test_bytes_and_calls_leave_out_views():
    a, b = torch.randn(1000), torch.randn(1000)
    assert work_of(lambda: a + b).bytes == 3 * 4000
    assert work_of(lambda: a.add_(b)).bytes == 3 * 4000
    assert work_of(lambda: a.view(10, 100)).bytes == 0
    assert work_of(lambda: torch.empty(1000)).bytes == 0
    expanded = torch.randn(1).expand(1000)
    assert work_of(lambda: a + expanded).bytes == 2 * 4000 + 4
    table, rows = nn.Embedding(100_000, 8), torch.tensor([1, 2])
    with torch.no_grad():
        work = work_of(lambda: table(rows))
    assert work.bytes == 2 * 8 + 2 * (2 * 8 * 4)
    a = torch.randn(4, 4)
    assert work_of(lambda: (a.t().view(-1) if False else a.t() + 1) * 2).calls == 2


@pytest.mark.parametrize(("channels", "odd"), [((3, 64), True), ((64, 60), True), ((64, 128), False)])
def test_sizes_that_tensor_cores_cannot_tile(channels, odd):
    convolution, x = nn.Conv2d(*channels, 3, bias=False), torch.randn(2, channels[0], 8, 8)
    work = work_of(lambda: convolution(x))
    assert work.flops == 2 * 2 * channels[0] * channels[1] * 9 * 6 * 6
    assert work.odd_flops == (work.flops if odd else 0)
