"""Readings cut to the timed laps, marks, settling, foreign load: with a card and a clock whose values are data."""

import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from nvml_answers import H100, RECORDED, UUID, Nvml, find, processes
from small_trials import small_trial

from gpubench.hardware.environment import Device, cpu_facts, environment_of
from gpubench.hardware.state import CardState, Commands, Processes, Reading
from gpubench.hardware.telemetry import Sampler, foreign, settled
from gpubench.runner.measure import Measure
from gpubench.runner.options import Options
from gpubench.runner.process import Outcome, run_child
from gpubench.runner.progress import TrialProgress
from gpubench.runner.session import Session
from gpubench.suite import files
from gpubench.suite.trial import Lap, Telemetry, Trial
from gpubench.training.clock.clock import Clock
from gpubench.training.clock.projection import Epoch, Phase
from gpubench.training.clock.sampling import sampling_for

LAP_EVENT = {"event": "lap", "phase": "train", "rate": 100.0}
BEGUN = {"event": "lap", "phase": "train", "rate": None}


class Card:
    """A card that says at each time what `at` says."""

    commands = Commands()

    def __init__(self, at, seen=None, max_clock=None) -> None:
        self.at, self.now, self.seen, self.max_clock = at, 0.0, seen, max_clock

    def state(self):
        return CardState(card_max_sm_clock_mhz=self.max_clock)

    def read(self):
        return self.at(self.now)

    def processes(self):
        return self.seen


def sampled(card, seconds, *, cpu_energy=lambda: None, on_cpu=False, pid=1, first_lap=0.0, now=None):
    """A sampler that was ticked every 0.2 s, and what it told the child, with the times; `now` has the time in it."""
    now = now or [0.0]
    sampler = Sampler(card, cpu_energy, on_cpu=on_cpu, now=lambda: now[0])
    told = []
    while now[0] <= seconds:
        sampler.note(LAP_EVENT if now[0] >= first_lap else BEGUN)
        if isinstance(card, Card):
            card.now = now[0]
        if news := sampler.tick(pid):
            told.append((now[0], news))
        now[0] += 0.2
    return sampler, told


def lap(started, seconds, *, samples=100, kind="timed", phase="train"):
    return Lap(phase, 0, kind, 10, samples, seconds, 0.0, started)


LAPS = [
    lap(0, 10, kind="warmup"),
    lap(10, 5),
    lap(15, 5),
    lap(20, 10, phase="valid"),
    lap(30, 10),
    lap(40, 5, kind="resident"),
]


def busy(now):
    """300 W while the laps above train, 100 W outside."""
    return 300.0 if 10 <= now < 20 or 30 <= now < 40 else 100.0


def counted(now):
    """Joules that `busy` has used."""
    return 100 * now + 200 * (min(max(now - 10, 0), 10) + min(max(now - 30, 0), 10))


def test_energy_is_that_of_timed_laps_of_a_second_at_least():
    sampler, _ = sampled(Card(lambda now: Reading(energy_joules=5e6 + counted(now), power_watts=1.0)), 50)
    seen = sampler.telemetry(LAPS)
    assert (seen.energy_joules, seen.energy_source) == (pytest.approx(6000), "counter")
    assert seen.mean_power_watts == pytest.approx(300)
    assert seen.joules_per_sample == pytest.approx(20)
    # The child answers and ends in the middle of the parent's pause, with its last laps behind the last reading.
    for card in (Card(lambda now: Reading(power_watts=250.0)), Card(lambda now: Reading(energy_joules=250 * now))):
        sampler, _ = sampled(card, 19.9)
        seen = sampler.telemetry([lap(10, 5), lap(15, 5.3)])
        assert seen.energy_joules == pytest.approx(250 * 10.3)
        assert seen.mean_power_watts == pytest.approx(250)
    sampler, _ = sampled(Card(lambda now: Reading(energy_joules=counted(now), power_watts=busy(now))), 50)
    assert sampler.telemetry([lap(12, 0.5)]) == Telemetry()
    assert sampler.telemetry([]) == Telemetry()
    assert sampler.telemetry([lap(900, 20)]) == Telemetry()


@pytest.mark.parametrize("counter", [lambda now: None, lambda now: 7.0, lambda now: counted(now) % 4000])
def test_without_a_counter_power_is_integrated_and_marked_so(counter):
    sampler, _ = sampled(Card(lambda now: Reading(energy_joules=counter(now), power_watts=busy(now))), 50)
    seen = sampler.telemetry(LAPS)
    assert seen.energy_joules == pytest.approx(6000, rel=0.01)
    assert seen.energy_source == "integrated"


def test_means_and_extremes_are_of_the_timed_laps_only():
    def at(now):
        inside = 10 <= now <= 20 or 30 <= now <= 40
        return Reading(
            sm_clock_mhz=1400.0 if inside else 200.0,
            memory_clock_mhz=1100.0,
            temperature_celsius=70 + now / 10 if inside else 99.0,
            utilisation=0.9 if inside else 0.0,
            memory_used_bytes=5e9 if inside else 9e9,
            pcie_generation=4 if inside else 1,
            pcie_width=16,
        )

    seen = sampled(Card(at), 50)[0].telemetry(LAPS)
    assert (seen.mean_sm_clock_mhz, seen.min_sm_clock_mhz, seen.mean_memory_clock_mhz) == (1400, 1400, 1100)
    assert seen.max_temperature_celsius == pytest.approx(74, abs=0.1)
    assert seen.mean_utilisation == pytest.approx(0.9)
    assert (seen.device_memory_bytes, seen.pcie_generation, seen.pcie_width) == (5_000_000_000, 4, 16)


def test_a_power_cap_and_a_stray_slowdown_mark_nothing():
    capped = Card(lambda now: Reading(reasons=frozenset({"power_cap"} if now % 2 < 1.5 else ())))
    seen = sampled(capped, 50)[0].telemetry(LAPS)
    assert float(seen.throttle.removeprefix("power_cap=")) == pytest.approx(0.75, abs=0.05)
    assert seen.marks == ""
    # NVML says that the bit may also be reported while the clock changes.
    stray = Card(
        lambda now: Reading(sm_clock_mhz=1500.0, reasons=frozenset({"hw_slowdown"} if 12 < now < 12.3 else ()))
    )
    seen = sampled(stray, 50)[0].telemetry(LAPS)
    assert (seen.marks, seen.throttle) == ("", "hw_slowdown=0.01")


@pytest.mark.parametrize("reason", ["hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"])
def test_heat_and_hardware_mark_a_trial_but_only_inside_its_timed_laps(reason):
    def with_reason(start, end):
        card = Card(lambda now: Reading(reasons=frozenset({reason} if start < now < end else ())))
        return sampled(card, 50)[0].telemetry(LAPS)

    assert with_reason(12, 14).marks == "throttled"
    assert with_reason(12, 14).throttle.startswith(f"{reason}=0.")
    assert with_reason(0, 9).marks == ""
    assert with_reason(0, 9).throttle == "none"
    assert with_reason(21, 29).marks == ""


@pytest.mark.parametrize(
    ("fall", "reasons", "marks"),
    [
        (0.02, (), ""),
        (0.04, (), "clock_fell"),  # a boost clock on an air-cooled card
        (0.14, (), "throttled"),
        (0.14, ("power_cap",), "clock_fell"),
        (0.04, ("power_cap", "sw_thermal"), "throttled"),
    ],
)
def test_a_clock_that_falls_marks_a_trial(fall, reasons, marks):
    card = Card(lambda now: Reading(sm_clock_mhz=1500 * (1 - fall * now / 25), reasons=frozenset(reasons)))
    assert sampled(card, 50)[0].telemetry(LAPS).marks == marks


@pytest.mark.parametrize("name", ["P2000", "V100S", "H100"])
def test_a_real_card_from_the_driver_to_the_columns(name):
    now, answers = [0.0], RECORDED[name]
    counter = "nvmlDeviceGetTotalEnergyConsumption"
    changes = {counter: lambda: int(answers[counter] + 1000 * counted(now[0]))} if counter in answers else {}
    changes["nvmlDeviceGetPowerUsage"] = lambda: int(1000 * busy(now[0]))
    sampler, _ = sampled(find(Nvml(answers, **changes), UUID), 50, now=now)
    seen = sampler.telemetry(LAPS)
    assert seen.energy_joules == pytest.approx(6000, rel=0.01)
    assert seen.energy_source == ("integrated" if name == "P2000" else "counter")
    assert seen.throttle == ("none" if name == "V100S" else "idle=1")


def test_cpu_energy_stands_beside_the_cards_and_is_the_devices_on_a_cpu():
    now = [0.0]

    def cpu():
        now[0] += 10.0  # 10 J per reading, 50 W
        return now[0]

    beside, _ = sampled(Card(lambda now: Reading(power_watts=busy(now))), 50, cpu_energy=cpu)
    seen = beside.telemetry(LAPS)
    assert seen.cpu_energy_joules == pytest.approx(1000, rel=0.02)
    assert seen.energy_source == "integrated"
    alone, told = sampled(None, 50, cpu_energy=cpu, on_cpu=True)
    seen = alone.telemetry(LAPS)
    assert (seen.energy_source, seen.foreign_load, seen.throttle, told) == ("rapl", "", "", [])
    assert seen.joules_per_sample == pytest.approx(1000 / 300, rel=0.02)
    elsewhere, _ = sampled(None, 50, cpu_energy=cpu)  # an accelerator that nobody reads
    assert elsewhere.telemetry(LAPS).energy_joules is None


SCRIPTED = Path(__file__).parent / "suites" / "scripted.py"


def session_and_case(tmp_path, card):
    """A session on one card of another maker, and the case of half a second a step."""
    loaded = files.find(str(SCRIPTED))
    settings = {"steps": "20", "step_ms": "500"}
    case = small_trial(loaded, "short", "fp32", settings, mode="quick", batch=4, data="", device="xpu:0").case
    case = replace(case, suite_digest=loaded.digest)
    device = Device("xpu:0", "xpu", "A card", None, "", "", "aaaa", {})
    session = Session(
        options=Options(suites=("scripted",)),
        suites={"scripted": loaded},
        devices={"xpu:0": device},
        cards={"xpu:0": card},
        environment=environment_of(cpu_facts()),
        path=tmp_path / "a.csv",
    )
    return session, case


def test_laps_reach_the_sensors_and_the_child_is_told_that_its_card_has_settled(tmp_path, monkeypatch):
    now, told, laps = [0.0], [], []
    monkeypatch.setattr("gpubench.runner.measure.Sampler", partial(Sampler, now=lambda: now[0]))

    def run_child(task, *, on_event, on_wake, **limits):
        assert task["watched"]
        for lap_number in range(300):
            if lap_number == 50:  # so long it prepares
                on_event(LAP_EVENT)
            told.append(on_wake(1))
            now[0] += 0.2
        return Outcome("died", now[0])

    session, case = session_and_case(tmp_path, Card(lambda now: Reading(sm_clock_mhz=1500.0)))
    listener = SimpleNamespace(lap=laps.append, say=None)
    assert Measure(session, run_child, listener)(Trial(case, 0, 1)).status == "failed"
    assert laps == [LAP_EVENT]
    assert not any(told[:50])
    assert [news for news in told if news] == [{"settled": True}]


def test_a_row_of_a_real_child_carries_what_its_card_told(tmp_path):
    card = Card(lambda now: Reading(power_watts=200.0, sm_clock_mhz=1000.0, reasons=frozenset({"hw_thermal"})))
    session, case = session_and_case(tmp_path, card)
    measurement = Measure(session, run_child, TrialProgress())(Trial(case, 0, 1))
    assert measurement.status == "ok", measurement.reason
    timed = [lap for lap in measurement.laps if (lap.phase, lap.kind) == ("train", "timed")]
    seen = measurement.telemetry
    assert seen.mean_power_watts == pytest.approx(200)
    assert seen.energy_joules == pytest.approx(200 * sum(lap.seconds for lap in timed), rel=0.01)
    assert (seen.energy_source, seen.throttle, seen.foreign_load) == ("integrated", "hw_thermal=1", "unknown")
    assert seen.marks == "throttled"


# Foreign load

ME = os.getpid()
PARENT = psutil.Process().ppid()


def seen_by(compute=(), graphics=(), *, all_visible=True):
    return foreign(Processes(frozenset(compute), frozenset(graphics)), ME, all_visible=all_visible)


def test_our_own_child_and_its_children_are_not_foreign():
    child = psutil.Popen(["sleep", "600"])
    try:
        assert seen_by({ME, child.pid}) == Processes()
        assert seen_by({ME, child.pid, PARENT}, {PARENT, 1}) == Processes(frozenset({PARENT}), frozenset({1}))
    finally:
        child.kill()
        child.wait()


def test_what_cannot_be_seen_of_others_is_unknown():
    assert seen_by({4_000_000}) is None  # the host's ids: ours must be among them
    assert seen_by() is None  # a container without any: we are at work there, and not listed
    assert seen_by({0}) is None
    assert foreign(None, ME, all_visible=True) is None
    assert seen_by({ME}, all_visible=False) is None
    assert seen_by({ME, PARENT}, all_visible=False) == Processes(frozenset({PARENT}))


@pytest.mark.parametrize(
    ("compute", "graphics", "load", "marks"),
    [
        ((ME,), (), "none", ""),
        ((ME,), (PARENT,), "1 graphics", ""),
        ((ME, PARENT), (1, PARENT), "1 compute, 1 graphics", "shared"),
        ((4_000_000,), (), "unknown", ""),
    ],
)
def test_foreign_load_in_the_columns(compute, graphics, load, marks):
    answers = {
        "nvmlDeviceGetComputeRunningProcesses": processes(*compute),
        "nvmlDeviceGetGraphicsRunningProcesses": processes(*graphics),
    }
    sampler, _ = sampled(find(Nvml(H100, **answers), UUID), 50, pid=ME)
    seen = sampler.telemetry(LAPS)
    assert (seen.foreign_load, seen.marks) == (load, marks)
    # Timed laps too short for a reading, as of a quick run: processes are seen during the warm-up.
    quick = sampler.telemetry([lap(10, 5, kind="warmup"), lap(15.01, 0.1)])
    assert quick == Telemetry(foreign_load=load.replace("unknown", ""), marks=marks)


# Settling

TIMES = [index / 5 for index in range(101)]


def flat_at(at, since=0.0, until=20.0):
    times = [time for time in TIMES if time <= until]
    return settled(times, [at(time) for time in times], since=since)


def test_a_card_has_settled_when_it_is_flat_and_not_idle():
    assert flat_at(lambda now: Reading(sm_clock_mhz=1500 + 15 * (round(now * 5) % 2), temperature_celsius=70))
    assert not flat_at(lambda now: Reading(sm_clock_mhz=1500, temperature_celsius=40 + now))
    assert not flat_at(lambda now: Reading(sm_clock_mhz=1900 - 20 * now, temperature_celsius=70))
    assert flat_at(lambda now: Reading(sm_clock_mhz=1500))  # what is not told cannot move
    assert not flat_at(lambda now: BUSY, since=16.0)
    assert not flat_at(lambda now: IDLE)
    assert not flat_at(lambda now: IDLE if now % 1 < 0.7 else BUSY)
    assert flat_at(lambda now: IDLE if now % 1 < 0.3 else BUSY), "between two steps a card may be idle"


IDLE = Reading(sm_clock_mhz=210, temperature_celsius=30, utilisation=0.0, reasons=frozenset({"idle"}))
BUSY = Reading(sm_clock_mhz=1500, temperature_celsius=70, utilisation=0.9, reasons=frozenset())


def test_a_card_that_idles_while_code_is_compiled_has_not_settled():
    _, told = sampled(Card(lambda now: IDLE if now < 8 else BUSY), 30, first_lap=9.0)
    ((when, news),) = told
    assert (round(when), news) == (14, {"settled": True}), "five seconds after the first lap"


def test_that_a_card_has_settled_is_told_once_and_withdrawn_when_it_moves():
    warming = Card(lambda now: Reading(sm_clock_mhz=1500, temperature_celsius=min(70.0, 50 + 2 * now)))
    sampler, told = sampled(warming, 30)
    assert sampler.watches
    ((when, news),) = told
    assert news == {"settled": True}
    assert 12 <= when <= 15.5

    def at(now):
        return Reading(sm_clock_mhz=1500, temperature_celsius=50 if now < 10 else min(70.0, 50 + 2 * (now - 10)))

    _, told = sampled(Card(at), 40)
    assert [message["settled"] for _, message in told] == [True, False, True]
    # At the highest clock heat changes nothing yet.
    _, told = sampled(Card(at, max_clock=1500), 40)
    assert [(round(when), message["settled"]) for when, message in told] == [(5, True)]
    sampler, told = sampled(Card(lambda now: Reading(power_watts=100.0)), 30)
    assert not sampler.watches
    assert told == []


def test_laps_of_an_earlier_process_are_not_laid_over_these_readings():
    """Their stamps may be of another boot: here they fall where this process was still starting."""
    sampler, _ = sampled(Card(lambda now: Reading(power_watts=busy(now))), 50)
    state = Clock(sampling_for("full", accelerator=True)).state()
    state["epochs"] = [asdict(Epoch(0, 9.0, (Phase("train", 0, (lap(0, 9),), 100, False),)))]
    clock = Clock(sampling_for("full", accelerator=True))
    clock.resume(state, 9.0)
    resumed = [each for epoch in clock.state()["epochs"] for phase in epoch["phases"] for each in phase["laps"]]
    laps = [*(Lap(**each) for each in resumed), *LAPS[1:]]
    assert sampler.telemetry(laps).mean_power_watts == pytest.approx(300, rel=0.02)
