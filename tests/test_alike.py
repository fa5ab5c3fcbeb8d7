"""Which rows are alike follows from the roles of their columns."""

import json
import subprocess
import sys

import pytest
from rows import rows

from gpubench.analysis.compare import Question, compare
from gpubench.analysis.groups import link_of
from gpubench.rows import write as records
from gpubench.rows.column import Role

SECONDS = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
TOGETHER = {"processes": 8, "nodes": 1, "backend": "nccl", "interconnect": "NVLink, 18 links a card"}
NAMES = {f"made_{role.name.lower()}": role for role in (Role.RECIPE, Role.SETTING, Role.SPECIMEN, Role.FIGURE)}
LISTS = """
import json, sys
from gpubench.rows import column, row
roles = json.loads(sys.argv[1])
made = {name: column.Column("made up", "case", role=column.Role[role]) for name, role in roles.items()}
row.ABOUT = {**row.ABOUT, **made}
from gpubench.analysis import groups, compare, matching
from gpubench.cli import health
from gpubench.studies import scaling
from gpubench.runner import resume
from gpubench.submit import across_rows
print(json.dumps({
    "compare": matching.KEY, "pool": groups.GROUP, "series": scaling.SERIES, "resume": resume.RESUMED,
    "submit": across_rows.alike.SUBMITTED, "reference": health.REFERENCE,
    "stack": matching.STACK, "read": compare.READ_IDENTITY, "outcomes": groups.OUTCOMES,
}))
"""


@pytest.fixture(scope="module")
def lists():
    """Lists of columns by the place that uses them, where the row has made-up columns too."""
    roles = json.dumps({name: role.name for name, role in NAMES.items()})
    done = subprocess.run([sys.executable, "-c", LISTS, roles], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("made_recipe", {"compare", "pool", "series", "resume", "submit", "reference", "read"}),
        ("made_specimen", {"pool", "series", "resume", "submit", "read"}),
        ("made_setting", {"pool", "resume", "stack", "read"}),
        ("made_figure", {"outcomes"}),
    ],
)
def test_every_place_follows_the_role_of_a_made_up_column(lists, name, places):
    assert {place for place, columns in lists.items() if name in columns} == places


def compared(tmp_path, **changes):
    path = tmp_path / "rows.csv"
    records.append(path, rows(SECONDS, **TOGETHER))
    slower = [2 * value for value in SECONDS]
    records.append(path, rows(slower, **{**TOGETHER, "card": "NVIDIA A100", "device_hash": "bbbb", **changes}))
    return compare([path]).comparisons


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"backend": "gloo"}, "backend"), ({"interconnect": "network eth0 10000 Mbit/s"}, "interconnect")],
)
def test_another_link_leaves_the_ratio_without_a_verdict(tmp_path, changes, named):
    (comparison,) = compared(tmp_path, **changes)
    assert (comparison.verdict, comparison.differing) == ("card + stack", (named,))
    assert any(named in note for note in comparison.notes)


def test_another_number_of_machines_is_not_compared(tmp_path):
    assert compared(tmp_path, nodes=2) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"backend": ""},
        {"interconnect": ""},
        {"nodes": None},
        {"interconnect": "NVLink, 18 links a card; NCCL 2.28, mostly RING LL128"},
    ],
)
def test_what_is_unknown_or_only_told_by_nccl_is_no_difference(tmp_path, changes):
    (comparison,) = compared(tmp_path, **changes)
    assert comparison.differing == ()
    assert not comparison.verdict.endswith("stack")


def test_the_link_without_what_varies_between_runs():
    expected = {
        "": "",
        "loopback": "loopback",
        "PCIe, one switch; each process on the CPUs beside its card; NCCL 2.28": "PCIe, one switch",
        "NVLink, 4 links; network ib0 100000 Mbit/s; mostly TREE LL": "NVLink, 4 links; network ib0 100000 Mbit/s",
    }
    assert {text: link_of(text) for text in expected} == expected


def test_machines_follow_the_number_of_processes_and_another_link_is_a_note(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, rows(SECONDS, **TOGETHER))
    network = {"processes": 16, "nodes": 2, "backend": "nccl", "interconnect": "network eth0 10000 Mbit/s"}
    records.append(path, rows([value / 2 for value in SECONDS], **network))
    (comparison,) = compare([path], Question(by="processes")).comparisons
    assert comparison.differing == ("interconnect",)
    assert any("interconnect" in note for note in comparison.notes)
