"""How results and sections are put into words."""

import pytest
from facts import lacking
from rows import group

from gpubench.rows.params import params_text
from gpubench.studies import words
from gpubench.suite import files


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.3, "1.30"), (9.994, "9.99"), (12.34, "12.3"), (1234.5, "1,234.5"), (0.5, "0.50"), (0.095, "0.10"),
     (0.09, "0.09"), (0.0123, "0.012"), (1e-6, "1e-06")],
)  # fmt: skip
def test_a_gain_has_three_digits(value, text):
    assert words.gain(value) == text
    assert words.times(value) == f"{text} times"


@pytest.mark.parametrize("length", [1, 35, 36, 37, 80, 500])
def test_of_a_long_name_the_middle_goes(length):
    name = "".join(chr(ord("a") + at % 26) for at in range(length))
    short = words.name(name)
    assert len(short) == min(length, 36)
    first, _, last = short.partition("..")
    assert name.startswith(first)
    assert name.endswith(last)
    assert words.name("a\x1b[31m\u202eb") == "a\ufffd[31m\ufffdb"


def test_a_part_of_a_file_name_has_100_characters():
    assert words.slug("RTX 2080 Ti over: é/..\\x, fp16!") == "rtx-2080-ti-over-x-fp16"
    for text, slug in (("a" * 100, "a" * 100), ("a" * 101, "a" * 80 + "-" + "a" * 19)):
        assert words.slug(text) == slug


@pytest.mark.parametrize(
    ("source", "author"),
    [("github.com/me/results@abc", "me"), ("paper.org", "paper.org"), ("He et al., 2015", "He et al.")],
)
def test_who_published_it(source, author):
    assert words.author(source) == author


def test_titles_say_what_groups_have_in_common_and_what_is_unusual():
    same = {"weights": "imagenet", "source": "x", "processes": 4}
    one, two = group(**same, epochs=1), group(**{**same, "weights": ""}, epochs=2)
    assert words.title_of([one]) == "resnet: 1 epoch of CIFAR-100, imagenet weights, full by x, 4 processes"
    assert words.title_of([one, two]) == "resnet: CIFAR-100, full by x, 4 processes"
    assert words.title_of([two]) == "resnet: 2 epochs of CIFAR-100, full by x, 4 processes"
    assert words.title_of([group(epochs=3, data="")]) == "resnet: 3 epochs, full, version 1"
    assert words.title_of([group(processes=1), group(processes=2)]) == "resnet: CIFAR-100, full, version 1"
    assert words.title_of([group(suite="a\x1bb")]) == "a\ufffdb: CIFAR-100, full"
    # Of a suite that is built in; of any other nobody knows what is usual.
    loaded = files.find("resnet")
    usual = dict(loaded.resolve_params({}, "resnet18"))
    text = params_text(usual)
    name = next(name for name, value in sorted(usual.items()) if type(value) is int and name != "epochs")
    other = params_text({**usual, name: usual[name] + 7})
    version = {"suite_version": loaded.suite.version}
    plain = words.title_of([group(params=text, **version)])
    assert words.title_of([group(params=other, **version)]) == f"{plain}, {name}={usual[name] + 7}"
    assert words.title_of([group(params=text, **version), group(params=other, **version)]) == plain
    assert words.title_of([group(params=other, suite="mine")]) == plain.replace("resnet", "mine")


def test_what_results_have_in_common_or_apart():
    groups = [group(params="epochs=1 width=8 depth=2"), group(params="epochs=1 width=9 depth=2")]
    assert words.recipe_of(groups[:1]) == "epochs=1 width=8 depth=2"
    assert words.recipe_of(groups) == "epochs=1 depth=2"
    facts = [{"a": "x", "b": "batch 64"}, {"a": "x", "b": "batch 8", "c": "long fact"}, {"a": "x"}, {"a": "y", "b": ""}]
    assert words.apart(["k", "k", "k", "other"], facts) == [("batch 64",), ("batch 8",), (), ()]
    assert words.apart("kkk", [{"a": "x", "b": "u"}, {"a": "x", "b": "v"}, {"a": "y", "b": "u"}]) == [
        *(("x", "u"), ("x", "v"), ("y", "u"))
    ]
    assert words.apart(["k", "l", "m", "n"], facts) == [()] * 4


def test_notes_and_feet_say_what_a_case_is_worth():
    assert words.notes_of(group()) == ""
    marked = group([1.0, 2.0], marks={"shared": 1, "clock_fell": 2}, reason="so it was", data="synthetic")
    assert lacking(words.notes_of(marked), "2 of 2", "1 of 2 shared", "synthetic data", "so it was") == []
    assert words.notes_of(group(measured="projected", lost={"failed": 2})) == "projected; 2 of 3 trials have no result"
    parts = group(session="s1"), group(session="s2", device_hash="bbbb")
    assert words.notes_of(group(device_hash="", parts=parts)) == "2 specimens"
    days = group(session="s1"), group(session="s2")
    assert words.notes_of(group(parts=days)) == "2 sessions"
    one, many = group(torch="2.15.0"), group([1.0] * 6, torch="2.14.0", marks={"shared": 2}, source="paper.org")
    assert words.chart_foot([one]) == "measured, 1 run each: rough; torch 2.15.0; driver 550.54; batch 64"
    facts = ("measured", "1 to 6 runs each: rough", "2 of 7 runs shared", "2.15.0", "2.14.0", "paper.org")
    assert lacking(words.chart_foot([one, many]), *facts) == []
    assert "quick mode; measured and" in words.chart_foot([one, group(measured="projected", mode="quick")])
