"""Charts and reports carry their rows, exactly; one that lost them says so."""

import gzip
import io
import random

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rows import row, rows

from gpubench.analysis.compare import compare
from gpubench.rows import embed as carried
from gpubench.rows import write as records
from gpubench.rows.read import load
from gpubench.show.charts import draw
from gpubench.show.page import write
from gpubench.studies.answer import answer

ODD = 'a "quoted", <b>odd</b> & ünusual ]]> --> name'


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "rows.csv"
    times = [100.0, 101.5, 1 / 3, 99.0, 98.5, 100.25]
    slow = rows([value * 1.3 for value in times], card=ODD, device_hash="bbbb", laps='[["train",0,"timed",1,2,0.5,0]]')
    lost = row(model="resnet50", status="out_of_memory", seconds=None, measured="", batch_capped=False)
    records.append(path, [*rows(times, batch_capped=True), *slow, lost])
    return path


@pytest.fixture(scope="module")
def charts(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    draw(answer([source], keep=True), folder, every=True, kinds=("png", "svg"), theme="light")
    return folder


def test_rows_come_back_byte_for_byte_from_charts_and_the_pages_button(source, charts, tmp_path):
    whole = answer([source], keep=True)
    write(whole, tmp_path / "report.html")
    carriers = [*charts.glob("*-seconds.png"), *charts.glob("*-full-seconds.svg"), tmp_path / "report.html"]
    assert len(carriers) >= 3
    for carrier in carriers:
        loaded = load([carrier], keep=True)
        assert loaded.problems == []
        if "over" not in carrier.name:  # a picture of a result has the rows of its cases alone
            assert loaded.table() == source.read_bytes()
            assert loaded.frame.equals(load([source]).frame)
        else:
            assert set(loaded.table().splitlines()) < set(source.read_bytes().splitlines())
    saved = tmp_path / "gpubench-rows.csv.gz"
    saved.write_bytes(gzip.compress(source.read_bytes()))
    assert load([saved], keep=True).table() == source.read_bytes()
    saved.write_bytes(saved.read_bytes()[:100])
    assert "damaged" in load([saved]).problems[0]


def test_a_chart_of_some_rows_carries_those_and_compares_with_a_file(charts, tmp_path, source):
    mine = tmp_path / "mine.csv"
    records.append(mine, rows([50.0] * 6, card="NVIDIA GeForce RTX 4090", device_hash="cccc", session="s2"))
    labels = {cell.label for cell in compare([next(charts.glob("*-1-seconds.png")), mine]).workloads[0].groups}
    assert "RTX 4090" in labels
    assert len(labels) == 3
    other = tmp_path / "other.csv"
    records.append(other, rows([1.0, 2.0], suite="wordlm", params="x=1", model="lstm"))
    records.append(other, rows([2.0, 3.0], suite="wordlm", params="x=1", model="gru"))
    draw(answer([source, other], keep=True), tmp_path / "both", every=True, kinds=("png", "svg"), theme="light")
    (theirs,) = (tmp_path / "both").glob("wordlm-*-seconds.svg")
    assert load([theirs], keep=True).table() == other.read_bytes()


def test_large_tables_take_several_chunks_and_no_small_file_unpacks_to_a_huge_one():
    noise = random.Random(1).randbytes(3 << 20).hex().encode()
    parts = carried.png_parts(noise)
    assert len(parts) > 3
    info, file = PngInfo(), io.BytesIO()
    for key, value in parts.items():
        info.add_text(key, value)
    Image.new("RGB", (2, 2)).save(file, "PNG", pnginfo=info)
    assert carried.table_in(file.getvalue()) == noise
    bomb = gzip.compress(b"0" * 200_000_000)
    with pytest.raises(carried.RowsLostError, match="damaged"):
        carried.table_in(bomb)
    assert carried.table_in(gzip.compress(b"schema\n" + b"0" * 900_000)) is not None


@pytest.mark.parametrize(("kind", "digits"), [("PNG", 0), ("PNG", 5000), ("JPEG", 0), ("GIF", 0), ("WEBP", 0)])
def test_a_picture_saved_anew_says_that_its_rows_are_lost(charts, tmp_path, kind, digits):
    anew = tmp_path / f"anew.{kind.lower()}"
    with Image.open(next(charts.glob("*-1-seconds.png"))) as picture:
        pixels = Image.frombytes("RGB", picture.size, picture.convert("RGB").tobytes())
    info = PngInfo()
    info.add_text(f"{carried.MARK}-1-of-{'9' * digits}", "")  # int() reads at most 4300 digits
    pixels.save(anew, kind, pnginfo=info)
    (problem,) = load([anew]).problems
    assert "ask for the original file or its CSV" in problem


def test_damaged_carriers_are_problems_not_tracebacks(source, charts, tmp_path):
    write(answer([source], keep=True), tmp_path / "report.html")
    for carrier in [*charts.glob("*-full-seconds.*"), tmp_path / "report.html"]:
        whole = carrier.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 8)):
            for damaged in (whole[:at], whole[:at] + b"\xff\x00<" + whole[at + 3 :]):
                broken = tmp_path / "broken"
                broken.write_bytes(damaged)
                loaded = load([broken])
                assert len(loaded.frame) <= 13
