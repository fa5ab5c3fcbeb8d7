"""What stands in a file, or is its name, steers no terminal; data that goes elsewhere is exact."""

import ast
import io
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from facts import lacking
from rows import row, rows

from gpubench.cli.app import app, exits
from gpubench.console import Screen
from gpubench.printed import say, shown, shown_lines
from gpubench.rows import write as records
from gpubench.rows.row import COLUMNS, to_cells
from gpubench.rows.write import Rescued
from gpubench.runner.progress import TrialProgress

PACKAGE = Path(__file__).parents[1] / "gpubench"
STEERS = "\x1b[2J\x1b]0;owned\x07\u202ea\u2066b\u061cc\u200bd\u200fe\ufefff\x9b31m"
FIELDS = ("card", "model", "params", "data", "driver", "cpu", "torch", "reason", "marks", "studies", "os", "python")
NAME = "a\x1b[2J\u202e\u200b.csv"
DAYS = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self):
        return True


def on_a_terminal(*arguments):
    """What a command prints on both streams."""
    out = Terminal()
    with redirect_stdout(out), redirect_stderr(out), pytest.raises(SystemExit):
        app([str(each) for each in arguments])
    return out.getvalue()


@pytest.mark.parametrize("character", STEERS.replace("owned", "").translate(dict.fromkeys(map(ord, "[2J]0;abcdef31m"))))
def test_what_steers_hides_or_turns_is_marked(character):
    assert shown(f"a{character}b") == "a\ufffdb"


def test_what_is_printed_is_marked_only_where_it_must_be():
    for text in ("Müller 中文 עברית हिन्दी", "5\u00a0ms ± 0.1 µs", "\U0001f600", "a\ufffdb", "1½ * 2 °C „a“"):
        assert shown(text) == text
    assert shown("a\udcffb\ud800") == "a\ufffdb\ufffd"


def test_data_is_exact_but_for_a_terminal_and_rows_that_nothing_takes_are_printed(capsys):
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), "latin-1")) as out:
        say("é, 模")
    assert out.buffer.getvalue() == b"\xe9, \\u6a21\n"
    say("a\x1b\n\tb", exact=True)
    assert capsys.readouterr().out == "a\x1b\n\tb\n"
    with redirect_stdout(Terminal()) as out:
        say("a\x1b\n\tb", exact=True)
    assert out.getvalue() == "a\ufffd\n        b\n"
    # `a.csv: not yet` might else begin with the line `b.csv: ready`.
    say("b\na.csv: not yet", "  why")
    assert capsys.readouterr().out == "b\ufffda.csv: not yet\n  why\n"

    full, closed = Rescued("a.csv is full", data="a,b\n1,2\n"), PermissionError(13, "Denied", "/x")
    for error, code, text in (
        (full, 4, "a.csv is full\na,b\n1,2\n"),
        (closed, 2, "PermissionError: [Errno 13] Denied: '/x'"),
    ):
        with pytest.raises(typer.Exit) as end:
            exits(Mock(side_effect=error, __name__="command"))()
        assert (end.value.exit_code, capsys.readouterr().err) == (code, f"gpubench: {text}\n")


def test_the_console_and_a_progress_bar_show_brackets_as_they_are_and_whole_at_80_columns(monkeypatch):
    out = io.StringIO()
    Screen(file=out).print("[bold]a[/] :smile: \x1b[2Jb")
    assert out.getvalue() == "[bold]a[/] :smile: \ufffd[2Jb\n"
    monkeypatch.setattr("gpubench.runner.progress.Screen", lambda stderr: Screen(file=out))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    with TrialProgress() as progress:
        progress.expect(112)
        progress.end, progress._done = time.monotonic() + 600.0, 99
        progress.start("imagenet resnet152 fp16-master, batch 1024, 8 ranks[/b]", "images")
        progress.lap({"phase": "[/c]", "rate": 12345.6, "fraction": 0.5})
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", out.getvalue())
    assert lacking(plain, "100/112", "8 ranks[/b]", "[/c] 12,345.6 images/s", "left") == []


def test_a_long_trial_says_in_a_log_how_far_it_is(monkeypatch, capsys):
    now = iter(range(0, 10_000, 120))  # two minutes from look to look
    monkeypatch.setattr("gpubench.runner.progress.time.monotonic", lambda: next(now))
    with TrialProgress() as progress:
        progress.expect(2)
        progress.start("resnet18 fp32", "images")
        for done in (0.1, 0.2, 0.25, 0.3):
            progress.lap({"phase": "train", "rate": 217.2, "fraction": done})
    (line,) = capsys.readouterr().err.splitlines()
    assert lacking(line, "[1/2]", "resnet18 fp32", "25%", "6 min", "18 min", "217.2 images/s") == []


@pytest.fixture
def hostile(tmp_path, monkeypatch, few_cards):
    """A folder of files whose fields and names steer a terminal."""
    monkeypatch.setenv("TERM", "dumb")  # rich's own colours are no one's field
    monkeypatch.chdir(tmp_path)
    odd = {**dict.fromkeys(FIELDS, f"x{STEERS}"), "accuracy": 0.5}
    other = {**odd, "card": f"y{STEERS}", "device_hash": "bbbb"}
    path = tmp_path / NAME
    records.append(path, [*rows(DAYS, **odd), *rows([2 * value for value in DAYS], **other)])
    records.append(path, [row(**odd, status=f"failed{STEERS}", trial=9)])
    with path.open("a") as file:
        file.write("torn\n")
    (tmp_path / f"{NAME}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / NAME).with_suffix(".py").write_text(f'"""Does {STEERS.encode("unicode_escape").decode()}."""\n1 +\n')
    suite = (Path(__file__).parent / "suites" / "scripted.py").read_text().replace("A scripted", "A \\x1b[2J\\u202e")
    (tmp_path / "b\x1b\u202e.py").write_text(suite)
    return path


SILENT = {"peak", "selftest", "columns", "data fetch", "data list"}
"""Commands that print no text of a file and no file's name."""


def lines_of(hostile):
    """By command, what is asked of it."""
    suite, broken = hostile.with_name("b\x1b\u202e.py"), hostile.with_suffix(".py")
    picture = hostile.with_name(f"{NAME}.png")
    images = hostile.with_name("t\x1b\u202e") / "imagenet"
    for part in ("train", "val"):
        (images / part / f"n\x1b{STEERS[-5:]}").mkdir(parents=True, exist_ok=True)
        (images / part / f"n\x1b{STEERS[-5:]}" / "a\x1b\u202e.JPEG").write_bytes(b"no image")
    return {
        "compare": [
            *([hostile, "--all", "--format", name] for name in ("terminal", "markdown")),
            *([hostile, "--where", f"card={name}"] for name in ("z", STEERS)),
            *([hostile, "--baseline", "z"], [hostile, "--only", "z"], [picture]),
            [hostile, "--charts", hostile.with_name("c\x1b\u202e")],
            [hostile, "--by", "card", "--baseline", "x", "--fail-on-slower", "5%"],
        ],
        "report": [[hostile, "-o", hostile.with_suffix(".html")], [picture]],
        "export": [[hostile, "--out", hostile.with_name("d\x1b")], [picture, "--out", hostile.with_name("d\x1b")]],
        "submit": [[hostile], [picture]],
        "doctor": [[hostile, "--against", picture]],
        "list": [[suite], [broken], [picture]],
        "show": [[suite], [broken], [picture]],
        "fits": [[f"z{STEERS}"], ["gpt2-6m", "--card", f"z{STEERS}"]],
        "cards": [[f"z{STEERS}"], ["--price", picture], ["--relative-to", f"z{STEERS}"]],
        "site": [[hostile, "-o", hostile.with_name("s\x1b\u202e")], [picture, "-o", hostile.with_name("p\x1b")]],
        "run": [
            ["--suite", suite, "--synthetic", "--dry-run"],
            ["--suite", suite, "--dry-run", "--device", "cpu", "--out", hostile],
            ["--suite", suite, "--dry-run", "--device", "cpu", "--data", hostile],
        ],
        "data prepare": [["imagenet", "--sizes", "16", "--processes", "1", "--data", images.parent]],
    }


def commands():
    """The names of all commands."""
    group = typer.main.get_command(app)
    data = group.commands["data"].commands
    return {*(set(group.commands) - {"data"}), *(f"data {name}" for name in data)}


def test_every_command_is_looked_at(hostile):
    assert set(lines_of(hostile)) == commands() - SILENT


@pytest.mark.parametrize("command", sorted(commands() - SILENT))
def test_no_field_and_no_name_of_a_file_steers_a_terminal(hostile, command):
    for line in lines_of(hostile)[command]:
        told = on_a_terminal(*command.split(), *line)
        told = told.replace("\r", "\n") if command == "data prepare" else told  # its bar goes back to its beginning
        assert "Traceback" not in told
        assert "\ufffd" in told, line
        assert shown_lines(told) == told, line


def test_a_file_whose_name_is_no_text_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = ",".join(COLUMNS) + "\n" + ",".join(to_cells(row())) + "\ntorn\n"
    path = Path("a\udcff.csv")
    path.write_text(content)
    for command in (["compare", path], ["submit", path], ["export", path, "--out", path / "x"]):
        assert "a\ufffd.csv" in on_a_terminal(*command)


PRINTERS = {"printed.py", "console.py", "runner/progress.py"}
"""Who may print by other means: the function itself, rich's console, and what erases a line of its own."""


def test_all_that_is_printed_goes_through_one_function():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in PRINTERS or name.startswith(("worker/", "training/", "suites/")):
            continue  # what a child prints is its parent's to show
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "typer.echo", "Console"}:
                wrong.append(f"{name}, line {node.lineno}: {ast.unparse(node)[:60]}")
    assert wrong == []
