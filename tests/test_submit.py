"""`gpubench submit` names what a file lacks, and has nothing to say of a good one."""

import pytest
from rows import rows
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.interop.submit import missing
from gpubench.rows import write as records

WHOLE = {
    "os": "Linux 6.1", "python": "3.11.7", "gpubench": "0.1.0", "commit": "abc", "started": "2026-11-21T04:07:53+00:00",
    "card_memory_bytes": 11 * 2**30, "peak_memory_bytes": 2**30, "mode": "sampled",
}  # fmt: skip
TIMES = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]


def submitted(tmp_path, times=TIMES, **changes):
    path = tmp_path / "mine.csv"
    records.append(path, rows(times, **{**WHOLE, "params": "epochs=1", **changes}))
    return missing(path)


def test_a_whole_file_lacks_nothing(tmp_path):
    assert submitted(tmp_path) == []
    done = CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")])
    assert done.exit_code == 0
    assert "ready" in done.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"os": ""}, "6 row(s) without os"),
        ({"commit": "abc+"}, "edited checkout"),
        ({"reason": "no file /home/jane/data"}, "column reason holds a folder of a user"),
        ({"params": "epochs=1 mail=jane@example.org"}, "an e-mail address"),
        ({"cpu": "host 10.1.2.3"}, "an address of a network"),
        ({"accuracy": 94.0}, "accuracy outside 0 to 1"),
        ({"peak_memory_bytes": 2**40}, "more memory used than the card has"),
        ({"precision_error": 3e-4}, "probe error too large"),
        ({"times": [100.0, 101.0]}, "has 2 of the 6"),
        ({"source": "github.com/x", "card": ""}, "published figure without card"),
    ],
)
def test_what_is_missing_is_named(tmp_path, changes, words):
    assert any(words in line for line in submitted(tmp_path, **changes))
    assert CliRunner().invoke(app, ["submit", str(tmp_path / "mine.csv")]).exit_code == 4


def test_no_file_at_all(tmp_path):
    assert "cannot be read" in missing(tmp_path / "none.csv")[0]


def test_each_number_of_processes_needs_its_trials(tmp_path):
    lines = [line for n in (1, 2, 4) for line in submitted(tmp_path, times=[100.0, 101.0], processes=n)]
    assert sum("has 2 of the 6" in line for line in lines) == 1 + 2 + 3
