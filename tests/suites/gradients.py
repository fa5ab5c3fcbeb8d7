"""Writes down a ResNet's gradients on one step of 10 samples, whoever shares it."""

from gpubench import Param, Suite
from gpubench.training import shards


def train(trial, clock):
    """One step; BatchNorm uses its running statistics, which are the same in every process."""
    import torch
    from torchvision.models import resnet18

    from gpubench.training import distributed, quiet

    torch.manual_seed(1)
    model = distributed(resnet18(num_classes=10).eval(), trial)
    images, labels = torch.randn(10, 3, 32, 32), torch.arange(10)
    mine = shards(10, trial.batch_size, rank=trial.rank, world=trial.case.processes)
    batches = [(images[each.start : each.stop], labels[each.start : each.stop]) for each in mine]

    def step(batch, weight):
        with quiet(model, clock.together):
            (torch.nn.functional.cross_entropy(model(batch[0]), batch[1]) * weight).backward()

    for _ in clock.epochs(1):
        for batch, share in zip(clock.steps(batches, phase="train"), mine, strict=True):
            step(batch, share.weight)
    if trial.rank == 0:
        names = {name.removeprefix("module."): weight.grad for name, weight in model.named_parameters()}
        torch.save({name: grad.clone() for name, grad in names.items()}, trial.params.to)
    for batch in clock.resident():
        step(batch, 1.0)
    return {}


SUITE = Suite(
    train=train,
    models=("resnet18",),
    params={"to": Param("", "where the gradients go")},
    version=1,
    processes=True,
)
