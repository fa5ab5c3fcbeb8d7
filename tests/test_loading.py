"""Whatever the file, good rows are used and every problem is a sentence that names file and line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


def test_numbers_are_read_to_their_last_bit(tmp_path):
    """pandas before 3.1 gets the last bit of some wrong, unless told; a file with a bad line is read in another way."""
    seconds = [5.960464477539063e-08, 0.1 + 0.2, 1 / 3, 123456.78901234567, 5e-324]
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    for path in (whole, torn):
        records.append(path, [row(trial=number, seconds=value) for number, value in enumerate(seconds)])
    torn.write_text(torn.read_text() + "1,resnet\n")
    for path in (whole, torn):
        assert load([path]).frame["seconds"].tolist() == seconds


def test_a_folder_stands_for_its_csv_files(tmp_path, good):
    (tmp_path / "notes.txt").write_text("not one of them")
    (tmp_path / "empty").mkdir()
    loaded = load([tmp_path, tmp_path / "empty"])
    assert len(loaded.frame) == 3
    assert loaded.problems == [f"{tmp_path / 'empty'}: a folder without any CSV file"]


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


@pytest.mark.parametrize("value", ["inf", "nan", "12,5", "1e999"])
def test_a_number_that_is_none_makes_its_row_bad(tmp_path, good, value):
    other = tmp_path / "other.csv"
    records.append(other, [row(reason="NUMBER")])
    other.write_text(other.read_text().replace("100.0", f'"{value}"'))
    loaded = load([other, good])
    assert len(loaded.frame) == 3
    assert loaded.problems == [f"{other}, line 2: not a whole row; left out"]


def test_many_bad_lines_are_counted(good):
    good.write_text(good.read_text() + "x,y\n" * 100)
    loaded = load([good])
    assert len(loaded.frame) == 3
    assert len(loaded.problems) == 6
    assert "95 more" in loaded.problems[-1]


def test_a_torn_last_line_is_said_to_be_torn(good):
    good.write_text(good.read_text() + "1,resnet,1,d1,resn")
    loaded = load([good])
    assert len(loaded.frame) == 3
    assert loaded.problems[0].startswith(f"{good}, line 5: torn")


def test_a_spreadsheet_changes_nothing(tmp_path, good):
    sheet = tmp_path / "sheet.csv"
    text = good.read_text().replace("\n", "\r\n").replace("true", "TRUE")
    sheet.write_bytes(b"\xef\xbb\xbf" + text.encode())
    loaded = load([sheet])
    assert loaded.problems == []
    assert loaded.frame.equals(load([good]).frame)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=300), at=st.integers(0, 400))
def test_no_bytes_make_a_traceback(tmp_path_factory, content, at):
    path = tmp_path_factory.mktemp("bytes") / "a.csv"
    records.append(path, [row(trial=trial) for trial in range(3)])
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for damaged in (content, whole[: header + at] + content + whole[header + at :], whole[: header + at]):
        path.write_bytes(damaged)
        assert len(load([path]).frame) <= 3 + content.count(b"\n")


def test_a_whole_last_line_without_its_newline_is_a_row(good):
    good.write_text(good.read_text().rstrip("\n"))
    loaded = load([good])
    assert (len(loaded.frame), loaded.problems) == (3, [])


def test_files_joined_with_cat_are_one_file(tmp_path, good):
    joined = tmp_path / "joined.csv"
    joined.write_text(good.read_text() * 2)
    loaded = load([joined])
    assert (len(loaded.frame), loaded.problems) == (6, [])


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
    at_once = load(paths, identity=["session", "precision"])
    monkeypatch.setattr("gpubench.loading.BATCH_BYTES", 1)
    one_by_one = load(paths, identity=["session", "precision"])
    assert at_once.frame.equals(one_by_one.frame)
    assert at_once.problems == one_by_one.problems
    assert list(at_once.frame["identity"].unique()) == list(range(7))


def test_a_short_line_is_no_row_even_where_no_column_marks_the_end(tmp_path):
    whole, torn = "1,a,b,fp32,ok,253.1,X\n", "1,a,b,fp32,ok,2\n"
    path = tmp_path / "short.csv"
    path.write_text("schema,suite,model,precision,status,seconds,card\n" + torn + whole)
    loaded = load([path])
    assert list(loaded.frame["seconds"]) == [253.1]
    assert loaded.problems == [f"{path}, line 2: not a whole row; left out"]


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
