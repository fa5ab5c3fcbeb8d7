"""The workflows: none both reads what strangers send and may write, and a changed one is not believed."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from made_trials import usual_file

from gpubench.rows import write as records

ROOT = Path(__file__).parents[1]


def workflow(name):
    text = (ROOT / ".github" / "workflows" / name).read_text()
    return text, yaml.safe_load(text)


def test_no_workflow_both_reads_what_strangers_send_and_may_write():
    """A tag can be moved to other code; a commit cannot."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text, found = workflow(path.name)
        actions = re.findall(r"uses: *(\S+)", text)
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions), path.name
        assert "pull_request_target" not in text
        assert set(found["permissions"].values() if found["permissions"] else []) <= {"read"}
    text, submit = workflow("submit.yml")
    assert not any("permissions" in job for job in submit["jobs"].values())
    assert "secrets." not in text
    assert not re.search(r"(pip install|gpubench|python)[^\n]*proposed", text)
    text, comment = workflow("comment.yml")
    assert "checkout" not in text
    runs = [step["run"] for job in comment["jobs"].values() for step in job["steps"] if "run" in step]
    assert not any("${{" in run for run in runs)
    assert comment[True]["workflow_run"]["workflows"] == [submit["name"]]
    jobs = workflow("site.yml")[1]["jobs"]
    runs = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert any(run.startswith("gpubench site results -o site ") for run in runs)
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}


GH = """#!/bin/sh
case "$1 $2" in
    "api repos/o/r/git/trees/"*) cat "trees/${2##*/}" ;;
    "pr view") echo c0ffee ;;
    "pr comment") cat body.md > said ;;
esac
"""


@pytest.mark.parametrize(
    ("trees", "said"),
    [
        ({"main": "1", "c0ffee": "1"}, True),
        ({"main": "1", "c0ffee": "2"}, False),
        ({"main": "1", "c0ffee": '{"message": "Not Found"}'}, False),
        ({"main": "", "c0ffee": ""}, False),
    ],
    ids=["the same", "changed", "unknown", "none"],
)
def test_nothing_is_said_of_a_pull_request_that_changes_the_workflows(tmp_path, trees, said):
    (step,) = (step for step in workflow("comment.yml")[1]["jobs"]["comment"]["steps"] if "run" in step)
    for name in ("bin", "out", "trees"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    (tmp_path / "out" / "number").write_text("7\n")
    (tmp_path / "out" / "said").write_text("all good\n")
    for commit, tree in trees.items():
        (tmp_path / "trees" / commit).write_text(tree)
    around = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "GH_REPO": "o/r"}
    around |= {"COMMIT": "c0ffee", "GITHUB_SHA": "main"}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=around, check=True)
    assert (tmp_path / "said").exists() == said
    assert not said or "    all good" in (tmp_path / "said").read_text()


def test_the_workflow_compares_a_pull_request_with_the_rows_of_its_base(tmp_path):
    """A copy of published rows under another session, in a file of its own, is found by the workflow's own step."""
    steps = workflow("submit.yml")[1]["jobs"]["submit"]["steps"]
    (step,) = (step for step in steps if "gpubench submit" in step.get("name", ""))
    for folder in ("base", "proposed"):
        (tmp_path / folder / "results").mkdir(parents=True)
        records.append(tmp_path / folder / "results" / "published.csv", usual_file())
    proposed = tmp_path / "proposed"
    commit = "git add --all; git -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false commit -m message"
    subprocess.run(["sh", "-e", "-c", f"git init; {commit}"], cwd=proposed, check=True, capture_output=True)
    for name, seed in (("copied.csv", 1), ("new.csv", 2)):
        given = [replace(row, session=name) for row in usual_file(seed=seed)]
        records.append(proposed / "results" / name, given)
    subprocess.run(["sh", "-e", "-c", commit], cwd=proposed, check=True, capture_output=True)
    around = {**os.environ, "NUMBER": "7", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    outcome = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=around, check=False)
    said = (tmp_path / "out" / "said").read_text()
    assert outcome.returncode != 0
    assert "results/copied.csv: not yet" in said
    assert "results/new.csv: ready" in said
    assert "published.csv, line 2" in " ".join(said.split())
