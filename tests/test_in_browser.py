"""The page and the site in a real headless Chromium: no request, no script of a row, filters, keyboard, a phone."""

import pytest
from made_answers import LONG, answer, pairs, result, section
from rows import rows
from test_page import ATTACK
from test_site import ATTACK as ATTACK_IN_A_ROW
from test_site import ROOT

from gpubench.cli.site import write_site
from gpubench.rows import write as records
from gpubench.show.page import write


@pytest.fixture
def opened(visited, tmp_path):
    def open_(given, **options):
        write(given, tmp_path / "page.html")
        return visited(tmp_path / "page.html", **options)

    return open_


def three():
    sections = [section(name, results=(result(name),), charts=(pairs(name),)) for name in ("x", "y", "z")]
    return answer(result(LONG), sections=sections)


def test_it_opens_without_a_request_or_an_error(opened, tmp_path):
    page = opened(three(), offline=True)
    assert page.problems == []
    assert page.requests == [(tmp_path / "page.html").as_uri()]


def test_a_click_or_a_link_to_it_unfolds_a_section(opened):
    page = opened(three())
    assert [each.is_visible() for each in page.locator("figure").all()] == [False] * 3
    page.get_by_role("heading", name="x").click()
    page.evaluate("location.hash = 'section-2'")
    page.locator("figure").nth(1).wait_for(state="visible")
    assert [each.is_visible() for each in page.locator("figure").all()] == [True] * 2 + [False]


def test_columns_sort_by_value_with_the_keyboard_and_say_so(opened):
    page = opened(answer(sections=[section()]))
    page.locator("details.table > summary").click()
    button = page.get_by_role("button", name="batch")
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("tbody td:nth-child(2)").all_inner_texts() == ["128", "64"]
    assert "descending" in page.get_by_role("status").inner_text()


def test_no_text_of_a_row_runs(opened):
    told = result(ATTACK, (pairs(title=ATTACK, winner=ATTACK),))
    page = opened(answer(told, headline=ATTACK, sections=[section(ATTACK, results=(told,), notes=(ATTACK,))]))
    dialogs = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.reload()
    page.wait_for_timeout(200)
    assert (dialogs, page.problems) == ([], [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    write_site([ROOT / "results"], out)
    return out


@pytest.mark.parametrize("name", ["index.html", "card/rtx-2080-ti.html", "suite/resnet.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_opens_without_a_request_an_error_or_sideways_scrolling(visited, folder, name, scheme, width):
    page = visited(folder / name, offline=True, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.problems == []
    assert page.requests == [(folder / name).as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def shown(page, where):
    return page.locator(f"{where} tbody tr:visible").count()


def test_the_filters_leave_what_fits_and_say_how_much(visited, folder):
    page = visited(folder / "index.html")
    page.locator("#filters > summary").click()
    every = shown(page, "#cases")
    page.get_by_label("Suite", exact=True).select_option("resnet")
    page.get_by_label("Precision", exact=True).select_option("fp32")
    page.get_by_label("Card", exact=True).select_option("RTX 2080 Ti")
    assert 0 < shown(page, "#cases") < every
    assert shown(page, "#published") == 1  # which has no suite and no one precision
    assert f"{shown(page, '#cases') + 1} lines match" in page.get_by_role("status").inner_text()
    page.get_by_label("Words", exact=True).fill("resnet50")
    assert shown(page, "#cases") == 1
    assert shown(page, "#published") == 0


def test_the_keyboard_reaches_the_filters_the_tables_and_their_links(visited, folder):
    page = visited(folder / "index.html")
    page.locator("#filters > summary").press("Enter")
    page.get_by_label("Suite", exact=True).focus()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"
                                     " || document.activeElement.tagName"))  # fmt: skip
    assert reached[:4] == ["by-precision", "by-card", "filter", "published"]
    assert {"BUTTON", "A"} <= set(reached)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_figure_leads_to_its_row(visited, folder):
    page = visited(folder / "index.html")
    page.locator("#filters > summary").click()
    page.get_by_label("Card", exact=True).select_option("RTX 2080 Ti")
    page.locator("#cases tbody tr:visible td:nth-child(3) a").first.click()
    page.wait_for_url("**/card/rtx-2080-ti.html#*")
    assert page.locator("tr:target").count() == 1
    assert page.locator("tr:target").is_visible()


def test_it_can_be_read_without_a_script(visited, folder):
    page = visited(folder / "index.html", java_script_enabled=False)
    assert shown(page, "#published") > 60
    assert not page.locator("#filters").is_visible()


def test_a_hostile_row_runs_nothing(visited, tmp_path):
    evil = {"card": ATTACK_IN_A_ROW, "model": ATTACK_IN_A_ROW, "reason": ATTACK_IN_A_ROW, "suite": "x"}
    mine = [*rows([100.0] * 6, **evil), *rows([50.0] * 6, precision=ATTACK_IN_A_ROW, **evil)]
    published = rows([90.0], mode="published", source="javascript:alert(1)", session="", device_hash="", **evil)
    records.append(tmp_path / "evil.csv", [*mine, *published])
    write_site([tmp_path / "evil.csv"], tmp_path / "site")
    (card,) = (tmp_path / "site").glob("card/*script*.html")
    for path in (tmp_path / "site" / "index.html", card):
        page = visited(path)
        dialogs = []
        page.on("dialog", lambda dialog, seen=dialogs: seen.append(dialog.message))
        page.reload()
        page.wait_for_timeout(100)
        assert (dialogs, page.problems) == ([], [])
