"""docs/research/originals.md: every line has a command or a reason, and quick commands print what the line claims."""

import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from inside import run_inside
from typer.main import get_command

from gpubench.cli.app import app
from gpubench.suite import files

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "research" / "originals.md").read_text()
LINES = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| the original |"))
]
QUICK = ("compare", "list", "show", "export")
COMMANDS = {
    command: [shown for _, cell, claim in LINES if cell == f"`{command}`" for shown in re.findall("`([^`]+)`", claim)]
    for command in dict.fromkeys(cell.strip("`") for _, cell, _ in LINES if cell.startswith("`gpubench "))
}


def test_every_line_has_a_command_or_a_reason():
    assert len(LINES) > 40
    for original, command, claim in LINES:
        assert original
        script = re.fullmatch(r"`python (benchmarks/\w+\.py) [^`]+`", command)
        assert command == "no command" or script or re.fullmatch("`gpubench [^`]+`", command), command
        assert not script or (ROOT / script[1]).exists(), command
        assert len(claim) > 3, original
        assert command != "no command" or len(claim.split()) > 8, original
        shown = r"`[^`]*\d[^`]*`" if command.split()[1] in {"compare", "show"} else "`"
        assert command.split()[1] not in QUICK or re.search(shown, claim), f"{command} shows no figure: {original}"


@cache
def flags_of(name):
    return {flag for option in get_command(app).commands[name].params for flag in option.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_its_options_models_and_parameters_are_there(command):
    _, name, *arguments = shlex.split(command)
    assert {each for each in arguments if each.startswith("-")} <= flags_of(name)
    values = dict(pairwise(arguments))
    if suite := values.get("--suite"):
        found = files.find(suite).suite
        assert set(values.get("--models", "").split(",")) - {""} <= set(found.models)
        assert {each.partition("=")[0] for each in re.findall(r"--set (\S+)", command)} <= {
            *found.params, "loss_scale",
        }  # fmt: skip


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.split()[1] in QUICK])
def test_it_shows_what_the_page_says(cli, monkeypatch, command):
    monkeypatch.setattr("gpubench.runner.process.run_child", run_inside)
    arguments = [str(ROOT / each) if each.startswith("results/") else each for each in shlex.split(command)[1:]]
    done = cli(*arguments)
    assert done.returncode in {0, 3}, done.stderr
    text = " ".join(done.stdout.split())
    missing = [shown for shown in COMMANDS[command] if shown not in text]
    assert not missing, text[:2000]
