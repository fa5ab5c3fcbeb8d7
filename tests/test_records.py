"""A row comes back as it went in; torn and concurrent writes lose nothing that was whole."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench import records
from gpubench.errors import UserError
from gpubench.loading import load
from gpubench.records import COLUMNS, Row

ROW = Row(suite="resnet", model="resnet18", precision="fp32", status="ok", seconds=1.5)

# One row is one line: white space is joined when it is written, so words joined by spaces are what survives.
words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1), max_size=4
).map(" ".join)
VALUES = {
    "str": words,
    "int": st.integers(-(2**50), 2**50),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
}
REQUIRED = {"suite", "model", "precision", "status"}


def values_of(field):
    kind = getattr(field.type, "__name__", str(field.type)).replace(" | None", "")
    if field.name in REQUIRED:
        return words.filter(bool)
    return VALUES[kind] if kind == "str" else st.none() | VALUES[kind]


rows = st.builds(Row, **{f.name: values_of(f) for f in fields(Row) if f.name not in {"schema", "end"}})


@settings(max_examples=15, deadline=None)
@given(st.lists(rows, min_size=1, max_size=3))
def test_rows_come_back_as_they_went_in(tmp_path_factory, given_rows):
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    records.append(path, given_rows)
    loaded = load([path])
    assert loaded.problems == []
    assert len(loaded.frame) == len(given_rows)
    for row, (_, back) in zip(given_rows, loaded.frame.iterrows(), strict=True):
        for name in COLUMNS:
            value = getattr(row, name)
            if value is None:
                assert back[name] != back[name] or back[name] in ("", False), name
            else:
                assert back[name] == value, name


def test_white_space_inside_a_value_never_breaks_the_line(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [replace(ROW, reason='two\nlines, "quoted"\r\n')])
    assert len(path.read_text().splitlines()) == 2
    assert load([path]).frame["reason"].tolist() == ['two lines, "quoted"']


def test_a_torn_last_line_is_sealed_named_and_never_glued_to_the_next_row(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [ROW, replace(ROW, trial=1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert "torn" in records.seal(path)
    assert records.seal(path) == ""
    records.append(path, [replace(ROW, trial=2)])
    loaded = load([path])
    assert loaded.frame["trial"].isna().tolist() == [True, False]
    assert loaded.frame["trial"].tolist()[1] == 2
    assert len(loaded.problems) == 1


def test_appending_seals_by_itself(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [ROW])
    path.write_bytes(path.read_bytes()[:-30])
    records.append(path, [ROW])
    assert len(load([path]).frame) == 1


def test_concurrent_appends_lose_no_row_and_write_one_header(tmp_path):
    path = tmp_path / "a.csv"
    script = """
import sys
from pathlib import Path
from gpubench.records import Row, append
for trial in range(10):
    append(Path(sys.argv[1]), [Row(suite="s", model=sys.argv[2], precision="fp32", status="ok", trial=trial)])
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, str(path), f"m{n}"]) for n in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    loaded = load([path])
    assert loaded.problems == []
    found = sorted(zip(loaded.frame["model"], loaded.frame["trial"], strict=True))
    assert found == [(f"m{n}", trial) for n in range(3) for trial in range(10)]


def test_an_unwritable_place_is_named_before_work_starts(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="cannot write there"):
        records.check_writable(blocked / "a.csv")
    records.check_writable(tmp_path / "new" / "a.csv")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_a_line_of_advice(monkeypatch):
    monkeypatch.setattr(records, "_seal", lambda path: "")
    with pytest.raises(UserError, match="Make room"):
        records.append(Path("/dev/full"), [ROW])


def test_no_column_could_hold_a_host_or_a_user():
    assert not {"host", "hostname", "user", "username", "node"} & set(COLUMNS)


def test_a_whole_last_line_only_gets_its_newline_back(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [ROW])
    whole = path.read_text()
    path.write_text(whole.rstrip("\n"))
    assert records.seal(path) == ""
    assert path.read_text() == whole
