"""The doctor's visit, with a device that cannot be loaded and cards whose answers are data."""

import pytest
from inside import skip_sleep

from gpubench.cli.doctor import checkup, examine
from gpubench.hardware.advice import of_card
from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Host, Processes, Reading
from gpubench.runner.process import Outcome, run_child

QUIET = Host(16, "performance", 0.2, "none", True, 64 << 30)
DEVICE = {"device": "xpu:7", "kind": "xpu", "card": "A card"}


class Card:
    """A card that is busy at first and idle later."""

    commands = Commands()

    def __init__(self) -> None:
        self.looks = 0

    def state(self):
        return CardState(power_limit_watts=300, default_power_limit_watts=300)

    def read(self):
        self.looks += 1
        return Reading(utilisation=0.9 if self.looks < 3 else 0.0, power_watts=50.0)

    def processes(self):
        return Processes()


def test_an_accelerator_without_a_reader_and_the_host_are_both_spoken_of():
    facts = {"torch": "2.15.0", "cuda": "", "cudnn": "", "devices": [DEVICE]}
    texts = [check.text for check in checkup(facts, QUIET, [])]
    assert any(text.startswith("xpu:7: ") and "power, energy, clocks" in text for text in texts)
    assert texts[-1] == "no problems on the host"


def test_a_card_is_seen_at_rest_and_a_load_that_fails_is_a_result(monkeypatch):
    skip_sleep(monkeypatch)
    device = Device("xpu:7", "xpu", "A card", None, "", "", "aaaa", {})
    asked = []

    def run_child(task, **options):
        asked.append(task)
        return Outcome("died", 2.0, exit_code=1, tail="no such device")

    check = examine(device, Card(), run_child)
    assert asked == [{"task": "soak", "devices": ["xpu:7"], "seconds": 5.0}]
    assert check.idle.utilisation == 0.0  # our own work a moment ago fades
    assert check.state.power_limit_watts == 300
    (found,) = of_card(check)
    assert found.level == "fix"
    assert "multiplying matrices on it failed" in found.text
    assert "no such device" in found.text


@pytest.mark.e2e
def test_a_load_that_goes_well_is_no_result(monkeypatch):
    """On the CPU, which any machine has."""
    monkeypatch.setattr("gpubench.cli.doctor.LOAD_SECONDS", 0.5)
    check = examine(Device("cpu", "cpu", "A CPU", None, "", "", "aaaa", {}), Card(), run_child)
    assert check.load_failure == ""
    assert check.loaded
