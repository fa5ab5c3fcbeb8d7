"""What the documents say is what the program does."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from measured_rows import rows_of_run
from packaging.requirements import Requirement
from typer.main import get_command

import gpubench
import gpubench.training
from gpubench.cli.app import app
from gpubench.hardware.advice import LEGACY_BUILD
from gpubench.rows.column import columns_markdown
from gpubench.rows.read import load
from gpubench.rows.row import Row
from gpubench.suite import files

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GENERATED = [ROOT / "docs" / "cli.md", ROOT / "docs" / "which-card.md"]
PAGES = [page for page in sorted(ROOT.glob("docs/*.md")) if page not in GENERATED]
RESEARCH = sorted(ROOT.glob("docs/research/**/*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES, GENERATED[1], *RESEARCH, ROOT / "CONTRIBUTING.md", ROOT / "results/README.md"]


COMMANDS = {
    f"{name} {inner}".strip(): each
    for name, command in get_command(app).commands.items()
    for inner, each in getattr(command, "commands", {"": command}).items()
}


def test_every_command_has_an_example():
    assert [name for name, command in COMMANDS.items() if "gpubench" not in (command.epilog or "")] == []


def test_the_suites_and_commands_in_readme_are_the_programs():
    assert [name for name in files.built_in_names() if f"`{name}`" not in README] == []
    lines = [shlex.split(line, comments=True) for line in re.findall(r"^gpubench .+$", README, re.MULTILINE)]
    assert len(lines) > 5
    for words in lines:
        if len(words) == 1:  # `gpubench` alone
            continue
        name = " ".join(words[1:3]) if words[1] == "data" else words[1]
        flags = {flag for option in COMMANDS[name].params for flag in option.opts}
        assert {word for word in words if word.startswith("-")} <= flags, " ".join(words)


def test_generated_tables_and_the_version_are_the_codes():
    table = (ROOT / "results" / "README.md").read_text().partition("| column |")
    assert table[1] + table[2] == columns_markdown(Row)
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == gpubench.__version__
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "gpubench").rglob("*.py")}
    suites = {".".join(("gpubench", *path.parent.relative_to(ROOT).parts)) for path in (ROOT / "suites").rglob("*.py")}
    assert set(listed) == there | suites


def test_every_file_and_heading_a_document_links_to_exists():
    for document in DOCUMENTS:
        for link, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", document.read_text()):
            page = document.parent / link if link else document
            assert page.exists(), f"{document.name}: {link}"
            assert not anchor or anchor in anchors(page), f"{document.name}: {link}#{anchor}"


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings."""
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_pages_are_of_todays_code_and_figures(tmp_path):
    script = ROOT / "benchmarks" / "which_card.py"
    made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "docs" / "which-card.md").read_text(), "python benchmarks/which_card.py > docs/which-card.md"
    # `just docs` makes it; another typer words it otherwise.
    (tested,) = re.findall(r"^typer==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if version("typer") != tested:
        pytest.skip(f"docs/cli.md was made with typer {tested}")
    made = tmp_path / "cli.md"
    command = [sys.executable, "-m", "typer", "gpubench.cli.app", "utils", "docs"]
    subprocess.run([*command, "--name", "gpubench", "--title", "Commands", "--output", made], check=True)
    assert made.read_text() == (ROOT / "docs" / "cli.md").read_text()


def test_pages_name_every_page_room_and_function():
    contents = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or name.startswith("research/decisions/") or f"({name})" in contents, name
    named = re.findall(r"^\| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert set(named) == {path.parent.name for path in (ROOT / "gpubench").glob("*/__init__.py")} - {"suites"}
    text = (ROOT / "docs/adding-a-suite.md").read_text()
    for name in (*gpubench.training._HOME_OF, *gpubench._HOME_OF, "UserError"):
        assert f"`{name}`" in text, name


def words(documents: list[Path]) -> int:
    return sum(len(document.read_text().split()) for document in documents)


def test_the_documentation_stays_short():
    """Fourteen pages for users, the generated ones not counted, and what was measured besides."""
    assert len(PAGES) <= 14
    assert words(PAGES) <= 16_000
    assert words(RESEARCH) <= 12_000


def test_every_page_that_code_names_and_every_chart_of_a_page_exists():
    code = [path for folder in ("gpubench", "suites", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")]
    for path in [*code, ROOT / "pyproject.toml", ROOT / "justfile"]:
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text()):
            assert (ROOT / page).exists(), f"{path}: {page}"
    shown = {name for document in DOCUMENTS for name in re.findall(r"charts/([\w-]+\.png)\)", document.read_text())}
    assert shown == {path.name for path in (ROOT / "docs" / "charts").iterdir()}


def test_every_published_result_is_named_and_whole():
    text = (ROOT / "results" / "README.md").read_text()
    files = sorted((ROOT / "results").glob("20[0-9][0-9]-*.csv"))  # those of your own begin with a day and an hour
    assert files
    loaded = load(files)
    assert loaded.problems == []
    for file in files:
        assert f"`{file.name}`" in text


def test_the_example_suite_runs_and_proves_its_precision(cli, tmp_path):
    code = re.search(r"```python title=mine\.py\n(.*?)```", (ROOT / "docs/adding-a-suite.md").read_text(), re.DOTALL)
    assert code
    (tmp_path / "mine.py").write_text(code[1])
    assert set(rows_of_run(cli, tmp_path, "mine.py", "--quick")["status"]) == {"ok"}
    liar, silent = code[1].replace("with mode.autocast():", "if True:"), code[1].replace("clock.resident()", "()")
    for wrong, words in ((liar, "asked for bf16"), (silent, "ran no step from clock.resident()")):
        (tmp_path / "a.csv").unlink()
        (tmp_path / "mine.py").write_text(wrong)
        row = rows_of_run(cli, tmp_path, "mine.py", "--quick", "--precision", "bf16", code=4).iloc[0]
        assert row["status"] == "failed"
        assert words in row["reason"]


def pins(name: str) -> dict[str, str]:
    lines = [x for x in (ROOT / name).read_text().splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    return dict(line.split("==") for line in lines)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]


def test_versions_that_were_tried_promised_and_for_older_cards_are_those_of_the_constraints():
    """A promise of 2.6 is kept by 2.6.0: one that only a later version keeps has to be raised."""
    oldest = pins("constraints-oldest.txt")
    extras = [each for extra in ("browser", "slurm") for each in PROJECT["optional-dependencies"][extra]]
    for wanted in [*TESTED, *extras]:
        name, promised = re.fullmatch(r"([\w-]+)>=([\d.]+)", wanted).groups()
        assert f"{oldest[name]}.".startswith(f"{promised}."), wanted
    tried = (ROOT / "docs" / "research" / "versions.md").read_text()
    ours, older = pins("constraints.txt"), pins("constraints-pascal.txt")
    for pinned in (ours, oldest):
        assert {re.split(r"[<>=]", wanted)[0] for wanted in TESTED} <= set(pinned)
        assert f"{pinned['torch']} | {pinned['torchvision']} | {pinned['fastai']} |" in tried
    assert {name for name in ours | older if ours.get(name) != older.get(name)} == {"torch", "torchvision"}
    (wanted,) = re.findall(r"'(torch\S+)'", LEGACY_BUILD)
    assert Requirement(wanted).specifier.contains(older["torch"])
    assert not Requirement(wanted).specifier.contains(ours["torch"])
