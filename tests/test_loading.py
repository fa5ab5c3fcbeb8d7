"""Whatever the file, good rows are used and every problem is a sentence that names file and line."""

import pytest
from rows import row

from gpubench import records
from gpubench.loading import load


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.csv"
    records.append(path, [row(trial=trial) for trial in range(3)])
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"a,b,c\n1,2,3\n", "not a gpubench file"),
        (b"\x00\x01\xff\xfe" * 100, "not a gpubench file"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "not a gpubench file"),
    ],
)
def test_a_foreign_file_among_good_ones(tmp_path, good, content, words):
    bad = tmp_path / "bad.csv"
    bad.write_bytes(content)
    loaded = load([bad, good, tmp_path / "missing.csv"])
    assert len(loaded.frame) == 3
    assert len(loaded.problems) == 2
    assert words in loaded.problems[0]
    assert "cannot be read" in loaded.problems[1]


def test_a_newer_schema_asks_for_an_upgrade(tmp_path, good):
    newer = tmp_path / "newer.csv"
    records.append(newer, [row(schema=99)])
    loaded = load([newer, good])
    assert len(loaded.frame) == 3
    assert "schema 99" in loaded.problems[0]
    assert "upgrade" in loaded.problems[0]


@pytest.mark.parametrize(
    "line", ["1,resnet", "x" * 50, '1,"open quote', ",".join(["?"] * len(records.COLUMNS)), "\x00\x00"]
)
def test_one_bad_row_among_good_ones_is_named_by_line(good, line):
    lines = good.read_text().splitlines()
    lines.insert(2, line)
    good.write_text("\n".join(lines) + "\n")
    loaded = load([good])
    assert list(loaded.frame["trial"]) == [0, 1, 2]
    assert loaded.problems == [f"{good}, line 3: not a whole row; left out"]


def test_a_column_twice_is_refused(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("schema,suite,model,precision,status,suite\n1,a,b,fp32,ok,c\n")
    assert "twice" in load([path]).problems[0]


def test_unknown_and_missing_columns_do_no_harm(tmp_path):
    path = tmp_path / "old.csv"
    path.write_text("note,schema,suite,model,precision,status,seconds\nmine,1,a,b,fp32,ok,2.5\n")
    loaded = load([path])
    assert loaded.problems == []
    assert loaded.frame["seconds"][0] == 2.5
    assert loaded.frame["card"][0] == ""
