"""The site: results first, no link that leads nowhere, nothing fetched, no text of a row as markup, all readable."""

import csv
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from rows import rows
from test_page import ATTACK as ATTACK_WITH_NUL
from test_page import Page

from gpubench.cli.site import write_site
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.rows.row import COLUMNS
from gpubench.show.site import addresses, source_link
from gpubench.studies.cards.figures import published
from gpubench.studies.ranked_cases import NO_ROWS, SiteRow, ranks_of

pytestmark = pytest.mark.usefixtures("few_cards")
ROOT = Path(__file__).parents[1]
LARGEST = 500_000
ATTACK = ATTACK_WITH_NUL.replace("\0", "")
"""A line with a NUL is no row."""
BIDI = "\u202ereversed\u2066"


def built(out, *paths):
    """The pages of a site by their place in it."""
    write_site(paths, out)
    return {str(path.relative_to(out)): Page(path.read_text()) for path in out.rglob("*.html")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def site(folder):
    return built(folder, ROOT / "results")


def hrefs(page):
    return [each["href"] for each in page.all("a") if "href" in each]


def ids(page):
    return [each["id"] for _, each in page.elements if "id" in each]


def leads_nowhere(pages, folder):
    """Links within a site to a page or a place that is not there."""
    wrong = []
    for name, page in pages.items():
        assert len(ids(page)) == len(set(ids(page))), name
        for href in hrefs(page):
            if href.startswith(("https://", "data:application/gzip;base64,")):
                continue
            path, _, place = href.partition("#")
            target = (
                str((folder / name).parent.joinpath(path).resolve().relative_to(folder.resolve())) if path else name
            )
            there = target in pages or (folder / target).is_file()
            if not there or (place and place not in ids(pages[target])):
                wrong.append((name, href))
    return wrong


def test_no_page_is_large_or_asks_anything_of_a_network_and_every_link_leads_somewhere(site, folder):
    for name, page in site.items():
        text = (folder / name).read_text()
        assert len(text.encode()) < LARGEST, name
        assert not [tag for tag, _ in page.elements if tag in {"img", "link", "iframe", "object", "base", "source"}]
        assert not [each for _, each in page.elements if {"src", "srcset", "style", "action", "ping"} & set(each)]
        assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text), name
        (policy,) = (each["content"] for each in page.all("meta") if each.get("http-equiv"))
        assert policy.startswith("default-src 'none'; connect-src 'self'; script-src 'sha256-")
        assert policy.endswith("; base-uri 'none'; form-action 'none'")
    assert leads_nowhere(site, folder) == []


def test_the_page_of_a_card_has_its_neighbours_and_each_page_can_be_read_aloud(site):
    page = site["card/rtx-4090.html"]
    cards = [text for text in page.text_in("text") if re.search("[A-Z]", text)]
    assert len(cards) == 7
    assert cards[3] == "RTX 4090"
    linked = [text for text in page.text_in("a") if text in cards]
    assert linked == [card for card in cards if card != "RTX 4090"]
    assert len(next(page for name, page in site.items() if "epyc" in name).all("figure")) == 1, "of its first result"
    for name, page in site.items():
        assert len(page.all("h1")) == len(page.all("main")) == 1, name
        assert page.all("html")[0]["lang"] == "en"
        assert page.text_in("title")[0]
        assert len(page.all("caption")) == len(page.all("table")), name
        labelled = {each["for"] for each in page.all("label")}
        assert {each["id"] for each in page.all("input", "select")} == labelled, name
        tables = [div for div in page.all("div") if "scroll" in div.get("class", "").split()]
        assert all("aria-label" in each and each["tabindex"] == "0" for each in tables)


def test_a_chart_has_the_dates_of_its_own_rows_and_a_card_what_measured_it(folder, site):
    foot = re.search(r'<p class="soft foot">(.*?)</p>', (folder / "suite/resnet.html").read_text())[1]
    assert foot.endswith("RTX-2080Ti-Vs-GTX-1080Ti-CIFAR-100-Benchmarks"), "published without a date"
    (facts,) = (text for text in site["card/h100-80gb-hbm3.html"].text_in("p") if "driver" in text)
    assert re.fullmatch(r"Its rows: driver [\d.]+\. torch 2[\d.]+\+cu\d+\. 20\d\d-\d\d-\d\d\.", facts)
    assert "P100" in site["card/p100.html"].text_in("title")[0]
    assert "Compare with" in site["card/l4.html"].text_in("h2"), "which only its data sheet ranks"


@pytest.mark.parametrize("url", ["", "https://me.github.io/gpubench/"])
def test_links_to_a_page_are_shown_with_a_picture(tmp_path, url):
    records.append(tmp_path / "mine.csv", rows([100.0] * 6))
    write_site([tmp_path / "mine.csv"], tmp_path / "site", url)
    with Image.open(tmp_path / "site" / "preview.png") as picture:
        assert picture.size == (1200, 675)
    for name in ("index.html", "card/rtx-2080-ti.html", "suite/resnet.html"):
        page = Page((tmp_path / "site" / name).read_text())
        about = {meta["property"]: meta["content"] for meta in page.all("meta") if "property" in meta}
        assert about["og:title"] == page.text_in("title")[0]
        here = "../" * name.count("/")
        assert about["og:image"] == f"{url or here}preview.png"


def table(folder, name, which):
    """The lines of a page's first table of this name as dicts: their attributes, and by heading a text and a link."""
    found = re.search(rf'aria-label="{which}"[^>]*>(<table.*?</table>)', (folder / name).read_text(), re.DOTALL)[1]
    head, *lines = ElementTree.fromstring(found.replace(" data-sortable", "")).iter("tr")
    names = [cell.text for cell in head]
    return [
        {"attributes": line.attrib, **{name: text_and_link(cell) for name, cell in zip(names, line, strict=True)}}
        for line in lines
    ]


def text_and_link(cell):
    return "".join(cell.itertext()), next((link.attrib["href"] for link in cell.iter("a")), "")


def test_a_figure_leads_to_the_row_it_was_read_from(folder, site):
    wanted = ("RTX 2080 Ti imported", "resnet18", "fp32")
    lines = table(folder, "index.html", "cases")
    line = next(each for each in lines if tuple(each[name][0] for name in ("card", "model", "precision")) == wanted)
    page, _, place = line["seconds"][1].partition("#")
    assert line["seconds"][0].split()[0] == "1,692"
    row = next(each for each in table(folder, page, "rows") if each["attributes"].get("id") == place)
    file, number = re.fullmatch(r"(\S+\.csv), line (\d+)", row["row"][0]).groups()
    there = list(csv.DictReader((ROOT / "results" / file).read_text().splitlines()))[int(number) - 2]
    assert float(there["seconds"]) == pytest.approx(1692, abs=0.5)
    told = {name: line[name][0] for name in ("suite", "batch", "samples/s", "trials", "source")}
    assert told == {"suite": "resnet", "batch": "408 (author)", "samples/s": "851", "trials": "1", "source": "init27"}
    assert (there["model"], there["precision"]) == ("resnet18", "fp32")
    assert row["source"][1].startswith("https://github.com/init27/")


def test_rows_and_published_figures_are_files_and_never_one_table(folder, site):
    ranked = table(folder, "index.html", "published")
    assert len(ranked) == 72
    for line in ranked:
        own = line["card"][1]
        assert {line[name][1] for name in ("half precision", "FP32", "figures")} <= {"", f"{own}#published"}
    figures = table(folder, "card/rtx-2080-ti.html", "figures")
    of_it = [each for each in published().figures if each.card == "RTX 2080 Ti"]
    assert len(figures) == len(of_it)
    said = {
        (each["workload"][0].partition(" not used")[0], each["unit"][0], each["precision"][0], each["batch"][0])
        for each in figures
    }
    assert said == {(each.workload, each.unit, each.precision, each.batch) for each in of_it}
    first = next(each for each in of_it if figures[0]["source"][0].endswith(f", line {each.line}"))
    assert float(figures[0]["figure"][0].replace(",", "")) == pytest.approx(first.figure, rel=0.01)
    assert all(re.match(r"https://github\.com/[^/]+/[^/]+/blob/[0-9a-f]+/", each["source"][1]) for each in figures)
    lines = list(csv.DictReader(io.StringIO((folder / "rows.csv").read_text())))
    given = [
        line
        for path in sorted((ROOT / "results").glob("*.csv"))
        for line in csv.DictReader(path.read_text().splitlines())
    ]
    assert [line["seconds"] for line in lines] == [line["seconds"] for line in given]
    assert (folder / "published.csv").read_bytes() == (ROOT / "gpubench/studies/cards/public_speeds.csv").read_bytes()
    assert (folder / "LICENSE.txt").read_bytes() == (ROOT / "results/LICENSE").read_bytes()


def test_no_text_of_a_row_is_markup_and_no_link_leaves_for_anything_but_https(tmp_path):
    evil = {"card": f"{ATTACK}{BIDI}", "model": ATTACK, "data": ATTACK, "reason": ATTACK, "params": f"a={ATTACK}"}
    mine = [*rows([100.0] * 6, suite="../x", **evil), *rows([50.0] * 6, suite="../x", precision=f'"{ATTACK}', **evil)]
    sources = ("javascript:alert(1)", 'https://x.example/"onclick="alert(1)', "https://good.example@evil.example/x",
               "data:text/html,x", "//evil.example/x", f"github.com/a/b@abcdef1 {ATTACK}")  # fmt: skip
    for source in sources:
        mine += rows([90.0], mode="published", source=source, session="", device_hash="", **evil)
    records.append(tmp_path / "evil<img src=x onerror=alert(1)>.csv", mine)
    pages = built(tmp_path / "site", *tmp_path.glob("*.csv"))
    assert leads_nowhere(pages, tmp_path / "site") == []
    assert all(re.fullmatch(r"(index|(card|suite)/[a-z0-9-]+)\.html", name) for name in pages)
    for name, page in pages.items():
        assert len(page.all("script")) == 1, name
        assert page.all("img", "iframe", "object", "base") == []
        assert not [key for _, each in page.elements for key in each if key.startswith("on") or key == "style"]
        assert not set(BIDI) - set("reversed") & set((tmp_path / "site" / name).read_text())
        outside = [href for href in hrefs(page) if ":" in href and not href.startswith("data:application/gzip;")]
        assert all(re.fullmatch(r"https://[\w.-]+/[^\s\"<>]*", href) for href in outside), name
    assert "https://github.com/a/b/tree/abcdef1" in {href for page in pages.values() for href in hrefs(page)}


def test_a_source_is_a_link_where_it_begins_with_a_place_on_the_web():
    expected = {
        "github.com/a/b-c@23754c19": "https://github.com/a/b-c/tree/23754c19",
        "github.com/a/b@f79e8b89, README and x.ipynb": "https://github.com/a/b/tree/f79e8b89",
        "http://x.example/y z": "https://x.example/y",
        "fast.ai, DAWNBench entry of April 2018": "",
        "javascript:alert(1)//x.example/y": "",
        "user@x.example/y": "",
        "": "",
    }
    assert {source: source_link(source) for source in expected} == expected


def test_addresses_are_told_apart_and_stay_when_files_join():
    cards = ["A/B", "a b", "日本", "中国", "x" * 300]
    to = addresses(cards, ["s"], [SiteRow("a.csv", 2, "A/B", {}), SiteRow("A.csv", 2, "A/B", {})])
    names = [to.card(card) for card in cards]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"card/[a-z0-9-]{1,110}\.html", name) for name in names)
    assert to.rows == {("a.csv", 2): "a-2", ("A.csv", 2): "a-2-2"}
    assert to.suite("none") == ""
    mine, others = SiteRow("mine.csv", 2, "A", {}), [SiteRow("a.csv", 2, "A", {}), SiteRow("z.csv", 2, "A", {})]
    alone, joined = addresses(["A"], [], [mine]), addresses(["A"], [], [others[0], mine, others[1]])
    assert alone.row(mine) == joined.row(mine) == "card/a.html#mine-2"


def test_no_rows_one_row_and_what_cannot_be_read(tmp_path, capsys):
    (tmp_path / "none.csv").write_text(",".join(COLUMNS) + "\n")
    records.append(tmp_path / "one.csv", rows([100.0]))
    for name in ("none", "one"):
        out = tmp_path / f"site-{name}"
        pages = built(out, tmp_path / f"{name}.csv")
        assert leads_nowhere(pages, out) == []
        assert (NO_ROWS in pages["index.html"].text_in("p")) == (name == "none")
        header = (out / "rows.csv").read_text().splitlines()
        assert header[0] == ",".join(COLUMNS)
        assert len(header) == 1 + (name == "one")
        assert not (out / "LICENSE.txt").exists()
    assert "card/rtx-2080-ti.html" in pages
    (tmp_path / "bad.csv").write_text("no,rows\n1,2\n")
    page = built(tmp_path / "site", tmp_path / "bad.csv")["index.html"]
    assert "bad.csv" in capsys.readouterr().err
    assert "Could not be read" in page.text_in("h2")
    with pytest.raises(UserError, match="no such file"):
        write_site([tmp_path / "other.csv"], tmp_path / "out")
    with pytest.raises(UserError, match="cannot be written"):
        write_site([tmp_path / "bad.csv"], tmp_path / "bad.csv")


def test_files_of_one_name_are_two_and_ranks_are_among_comparable_cases(tmp_path):
    cases = {"a": [*rows([100.0] * 6), *rows([50.0] * 6, precision="bf16")], "b": rows([10.0] * 6, batch_size=128)}
    for name, given in cases.items():
        (tmp_path / name).mkdir()
        records.append(tmp_path / name / "mine.csv", given)
    pages = built(tmp_path / "site", tmp_path / "a", tmp_path / "b")
    assert leads_nowhere(pages, tmp_path / "site") == []
    assert len(table(tmp_path / "site", "card/rtx-2080-ti.html", "rows")) == 18
    lines = table(tmp_path / "site", "index.html", "cases")
    places = {(each["precision"][0], each["batch"][0]): each["rank"][0] for each in lines}
    assert places == {("bf16", "64 (fixed)"): "1 of 2", ("fp32", "64 (fixed)"): "2 of 2", ("fp32", "128 (fixed)"): ""}


@pytest.mark.parametrize("changes", [
    {"memory_limit_bytes": 8 * 2**30},
    {"power_limit_watts": 150.0, "default_power_limit_watts": 250.0},
    {"card": "Intel(R) Xeon(R) Processor", "device": "cpu"},
])  # fmt: skip
def test_the_page_of_a_card_has_its_results_whatever_tells_it_from_others(tmp_path, changes):
    records.append(
        tmp_path / "mine.csv", [*rows([100.0] * 6, **changes), *rows([50.0] * 6, precision="bf16", **changes)]
    )
    pages = built(tmp_path / "site", tmp_path / "mine.csv")
    (name,) = {href.partition("#")[0] for href in hrefs(pages["index.html"]) if "#mine-" in href}
    assert any(href.startswith("../suite/resnet.html#section") for href in hrefs(pages[name]))


@pytest.mark.parametrize(("seconds", "ranks"), [
    ([], []), ([50, 50], [1, 1]), ([100, 102, 102.5, 110], [1, 1, 3, 4]), ([10, 11, 11.1, 12], [1, 2, 2, 4]),
])  # fmt: skip
def test_those_within_the_minimum_effect_of_the_first_share_its_rank(seconds, ranks):
    assert ranks_of(seconds) == ranks
