"""A small network in several processes. Each model but `mlp` is named after what goes wrong in one of them."""

import os
import signal
import time

from gpubench import Param, Suite
from gpubench.training import shards


def train(trial, clock):
    """Train on random numbers; process `who` does `what` in its third step."""
    import torch

    from gpubench.training import distributed, mode_of, quiet, weighted_mean

    params, many = trial.params, trial.case.processes
    mode = mode_of(trial.case.precision, trial.case.device)
    model = distributed(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)), trial)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dice = torch.Generator().manual_seed(1)
    x, y = torch.randn(params.samples, 64, generator=dice), torch.randint(0, 10, (params.samples,), generator=dice)
    mine = shards(params.samples, trial.batch_size, rank=trial.rank, world=many)
    batches = [(x[each.start : each.stop], y[each.start : each.stop]) for each in mine]
    taken = 0

    def step(batch, weight=1.0):
        nonlocal taken
        taken += 1
        if trial.rank == params.who and taken == 3:
            go_wrong(params.what)
        if trial.rank == params.who and params.what == "slow":
            time.sleep(0.2)
        with quiet(model, clock.together), mode.autocast():
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1]) * weight
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in clock.epochs(params.epochs):
        for batch, share in zip(clock.steps(batches, phase="train"), mine, strict=False):
            step(batch, share.weight)
            if params.what == "leaves" and trial.rank == params.who:
                break
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(x[trial.rank :: many]), y[trial.rank :: many])
    for batch in clock.resident():
        step(batch)
    return {"loss": weighted_mean([float(loss)], len(x[trial.rank :: many]), trial)[0]}


def go_wrong(what):
    """What a process can do to the others."""
    if what == "raises":
        raise ValueError("no good")
    if what == "full":
        raise MemoryError
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "agent":
        os.kill(os.getppid(), signal.SIGKILL)
    if what == "hangs":
        time.sleep(600)


SUITE = Suite(
    train=train,
    models=("mlp", "slow", "raises", "full", "killed", "agent", "leaves", "hangs"),
    presets={
        "model": {
            "slow": {"what": "slow", "goal": 99.0},
            **{what: {"what": what} for what in ("raises", "full", "killed", "agent", "leaves", "hangs")},
        }
    },
    params={
        "epochs": Param(2, "epochs"),
        "samples": Param(101, "samples of the dataset"),
        "who": Param(1, "the process that goes wrong"),
        "what": Param("", "and how"),
        "goal": Param(0.0, "what the loss has to reach, the wrong way round"),
    },
    version=1,
    quality="loss",
    goal="goal",
    processes=True,
    batch="8",
    cpu_batch=8,
)
