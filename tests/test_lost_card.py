"""A card that its driver loses during a run: the run stops, names the card, and goes on when it is back."""

import csv
from dataclasses import replace

import pytest
from facts import lacking
from inside import answering

from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Reading
from gpubench.runner.devices import lost_device
from gpubench.runner.options import Options
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
        return CardState() if self.lost else CardState(power_limit_watts=350.0, clocks_policy="default")

    def read(self):
        return Reading()

    def processes(self):
        return None


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Runs trials that end with `results`; the exit code, text, statuses, and how often the devices were listed."""
    monkeypatch.setattr("gpubench.hardware.host.reference_seconds", lambda: 0.1)

    def go(results, later=(CARD, CPU), models=("resnet18",), batch="8", out=tmp_path / "a.csv"):
        options = Options(
            models=models, precision="fp32", device="cuda:0", batch=batch, out=out, synthetic=True, peaks=False
        )
        lines = []
        sensors = Sensors()
        monkeypatch.setattr("gpubench.runner.session.readers", lambda devices: {"cuda:0": sensors})
        left, listed = list(results), []

        def devices():
            listed.append(later if listed else [CARD, CPU])
            return listed[-1]

        def result_of(trial):
            sensors.lost = left[0] is LOST
            return left.pop(0)

        summary = run(options, lines.append, run_child=answering(result_of, devices))
        with summary.path.open(newline="") as file:
            statuses = [row["status"] for row in csv.DictReader(file)]
        return summary.exit_code, "\n".join(lines), statuses, len(listed)

    return go


@pytest.mark.parametrize("later", [[CPU], [OTHER, CPU], [replace(CARD, problem="no kernel runs"), CPU]])
def test_a_lost_card_stops_the_run_after_two_failures_and_the_same_command_goes_on(ran, later):
    code, text, statuses, _ = ran([GOOD, LOST, LOST], later)
    assert (code, statuses) == (4, ["ok", "failed", "failed", "interrupted", "interrupted", "interrupted"])
    assert lacking(text, "cuda:0", "Some Card", "lost", "1 of 6 trials", "resumes") == []
    code, text, statuses, _ = ran([GOOD] * 5)
    assert (code, statuses.count("ok")) == (0, 6)


def test_a_card_that_is_lost_in_the_search_of_a_batch_stops_the_run_too(ran, tmp_path):
    code, text, statuses, _ = ran([LOST] * 99, [CPU], ("resnet18", "resnet34", "resnet50"), "max", tmp_path / "a b")
    assert (code, statuses[:2], set(statuses[2:])) == (4, ["failed", "failed"], {"interrupted"})
    assert lacking(text, "cuda:0", "Some Card", "lost") == []
    assert ("same command with --out '" in text, text.endswith(".csv' resumes")) == (True, True)


def test_which_devices_are_lost():
    broken = replace(CARD, problem="no kernel runs")
    gone = "cuda:0 (Some Card) is lost: torch does not list it any more"
    for before, now, expected in (
        ([CARD], [CARD], ""),
        ([CARD], [replace(CARD, device="cuda:1")], ""),  # the same card under another number
        ([CARD], [OTHER], gone),
        ([CARD], [broken], "cuda:0 (Some Card) is lost: no kernel runs"),
        ([broken], [broken], ""),  # it never worked
        ([CPU], [CARD], ""),
        ([CPU, CARD], [CPU], gone),
    ):
        assert lost_device(before, now) == expected


def test_trials_that_fail_on_a_card_that_computes_go_on(ran):
    code, _, statuses, listed = ran([LOST, GOOD, LOST, LOST, LOST, LOST])
    assert (code, statuses.count("failed"), listed) == (4, 5, 3)
