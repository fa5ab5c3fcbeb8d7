"""A row comes back as it went in; what tears, takes away or fills a file loses nothing that was whole."""

import csv
import errno
import fcntl
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from facts import lacking
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.column import breaks
from gpubench.rows.read import load
from gpubench.rows.row import ABOUT, COLUMNS, DIGEST, FLAGS, INTEGERS, NUMBERS, Row, to_cells
from gpubench.rows.write import HEADER, Rescued, RowsFile

ROW = Row(suite="resnet", model="resnet18", precision="fp32", status="ok", seconds=1.5)

# One row is one line: white space is joined when it is written, so words joined by spaces are what survives.
words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1), max_size=4
).map(" ".join)
REQUIRED = {"suite", "model", "precision", "status"}


def values_of(field):
    """Any value that the column may hold."""
    allowed = ABOUT[field.name].allowed
    if field.name in FLAGS:
        return st.none() | st.booleans()
    if field.name in INTEGERS:
        return st.none() | st.integers(int(max(allowed.least + allowed.above, -(2**50))), 2**50)
    if field.name in NUMBERS:
        least, most = (None if math.isinf(end) else end for end in (allowed.least, allowed.most))
        numbers = st.floats(least, most, exclude_min=allowed.above, allow_nan=False, allow_infinity=False)
        return st.none() | numbers
    return words.filter(bool) if field.name in REQUIRED else words


rows = st.builds(Row, **{f.name: values_of(f) for f in fields(Row) if f.name not in {"schema", "row_digest", "end"}})


@settings(max_examples=15)
@given(st.lists(rows, min_size=1, max_size=3))
def test_rows_come_back_as_they_went_in(tmp_path_factory, given_rows):
    path = tmp_path_factory.mktemp("rows") / "new" / "folder" / "a.csv"
    records.append(path, given_rows)
    loaded = load([path])
    assert loaded.problems == []
    assert len(loaded.frame) == len(given_rows)
    for row, (_, back) in zip(given_rows, loaded.frame.iterrows(), strict=True):
        for name in COLUMNS:
            value = getattr(row, name)
            if name == DIGEST:
                assert len(back[name]) == 16
            elif value is None:
                assert back[name] != back[name] or back[name] in ("", False), name
            else:
                assert back[name] == value, name


def test_no_column_could_hold_a_host_and_no_value_breaks_the_line(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [replace(ROW, reason='two\nlines, "quoted"\r\n\0of\udcff')])
    assert len(path.read_text().splitlines()) == 2
    assert load([path]).frame["reason"].tolist() == ['two lines, "quoted" of\\udcff']
    assert not {"host", "hostname", "user", "username", "node"} & set(COLUMNS)


def found(path):
    """What is said of the file as it was found."""
    with RowsFile(path) as file:
        return [note.removeprefix(f"{path}: ") for note in file.notes]


def test_concurrent_appends_lose_no_row_and_write_one_header(tmp_path):
    path = tmp_path / "a.csv"
    script = """
import sys
from pathlib import Path
from gpubench.rows.row import Row
from gpubench.rows.write import append
for trial in range(10):
    append(Path(sys.argv[1]), [Row(suite="s", model=sys.argv[2], precision="fp32", status="ok", trial=trial)])
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, str(path), f"m{n}"]) for n in range(3)]
    assert [writer.wait(600) for writer in writers] == [0, 0, 0]
    loaded = load([path])
    assert loaded.problems == []
    found = sorted(zip(loaded.frame["model"], loaded.frame["trial"], strict=True))
    assert found == [(f"m{n}", trial) for n in range(3) for trial in range(10)]


def test_a_place_that_cannot_be_written_is_named_before_work_starts(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="cannot write there"):
        records.check_writable(blocked / "a.csv")
    records.check_writable(tmp_path / "new" / "a.csv")
    assert list((tmp_path / "new").iterdir()) == []
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match="not a file"):
        records.check_writable(tmp_path / "pipe.csv")


def test_no_text_of_the_rows_beside_a_site_is_a_formula(cli, tmp_path, few_cards):
    odd = replace(ROW, model="=cmd|'/C calc'!A0", reason='@a, "b"', card="-2+3", params="+1 a", data_stall=-0.25)
    records.append(tmp_path / "a.csv", [ROW, odd])
    assert cli("site", "a.csv", "--out", "site").returncode == 0
    table = (tmp_path / "site" / "rows.csv").read_bytes()
    assert table.split(b"\n")[:2] == (tmp_path / "a.csv").read_bytes().split(b"\n")[:2]
    cells = list(csv.DictReader(table.decode().splitlines()))[1]
    assert [cells[name] for name in ("model", "reason", "card", "params", "data_stall")] == [
        "'=cmd|'/C calc'!A0", "'@a, \"b\"", "'-2+3", "'+1 a", "-0.25",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["loss", "seconds", "trial"])
def test_no_column_may_hold_infinity_and_an_empty_cell_is_fine(name):
    values = np.array([math.inf, -math.inf, math.nan])
    assert list(breaks(values, ABOUT[name].allowed, whole=False)) == [True, True, False]
    assert [breaks(value, ABOUT[name].allowed, whole=False) for value in values.tolist()] == [True, True, False]


@pytest.mark.parametrize(("name", "value", "text"), [
    ("schema", ROW.schema, "1"), ("end", ROW.end, "end"), ("epochs", None, ""), ("card", "", ""),
    ("reason", " two \n words\t", "two words"), ("batch_capped", True, "true"), ("batch_capped", False, "false"),
    ("trial", 3, "3"), ("seconds", 0.1, "0.1"), ("seconds", 1e-7, "1e-07"), ("seconds", 2.0, "2.0"),
    ("seconds", np.float64(0.1), "0.1"), ("seconds", np.float32(1.5), "1.5"), ("seconds", np.int64(7), "7"),
])  # fmt: skip
def test_a_value_as_text(name, value, text):
    """np.float64 is a float whose repr is `np.float64(1.5)`."""
    assert dict(zip(COLUMNS, to_cells(replace(ROW, **{name: value})), strict=True))[name] == text


def test_a_file_of_ours_stays_as_it_is_with_one_header(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [ROW])
    whole = path.read_bytes()
    records.check_writable(path)
    spreadsheet = whole.replace(b"\n", b"\r\n")
    path.write_bytes(spreadsheet)
    records.check_writable(path)
    assert path.read_bytes() == spreadsheet
    path.write_bytes(whole[:30])  # a run was killed while it wrote the header
    records.check_writable(path)
    path.write_text("")
    records.append(path, [ROW])
    records.append(path, [replace(ROW, trial=1), replace(ROW, trial=2)])
    lines = path.read_text().split("\n")
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1:] == [",".join(to_cells(replace(ROW, trial=trial))) for trial in (None, 1, 2)] + [""]


@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", b"schema,suite\n", HEADER.rpartition(b",")[0] + b"\n", b"\n", b"a,e", b"bread", HEADER + b",more"],
)
def test_another_table_is_refused_and_stays(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match="has another table"):
        records.check_writable(path)
    with pytest.raises(UserError, match="has another table"), RowsFile(path):
        pass
    assert path.read_bytes() == content


TORN = "the last line was torn (a run was killed while writing it); it is kept and not used"


@pytest.mark.parametrize(("end", "left", "said"), [
    (b"1,end\n", b"1,end\n", []), (b"1,end", b"1,end\n", []), (b"1,en", b"1,en\n", [TORN]),
    (b"1,the end", b"1,the end\n", [TORN]), (b'"1,end', b'"1,end"\n', [TORN]),
    (b'"1","2,3', b'"1","2,3"\n', [TORN]), (b'"1","2', b'"1","2"\n', [TORN]), (b'"1",end', b'"1",end\n', []),
    (b'"1",en', b'"1",en\n', [TORN]),
])  # fmt: skip
def test_a_torn_last_line_is_sealed_named_once_and_never_glued_to_the_next_row(tmp_path, end, left, said):
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER + b"\n" + end)
    assert found(path) == said
    assert found(path) == []
    assert path.read_bytes() == HEADER + b"\n" + left
    records.append(path, [replace(ROW, trial=2)])
    loaded = load([path])
    assert loaded.frame["trial"].tolist()[-1] == 2
    assert len(loaded.problems) == 1


@pytest.mark.parametrize("length", [1, 30, len(HEADER)])
def test_a_torn_header_is_no_file_yet(tmp_path, length):
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER[:length])
    with RowsFile(path) as file:
        (note,) = file.notes
        assert lacking(note, path, "header") == []
        file.append([ROW])
    assert len(load([path]).frame) == 1


@pytest.fixture
def held(tmp_path):
    """A file of one row that a run has open, and its path."""
    path = tmp_path / "a.csv"
    with RowsFile(path) as file:
        file.append([ROW])
        yield file, path


FOREIGN = "name,price\nbread,3\n"


def replaced(path):
    (path.parent / "foreign").write_text(FOREIGN)
    (path.parent / "foreign").replace(path)


@pytest.mark.parametrize(
    ("happens", "why", "rescued"),
    [
        (lambda path: path.unlink(), "was removed", [0, 1]),  # no other name leads to the first row
        (lambda path: path.rename(path.with_name("b.csv")), "was removed", [1]),
        (replaced, "was replaced by another file", [0, 1]),
        (lambda path: path.write_text(FOREIGN * 1000), "was overwritten", [1]),
        (lambda path: path.write_text(FOREIGN), "was cut short", [1]),
        (lambda path: path.write_text(""), "was cut short", [1]),
    ],
)
def test_a_file_that_is_not_the_runs_any_more_gets_nothing_and_the_row_is_kept_beside_it(held, happens, why, rescued):
    file, path = held
    happens(path)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(Rescued, match=f"{path} {why} during the run, so .* in .*a.rescued-.*csv instead") as error:
        file.append([replace(ROW, trial=1)])
    assert (path.read_bytes() if path.exists() else None) == before
    (rescue,) = path.parent.glob("a.rescued-*.csv")
    assert str(rescue) in str(error.value)
    assert error.value.exit_code == 4
    loaded = load([rescue])
    assert (loaded.frame["trial"].fillna(0).tolist(), loaded.problems) == (rescued, [])


def test_a_foreign_file_is_not_taken_away_for_having_no_rows(tmp_path):
    path = tmp_path / "a.csv"
    with RowsFile(path) as file:
        path.write_text(FOREIGN)
        with pytest.raises(Rescued, match="was overwritten"):
            file.append([ROW])
    assert path.read_text() == FOREIGN


def full(monkeypatch, *, where=lambda path: True):
    """From now on there is room for a hundred bytes of a write to files that `where` is true of."""
    write_out = records._write_out

    def torn(file, content):
        if not where(Path(f"/proc/self/fd/{file.fileno()}").readlink()):
            return write_out(file, content)
        file.write(content[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(records, "_write_out", torn)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the name of an open file")
def test_on_a_full_disk_no_line_is_torn_and_the_row_is_in_the_temporary_folder(held, monkeypatch, tmp_path):
    file, path = held
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    before = path.read_bytes()
    full(monkeypatch, where=lambda path: path.parent == tmp_path)
    with pytest.raises(Rescued, match=r"could not be written \(No space left on device\)"):
        file.append([replace(ROW, trial=1)])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["a.csv"]
    (rescue,) = (tmp_path / "temporary").iterdir()
    assert load([rescue]).frame["trial"].tolist() == [1]


def test_a_row_that_nothing_takes_is_said(held, monkeypatch):
    file, path = held
    full(monkeypatch)
    with pytest.raises(Rescued) as error:
        file.append([replace(ROW, trial=1)])
    assert str(error.value).endswith("Keep these lines:")
    path.write_text(error.value.data)
    assert load([path]).frame["trial"].tolist() == [1]
    assert [each.name for each in path.parent.iterdir()] == ["a.csv"]


def found_by_another(path):
    """What a run on this file is refused with; None where it may write."""
    try:
        with RowsFile(path, patience_seconds=0):
            return None
    except UserError as error:
        return str(error)


LOCKED = """
import sys, time
from pathlib import Path
from gpubench.rows.write import RowsFile
with RowsFile(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_a_second_run_is_refused_until_the_first_is_dead(tmp_path):
    path = tmp_path / "a.csv"
    first = subprocess.Popen([sys.executable, "-c", LOCKED, str(path)], stdout=subprocess.PIPE)
    assert first.stdout.read(6) == b"locked"
    refused = found_by_another(path)
    assert "another run is writing it; wait for its end or give another --out" in refused
    records.check_writable(path)  # it is
    first.kill()
    first.wait()
    first.stdout.close()
    assert found_by_another(path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_lock_holds_inside_one_process_and_is_on_the_file_whatever_its_name(held, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to(held[1])
    for name in ("a.csv", "sub/../a.csv", "link.csv"):
        assert "is writing it" in found_by_another(tmp_path / name), name
    assert found_by_another(tmp_path / "b.csv") is None


def test_where_there_are_no_locks_that_is_said(tmp_path, monkeypatch):
    refusal = OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=refusal))
    assert found(tmp_path / "a.csv") == ["no locks on its file system, so a second run would not be noticed"]


def test_a_file_that_was_taken_away_while_one_waited_for_it_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    real, files = fcntl.flock, [path]

    def slow(descriptor, how):
        if files:
            files.pop().unlink()
        return real(descriptor, how)

    monkeypatch.setattr("fcntl.flock", slow)
    records.append(path, [ROW])
    assert len(load([path]).frame) == 1
