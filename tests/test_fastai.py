"""Precision and clock inside fastai's own training loop."""

from functools import partial

import pytest
import torch
from fastai.callback import progress  # noqa: F401  (adds no_bar to Learner)
from fastai.callback.core import Callback, CancelBatchException
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.optimizer import OptimWrapper
from torch import nn

from gpubench.training.fastai import PrecisionCallback, callbacks, train_resident
from gpubench.training.precision import KINDS, mode_of

BATCHES, BATCH = 3, 4


class Batches:
    """A loader of a few equal batches."""

    device = torch.device("cpu")

    def __len__(self):
        return BATCHES

    def __iter__(self):
        return iter([(torch.ones(BATCH, 8), torch.zeros(BATCH))] * BATCHES)


class Spy(nn.Module):
    """A linear layer that notes, per call, whether it trains and the dtype it computes in."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(8, 2), []
        self.error = None

    def forward(self, x):
        if self.error:
            raise self.error
        self.calls.append((self.training, autocast_dtype() or x.dtype))
        return self.linear(x)


class FakeClock:
    """Writes down what the callbacks ask of the clock; has enough after `limit` epochs."""

    def __init__(self, limit=99):
        self.limit, self.events, self.learn = limit, [], None
        self.together = True

    @property
    def enough(self):
        return sum(event == "end" for event in self.events) >= self.limit

    def note(self, notes):
        self.notes = notes

    def begin_epoch(self, epoch, planned):
        self.events.append(f"begin {epoch} of {planned}")

    def end_epoch(self):
        assert len(self.learn.recorder.values) == 1 + sum(event == "end" for event in self.events)
        self.events.append("end")

    def steps(self, loader, phase, samples):
        self.events.append(f"{phase} {samples}")
        yield from loader

    def resident(self):
        yield from [next(iter(Batches()))] * 2


def autocast_dtype():
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def make(name, *, loss=None, clock=None, cbs=()):
    """A Learner of a Spy with our callbacks; returns it and its PrecisionCallback."""
    torch.manual_seed(0)
    clock = clock or FakeClock()
    learn = Learner(
        DataLoaders(Batches(), Batches(), device=torch.device("cpu")),
        Spy(),
        loss_func=loss or (lambda pred, y: pred.square().mean()),
        opt_func=partial(OptimWrapper, opt=torch.optim.SGD),
        lr=0.1,
        cbs=[*callbacks(clock, mode_of(name, "cpu"), 12, 10), *cbs],
    )
    clock.learn = learn
    return learn, next(cb for cb in learn.cbs if isinstance(cb, PrecisionCallback))


def fit(learn, epochs=1):
    with learn.no_bar(), learn.no_logging():
        learn.fit(epochs)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16)]
    + [(name, torch.float16) for name in ("fp16", "fp16-master", "fp16-pure")],
)
def test_training_and_validation_compute_in_the_precision(name, dtype):
    seen = []

    def loss(pred, _):
        seen.append((pred.dtype, autocast_dtype()))
        return pred.square().mean()

    learn, _ = make(name, loss=loss)
    fit(learn)
    assert learn.model.calls == [(True, dtype)] * BATCHES + [(False, dtype)] * BATCHES
    assert seen == [(torch.float32, KINDS[name].autocast)] * 2 * BATCHES
    assert autocast_dtype() is None


def test_a_second_fit_keeps_its_masters_and_resident_steps_train_in_the_precision():
    learn, _ = make("fp16-master")
    fit(learn)
    masters = [p for group in learn.opt.opt.param_groups for p in group["params"]]
    learn.clock.clock.events.clear()
    fit(learn)
    again = [p for group in learn.opt.opt.param_groups for p in group["params"]]
    assert all(p is master for p, master in zip(again, masters, strict=True))
    assert {p.dtype for p in masters} == {torch.float32}
    assert learn.model.linear.weight.dtype == torch.float16
    learn, _ = make("bf16")
    fit(learn)
    before, learn.model.calls[:] = learn.model.linear.weight.detach().clone(), []
    with learn.no_bar():
        train_resident(learn, learn.clock.clock)
    assert learn.model.calls == [(True, torch.bfloat16)] * 2
    assert not torch.equal(learn.model.linear.weight, before)
    assert autocast_dtype() is None


@pytest.mark.parametrize("name", ["fp16", "fp16-master"])
def test_an_overflowed_step_is_skipped_and_counted(name):
    """The scaler starts at 65536, one more than fp16 can hold: the first gradient overflows, the next does not."""
    weights = []

    class Keep(Callback):
        def after_batch(self):
            if self.training:
                weights.append(self.learn.model.linear.weight.detach().clone())

    learn, _ = make(name, loss=lambda pred, _: pred.sum() / BATCH, cbs=[Keep()])
    before = learn.model.linear.weight.detach().clone()
    fit(learn)
    notes = learn.clock.clock.notes()
    assert (notes.skipped_steps, notes.loss_scale, notes.diverged) == (1, 2**15, "")
    assert torch.equal(weights[0], before.to(weights[0].dtype))
    assert not torch.equal(weights[1], before)
    assert learn.model.linear.weight.isfinite().all()


@pytest.mark.parametrize("name", ["fp16", "fp16-master"])
def test_a_step_never_asks_for_the_scale(monkeypatch, name):
    """Reading it waits for the accelerator, which would slow fp16 down and no other precision."""
    monkeypatch.setattr(torch.amp.GradScaler, "get_scale", lambda self: pytest.fail("get_scale was called"))
    fit(make(name)[0])


def test_no_autocast_is_left_behind():
    class Cancel(Callback):
        order = 20

        def before_batch(self):
            raise CancelBatchException

    fit(make("bf16", cbs=[Cancel()])[0])
    assert autocast_dtype() is None
    learn, precision = make("bf16")
    learn.model.error = RuntimeError("boom")
    with pytest.raises(RuntimeError, match="boom"):
        fit(learn)
    learn.model.error = None
    precision.before_fit()
    assert autocast_dtype() is None


def test_the_clock_hands_out_every_batch_closes_each_epoch_after_the_recorder_and_ends_the_fit():
    clock = FakeClock()
    learn, _ = make("fp32", clock=clock)
    fit(learn, 2)
    epochs = [[f"begin {n} of 2", "train 12", "valid 10", "end"] for n in range(2)]
    assert clock.events == [*epochs[0], *epochs[1]]
    assert len(learn.model.calls) == 2 * 2 * BATCHES
    clock = FakeClock(limit=2)
    fit(make("fp32", clock=clock)[0], 30)
    assert clock.events.count("end") == 2
