"""What the documents say is what the program does."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.main import get_command

import gpubench
from gpubench import records, suite
from gpubench.cli import app
from gpubench.doctor import LEGACY_BUILD
from gpubench.loading import load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_installs_and_tests_as_readme_does():
    ci = (ROOT / ".ci" / "run").read_text()
    install = re.search(r"pip install (-c constraints\.txt -e '\.\[test\]')", README)
    assert install
    assert install[1] in ci
    assert "```bash\npytest\n```" in README
    assert "\npytest\n" in ci


def test_every_command_is_in_readme_and_has_an_example():
    for name, command in get_command(app).commands.items():
        assert f"gpubench {name}" in README, name
        for each in getattr(command, "commands", {"": command}).values():
            assert "gpubench" in (each.epilog or ""), f"{name} has no example"


def test_every_option_of_run_and_compare_is_in_readme():
    for name in ("run", "compare"):
        for option in get_command(app).commands[name].params:
            for flag in option.opts:
                if flag.startswith("--"):
                    assert f"`{flag}" in README, flag


def test_the_column_table_is_the_codes():
    table = (ROOT / "results" / "README.md").read_text().partition("| column |")
    assert table[1] + table[2] == records.columns_markdown()


def test_the_changelogs_top_version_is_the_packages():
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == gpubench.__version__


def test_every_file_a_document_links_to_exists():
    for document in [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        ROOT / "CONTRIBUTING.md",
        ROOT / "results/README.md",
    ]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_published_result_is_named_and_whole():
    text = (ROOT / "results" / "README.md").read_text()
    files = sorted((ROOT / "results").glob("*.csv"))
    assert files
    loaded = load(files)
    assert loaded.problems == []
    for file in files:
        assert f"`{file.name}`" in text


def test_suite_modules_table_of_contributing_names_real_files():
    for name in re.findall(r"`(gpubench/[\w/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text()):
        assert (ROOT / name).exists(), name


def test_the_example_suite_runs_and_proves_its_precision(cli, tmp_path):
    code = re.search(r"```python title=mine\.py\n(.*?)```", (ROOT / "docs/adding-a-suite.md").read_text(), re.DOTALL)
    assert code
    (tmp_path / "mine.py").write_text(code[1])
    done = cli("run", "--suite", "mine.py", "--device", "cpu", "--quick", "--out", "a.csv")
    assert done.returncode == 0, done.stderr
    assert set(load([tmp_path / "a.csv"]).frame["status"]) == {"ok"}
    (tmp_path / "mine.py").write_text(code[1].replace("with mode.autocast():", "if True:"))
    liar = cli("run", "--suite", "mine.py", "--device", "cpu", "--quick", "--precision", "bf16", "--out", "b.csv")
    assert liar.returncode == 4
    row = load([tmp_path / "b.csv"]).frame.iloc[0]
    assert row["status"] == "failed"
    assert "asked for bf16" in row["reason"]
    (tmp_path / "mine.py").write_text(code[1].replace("clock.resident()", "()"))
    silent = cli("run", "--suite", "mine.py", "--device", "cpu", "--quick", "--precision", "bf16", "--out", "c.csv")
    assert silent.returncode == 4
    assert "clock.resident()" in load([tmp_path / "c.csv"]).frame.iloc[0]["reason"]


@pytest.mark.parametrize("name", suite.built_in_names())
def test_every_suite_is_in_readme(name):
    assert f"`{name}`" in README


def test_constraints_hold_versions_only():
    lines = [x for x in (ROOT / "constraints.txt").read_text().splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = {line.partition("==")[0] for line in lines}
    assert {re.split(r"[<>=]", name)[0] for name in wanted} <= pinned


def pins(name):
    lines = [x for x in (ROOT / name).read_text().splitlines() if not x.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_older_cards_differ_in_torch_alone():
    ours, older = pins("constraints.txt"), pins("constraints-pascal.txt")
    assert {name for name in ours | older if ours.get(name) != older.get(name)} == {"torch", "torchvision"}
    (wanted,) = re.findall(r"'(torch\S+)'", LEGACY_BUILD)
    assert Requirement(wanted).specifier.contains(older["torch"])
    assert not Requirement(wanted).specifier.contains(ours["torch"])


@pytest.mark.slow
def test_what_doctor_advises_for_older_cards_installs(tmp_path):
    index = shlex.split(LEGACY_BUILD)[-1]
    wishes = ["torch", "torchvision", "-c", str(ROOT / "constraints-pascal.txt"), "--index-url", index]
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--retries", "0"]
    done = subprocess.run([*command, "--report", report, *wishes], capture_output=True, text=True, check=False)
    if done.returncode and "NameResolutionError" in done.stderr:
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stderr
    found = {
        each["metadata"]["name"]: each["metadata"]["version"] for each in json.loads(report.read_text())["install"]
    }
    assert found["torch"].startswith(pins("constraints-pascal.txt")["torch"])
