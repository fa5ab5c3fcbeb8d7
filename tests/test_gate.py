"""`compare --fail-on-slower`: every exit code, and that a zero means what it says."""

import pytest
from rows import row, rows

from gpubench import records
from gpubench.comparing.compare import compare
from gpubench.comparing.gate import gate

EVEN = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
BASE = rows(EVEN)
FAILED = row(status="failed", reason="it broke", seconds=None, measured="", precision="bf16", trial=6)


def bf16(times, **changes):
    return rows(times, precision="bf16", **changes)


def times(factor, spread=1.0):
    return [100 * factor + (value - 100) * spread for value in EVEN]


def code_of(tmp_path, *groups, limit=0.05):
    path = tmp_path / "rows.csv"
    for group in groups:
        records.append(path, group)
    return gate(compare([path], by="precision", baseline="fp32"), limit)


@pytest.mark.parametrize(
    ("groups", "code", "words"),
    [
        ([BASE, bf16(times(1.1))], 1, "bf16, 10.0% slower (+9"),
        ([BASE, bf16(times(1.0))], 0, "all 1 intervals end below"),
        ([BASE, bf16(times(0.5))], 0, "all 1 intervals end below"),
        ([BASE, bf16(times(1.05))], 3, "undecided"),
        ([BASE, bf16(times(1.0, spread=80))], 3, "undecided"),
        ([BASE, bf16(times(2.0)[:1])], 3, "undecided"),
        ([BASE, bf16(times(1.0)[:3])], 3, "undecided"),
        ([BASE, bf16(times(1.0), torch="2.1.0")], 3, "undecided"),
        ([BASE], 3, "nothing is compared with fp32"),
        ([BASE, bf16(times(1.0)), rows(EVEN, model="resnet34")], 3, "resnet34 fp32: only fp32 has it"),
        ([BASE, bf16(times(1.0)), [FAILED]], 4, "1 trial(s) failed"),
        ([BASE, bf16(times(1.1)), [FAILED]], 1, "1 trial(s) failed"),
    ],
)
def test_the_exit_code_and_why(tmp_path, groups, code, words):
    found, lines = code_of(tmp_path, *groups)
    assert (found, words in "\n".join(lines)) == (code, True), lines


def test_a_case_that_is_unsupported_as_planned_is_no_failure_but_leaves_its_baseline_alone(tmp_path):
    refused = row(status="unsupported", reason="none", seconds=None, measured="", precision="bf16", model="resnet34")
    code, lines = code_of(tmp_path, BASE, bf16(times(1.0)), rows(EVEN, model="resnet34"), [refused])
    assert (code, lines) == (3, ["resnet resnet34 fp32: only fp32 has it"])


def test_one_slow_case_among_twenty_is_enough(tmp_path):
    cases = [rows(EVEN, model=f"m{i}") + bf16(times(1.1 if i == 7 else 1.0), model=f"m{i}") for i in range(20)]
    code, lines = code_of(tmp_path, *cases)
    assert code == 1
    assert [line.split()[0] for line in lines] == ["m7"]


def test_a_row_that_cannot_be_read_is_not_passed_over(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, BASE + bf16(times(1.0)))
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[1][:50] + "\n")
    code, lines = gate(compare([path], by="precision", baseline="fp32"), 0.05)
    assert code == 4, lines


@pytest.mark.parametrize(("factor", "code"), [(1.1, 1), (1.0, 0), (1.05, 3)])
def test_the_command_ends_with_that_code(cli, tmp_path, factor, code):
    records.append(tmp_path / "rows.csv", BASE + bf16(times(factor)))
    done = cli("compare", "rows.csv", "--by", "precision", "--baseline", "fp32", "--fail-on-slower", "5%")
    assert done.returncode == code, done.stderr
    assert "5% slower than fp32" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--baseline", "fp32", "--fail-on-slower", "5"), "write it as a percentage"),
        (("--baseline", "fp32", "--fail-on-slower", "-5%"), "write it as a percentage"),
        (("--fail-on-slower", "5%"), "needs --baseline"),
    ],
)
def test_a_mistake_is_2(cli, tmp_path, arguments, words):
    records.append(tmp_path / "rows.csv", BASE + bf16(EVEN))
    done = cli("compare", "rows.csv", "--by", "precision", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_failed_trials_are_4_on_the_command_line_too(cli, tmp_path):
    records.append(tmp_path / "rows.csv", [*BASE, *bf16(EVEN), FAILED])
    done = cli("compare", "rows.csv", "--by", "precision", "--baseline", "fp32", "--fail-on-slower", "5%")
    assert done.returncode == 4, done.stderr
