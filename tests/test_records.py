"""A row comes back as it went in; torn and concurrent writes lose nothing that was whole."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, Row, columns_markdown, to_cells

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
from gpubench.rows.row import Row
from gpubench.rows.write import append
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


def cells_of(**changes):
    return dict(zip(COLUMNS, to_cells(replace(ROW, **changes)), strict=True))


def test_a_row_as_text():
    cells = cells_of(
        seconds=0.1, trial=3, batch_capped=True, reason=" two \n words\t", data_stall=1e-7, loader_wait=2.0
    )
    names = (
        "schema",
        "seconds",
        "trial",
        "batch_capped",
        "reason",
        "data_stall",
        "loader_wait",
        "epochs",
        "card",
        "end",
    )
    assert [cells[name] for name in names] == ["1", "0.1", "3", "true", "two words", "1e-07", "2.0", "", "", "end"]
    assert cells_of(batch_capped=False)["batch_capped"] == "false"
    assert len(cells) == len(fields(Row))


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.float64(1.5), "1.5"), (np.float64(0.1), "0.1"), (np.float32(1.5), "1.5"), (np.int64(7), "7")],
)
def test_numbers_of_numpy_are_written_as_numbers(value, text):
    """np.float64 is a float whose repr is `np.float64(1.5)`."""
    assert cells_of(seconds=value)["seconds"] == text


def test_folders_that_are_missing_are_made(tmp_path):
    path = tmp_path / "one" / "two" / "a.csv"
    records.check_writable(path)
    assert list((tmp_path / "one" / "two").iterdir()) == []
    records.check_writable(path)


def test_an_empty_file_is_taken_away_again(tmp_path):
    path = tmp_path / "a.csv"
    path.touch()
    records.check_writable(path)
    assert not path.exists()


def test_a_file_of_ours_stays_as_it_is(tmp_path):
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


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "schema,suite\n", ",".join(COLUMNS[:-1]) + "\n", "\n"])
def test_another_table_is_refused_and_stays(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError, match="holds another table"):
        records.check_writable(path)
    assert path.read_text() == content


def test_the_header_is_written_once(tmp_path):
    path = tmp_path / "a.csv"
    path.touch()
    records.append(path, [ROW])
    records.append(path, [replace(ROW, trial=1), replace(ROW, trial=2)])
    lines = path.read_text().split("\n")
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1:] == [",".join(to_cells(replace(ROW, trial=trial))) for trial in (None, 1, 2)] + [""]


def sealed(path, content):
    """(what the file holds afterwards, what is said of it)."""
    path.write_bytes(content)
    said = records.seal(path)
    return path.read_bytes(), said.removeprefix(f"{path}: ")


def test_what_becomes_of_a_last_line(tmp_path):
    path = tmp_path / "a.csv"
    assert records.seal(path) == ""
    torn = "the last line was torn (a run was killed while writing it); it is kept and not used"
    started = "only a torn header was there (a run was killed while writing it); started anew"
    for content, expected in (
        (b"", (b"", "")),
        (b"a,end\n1,end\n", (b"a,end\n1,end\n", "")),
        (b"a,end\n1,end", (b"a,end\n1,end\n", "")),
        (b"a,end\n1,en", (b"a,end\n1,en\n", torn)),
        (b"a,end\n1,the end", (b"a,end\n1,the end\n", torn)),
        (b'a,end\n"1,end', (b'a,end\n"1,end"\n', torn)),
        (b'a,end\n"1","2,3', (b'a,end\n"1","2,3"\n', torn)),
        (b'a,end\n"1","2', (b'a,end\n"1","2"\n', torn)),
        (b'a,end\n"1",end', (b'a,end\n"1",end\n', "")),
        (b'a,end\n"1",en', (b'a,end\n"1",en\n', torn)),
        (b"a,e", (b"", started)),
        (b"a,end", (b"", started)),
    ):
        assert sealed(path, content) == expected, content


def test_one_lock_for_one_file_outside_its_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    one, same, other = (records.lock(tmp_path / name) for name in ("a.csv", "sub/../a.csv", "b.csv"))
    assert one.lock_file == same.lock_file != other.lock_file
    name = Path(one.lock_file).name
    assert (name[:9], name[-5:], len(name)) == ("gpubench-", ".lock", 9 + 16 + 5)
    assert tmp_path not in Path(one.lock_file).parents


def test_the_table_of_columns():
    lines = columns_markdown().split("\n")
    assert lines[:4] == [
        "| column | type | unit | meaning |",
        "| --- | --- | --- | --- |",
        "| `schema` | int |  | version of this table |",
        "| `suite` | str |  | name of the suite, its file's stem |",
    ]
    assert lines[4].startswith("| `suite_version` | int |  | raised")
    assert lines[-2:] == ["| `end` | str |  | always `end`: a line without it was torn |", ""]
    assert any(line.startswith("| `memory_limit_bytes` | int | bytes | --memory") for line in lines)
    assert len(lines) == len(COLUMNS) + 3
