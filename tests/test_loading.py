"""Whatever the file, good rows are used and every problem is a sentence that names file and line."""

import csv
import os
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from facts import lacking
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import row

from gpubench.rows import parse
from gpubench.rows import read as loading
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.rows.row import COLUMNS, to_cells


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.csv"
    records.append(path, [row(trial=trial) for trial in range(3)])
    return path


def test_numbers_are_read_to_their_last_bit(tmp_path):
    """pandas before 3.1 gets the last bit of some wrong, unless told; a file with a bad line is read in another way."""
    seconds = [5.960464477539063e-08, 0.1 + 0.2, 1 / 3, 123456.78901234567, 5e-324]
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    for path in (whole, torn):
        records.append(path, [row(trial=number, seconds=value) for number, value in enumerate(seconds)])
    torn.write_text(torn.read_text() + "1,resnet\n")
    for path in (whole, torn):
        assert load([path]).frame["seconds"].tolist() == seconds


def test_a_spreadsheet_changes_nothing(tmp_path, good):
    sheet = tmp_path / "sheet.csv"
    text = good.read_text().replace("\n", "\r\n").replace("true", "TRUE")
    sheet.write_bytes(b"\xef\xbb\xbf" + text.encode())
    loaded = load([sheet])
    assert loaded.problems == []
    assert loaded.frame.equals(load([good]).frame)


@settings(max_examples=60)
@given(content=st.binary(max_size=300), at=st.integers(0, 400))
@example(content=b"\x1c", at=0)  # a blank for str.strip, but not for float
def test_no_bytes_make_a_traceback(tmp_path_factory, content, at):
    path = tmp_path_factory.mktemp("bytes") / "a.csv"
    records.append(path, [row(trial=trial) for trial in range(3)])
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for damaged in (content, whole[: header + at] + content + whole[header + at :], whole[: header + at]):
        path.write_bytes(damaged)
        assert len(load([path]).frame) <= 3 + content.count(b"\n")


def test_texts_that_look_like_numbers_stay_texts(tmp_path):
    path = tmp_path / "rows.csv"
    odd = {"session": "000123", "device_hash": "1e5", "torch": "2.10", "cpu": "true", "driver": "nan", "cudnn": "inf"}
    records.append(path, [row(trial=trial, **odd) for trial in range(2000)])
    frame = load([path], identity=["session", "card"]).frame
    for name, text in odd.items():
        assert set(frame[name]) == {text}
    assert set(frame["identity"]) == {0}


def test_many_files_read_at_once_are_the_same_as_one_by_one(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.csv" for number in range(7)]
    for number, path in enumerate(paths):
        records.append(path, [row(trial=trial, session=f"s{number}", seconds=0.1 * trial + 1) for trial in range(5)])
    paths[3].write_text(paths[3].read_text() + "torn")
    assert [loading.opened(path, []).count for path in paths] == [5, 5, 5, 6, 5, 5, 5], "else read by line"
    at_once = load(paths, identity=["session", "precision"])
    monkeypatch.setattr("gpubench.rows.files.CHUNK_BYTES", 1)
    one_by_one = load(paths, identity=["session", "precision"])
    assert (at_once.frame.equals(one_by_one.frame), at_once.problems) == (True, one_by_one.problems)
    assert list(at_once.frame["identity"].unique()) == list(range(7))


def test_files_of_different_columns_are_one_table(tmp_path):
    names = "schema,suite,model,precision,status,seconds,batch_capped,session,end\n"
    one, two, three = (tmp_path / f"{name}.csv" for name in ("one", "two", "three"))
    one.write_text(names + "1,a,b,fp32,ok,1.5,true,s,end\n" + "1,a,c,fp32,ok,,,s,end\n")
    two.write_text("schema,suite,model,precision,status,card,end\n" + "1,a,b,fp32,failed,X,end\n" * 2)
    three.write_text(names + "1,a,b,fp32,ok,2.5,false,s,end\n" + "torn")
    loaded = load([one, two, three], identity=["model", "session", "seconds"])
    frame = loaded.frame
    assert frame["model"].tolist() == ["b", "c", "b", "b", "b"]
    assert frame["card"].tolist() == ["", "", "X", "X", ""]
    assert frame["seconds"].fillna(-1).tolist() == [1.5, -1, -1, -1, 2.5]
    assert frame["batch_capped"].tolist() == [True, False, False, False, False]
    assert frame["identity"].tolist() == [0, 1, 2, 2, 3]
    assert [frame[name].dtype for name in ("model", "card", "seconds", "batch_capped")] == [object, object, float, bool]
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert len(loaded.problems) == 1
    none = load([tmp_path / "missing.csv"], identity=["model"]).frame
    assert none.empty
    assert [none[name].dtype.kind for name in ("model", "seconds", "batch_capped", "identity")] == list("Ofbi")


# What is looked at how, and what exactly is said: rows of a few columns, by hand.

NAMES = "schema,suite,model,precision,status,seconds,batch_capped,end"
LINE = "1,a,b,fp32,ok,2.5,true,end"


def written(tmp_path, *lines, names=NAMES, end="\n", name="a.csv"):
    path = tmp_path / name
    path.write_bytes(("\n".join([names, *lines]) + end).encode())
    return path


def found(path, column="seconds"):
    loaded = load([path])
    return loaded.frame[column].tolist(), [problem.removeprefix(str(path)) for problem in loaded.problems]


NOT_WHOLE = ", line 3: not a whole row; left out"
TORN = ", line 4: torn (its run was killed while writing it); left out"
UPGRADE = "this one reads 1); upgrade gpubench to read them"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (",a,b,fp32,ok,2.5,true,end", NOT_WHOLE),
        ("1,,b,fp32,ok,2.5,true,end", NOT_WHOLE),
        ("1,a,,fp32,ok,2.5,true,end", NOT_WHOLE),
        ("1,a,b,,ok,2.5,true,end", NOT_WHOLE),
        ("1,a,b,fp32,,2.5,true,end", NOT_WHOLE),
        ("1,a,b,fp32,ok,inf,true,end", ", line 3: seconds is inf, not a number; left out"),
        ("1,a,b,fp32,ok,nan,true,end", ", line 3: seconds is nan, not a number; left out"),
        ("1,a,b,fp32,ok,two,true,end", ", line 3: seconds is two, not a number; left out"),
        ("inf,a,b,fp32,ok,2.5,true,end", ", line 3: schema is inf, not a number; left out"),
        ("x,a,b,fp32,ok,2.5,true,end", ", line 3: schema is x, not a number; left out"),
        ('1,"a,b,fp32,ok,2.5,true,end', NOT_WHOLE),
        ("2,a,b,fp32,ok,2.5,true,end", f": 1 row(s) by a newer gpubench (schema 2, {UPGRADE}"),
    ],
)
def test_a_line_that_is_no_row_leaves_its_neighbours_alone(tmp_path, line, problem):
    assert found(written(tmp_path, LINE, line, LINE.replace("2.5", "7"))) == ([2.5, 7], [problem])


@pytest.mark.parametrize(
    ("lines", "end", "problems"),
    [
        ([LINE, LINE], "", []),
        ([LINE.replace("a,b", '"a, ""b""",c'), "0" + LINE[1:]], "\n", []),
        ([LINE, LINE.replace("a,b", '"a",b')], "", []),
        ([LINE, f"\ufeff{NAMES}", "", "  ", LINE], "\n", []),
        ([LINE, f"{NAMES}\r", f"{LINE}\r"], "\n", []),
        ([LINE, LINE, "1,a,b,fp"], "", [TORN]),
        ([LINE, LINE, '1,"a,b,fp32,ok,2.5,true,end'], "", [TORN]),
        ([LINE, LINE, "1,a,b,fp32,ok,2.5,true,en"], "", [TORN]),
        ([LINE, LINE, "  "], "", []),
    ],
)
def test_two_rows_and_what_editors_and_kills_leave(tmp_path, lines, end, problems):
    assert found(written(tmp_path, *lines, end=end)) == ([2.5, 2.5], problems)


@pytest.mark.parametrize("odd", [b"1,a,b,fp32,ok,2\x00.5,true,end", b"1,a,b,fp\xff32,ok,2.5,true,end"])
def test_a_line_that_lost_a_byte_is_named_and_left_out(tmp_path, odd):
    """Without its NUL, 58.0657 that lost a digit would be 5.0657."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([NAMES.encode(), LINE.encode(), odd, LINE.replace("2.5", "7").encode(), b""]))
    assert found(path) == ([2.5, 7], [", line 3: not a whole row; left out"])


@pytest.mark.parametrize(
    "lines", [[LINE, LINE.replace("fp32", "fp32 ")], [LINE.replace("a,b,fp32", " a,b\t,fp32 ")] * 2]
)
def test_blanks_around_what_tells_rows_apart_are_nothing(tmp_path, lines):
    frame = load([written(tmp_path, *lines)], identity=["suite", "model", "precision"]).frame
    assert {tuple(row) for row in frame[["suite", "model", "precision"]].to_numpy()} == {("a", "b", "fp32")}
    assert set(frame["identity"]) == {0}


IMPOSSIBLE = {
    "half a trial": ("trial", "0.5", "a whole number from 0, at most 2^53"),
    "fewer processes than none": ("processes", "-2", "a whole number above 0, at most 2^53"),
    "a batch beyond all": ("batch_size", "1e300", "a whole number above 0, at most 2^53"),
    "an empty batch": ("batch_size", "0", "a whole number above 0, at most 2^53"),
    "power that is made": ("mean_power_watts", "-250.0", "a number from 0"),
    "memory that is given": ("peak_memory_bytes", "-1", "a whole number from 0, at most 2^53"),
    "more than all right": ("accuracy", "94.0", "a number from 0 to 1"),
    "a limit of nothing": ("memory_limit_bytes", "-0", "a whole number above 0, at most 2^53"),
    "colder than cold": ("max_temperature_celsius", "-300", "a number above absolute zero"),
    "a stall of everything": ("data_stall", "1.5", "a number up to 1"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_number_that_its_column_may_not_hold_is_named_and_left_out(tmp_path, name):
    column, group, allowed = IMPOSSIBLE[name]
    lines = [f"1,a,b,fp32,ok,{each},end" for each in ("", group, "")]
    path = written(tmp_path, *lines, names=f"schema,suite,model,precision,status,{column},end")
    assert found(path, "model") == (["b", "b"], [f", line 3: {column} is {group}, not {allowed}; left out"])


def test_every_number_of_a_real_file_and_of_noise_is_one_that_its_column_may_hold(tmp_path):
    loaded = load(sorted((Path(__file__).parents[1] / "results").glob("*.csv")))
    assert loaded.problems == []
    assert len(loaded.frame) > 200
    path = written(tmp_path, "1,a,b,fp32,ok,-0.04,end", names="schema,suite,model,precision,status,data_stall,end")
    assert found(path, "data_stall") == ([-0.04], [])


# Rows that were changed after they were written.


def edits(path, change):
    path.write_text(change(path.read_text()))
    return [problem.removeprefix(str(path)) for problem in load([path]).problems]


EDITED = ", line 3: changed after gpubench wrote it (row_digest); used"


@pytest.mark.parametrize(("torn", "other"), [("", ""), ("torn", ""), ("", sys.executable), ("", "/no/python/here")])
@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace("100.0", "10.0"),
        lambda line: line.replace("resnet18", "resnet34"),
        lambda line: line.replace("100.0", ""),
        lambda line: line.replace("100.0,,", ",100.0,"),
        lambda line: line.replace(",true,", ",false,"),
        lambda line: line.replace("2.10", "2.1"),
        lambda line: line[:-20] + ("0" if line[-20] != "0" else "1") + line[-19:],
    ],
)
def test_a_changed_row_is_used_and_named(tmp_path, monkeypatch, change, torn, other):
    """`other` is the Python that looks for changed rows of large files; in its absence this one does."""
    monkeypatch.setattr(loading, "LARGE_BYTES", 0 if other else loading.LARGE_BYTES)
    monkeypatch.setattr(sys, "executable", other)
    path = tmp_path / "a.csv"
    records.append(path, [row(trial=trial, batch_capped=True, torch="2.10") for trial in range(3)])
    header, *lines = path.read_text().splitlines()
    lines[1] = change(lines[1])
    problems = edits(path, lambda _: "\n".join([header, *lines, torn]))
    assert EDITED in problems
    assert len(problems) == 1 + bool(torn)
    assert len(load([path]).frame) == 3


def test_a_program_that_spells_numbers_anew_changes_nothing(tmp_path):
    """A data frame: empty columns go, notes come, columns move, 1 becomes 1.0, true becomes True."""
    path, again = tmp_path / "a.csv", tmp_path / "again.csv"
    rows_in = [row(trial=trial, batch_capped=trial != 1, seconds=98.25 + trial, load_average=1.5) for trial in range(3)]
    records.append(path, [*rows_in, row(trial=3, processes=None)])
    frame = pd.read_csv(path).copy()
    frame.to_csv(again, index=False)
    assert "1.0" in again.read_text().replace("100.0", "")
    assert load([again]).problems == []
    again.write_text(frame[frame.columns[::-1]].copy().assign(note="mine").to_csv(index=False).removesuffix("\n"))
    assert load([again]).problems == []
    frame.dropna(axis=1, how="all").to_csv(again, index=False)
    assert load([again]).problems == []
    frame.assign(seconds=1.0).to_csv(again, index=False)
    assert len(load([again]).problems) == 4


def test_rows_of_before_have_no_digest_and_are_not_called_changed(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [row()])
    assert (
        edits(path, lambda text: "\n".join(line.rsplit(",", 2)[0] + ",end" for line in text.splitlines()) + "\n") == []
    )


def test_lines_that_are_no_rows_are_named_up_to_five(tmp_path):
    path = written(tmp_path, "1,a,b", LINE, "1,a,b", end="")
    assert found(path)[1] == [TORN, ", line 2: not a whole row; left out"]
    bad = ["1,,b,fp32,ok,2.5,true,end", "1,a"]
    five = [f", line {number}: not a whole row; left out" for number in range(2, 7)]
    assert found(written(tmp_path, *bad * 2, bad[0], LINE)) == ([2.5], five)
    assert found(written(tmp_path, *bad * 4, LINE)) == ([2.5], [*five, ": 3 more lines are no whole rows; left out"])
    newer = "7,,,,,whatever,true,over"
    used, (problem,) = found(written(tmp_path, newer, LINE, newer.replace("7", "8")))
    assert used == [2.5]
    assert lacking(problem, 2, "schema 7") == []


LACKS = ": not a gpubench file (it has no column {}); left out"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", ": empty"),
        (" " * 2000, ": empty"),
        ("\n" * 1100 + NAMES, LACKS.format("schema, suite, model, precision, status")),
        ("schema,model\n", LACKS.format("suite, precision, status")),
        (f"{NAMES},suite\n{LINE},a\n", ", line 1: a column is twice in the header; left out"),
        (NAMES, ": no rows"),
        (f"{NAMES}\n\n \n", ": no rows"),
        (f"{NAMES}\n1,a\n", ", line 2: not a whole row; left out"),
        ('"schema\n', LACKS.format("suite, model, precision, status")),
    ],
)
def test_files_without_a_row(tmp_path, content, problem):
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert found(path) == ([], [problem])


@pytest.mark.parametrize("name", ["at once", "closely"])
def test_what_becomes_of_each_type(tmp_path, name):
    flags = ["true", "TRUE", "True", "false", "", "1", "yes"]
    lines = [f"1,a,b,fp32,ok, ,{flag},mine,end" for flag in flags]
    path = written(tmp_path, *lines, *([] if name == "at once" else ["torn"]), names=NAMES.replace("end", "note,end"))
    frame = load([path]).frame
    assert frame["batch_capped"].tolist() == [True, True, True, False, False, False, False]
    assert frame["seconds"].isna().all()
    assert frame["loss"].isna().all()
    assert set(frame["card"]) == {""}
    assert frame["schema"].tolist() == [1.0] * 7
    assert (set(frame.columns), "note" in frame) == (set(COLUMNS), False)


def test_a_folder_stands_for_its_csv_files_in_order_of_names(tmp_path):
    for name in ("b.csv", "a.csv", "c.txt", "d.csv.bak"):
        written(tmp_path, LINE.replace(",b,", f",{name[0]},"), name=name)
    (tmp_path / "empty").mkdir()
    loaded = load([tmp_path, tmp_path / "empty"])
    assert loaded.frame["model"].tolist() == ["a", "b"]
    assert lacking(loaded.problems[0], tmp_path / "empty") == []
    assert load([tmp_path / "b.csv", tmp_path / "c.txt"]).frame["model"].tolist() == ["b", "c"]
    (problem,) = load([tmp_path / "none.csv"]).problems
    assert problem == f"{tmp_path / 'none.csv'}: cannot be read (No such file or directory)"


def test_rows_agree_by_number_however_many_values_there_are(tmp_path):
    models = ["b", "c", "b", "d", "c"]
    one = written(tmp_path, *(LINE.replace(",b,", f",{model},") for model in models), name="one.csv")
    two = written(tmp_path, *(LINE.replace(",b,", f",{model},").replace("2.5", "3") for model in "cb"), name="two.csv")
    three = written(tmp_path, LINE, name="three.csv")

    def identity(*columns):
        return load([one, two, three], identity=columns).frame["identity"].tolist()

    assert identity("model") == [0, 1, 0, 2, 1, 1, 0, 0]
    assert identity("model", "seconds") == [0, 1, 0, 2, 1, 3, 4, 0]
    assert identity("suite") == [0] * 8
    assert identity("seconds", "suite") == [0] * 5 + [1, 1, 0]
    assert "identity" not in load([one]).frame
    # Six columns of 4096 values have 2**72 combinations: in 64 bits the 17th value of the first would be the 1st.
    usual = [f"v{at}" for at in range(4096)]
    table = pl.DataFrame({"a": [*usual, "v0", "v16"], **{name: [*usual, "v0", "v0"] for name in "bcdef"}})
    assert parse.numbers_of(parse.Table(4098, {}, table), list("abcdef")).tolist() == [*range(4096), 0, 4096]


@pytest.mark.parametrize(
    ("steering", "harmless"),
    [("\x00\t\n\x1b\x1f", " "), ("\x7f\x80\x9b\x9f", "~\xa0"), ("\u200b\u200d\u200e\u200f", "\u200a\u2010"),
     ("\u2028\u2029\u202a\u202c\u202e", "\u2027\u202f"), ("\u2060\u2066\u2069\u206f", "\u205f\u2070")],
)  # fmt: skip
def test_what_steers_a_terminal_is_not_shown(steering, harmless):
    assert loading.shown(f"a{steering}b{harmless}c") == f"a{chr(0xFFFD) * len(steering)}b{harmless}c"


def seconds_of(table):
    """That column of a table of ours, as text, and that nothing follows its last line."""
    header, *lines, end = table.decode().split("\n")
    assert (header, end) == (",".join(COLUMNS), "")
    return [dict(zip(COLUMNS, next(csv.reader([line])), strict=True))["seconds"] for line in lines]


def test_rows_as_the_text_they_were(tmp_path):
    one = written(tmp_path, LINE, "torn,", LINE.replace("2.5", "2.50"), name="one.csv")
    two = written(tmp_path, "1,a,b,fp32,failed,mine", names="schema,suite,model,precision,status,note", name="two.csv")
    loaded = load([one, two], keep=True)
    assert loaded.frame.index.tolist() == [0, 1, 2]
    assert seconds_of(loaded.table()) == ["2.5", "2.50", ""]
    assert [seconds_of(loaded.table([number])) for number in loaded.frame.index] == [["2.5"], ["2.50"], [""]]
    assert seconds_of(loaded.table([2, 0])) == ["2.5", ""]
    assert seconds_of(loaded.table([])) == []
    third = dict(zip(COLUMNS, loaded.table([2]).decode().split("\n")[1].split(","), strict=True))
    assert {name: text for name, text in third.items() if text} == {
        "schema": "1", "suite": "a", "model": "b", "precision": "fp32", "status": "failed",
        "end": "end",
    }  # fmt: skip
    (tmp_path / "carried.csv").write_bytes(loaded.table())
    again = load([tmp_path / "carried.csv"])
    assert (len(again.frame), again.problems) == (3, [])
    assert seconds_of(load([tmp_path / "none.csv"], keep=True).table()) == []


def test_kept_text_is_that_of_its_row_wherever_the_files_were_read(tmp_path):
    """Files of another header, a torn one and good ones between: every row of the frame has its own line."""
    own = [",".join(COLUMNS)] + [",".join(to_cells(row(trial=n, seconds=n + 0.5))) for n in range(4)]
    whole = tmp_path / "a.csv"
    whole.write_text("\n".join([own[0], own[1], own[2], ""]))
    torn = tmp_path / "b.csv"
    torn.write_text("\r\n".join([own[0], own[3], "torn,", own[4], own[1][:50]]))
    older = written(tmp_path, LINE, LINE.replace("2.5", "7.25"), name="c.csv")
    loaded = load([whole, torn, older, whole], keep=True)
    expected = ["0.5", "1.5", "2.5", "3.5", "2.5", "7.25", "0.5", "1.5"]
    assert loaded.frame["seconds"].tolist() == [float(text) for text in expected]
    assert seconds_of(loaded.table()) == expected
    assert [seconds_of(loaded.table([number])) for number in loaded.frame.index] == [[text] for text in expected]


def test_laps_of_a_long_run_are_no_error(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, [row(laps="x" * 200_000), row(trial=1)])
    path.write_text(path.read_text() + "torn")
    loaded = load([path])
    assert ([len(laps) for laps in loaded.frame["laps"]], len(loaded.problems)) == ([200_000, 0], 1)


def test_every_row_knows_its_file(tmp_path):
    """Read at once or line by line, with files between them that have no rows or cannot be read."""
    paths = [tmp_path / f"{n}.csv" for n in range(6)]
    for n, path in enumerate(paths):
        records.append(path, [row(trial=n)] * (n % 3))
    paths[4].write_bytes(paths[4].read_bytes() + b"torn")
    loaded = load([*paths, tmp_path / "none.csv", tmp_path / "\0", paths[1]])
    assert [loaded.file_of(place).name for place in loaded.frame.index] == [
        f"{trial:.0f}.csv" for trial in loaded.frame["trial"]
    ]
    assert len(loaded.frame) == 0 + 1 + 2 + 0 + 1 + 2 + 1


@pytest.mark.parametrize(
    "text", ["true", "False", "nan", "NaN", "-nan", " nan", "inf", "-inf", "1_000", "\uff15", "1e", "0x5"]
)
@pytest.mark.parametrize("lines", [1, 3])
def test_a_word_is_no_number_though_all_lines_have_it(tmp_path, text, lines):
    """pandas takes true for 1 where a whole column says so, and nan for nothing."""
    path = written(tmp_path, *[LINE.replace("2.5", text)] * lines)
    why = f"seconds is {text}, not a number; left out"
    assert found(path) == ([], [f", line {number}: {why}" for number in range(2, lines + 2)])


def test_odd_names_and_files_are_read_as_they_are(tmp_path):
    path = written(tmp_path, LINE.replace(",a,", ",nanoGPT,"), LINE.replace(",a,", ",NaN,"))
    assert found(path, "suite") == (["nanoGPT", "NaN"], [])
    frame = load([written(tmp_path, LINE)], without=["model", "seconds", "end"]).frame
    assert set(COLUMNS) - set(frame.columns) == {"model", "seconds", "end"}
    path = written(tmp_path, "1,a,b,ok,end", names="schema,suite,model,status,end")
    assert found(path) == ([], [LACKS.format("precision")])
    os.mkfifo(tmp_path / "pipe.csv")
    loaded = load([tmp_path / "pipe.csv", Path("/dev/zero")])
    assert loaded.problems == [f"{tmp_path / 'pipe.csv'}: not a file", "/dev/zero: not a file"]


@pytest.mark.parametrize("names", [NAMES, NAMES.replace("seconds", "mine")])
def test_a_byte_that_is_no_text_costs_its_row_where_it_is_not_read_too(tmp_path, names):
    path = written(tmp_path, LINE, LINE.replace("2.5", "2?5"), names=names)
    path.write_bytes(path.read_bytes().replace(b"?", b"\xff"))
    loaded = load([path], without=["laps"], keep=True)
    assert loaded.problems == [f"{path}, line 3: not a whole row; left out"]
    assert loaded.table().count(b"\n") == 2
