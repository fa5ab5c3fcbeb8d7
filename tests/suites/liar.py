"""A suite for tests that trains in the precision that `really` names, whatever it was asked for."""

from gpubench import Param, Suite


def train(trial, clock):
    """Train a few layers; `really=bug` raises, `really=alone` casts the model and leaves the Stepper out."""
    import torch
    from torch import nn

    from gpubench.training import Stepper, mode_of

    really = trial.params.really or trial.case.precision
    if really == "bug":
        raise ValueError("a mistake of the suite's own")
    mode = mode_of(trial.case.precision if really == "alone" else really, trial.case.device)
    recurrent = trial.case.model == "lstm"
    layers = nn.LSTM(8, 8) if recurrent else nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    model = mode.prepare(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.params.lr)
    stepper = None
    if really != "alone":
        stepper = Stepper(mode, model, optimizer, clock, loss_scale=trial.params.loss_scale)

    def step(x):
        with mode.autocast():
            out = model(mode.input(x))
            loss = (out[0] if recurrent else out).float().square().mean()
        if stepper:
            stepper.backward(loss)
            stepper.step()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    for _ in clock.epochs(1):
        for batch in clock.steps([torch.randn(16, 8)] * 8, phase="train"):
            step(batch)
    for batch in clock.resident():
        step(batch)
    return {"loss": float(trial.params.quality or 0)}


SUITE = Suite(
    train=train,
    version=1,
    models=("mlp", "lstm"),
    params={
        "really": Param("", "a precision, bug or alone"),
        "lr": Param(0.1, "learning rate"),
        "quality": Param("", "the loss it claims"),
    },
    cpu_batch=16,
)
