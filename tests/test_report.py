"""The HTML report in a real headless Chromium: nothing is fetched, no field runs, it sorts, filters, fits a phone."""

import os
import shutil

import pytest
from rows import row, rows

from gpubench.analysis.compare import Question
from gpubench.rows import row as records
from gpubench.rows.read import load_text, table_of
from gpubench.show.report import write_report

FAST = [100.0, 100.1, 100.2, 99.9, 99.8, 100.05]
ATTACK = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\"'><svg onload=window.pwned=1>"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[browser]'")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as running:
        try:
            started = running.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            )
        except playwright.Error:
            pytest.skip("no Chromium that starts: Debian's package chromium, or $CHROMIUM")
        yield started
        started.close()


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "rows.csv"
    slow = rows([v * 1.3 for v in FAST], card="NVIDIA GeForce GTX 1080 Ti", device_hash="bbbb", device="cuda:1")
    lost = row(model="resnet152", status="out_of_memory", seconds=None, measured="")
    mixed = rows([v / 1.6 for v in FAST], precision="fp16")
    bigger = [row(model="resnet50", trial=n, seconds=v * 3) for n, v in enumerate(FAST)]
    records.append(path, [*rows(FAST), *slow, *mixed, *bigger, lost])
    write_report([path], Question(), tmp_path / "report.html")
    return tmp_path / "report.html"


@pytest.fixture
def opened(browser):
    pages = []

    def open_(path, **options):
        context = browser.new_context(**options)
        page = context.new_page()
        page.problems, page.requests = [], []
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri())
        pages.append(context)
        return page

    yield open_
    for context in pages:
        context.close()


def page_text(tmp_path, given, **question):
    records.append(tmp_path / "rows.csv", given)
    write_report([tmp_path / "rows.csv"], Question(**question), tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


def test_evidence_is_in_the_figure_asked_for(tmp_path):
    text = page_text(tmp_path, rows([100.0, 101.0], samples_per_second=500.0), metric="rate")
    assert "<li>trials: 500, 500</li>" in text


def test_evidence_of_several_specimens_is_one_value_of_each(tmp_path):
    given = [r for n in range(3) for r in rows([100.0 + n] * 10, device_hash=f"{n}", session=f"{n}")]
    assert "<li>specimens: 100, 101, 102</li>" in page_text(tmp_path, given)


def test_the_page_says_what_a_verdict_needs(tmp_path):
    text = page_text(tmp_path, [*rows(FAST, accuracy=0.9), *rows(FAST, accuracy=0.9, precision="fp16")])
    assert "the whole interval of the ratio (95%; 99% between specimens) beyond 2%" in text
    assert "half a point" in page_text(tmp_path, [], metric="accuracy")


def column(page, number):
    cells = page.locator("table").first.locator(f"tbody tr:not([hidden]) td:nth-child({number})")
    return cells.all_inner_texts()


def test_it_opens_without_a_request_or_an_error(opened, report):
    page = opened(report, offline=True)
    assert page.problems == []
    assert page.requests == [report.as_uri()]
    drawn = page.evaluate(
        "[...document.querySelectorAll('canvas')].map(c => c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data.some(v => v > 0))"
    )
    assert drawn == [True, True]


def test_columns_sort_by_value_with_the_keyboard_and_say_so(opened, report):
    page = opened(report)
    button = page.get_by_role("button", name="seconds").first
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=ascending]").count() == 1
    assert [text.split()[0] for text in column(page, 5)] == ["62.5", "100.03", "130.0", "300.1", "out_of_memory"] or (
        column(page, 5)[-1] == "out_of_memory" and column(page, 1)[-2] == "resnet50"
    )
    page.keyboard.press("Enter")
    assert column(page, 1)[0] == "resnet50"
    assert "descending" in page.get_by_role("status").inner_text()


def test_the_filter_keeps_rows_with_all_words(opened, report):
    page = opened(report)
    page.get_by_label("Show only rows").fill("1080 fp32")
    assert column(page, 2) == ["GTX 1080 Ti"]
    assert "match" in page.get_by_role("status").inner_text()


def test_evidence_and_rows_are_there(opened, report, tmp_path):
    page = opened(report)
    page.get_by_text("evidence").first.click()
    assert "trials: 130" in page.locator(".evidence").first.inner_text()
    with page.expect_download() as download:
        page.get_by_text("Download the rows").click()
    download.value.save_as(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()
    assert table_of(load_text([report])) == (tmp_path / "rows.csv").read_bytes()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(opened, report, scheme):
    page = opened(report, viewport={"width": 360, "height": 740}, device_scale_factor=2, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.problems == []
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert ink != paper


def test_print_shows_the_evidence_and_no_buttons(opened, report):
    page = opened(report)
    page.emulate_media(media="print")
    assert not page.get_by_text("Download the rows").is_visible()


def test_tables_are_there_without_script(opened, report):
    page = opened(report, java_script_enabled=False)
    assert "GTX 1080 Ti" in column(page, 2)


def test_no_field_runs(opened, tmp_path):
    path = tmp_path / "hostile.csv"
    names = ("model", "card", "params", "data", "torch", "driver", "cpu", "source", "reason", "suite", "batch_policy")
    records.append(
        path, [*rows(FAST, **dict.fromkeys(names, ATTACK)), *rows(FAST, **dict.fromkeys(names[1:], ATTACK + "2"))]
    )
    records.append(path, [row(status=ATTACK, precision=ATTACK), row(precision=ATTACK, trial=9)])
    write_report([path], Question(), tmp_path / "hostile.html")
    page = opened(tmp_path / "hostile.html")
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    assert page.problems == []
    assert page.requests == [(tmp_path / "hostile.html").as_uri()]


def test_no_field_runs_in_a_chart(opened, tmp_path):
    from gpubench.analysis.compare import compare
    from gpubench.comparing.carrying import Rows
    from gpubench.comparing.plot import draw

    path = tmp_path / "hostile.csv"
    records.append(path, [*rows(FAST, model=ATTACK, card=ATTACK), *rows(FAST, model=ATTACK, card="b", device_hash="b")])
    draw(compare([path]), tmp_path / "charts", Rows([path]), ("svg",))
    for chart in (tmp_path / "charts").iterdir():
        page = opened(chart)
        assert page.evaluate("window.pwned") is None
        assert page.requests == [chart.as_uri()]
        assert table_of(load_text([chart])) == path.read_bytes()
