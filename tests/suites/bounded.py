"""Models bound by one thing each, on purpose, and one by nothing in particular: a third of its time computes."""

import time

from gpubench import Param, Suite

STREAM = 2**25  # numbers: far more than any cache holds


class Loader:
    """The same batch again and again, each time after a wait."""

    def __init__(self, batch, steps, seconds):
        self.batch, self.steps, self.seconds = batch, steps, seconds

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            if self.seconds:  # a sleep of no time still gives the processor away
                time.sleep(self.seconds)
            yield self.batch


def train(trial, clock):
    """Every model trains a small network, which proves its precision, and does its own thing beside."""
    import torch

    from gpubench.training import mode_of

    mode = mode_of(trial.case.precision, trial.case.device)
    model = trial.case.model
    width = {"compute": 1024, "ambiguous": 512}.get(model, 16)
    network = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(3)))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch = torch.randn(trial.batch_size, width)
    tiny = torch.ones(4)
    stream = torch.randn(2, STREAM) if model == "memory" else None

    def step(x):
        began = time.perf_counter()
        with mode.autocast():
            loss = network(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if model == "launch":
            for _ in range(50_000):
                tiny.add(1)
        if model == "memory":
            for _ in range(4):
                stream[0].add_(stream[1], alpha=1e-6)
        if model == "ambiguous":
            time.sleep(2 * (time.perf_counter() - began))  # the host's own work, which no counter sees

    loader = Loader(batch, trial.params.steps, 0.05 if model == "input" else 0.0)
    for _ in clock.epochs(1):
        for x in clock.steps(loader, phase="train"):
            step(x)
    for x in clock.resident():
        step(x)
    return {}


SUITE = Suite(
    train=train,
    models=("input", "launch", "compute", "memory", "ambiguous"),
    params={"steps": Param(100, "batches of an epoch")},
    version=1,
    cpu_batch=1024,
)
