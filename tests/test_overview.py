"""`gpubench` without a command: the card, whether it is ready, its published speed and three commands."""

import shlex
import sys

import pytest
from facts import lacking
from typer.testing import CliRunner

from gpubench.cli import overview
from gpubench.cli.app import app
from gpubench.hardware.advice import Card


@pytest.fixture
def printed(monkeypatch):
    """Returns what it prints on a machine with these cards."""

    def run(*cards, cuda="13.2"):
        monkeypatch.setattr("gpubench.hardware.advice.nvidia_cards", lambda: list(cards))
        monkeypatch.setattr(overview, "installed_torch", lambda: ("2.15.0", cuda))
        done = CliRunner().invoke(app, [])
        assert done.exit_code == 0
        assert max(map(len, done.stdout.splitlines())) < 80
        return done.stdout

    return run


RTX_4090 = Card("NVIDIA GeForce RTX 4090", "570.86", "13.2", memory_bytes=24 << 30)


def test_a_card_is_named_with_its_driver_torch_and_speed_or_an_estimate(printed):
    text = printed(RTX_4090)
    assert lacking(text, "RTX 4090", "24 GiB", "driver 570.86", "torch 2.15.0", "CUDA 13.2", "Ready to measure") == []
    assert lacking(text, "A100-SXM4-80GB", "RTX 3090", "run --quick", "cards RTX 4090 RTX 5090") == []
    assert "By its data sheet: " in printed(Card("NVIDIA GB10", "580.95", "13.2"))
    card = Card("NVIDIA GeForce RTX 2080 Ti", "570.86", "13.2")
    assert "gpubench cards RTX 2080 Ti RTX 4090  compare" in printed(card)
    assert "not in our data" in printed(Card("NVIDIA Something New", "600.1", "13.2"))
    assert lacking(printed(), "No GPU found", "CPUs are not ranked", "gpubench run --quick") == []


@pytest.mark.parametrize(("card", "cuda", "words"), [
    (RTX_4090, "", "without CUDA"),
    (Card("NVIDIA GeForce RTX 4090", "550.1", "12.4"), "13.2", "CUDA 12.4 at most"),
    (Card("NVIDIA card", "", "", "its driver does not answer"), "13.2", "its driver does not answer"),
])  # fmt: skip
def test_a_card_that_is_not_ready_has_a_reason(printed, card, cuda, words):
    text = " ".join(printed(card, cuda=cuda).split())
    assert lacking(text, "Not ready", words, "gpubench doctor") == []


@pytest.mark.parametrize(("part", "name"), [("hip", "ROCm"), ("xpu", "XPU"), ("", "No GPU found")])
def test_a_card_that_only_torch_sees_is_not_denied(printed, monkeypatch, part, name):
    monkeypatch.setattr(overview, "_torch_version_of", lambda wanted: "7.1" if wanted == part else "")
    monkeypatch.setattr(sys, "platform", "linux")
    assert name in printed()


def test_each_command_that_it_prints_can_be_parsed(printed):
    commands = [line.split("  ")[1] for line in printed(RTX_4090).splitlines() if line.startswith("  gpubench")]
    assert len(commands) == 3
    for command in commands[:2]:
        assert CliRunner().invoke(app, [*shlex.split(command)[1:], "--help"]).exit_code == 0
    done = CliRunner().invoke(app, shlex.split(commands[2])[1:])
    assert (done.exit_code, "RTX 5090" in done.stdout) == (0, True)
