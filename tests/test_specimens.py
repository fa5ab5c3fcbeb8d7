"""Several specimens of a card, several sessions of a device: what their own spread allows to be said."""

import random

import pytest
from rows import row, rows

from gpubench.analysis.compare import Question, compare
from gpubench.rows import write as records

OTHER = {"card": "NVIDIA GeForce GTX 1080 Ti"}


def specimens(count, level, sd, seed, **changes):
    """`count` devices of one card, six trials each, in a session of their own."""
    dice = random.Random(seed)
    found = []
    for number in range(count):
        own = level * (1 + dice.gauss(0, sd))
        where = {"device_hash": f"{seed}{number:03}", "session": f"{seed}s{number}"}
        found += rows([own * (1 + dice.gauss(0, 0.003)) for _ in range(6)], **where | changes)
    return found


def compared(tmp_path, *groups, **options):
    path = tmp_path / "rows.csv"
    for group in groups:
        records.append(path, group)
    (c,) = compare([path], Question(**options)).comparisons
    return c


def test_three_a_side_show_their_own_spread(tmp_path):
    c = compared(tmp_path, specimens(3, 100, 0.005, 1), specimens(3, 130, 0.005, 2, **OTHER))
    assert c.verdict == "faster"
    assert "3 specimens each" in c.notes
    assert (c.subject.trials, len(c.subject.values)) == (18, 3)
    assert c.subject.label == "RTX 2080 Ti"
    mine = {"suite": "mine", "batch_policy": "max"}
    first = mine | {"device_hash": "1000", "session": "1s0"}
    more = [row(trial=6, batch_size=128, **first), row(trial=7, status="failed", seconds=None, measured="", **first)]
    records.append(tmp_path / "rows.csv", [*specimens(3, 50, 0.005, 1, **mine), *more])
    groups = [group for workload in compare([tmp_path / "rows.csv"]).workloads for group in workload.groups]
    expected = {("RTX 2080 Ti", ""), ("GTX 1080 Ti", ""), ("RTX 2080 Ti", "1 of 20 trials have no result")}
    assert {(group.label, group.lost_note) for group in groups} == expected, "a number is for another stack"


def test_precisions_on_the_same_specimens_are_paired(tmp_path):
    """Specimens 8% apart, every one of them 10% faster in bf16: their own quotients agree."""
    fp32 = specimens(5, 100, 0.08, 1)
    bf16 = specimens(5, 90, 0.08, 1, precision="bf16")
    c = compared(tmp_path, fp32, bf16)
    assert (c.verdict, c.axis) == ("faster", "precision")
    assert c.ratio.high < 0.93


def test_days_of_one_device_are_the_unit_where_the_stack_is_compared(tmp_path):
    days = {"device_hash": "aaaa"}
    old = specimens(5, 100, 0.005, 1, **days)
    new = specimens(5, 106, 0.005, 2, torch="2.16.0", **days)
    c = compared(tmp_path, old, new, by="torch", baseline="2.15")
    assert c.verdict == "slower"
    assert "5 sessions each" in c.notes


def test_days_of_one_device_are_no_specimens_of_a_card(tmp_path):
    one = specimens(4, 100, 0.005, 1, device_hash="aaaa")
    two = specimens(4, 106, 0.005, 2, device_hash="bbbb", **OTHER)
    path = tmp_path / "rows.csv"
    records.append(path, one + two)
    verdicts = {c.verdict for c in compare([path]).comparisons}
    assert verdicts <= {"one specimen", "undecided", "few trials"}


@pytest.mark.parametrize("column", ["torch", "memory_limit_bytes"])
def test_specimens_on_another_stack_stay_apart(tmp_path, column):
    change = {"torch": "2.1.0"} if column == "torch" else {"memory_limit_bytes": 10**9}
    path = tmp_path / "rows.csv"
    records.append(path, specimens(3, 100, 0.01, 1) + specimens(3, 130, 0.01, 2, **change))
    assert len(compare([path]).workloads[0].groups) == 2
