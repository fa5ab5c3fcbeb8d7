"""The page: opens offline and under its own policy, nothing of a row becomes markup, all is folded and carried."""

import base64
import hashlib
import random
import re
from html.parser import HTMLParser

import pytest
from made_answers import TABLE, answer, pairs, ratios, result, section

from gpubench.rows.embed import table_in
from gpubench.rows.read import load
from gpubench.show.html import cell_of, grid_of
from gpubench.show.page import page_of, write
from gpubench.studies.section import Bar, BarGroup, Column, Table

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>]]>\x00\x1b"
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Elements with their attributes and texts; fails where they are not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    def text_in(self, tag):
        return [text for inside, text in self.texts if inside == tag]


@pytest.fixture(scope="module")
def text():
    charts = (pairs(), ratios((1.4, 1.2, 1.5), (0.9, 0.8, 1.1)))
    results = [result(f"Finding {n}", charts if n == 0 else ()) for n in range(11)]
    sections = [section("First", results=tuple(results), charts=charts), section("Second", charts=(pairs("other"),))]
    sections.append(section("Third", results=(result("Odd"),), notes=("a note",), left_out=("two rows: why",)))
    return page_of(answer(*results, sections=sections, left_out=("a kind",), problems=("bad.csv: no CSV",)))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_its_policy_allows_its_own_script_and_it_opens_offline(page, text):
    (policy,) = (each["content"] for each in page.all("meta") if each.get("http-equiv"))
    (script,), (style,) = page.text_in("script"), page.text_in("style")
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (script, style)]
    assert policy == (
        f"default-src 'none'; connect-src 'self'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}';"
        " base-uri 'none'; form-action 'none'"
    )
    assert not any("style" in attributes for _, attributes in page.elements)
    links = [each[name] for _, each in page.elements for name in ("href", "src", "xlink:href") if name in each]
    assert links
    assert all(link.startswith(("#", "data:application/gzip;base64,")) for link in links)
    assert not re.search(r"https?:|//[a-z]|url\(", text)
    ids = [each["id"] for _, each in page.elements if "id" in each]
    assert len(ids) == len(set(ids))
    assert {each["href"][1:] for each in page.all("a", "use") if each["href"].startswith("#")} <= set(ids)


def test_one_section_is_open_and_nothing_to_compare_is_a_page():
    told = result("A (b) wins", charts=(pairs(),))
    page = Page(page_of(answer(told, headline=told.sentence, sections=[section(results=(told,))])))
    assert (page.text_in("h1"), "one run" in page.text_in("p")) == (["A (b) wins"], True)
    assert ["open" in each for each in page.all("details")] == [True, False]
    assert len(page.all("svg")) == 1
    rate = "A (x) takes 1 s (resnet, 1 run). Nothing here can be compared: one row."
    for results in ([], [result()]):
        page = Page(page_of(answer(*results, headline=rate)))
        assert (rate in page.text_in("p"), page.text_in("h1")) == (True, ["Nothing to compare"])


def test_a_heading_has_no_parameters_and_bottlenecks_are_folded_together():
    limits = [section(f"x: sampled, a=1, b=2; part {n}", results=(result("F"),), study="roofline") for n in range(2)]
    page = Page(page_of(answer(result(), sections=[*limits, section("y"), section("z", results=(result(),))])))
    assert page.text_in("h2") == ["z", "Bottlenecks", "x: sampled; part 0", "x: sampled; part 1", "y"]
    assert "a=1, b=2, 1 result" in page.text_in("span")
    assert [details["id"][-1] for details in page.all("details") if "id" in details] == ["4", "1", "2", "3"]


def test_tables_sort_by_value_and_say_once_what_all_lines_share(page):
    cells = page.all("td")
    assert {table["class"] for table in page.all("table")} == {"n2 n3"}
    assert {"class": "faster"} in cells
    assert {"class": "note"} in cells
    assert "9.0 to 11.0" in page.text_in("small")
    assert "out of memory" in page.text_in("td")
    assert all("data-sortable" in each for each in page.all("table"))
    assert (cell_of(1e-9, Column("p", "p")).value, cell_of(None, Column("size", "bytes")).value) == ("1e-09", "")
    columns = (Column("model"), Column("card"), Column("seconds", "s"), Column("notes"))
    grid = grid_of(Table("cases", columns, (("a", "A100", 1.0, ""), ("b", "A100", 2.0, ""))))
    assert grid.caption == "One line per case: the median of its trials. In all lines: card A100"
    assert [column.name for column in grid.columns] == ["model", "seconds"]
    assert [[cell.text for cell in line.cells] for line in grid.lines] == [["a", "1.00"], ["b", "2.00"]]


def test_no_text_of_a_row_is_markup():
    chart = pairs(title=ATTACK, subtitle=ATTACK, winner=ATTACK, foot=ATTACK,
        groups=(BarGroup(ATTACK, (Bar(ATTACK, 900.0, note=ATTACK), Bar("b", 8.0, text=ATTACK)), ATTACK),))  # fmt: skip
    told = result(ATTACK, (chart,))
    table = Table(ATTACK, (Column(ATTACK), Column(ATTACK, "s")), ((ATTACK, ATTACK),))
    whole = section(ATTACK, results=(told,), tables=(table,), notes=(ATTACK,), left_out=(ATTACK,))
    more = {"headline": ATTACK, "rule": ATTACK, "left_out": (ATTACK,), "problems": (ATTACK,)}
    page = Page(page_of(answer(told, sections=[whole], **more)))
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert len(page.all("svg")) == 1
    assert any("alert(1)" in text for text in page.text_in("text"))


def test_the_rows_come_back(tmp_path, text):
    line = write(answer(sections=[section()]), tmp_path / "new" / "page.html")
    assert re.fullmatch(r".*page\.html: \d+ kB, opens offline", line)
    assert load([tmp_path / "new" / "page.html"], keep=True).problems
    assert table_in(text.encode()) == TABLE


ROW = "NVIDIA GeForce RTX 4090,2.15.0,580.1,2026-11-{day}T10:00:00+00:00,{laps},d,end"
HEADER = "card,torch,driver,started,laps,row_digest,end"


def test_facts_of_the_rows_are_above_all_else_and_many_rows_are_carried_without_laps():
    rows = "\n".join([HEADER, ROW.format(day=21, laps="[]"), ROW.format(day=22, laps="[]")]).encode()
    text = page_of(answer(result(), table=lambda cases: rows))
    for fact in ("RTX 4090.", "driver 580.1.", "torch 2.15.0.", "2026-11-21 to 2026-11-22."):
        assert text.index(fact) < text.index("Download")
    noise = random.Random(1)
    lines = [ROW.format(day=21, laps=noise.randbytes(100).hex()) for _ in range(1000)]
    table = table_in(page_of(answer(result(), table=lambda cases: "\n".join([HEADER, *lines]).encode())).encode())
    assert table.decode().splitlines()[:2] == [
        "card,torch,driver,started,end", "NVIDIA GeForce RTX 4090,2.15.0,580.1,2026-11-21T10:00:00+00:00,end"
    ]  # fmt: skip
