"""The mistakes that benchmarks/mutations.py makes, by hand: what it changes, what it leaves alone, how it counts."""

from pathlib import Path

import pytest
from conftest import imported_script

ROOT = Path(__file__).parents[1]
mutations = imported_script("mutations")


def changed(source):
    """Every line that stands in the place of the only one of `source`."""
    found = mutations.mutations_of("a.py", source, 1000, 1)
    return sorted(each.mutated for each in found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < 3", ["(a <= 3)", "(a >= 3)", "a < 4"]),
        ("a == 'card'", ["(a != 'card')", "a == 'card_'"]),
        ("x = a * b + 2", ["x = (a * b - 2)", "x = (a / b) + 2", "x = a * b + 3"]),
        ("x = a and not b", ["x = (a or not b)", "x = a and (b)"]),
        ("x = f(True, 0.25, -y)", ["x = f(False, 0.25, -y)", "x = f(True, 0.25, (y))", "x = f(True, 0.5, -y)"]),
        ("a += b", ["a -= b"]),
        ("x = row['seconds']", ["x = row['seconds_']"]),
        ("x = a if b else c", ["x = a if (not b) else c"]),
        ("é = 'ß' if a else b", ["é = 'ß' if (not a) else b"]),
    ],
)
def test_what_becomes_of_a_line(source, expected):
    assert changed(source) == expected


def test_the_table_names_modules_and_tests_that_there_are():
    for module, tests in mutations.TESTS.items():
        assert (ROOT / module).is_file()
        assert [name for name in tests if not (ROOT / "tests" / f"{name}.py").is_file()] == []
