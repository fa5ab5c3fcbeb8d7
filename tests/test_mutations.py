"""The mistakes that benchmarks/mutations.py makes, by hand: what it changes, what it leaves alone, how it counts."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("mutations", ROOT / "benchmarks" / "mutations.py")
assert SPEC
assert SPEC.loader
mutations = importlib.util.module_from_spec(SPEC)
sys.modules["mutations"] = mutations  # dataclasses look their module up
SPEC.loader.exec_module(mutations)


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


@pytest.mark.parametrize(
    "source",
    [
        '"""Fewer than 3, or 1 + 1."""',
        "x: dict[str, int | None]",
        "def f(a: list['b | c']) -> 'a | b': pass",
        "raise ValueError('a' if a > 3 else 'b')",
        "f(f'{a + 3} seconds')",
        "Verdict = Literal['faster', 'slower']",
        "x = ['two words', a]",
        "def f(): return None",
        "@cache(size=64)\ndef f(): pass",
        "import a.b as c",
    ],
)
def test_what_is_left_alone(source):
    assert changed(source) == []


def test_a_return_returns_nothing_and_the_other_lines_stay():
    source = "def f(a):\n    # why\n    return (\n        a\n    )\n"
    (found,) = mutations.mutations_of("a.py", source, 5, 1)
    assert (found.line, found.original, found.mutated) == (3, "return ( a )", "return None")
    assert found.source == "def f(a):\n    # why\n    return None\n"


def test_the_table_names_modules_and_tests_that_there_are():
    for module, tests in mutations.TESTS.items():
        assert (ROOT / module).is_file()
        assert [name for name in tests if not (ROOT / "tests" / f"{name}.py").is_file()] == []
