"""The page in a real headless Chromium: nothing is fetched, no text runs, it sorts, filters, unfolds, fits a phone."""

import pytest
from made_answers import LONG, answer, pairs, result, section
from test_page import ATTACK

from gpubench.show.page import write


@pytest.fixture
def opened(visited, tmp_path):
    def open_(given, **options):
        write(given, tmp_path / "page.html")
        return visited(tmp_path / "page.html", **options)

    return open_


def three():
    sections = [section(name, charts=(pairs(name),)) for name in ("x", "y", "z")]
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
