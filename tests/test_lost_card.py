"""A card that its driver loses during a run: the run stops, names the card, and goes on when it is back."""

import csv
from dataclasses import asdict, replace

import pytest
from facts import lacking

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Reading
from gpubench.runner.options import Options
from gpubench.runner.process import Outcome
from gpubench.runner.run import run
from gpubench.suite.trial import Measurement

CARD = Device("cuda:0", "cuda", "Some Card", 2**33, "8.6", "1", "aa")
OTHER = replace(CARD, device_hash="bb")
CPU = Device("cpu", "cpu", "Some CPU", 2**34, device_hash="cc")
GOOD = Measurement("ok", seconds=1.0, samples_per_second=8.0, epochs=1, samples=8)
LOST = Measurement("failed", "CUDA error: unspecified launch failure")


class Sensors:
    """Reads a card that tells its power limit until it is lost."""

    lost = False

    def state(self):
        return CardState() if self.lost else CardState(power_limit_watts=350.0)

    def read(self):
        return Reading()

    def processes(self):
        return None


class Machine:
    """Stands in for `run_child`: a machine whose trials end with `results` in turn, and that lists `later` by then."""

    def __init__(self, results, later, sensors):
        self.results, self.later, self.sensors = list(results), later, sensors
        self.asked = 0

    def __call__(self, task, **options):
        answer = {}
        if task["task"] == "describe":
            devices = self.later if self.asked else [CARD, CPU]
            self.asked += 1
            facts = {"torch": "2.15.0", "cuda": "13.2", "cudnn": "9", "devices": [asdict(one) for one in devices]}
            answer = {"facts": facts}
        elif task["task"] == "trial":
            result = self.results.pop(0)
            self.sensors.lost = result is LOST
            answer = {"measurement": asdict(result), "train_call_seconds": 1.0}
        return Outcome("answered", 1.0, answer)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Runs six trials of one case on a machine; returns its exit code, text, statuses and the machine."""
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)
    out = tmp_path / "a.csv"

    def go(results, later=(CARD, CPU), models=("resnet18",), batch="8"):
        options = Options(
            models=models, precision="fp32", device="cuda:0", batch=batch, out=out, synthetic=True, peaks=False
        )
        lines = []
        sensors = Sensors()
        monkeypatch.setattr("gpubench.runner.session.readers", lambda devices: {"cuda:0": sensors})
        machine = Machine(results, later, sensors)
        summary = run(options, lines.append, run_child=machine)
        with out.open(newline="") as file:
            return summary.exit_code, "\n".join(lines), [row["status"] for row in csv.DictReader(file)], machine

    return go


@pytest.mark.parametrize("later", [[CPU], [OTHER, CPU], [replace(CARD, problem="no kernel runs"), CPU]])
def test_a_lost_card_stops_the_run_after_two_failures_and_the_same_command_goes_on(ran, later):
    code, text, statuses, _ = ran([GOOD, LOST, LOST], later)
    assert (code, statuses) == (4, ["ok", "failed", "failed", "interrupted", "interrupted", "interrupted"])
    assert lacking(text, "cuda:0", "Some Card", "lost", "1 of 6 trials", "resumes") == []
    code, text, statuses, _ = ran([GOOD] * 5)
    assert (code, statuses.count("ok")) == (0, 6)


def test_a_card_that_is_lost_in_the_search_of_a_batch_stops_the_run_too(ran):
    code, text, statuses, _ = ran([LOST] * 99, [CPU], ("resnet18", "resnet34", "resnet50"), "max")
    assert (code, statuses[:2], set(statuses[2:])) == (4, ["failed", "failed"], {"interrupted"})
    assert lacking(text, "cuda:0", "Some Card", "lost", "resumes") == []


def test_trials_that_fail_on_a_card_that_computes_go_on(ran):
    code, _, statuses, machine = ran([LOST, GOOD, LOST, LOST, LOST, LOST])
    assert (code, statuses.count("failed"), machine.asked) == (4, 5, 3)
