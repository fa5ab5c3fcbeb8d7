"""Laps, steady state and projection, with a clock whose time is data: every expectation is exact."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from facts import lacking

from gpubench.errors import UserError
from gpubench.training.clock.clock import Clock, Notes
from gpubench.training.clock.laps import first_dimension
from gpubench.training.clock.runs import Run
from gpubench.training.clock.sampling import sampling_for
from gpubench.training.clock.timer import Peers, Timer
from gpubench.training.flops import work_fields


class Time:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Loader:
    """A loader of `steps` batches of 10 that takes `wait` seconds for each."""

    def __init__(self, steps: int, time: Time, wait: float = 0.0, start: float = 0.0, last: int = 10) -> None:
        self.steps, self.time, self.wait, self.start, self.last = steps, time, wait, start, last

    def __len__(self) -> int:
        return self.steps

    def __iter__(self):
        self.time.now += self.start
        for step in range(self.steps):
            self.time.now += self.wait
            yield [0] * (self.last if step == self.steps - 1 else 10)


def clock_of(mode="full", accelerator=False, began=0.0, **options):
    time = Time()
    time.now = began
    return Clock(sampling_for(mode, accelerator=accelerator), now=time, **options), time


def steps(clock, time, count, seconds, phase="train", **options):
    """So many batches of ten, of so many seconds each."""
    for _ in clock.steps(Loader(count, time), phase, **options):
        time.now += seconds


def train(mode, epochs, step_seconds, *, steps=400, wait=0.0, start=0.0, valid=0.0, between=0.0, **options):
    """Run a scripted training; `step_seconds(epoch, step)`. Returns (clock summary, seconds that really passed)."""
    time = Time()
    clock = Clock(replace(sampling_for(mode, accelerator=False), **options), now=time)
    began = time.now
    ended = began
    for epoch in clock.epochs(epochs):
        for step, _ in enumerate(clock.steps(Loader(steps, time, wait, start), "train", samples=steps * 10)):
            time.now += step_seconds(epoch, step)
        if valid:
            for _ in clock.steps(Loader(40, time), "valid", samples=400):
                time.now += valid
        time.now += between
        ended = time.now
    for _ in clock.resident():
        time.now += step_seconds(1, 10)
    return clock.summary(), ended - began


CASES = {
    "plain": {"step_seconds": lambda e, s: 0.1},
    "slow first step": {"step_seconds": lambda e, s: 3.0 if s == 0 else 0.1},
    "slow first step of the run": {"step_seconds": lambda e, s: 3.0 if (e, s) == (0, 0) else 0.1},
    "slow first epoch": {"step_seconds": lambda e, s: 0.3 if e == 0 else 0.1},
    "costly validation": {"step_seconds": lambda e, s: 0.1, "valid": 0.5},
    "slow epoch and validation": {"step_seconds": lambda e, s: 0.3 if e == 0 else 0.1, "valid": 0.5, "between": 1.5},
    "loader that starts slowly and waits": {"step_seconds": lambda e, s: 0.1, "wait": 0.05, "start": 2.0},
}


@pytest.mark.parametrize("epochs", [1, 2, 30])
@pytest.mark.parametrize("case", CASES)
def test_a_sample_projects_a_scripted_run_exactly(case, epochs):
    full, real = train("full", epochs, **CASES[case])
    sampled, spent = train("sampled", epochs, **CASES[case])
    assert full["measured"]
    assert full["seconds"] == pytest.approx(real)
    assert not sampled["measured"]
    assert sampled["seconds"] == pytest.approx(real)
    assert sampled["train_seconds"] == pytest.approx(full["train_seconds"])
    assert sampled["valid_seconds"] == pytest.approx(full["valid_seconds"])
    assert spent < real


def test_quick_runs_and_probes_are_few_steps():
    summary, _ = train("quick", 30, lambda e, s: 2.0 if s == 0 else 0.1, valid=0.1)
    laps = [(lap.phase, lap.kind, lap.steps) for lap in summary["laps"]]
    assert laps == [
        ("train", "warmup", 1),
        *[("train", "timed", 1)] * 5,
        ("valid", "warmup", 1),  # where it is compiled, or cuDNN tries its algorithms
        ("valid", "timed", 1),
        ("train", "resident", 1),
    ]
    assert summary["seconds"] == pytest.approx(2.0 + 399 * 0.1 + 29 * 40 + 30 * 4)
    clock, time = clock_of("quick", accelerator=True)
    for _ in clock.epochs(30):
        steps(clock, time, 10, 0.1)
        for _ in clock.steps(Loader(1, time), "valid"):
            time.now += 0.1
    assert clock.summary()["valid_seconds"] == pytest.approx(3.0), "its only lap is warm-up and timed"
    summary, _ = train("probe", 1, lambda e, s: 0.1, valid=0.1)
    assert not [lap for lap in summary["laps"] if lap.kind == "resident"]
    assert summary["samples_per_second"] == pytest.approx(100)
    assert sampling_for("probe", accelerator=True).resident_laps == 1


@pytest.mark.parametrize("read", [True, False])
def test_an_accelerator_warms_for_five_seconds_however_flat_its_steps_are(read):
    time = Time()
    reader = (lambda: time.now > 5) if read else None  # whoever reads the card looks at five seconds of load
    clock = Clock(sampling_for("sampled", accelerator=True), now=time, settled=reader)
    for _ in clock.epochs(2):
        steps(clock, time, 100_000, 0.002)
    laps = [lap for lap in clock.summary()["laps"] if lap.epoch == 0]
    assert 5 <= sum(lap.seconds for lap in laps if lap.kind == "warmup") < 6
    assert sum(lap.seconds for lap in laps if lap.kind == "timed") >= 2


@pytest.mark.parametrize(("accelerator", "first"), [(True, 1), (False, 12)])
def test_validation_after_a_training_is_warm_but_for_its_first_lap(accelerator, first):
    clock, time = clock_of("sampled", accelerator=accelerator)
    for epoch in clock.epochs(2):
        steps(clock, time, 1000, 0.1)
        for step, _ in enumerate(clock.steps(Loader(1000, time), "valid")):
            time.now += 3.0 if (epoch, step) == (0, 0) else 0.1
    warm = [lap for lap in clock.summary()["laps"] if lap.phase == "valid" and lap.kind == "warmup"]
    assert [sum(lap.steps for lap in warm if lap.epoch == epoch) for epoch in (0, 1)] == [first, 1]


def test_who_watches_memory_hears_of_the_first_lap_and_of_the_resident_steps():
    heard, time, names = [], Time(), ("trained", "resting", "watched")
    memory = SimpleNamespace(**{name: lambda name=name: heard.append((name, time.now)) for name in names})
    clock = Clock(sampling_for("full", accelerator=False), now=time, memory=memory)
    for _ in clock.epochs(2):
        steps(clock, time, 4, 1)
        steps(clock, time, 4, 1, "valid")
    for _ in clock.resident():
        time.now += 1
    assert heard == [("trained", 1), ("resting", 16), ("watched", 17)]


@pytest.mark.parametrize("samples", [74, None])
def test_a_partial_last_batch_is_counted_as_it_is(samples):
    clock, time = clock_of()
    for _ in clock.epochs(1):
        for batch in clock.steps(Loader(8, time, last=4), "train", samples=samples):
            time.now += len(batch) / 10
    summary = clock.summary()
    assert summary["samples"] == 74
    assert summary["measured"]
    assert summary["seconds"] == pytest.approx(7.4)


class NoLength:
    """A loader whose `len` raises, as torch's does over an IterableDataset."""

    def __init__(self, steps):
        self.steps = steps

    def __len__(self):
        raise TypeError("no length")

    def __iter__(self):
        return iter([[0] * 10] * self.steps)


def test_a_loader_without_a_length_is_projected_from_its_samples_or_needs_them():
    time, calls = Time(), []
    clock = Clock(sampling_for("sampled", accelerator=True), synchronize=lambda: calls.append(1), now=time)
    for _ in clock.epochs(1):
        for _ in clock.steps(NoLength(100_000), "train", samples=1_000_000):
            time.now += 0.001
    assert clock.summary()["seconds"] == pytest.approx(100)
    assert len(calls) < 60
    sampled = Clock(sampling_for("sampled", accelerator=False), now=Time())
    with pytest.raises(UserError, match="give samples="):
        next(sampled.steps(NoLength(5), "train"))
    full = Clock(sampling_for("full", accelerator=False), now=Time())
    assert len(list(full.steps(NoLength(5), "train"))) == 5


class Card(Time):
    """A device that takes `step_seconds` for each step it is given, while the host goes on."""

    def __init__(self):
        super().__init__()
        self.busy_until, self.drains = 0.0, 0

    def work(self, step_seconds, host_seconds=0.0):
        self.busy_until = max(self.busy_until, self.now) + step_seconds
        self.now += host_seconds

    def synchronize(self):
        self.drains += self.busy_until > self.now
        self.now = max(self.now, self.busy_until)


def clock_of_card(**options):
    card = Card()
    return Clock(sampling_for("full", accelerator=True), synchronize=card.synchronize, now=card, **options), card


def drains_of(epochs, steps, valid_steps=0):
    """Of each epoch of a full run, how often the card was drained; and (clock, seconds that really passed)."""
    drains = []
    clock, card = clock_of_card()
    for _ in clock.epochs(epochs):
        drains.append(-card.drains)
        for phase, many, seconds in (("train", steps, 0.011), ("valid", valid_steps, 0.005)):
            for _ in clock.steps(Loader(many, card), phase) if many else ():
                card.work(seconds)
        drains[-1] += card.drains
    card.synchronize()
    return drains, clock, card.now


def test_a_short_epoch_drains_the_card_once_and_a_long_one_keeps_its_laps():
    drains, clock, real = drains_of(9, 25)
    assert drains == [5, 1, 1, 1, 1, 1, 1, 1, 1]  # the first one finds out how long a lap has to be
    summary = clock.summary()
    assert (summary["seconds"], summary["samples"]) == (pytest.approx(real), 9 * 250)
    assert summary["samples_per_second"] == pytest.approx(10 / 0.011)
    drains, clock, _ = drains_of(3, 4000)
    laps = [lap for lap in clock.summary()["laps"] if lap.epoch == 2]
    assert drains[2] == len(laps) <= 32
    assert {lap.steps for lap in laps[:-1]} == {128}


class CardEvent:
    """A mark in the queue of a `Card`."""

    def __init__(self, card):
        self.card = card

    def record(self):
        self.passed = max(self.card.busy_until, self.card.now)

    def elapsed_time(self, later):
        return 1000 * (later.passed - self.passed)


def test_an_unbroken_run_waits_for_the_card_once_and_its_laps_are_the_cards():
    clock, card = clock_of_card()
    for _ in clock.steps(Loader(3, card), "warmup", counted=False):
        card.work(0.5)
    warm = card.drains
    for run in clock.runs(2, lambda: CardEvent(card)):
        before, began = card.drains, card.now
        for _ in clock.epochs(3):
            for _ in clock.steps(Loader(25, card), "train"):
                card.work(0.011 * (run + 1), host_seconds=1e-4)
        for _ in clock.steps(Loader(4, card), "valid"):
            card.work(0.005, host_seconds=1e-4)
        assert card.drains == before, "the host went on and on"
        assert card.now - began < 0.01
    assert card.drains == warm + 2
    found = clock.summary()  # of two runs, the faster
    assert found["seconds"] == pytest.approx(75 * 0.011 + 4 * 0.005)
    assert found["train_seconds"] == pytest.approx(75 * 0.011)
    assert found["samples_per_second"] == pytest.approx(10 / 0.011)
    assert sum(lap.seconds for lap in found["laps"] if lap.phase == "valid") == pytest.approx(0.02)
    assert sum(lap.seconds for lap in found["laps"] if lap.phase == "warmup") == pytest.approx(1.5)


def test_unbroken_runs_are_whole_count_in_all_phases_and_are_for_one_process():
    clock, card = clock_of_card()
    for _ in clock.runs(2, lambda: CardEvent(card)):
        with pytest.raises(UserError, match="phases of these runs count"):
            list(clock.steps(Loader(2, card), "valid", counted=False))
        break
    with pytest.raises(UserError, match="leave the loop only at its end"):
        clock.summary()
    timer = Timer(lambda: None, Time(), Peers(names=("rank 0", "rank 1")))
    with pytest.raises(UserError, match="one process"):
        timer.begin_unbroken(lambda: CardEvent(Card()))


def test_a_host_that_runs_ahead_shows_no_rate():
    told = []
    clock, card = clock_of_card(report=told.append)
    for _ in clock.runs(1, lambda: CardEvent(card)):
        for _ in clock.epochs(1):
            for _ in clock.steps(Loader(20, card), "train"):
                card.work(0.01, host_seconds=1.0)
    assert len(told) > 1
    assert {each["rate"] for each in told} == {None}


def test_closing_an_early_stopped_loader_is_in_no_sum():
    time = Time()

    class Slow(Loader):
        def __iter__(self):
            try:
                yield from super().__iter__()
            finally:
                self.time.now += 50.0  # workers that take long to stop

    clock = Clock(sampling_for("sampled", accelerator=False), now=time)
    for _ in clock.epochs(1):
        for _ in clock.steps(Slow(1000, time), "train", samples=10_000):
            time.now += 0.1
    assert clock.summary()["seconds"] == pytest.approx(100)


def test_a_suite_may_break_out_of_its_epochs_or_leave_one_open():
    clock, time = clock_of()
    for epoch in clock.epochs(30):
        steps(clock, time, 10, 1.0)
        if epoch == 2:
            break  # its goal is met
    steps(clock, time, 5, 1.0, "valid")
    for _ in clock.resident():
        time.now += 7.0
    summary = clock.summary()
    assert summary["seconds"] == pytest.approx(35)
    assert summary["valid_seconds"] == pytest.approx(5)
    assert (summary["measured"], summary["epochs"]) == (True, 3)
    clock, time = clock_of()
    clock.begin_epoch(0, 1)
    steps(clock, time, 10, 1.0)
    for _ in clock.resident():
        time.now += 7.0
    assert clock.summary()["seconds"] == pytest.approx(10)


def test_what_would_count_time_twice_is_refused():
    clock, time = clock_of()
    next(clock.epochs(2))
    with pytest.raises(UserError, match="called once"):
        next(clock.epochs(2))
    outer = clock.steps(Loader(2, time), "train")
    next(outer)
    with pytest.raises(UserError, match='inside the phase "train"'):
        next(clock.steps(Loader(2, time), "valid"))


def test_a_rate_that_drifts_between_epochs_is_not_steady_and_a_measured_run_has_no_trend():
    summary, _ = train("sampled", 30, lambda e, s: 0.01 * 1.1 ** min(e, 20), steps=20)
    assert (summary["steady"].startswith("unsteady"), summary["unsteady"]) == (True, True)
    summary, _ = train("full", 2, lambda e, s: 0.1 * (1 + (400 * e + s) / 10_000))
    assert (summary["unsteady"], summary["later_ratio"]) == (False, 1)


@pytest.mark.parametrize("change", [0.0001, -0.0001])
def test_steps_that_keep_changing_in_a_sample_mark_it(change):
    """Step times change by 0.1% in a second, so by 30% in the 300 s that a trend lasts at most."""
    steps = count()
    summary, _ = train("sampled", 20, lambda e, s: 0.1 * (1 + change * next(steps)))
    assert summary["unsteady"]
    assert lacking(summary["steady"], "unsteady", "trend", "+30%" if change > 0 else "-23%") == []
    assert summary["later_ratio"] == pytest.approx(1.3 if change > 0 else 1 / 1.3, abs=0.02)


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_a_first_epoch_of_cold_files_is_no_unsteady_run(mode):
    summary, _ = train(mode, 4, lambda e, s: 0.3 if e == 0 else 0.1)
    assert not summary["unsteady"]
    assert summary["later_ratio"] == 1


def test_uncounted_laps_are_kept_and_in_no_sum():
    clock, time = clock_of()
    steps(clock, time, 4, 5, "warmup", counted=False)
    for _ in clock.epochs(2):
        steps(clock, time, 10, 1)
        steps(clock, time, 10, 3, "valid", counted=False)
    steps(clock, time, 2, 0.5, "valid")
    found = clock.summary()
    assert found["seconds"] == pytest.approx(2 * 10 + 2 * 0.5)
    assert found["measured"]
    assert found["valid_seconds"] == pytest.approx(1)
    seconds = {
        phase: sum(lap.seconds for lap in found["laps"] if lap.phase == phase) for phase in ("warmup", "train", "valid")
    }
    assert seconds == pytest.approx({"warmup": 20, "train": 20, "valid": 61})


@pytest.mark.parametrize(("run_seconds", "median"), [((3, 1, 2), 2), ((1, 4, 2, 3), 2), ((5,), 5)])
def test_the_run_with_the_median_time_stands_for_the_runs_of_a_process(run_seconds, median):
    clock, time = clock_of()
    for number in clock.runs(len(run_seconds)):
        for _ in clock.epochs(1):
            steps(clock, time, 10, run_seconds[number] / 10)
    assert clock.summary()["seconds"] == pytest.approx(median)
    assert clock.summary()["samples"] == 100


def test_one_run_is_enough_for_a_sample():
    clock = Clock(sampling_for("quick", accelerator=False), now=Time())
    assert list(clock.runs(5)) == [0]


def grow(mode, paces, epochs=(13, 12, 3), steps=400, state=None, stop_at=None):
    """A training in three stages that differ in seconds per step; returns (clock, epochs that ran, time).

    Stopped at (epoch, step) it returns what `resume` takes in the clock's place.
    """
    time = Time()
    clock = Clock(sampling_for(mode, accelerator=False), now=time)
    starts = [0, epochs[0], epochs[0] + epochs[1]]
    ran = []
    if state:
        clock.resume(*state)
    for epoch in clock.epochs(sum(epochs), stages=starts):
        ran.append(epoch)
        pace = paces[sum(epoch >= start for start in starts) - 1]
        for step, _ in enumerate(clock.steps(Loader(steps, time, wait=pace / 4), "train", samples=steps * 10)):
            if (epoch, step) == stop_at:
                return (clock.state(), clock.elapsed), ran, time
            time.now += pace
        for _ in clock.steps(Loader(40, time), "valid", samples=400):
            time.now += pace / 2
        time.now += 0.5
    for _ in clock.resident():
        time.now += paces[min(2, len(ran) - 1)]
    return clock, ran, time


@pytest.mark.parametrize("epochs", [(13, 12, 3), (1, 1, 1), (2, 5, 1)])
def test_each_stage_is_sampled_and_the_whole_projected_exactly(epochs):
    paces = (0.1, 0.4, 0.9)
    full, every, _ = grow("full", paces, epochs)
    sampled, few, _ = grow("sampled", paces, epochs)
    assert every == list(range(sum(epochs)))
    starts = (0, epochs[0], epochs[0] + epochs[1])
    assert few == [start + n for start, many in zip(starts, epochs, strict=True) for n in range(min(2, many))]
    assert full.complete
    assert not sampled.complete
    real, projected = full.summary(), sampled.summary()
    for figure in ("seconds", "train_seconds", "valid_seconds", "samples_per_second", "loader_wait", "run_samples"):
        assert projected[figure] == pytest.approx(real[figure]), figure
    assert real["measured"]
    assert not projected["measured"]
    assert sampled.stage_seconds() == pytest.approx(full.stage_seconds())
    assert sum(full.stage_seconds().values()) == pytest.approx(real["seconds"])
    assert not projected["unsteady"]


def test_a_run_that_goes_on_has_the_time_of_both_parts():
    paces, epochs = (0.1, 0.4, 0.9), (2, 2, 2)
    whole, _, _ = grow("full", paces, epochs)
    state, _, _ = grow("full", paces, epochs, stop_at=(3, 100))
    lost = 100 * 0.5 + 0.1  # 100 steps with their waits, and the wait for the next
    second, ran, _ = grow("full", paces, epochs, state=state)
    assert ran == [3, 4, 5]
    assert second.complete
    ours, theirs = second.summary(), whole.summary()
    assert ours["seconds"] == pytest.approx(theirs["seconds"] + lost)
    assert ours["train_seconds"] == pytest.approx(theirs["train_seconds"])
    assert ours["samples"] == theirs["samples"]
    assert ours["measured"]
    assert lacking(ours["resumed"], "epoch 3", "50.1 s") == []
    assert len(ours["laps"]) >= len(theirs["laps"]) - 4


def test_a_run_is_complete_once_its_last_epoch_has_begun_and_nothing_was_cut():
    clock, time = clock_of()
    seen = []
    for _ in clock.epochs(3):
        steps(clock, time, 2, 1.0)
        seen.append(clock.complete)
    assert (seen, clock.complete) == ([False, False, True], True)
    clock, time = clock_of()
    for epoch in range(2):
        clock.begin_epoch(epoch, 3)
    assert not clock.complete  # two of three, the second not even over
    clock.end_epoch()
    assert not clock.complete
    clock, time = clock_of("quick")
    for _ in clock.epochs(1):
        steps(clock, time, 9, 1.0)
    assert not clock.complete
    clock, time = clock_of("quick")
    for _ in clock.epochs(1):
        steps(clock, time, 4, 1.0)
    assert clock.complete  # one warm-up step and three were all of it


def test_news_by_hand_and_four_times_a_second_at_most():
    """Two epochs of four steps and one of validation; validation is the last tenth of an epoch."""
    news = []
    clock, time = clock_of(report=news.append)
    steps(clock, time, 2, 1.0, "warmup", counted=False)
    for _ in clock.epochs(2):
        steps(clock, time, 4, 0.5)
        steps(clock, time, 2, 2.0, "valid")
    assert [(event["phase"], event["rate"]) for event in news] == [
        ("warmup", None),  # the device begins to work
        *[("warmup", 10)] * 2,
        *[*[("train", 20)] * 4, *[("valid", 5)] * 2] * 2,
    ]
    fractions = [event["fraction"] for event in news]
    first = [0.1125, 0.225, 0.3375, 0.45, 0.475, 0.5]
    assert fractions == pytest.approx([0, 0, 0, *first, *[0.5 + each for each in first]])
    second_of_two_stages = Run(planned=10, stages=(0, 5), epoch=5)  # two epochs of each are sampled
    assert second_of_two_stages.done(sampling_for("sampled", accelerator=True), "train", 0.5) == pytest.approx(2.45 / 4)
    news = []
    clock, time = clock_of(report=lambda event: news.append(time.now))
    for _ in clock.epochs(1):
        steps(clock, time, 8, 0.125)
    # At the start; then a lap of one step and three of two; the last step is none yet.
    assert news == [0.0, 0.375, 0.625, 0.875]


def test_the_time_of_setup_of_an_epoch_and_of_a_step():
    clock, time = clock_of()
    assert clock.elapsed == 0
    clock.begin_epoch(0, 2)
    time.now += 3
    assert clock.elapsed == 3
    clock.begin_epoch(1, 2)  # which ends the one before
    time.now += 4
    clock.end_epoch()
    time.now += 50
    clock.end_epoch()
    assert clock.elapsed == 7
    assert clock.summary()["seconds"] == 7
    clock, time = clock_of(began=2.0)
    time.now += 6
    found = clock.summary()
    assert (found["setup_seconds"], found["seconds"], found["samples_per_second"]) == (6, 0, None)
    for _ in clock.epochs(1):
        steps(clock, time, 3, 2.0)
    assert clock.summary()["setup_seconds"] == 6
    clock, time = clock_of("quick")
    for _ in clock.epochs(1):
        for number, _ in enumerate(clock.steps(Loader(20, time), "train")):
            time.now += 7.0 if number == 0 else 1.5
        steps(clock, time, 3, 0.5, "valid")
    found = (clock.step_seconds("train"), clock.step_seconds("valid"), clock.summary()["setup_seconds"])
    assert found == (1.5, 0.5, 0.0)


def test_what_a_later_process_is_told_and_makes_of_it():
    clock, time = clock_of()
    for epoch in clock.epochs(5):
        steps(clock, time, 2, 1.5)
        if epoch == 1:
            state = clock.state()
            break
    assert (state["lost"], state["resumed"], len(state["epochs"])) == (0.0, "", 1)
    second, time = clock_of()
    second.resume(state, 8.0)
    assert second.elapsed == 8.0
    for epoch in second.epochs(5):
        steps(second, time, 2, 1.5)
        if epoch == 2:
            state = second.state()
            break
    assert state["lost"] == 5.0
    assert lacking(state["resumed"], "epoch 1", "5.0 s") == []
    third, time = clock_of()
    third.resume(state, 10.5)  # two epochs of 3 s, and 5 s lost: less than what is known already
    assert third.elapsed == 11.0
    assert lacking(third.summary()["resumed"], "epoch 1", "5.0 s", "epoch 2", "0.0 s") == []
    assert third.summary()["steady"] == "resumed"
    assert clock_of()[0].summary()["resumed"] == ""


def epochs_taken(mode, count, step_seconds, *, planned=10, stages=(0,)):
    clock, time = clock_of(mode)
    ran = []
    for epoch in clock.epochs(planned, stages):
        assert epoch not in ran
        ran.append(epoch)
        steps(clock, time, count, step_seconds)
    return ran


def test_a_sample_takes_epochs_until_it_has_seen_enough():
    """Of five steps of a quarter second the first is a warm-up: a second of each epoch is timed."""
    assert epochs_taken("sampled", 5, 0.25) == [0, 1, 2, 3, 4]
    assert epochs_taken("sampled", 5, 0.5) == [0, 1, 2]
    assert epochs_taken("sampled", 5, 1.0) == [0, 1]
    assert epochs_taken("sampled", 5, 0.25, planned=3) == [0, 1, 2]
    assert epochs_taken("sampled", 5, 0.25, stages=(3, 0)) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert epochs_taken("sampled", 5, 1.0, stages=(0, 1, 6)) == [0, 1, 2, 6, 7]
    assert epochs_taken("quick", 5, 0.25) == [0]
    assert epochs_taken("quick", 5, 0.25, stages=(0, 4)) == [0, 4]
    assert epochs_taken("full", 5, 0.25, planned=4) == [0, 1, 2, 3]
    clock, time = clock_of("sampled")
    seen = []
    for _ in clock.epochs(10):
        steps(clock, time, 5, 0.5)
        seen.append(clock.enough)
    assert (seen, clock.enough) == ([False, False, True], True)
    clock, time = clock_of()
    for epoch in range(2):
        clock.begin_epoch(epoch, 2)
        assert clock.enough == (epoch == 1)


def residents(sizes, step_seconds, mode="full"):
    """(how often each batch came, the resident laps, the clock) after a pass of batches of these sizes."""
    clock, time = clock_of(mode)
    batches = [[index] * size for index, size in enumerate(sizes)]
    for _ in clock.epochs(1):
        for _ in clock.steps(batches, "train"):
            time.now += 1.0
        for _ in clock.steps([[99] * 50], "valid"):
            time.now += 1.0
    came = []
    for batch in clock.resident():
        time.now += step_seconds
        came.append(batch[0])
    laps = [lap for lap in clock.summary()["laps"] if lap.kind == "resident"]
    return came, [(lap.steps, lap.samples, round(lap.seconds, 9)) for lap in laps], clock


@pytest.mark.parametrize(
    ("seconds", "mode", "times", "laps"),
    [
        (2.0, "full", 4, [(1, 12, 2.0)] * 2),
        (0.5, "full", 4, [(1, 12, 0.5)] * 2),
        (0.25, "full", 6, [(1, 12, 0.25)] * 4),
        (0.125, "full", 2 + 1 + 8, [(2, 24, 0.25)] * 4),
        (0.0625, "full", 2 + 1 + 2 + 16, [(4, 48, 0.25)] * 4),
        (2.0, "quick", 2, [(1, 12, 2.0)]),
    ],
)
def test_the_largest_batch_is_resident_and_the_later_of_two(seconds, mode, times, laps):
    """One watched step, one to warm up (none in a quick run), then laps until there are two, and a second of them."""
    came, found, clock = residents([10, 12, 12, 4], seconds, mode)
    assert (came, found) == ([2] * times, laps)
    assert clock.watched_samples == 12


def test_a_resident_step_of_each_stage_is_watched_and_their_work_is_weighted_by_the_samples_of_the_run():
    seen = []

    class Watch:
        def __enter__(self):
            seen.append("in")

        def __exit__(self, *error):
            seen.append("out")

    clock, time = clock_of("quick", watch=lambda: [Watch()])
    for epoch in clock.epochs(4, stages=(0, 1)):
        for _ in clock.steps([[epoch] * (10 + 2 * epoch)] * 9, "train"):
            time.now += 1.0
    for batch in clock.resident():
        seen.append(batch[0])
        time.now += 1.0
    assert seen == ["in", 0, "out", 0, "in", 1, "out", 1]
    assert clock.watched_samples == 10
    works = [SimpleNamespace(flops=flops, bytes=2 * flops, calls=3, odd_flops=0) for flops in (100, 480)]
    fields = work_fields(works, clock.per_sample(), clock.watched_samples, None)
    flops = (90 * 10 + 324 * 40) / 414  # 1 epoch of 9 x 10 samples of 10 FLOPs, 3 of 9 x 12 of 40
    assert [fields["flops_per_sample"], fields["bytes_per_sample"]] == pytest.approx([flops, 2 * flops])


def test_what_the_steps_say_of_themselves_is_asked_once_before_the_resident_ones():
    clock, time = clock_of("quick")
    asked = []

    def notes():
        asked.append(time.now)
        return Notes(loss_scale=256.0, skipped_steps=3, nonfinite_losses=2)

    clock.note(notes)
    for _ in clock.epochs(1):
        steps(clock, time, 9, 1.0)
    for _ in clock.resident():
        time.now += 5.0
    found = clock.summary()
    assert asked == [4.0]
    assert (found["loss_scale"], found["skipped_steps"], found["nonfinite_losses"]) == (256.0, 3, 2)
    assert Notes() == Notes(None, None, None, "", {})


def test_what_a_suite_tells_the_clock():
    clock, _ = clock_of()
    clock.table += [{"size": 8, "time": 0.5}, {"size": 16, "time": 0.75}]
    clock.remarks += ["one thing", "and another"]
    found = clock.summary()
    assert found["table"] == ({"size": 8, "time": 0.5}, {"size": 16, "time": 0.75})
    assert found["reason"] == "one thing; and another"
    assert clock_of()[0].summary()["reason"] == ""
    clock, time = clock_of()
    for _ in clock.epochs(1):
        for _ in clock.steps([3, 4, 5], "train", count=lambda batch: batch):
            time.now += 1.0
    assert clock.summary()["samples"] == 12


class Talking:
    """Another process, three times as slow as this one; hearing of it takes two seconds."""

    def __init__(self, time):
        self.time, self.asked = time, 0

    def __call__(self, own):
        self.asked += 1
        self.time.now += 2.0
        if len(own) == 4:
            return [own, [own[0], own[1] + 1, own[2] * 3, own[3] + 0.25]]
        return [own, [each * 3 for each in own]]


def test_several_processes_agree_on_laps_and_wait_for_each_other_in_no_lap():
    """Laps of a step, of two, and of one that the loader's end leaves: samples of both, the time of the slower."""
    time = Time()
    peers = Peers(Talking(time), ("rank 0", "rank 1"))
    clock = Clock(sampling_for("full", accelerator=False), now=time, peers=peers)
    for _ in clock.epochs(1):
        for _ in clock.steps(Loader(4, time, wait=0.0125), "train"):
            time.now += 0.0375
    found = clock.summary()
    laps = [(lap.kind, lap.steps, lap.samples, lap.seconds, lap.wait_seconds) for lap in found["laps"]]
    assert [lap[:3] for lap in laps] == [("warmup", 1, 21), ("timed", 2, 41), ("timed", 1, 21)]
    assert [lap[3] for lap in laps] == pytest.approx([0.15, 0.3, 0.15])
    assert [lap[4] for lap in laps] == pytest.approx([0.2625, 0.275, 0.2625])
    assert found["seconds"] == pytest.approx(3 * 4 * 0.05)
    assert found["samples"] == 83


def test_the_last_steps_of_a_loop_that_was_left_count_for_every_process():
    time = Time()
    talking = Talking(time)
    clock = Clock(sampling_for("full", accelerator=False), now=time, peers=Peers(talking, ("rank 0", "rank 1")))
    for number, _ in enumerate(clock.steps(Loader(9, time), "train")):
        time.now += 0.05
        if number == 4:
            break
    laps = [(lap.steps, lap.samples, round(lap.seconds, 3)) for lap in clock.summary()["laps"]]
    # A step and then two were agreed on; the fourth is this process's word alone, and the fifth was never over.
    assert laps == [(1, 21, 0.15), (2, 41, 0.3), (1, 20, 0.1)]
    assert talking.asked == 3  # at the beginning and for two laps


def test_what_talking_costs_and_who_is_slower():
    """Steps take 0.5 s with the others and 0.2 s alone; the other process takes three times as long."""
    time = Time()
    clock = Clock(sampling_for("quick", accelerator=False), now=time, peers=Peers(Talking(time), ("rank 0", "rank 1")))
    for _ in clock.epochs(1):
        for _ in clock.steps(Loader(9, time, wait=0.25), "train"):
            time.now += 0.25
    together = []
    for _ in clock.resident():
        together.append(clock.together)
        time.now += 0.5 if clock.together else 0.2
    found = clock.summary()
    assert together == [True, True, False, False]
    assert clock.together
    # Alone 0.2 and 0.6 s. Of three timed steps each waited 0.25 s in this process and 0.5 s in the other.
    assert found["rank_spread"] == pytest.approx((0.6 + 0.5) / (0.2 + 0.25) - 1)
    assert found["straggler"] == "rank 1: 2.44 times the median"
    assert found["communication_share"] == pytest.approx(1 - 0.6 / 1.5)


class Shaped:
    """Something that has a shape, as a tensor has, and a length where that is more than a number's."""

    def __init__(self, *shape):
        self.shape = shape

    def __len__(self):
        if not self.shape:
            raise TypeError("a number has no length")
        return self.shape[0]


@pytest.mark.parametrize(("batch", "samples"), [
    (Shaped(32, 3, 8), 32), ((Shaped(7, 2), Shaped(9)), 7), ([(Shaped(5, 2), 1), Shaped(9)], 5),
    ({"image": Shaped(6, 2), "label": Shaped(9)}, 6), ([Shaped(), Shaped(), Shaped()], 3), ([], 0),
    (([], [1, 2]), 0), (("text", "another"), 2), (range(8), 8), (object(), 1), ({"a": 3, "b": 4}, 2),
    ({"ids": [0] * 32, "mask": [0] * 32}, 32), ((([0] * 16, [0] * 16), [0] * 16), 16), (Shaped(), 1),
    ({"y": Shaped(), "x": Shaped(8, 2)}, 8), ((3, Shaped(9)), 9),
])  # fmt: skip
def test_how_many_samples_a_batch_has(batch, samples):
    assert first_dimension(batch) == samples
