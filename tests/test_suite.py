"""Suite files are found, loaded and checked, and every mistake in one is a line that says where."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpubench.errors import UserError
from gpubench.rows.row import QUALITIES
from gpubench.suite import files
from gpubench.suite.suite import COMMON_PARAMS, Param

GOOD = """
'''A suite.

More of it.'''
from gpubench import Param, Suite
def train(trial, clock):
    for batch in clock.resident():
        pass
SUITE = Suite(train=train, models=("m",), version=1, params={
    "kind": Param("a", "a kind", choices=("a", "b")), "size": Param(4, "a size"), "on": Param(False, "a switch"),
}, presets={"kind": {"b": {"size": 8}}})
"""
DECLARES = "from gpubench import Param, Suite\nSUITE = Suite(print, "


def write(folder: Path, source: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(source)
    return path


@pytest.mark.parametrize("name", files.built_in_names())
def test_every_built_in_suite_is_complete(name):
    loaded = files.find(name)
    assert loaded.name == name
    assert loaded.summary
    assert not loaded.suite.quality or QUALITIES[loaded.suite.quality].better == loaded.suite.better
    assert all(param.help for param in loaded.suite.params.values())
    assert len(loaded.digest) == 64
    for parameter, by_value in loaded.suite.presets.items():
        values = loaded.suite.models if parameter == "model" else loaded.suite.params[parameter].choices
        assert set(by_value) <= set(values)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\ndef broken(:\n", "line 2"),
        ("x = 1\n", "defines no SUITE"),
        ("SUITE = 3\n", "defines no SUITE"),
        ("import nothing_of_this_name\n", "No module named"),
        (f"{DECLARES}(), {{}}, 1)", "names no model"),
        (f"{DECLARES}('m',), version=1)", "missing .* 'params'"),
        (f"{DECLARES}('m'), {{}}, 1)", "where a tuple belongs: models"),
        (f"{DECLARES}('m',), {{}}, 1, ('large',))", "no such models .*: large"),
        (f"{DECLARES}('m',), {{'threads': Param(0, '')}}, 1)", "every suite has: threads"),
        (
            f"{DECLARES}('m',), {{}}, 1, presets={{'size': {{1: {{'depth': 2}}}}}})",
            "no such parameters .*: depth, size",
        ),
        (f"{DECLARES}('m',), {{'goal': Param(0.9, '')}}, 1)", "has a goal, no quality: goal"),
        ("import gpubench.measuring.clock\n", "No module named 'gpubench.measuring'"),
    ],
)
def test_a_bad_file_is_a_line_that_names_it(tmp_path, source, words):
    path = write(tmp_path, source, "bad.py")
    with pytest.raises(UserError, match=words) as raised:
        files.find(str(path))
    assert "bad.py" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_parameters_and_odd_letters_are_read(tmp_path):
    text = "\ufeff" + GOOD.lstrip().replace("\nfrom gpubench", "\n# \u00e9\nfrom gpubench")
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    assert files.find(str(path)).suite.models == ("m",)
    loaded = files.find(str(write(tmp_path, GOOD)))
    assert loaded.resolve_params({})["size"] == 4
    assert loaded.resolve_params({"kind": "b"})["size"] == 8
    assert loaded.resolve_params({"kind": "b", "size": "2", "on": "true"}) == {
        **{name: param.default for name, param in COMMON_PARAMS.items()},
        "kind": "b", "size": 2, "on": True,
    }  # fmt: skip


def test_a_folder_is_a_suite_whose_files_are_all_read(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(UserError, match=r"no __init__.py"):
        files.find(str(folder))
    write(
        folder,
        GOOD.replace("for batch in clock.resident():\n        pass", "from .loop import go; go(trial)"),
        "__init__.py",
    )
    loop = write(folder, "def go(trial):\n    for batch in trial.resident():\n        print(batch)\n", "loop.py")
    loaded = files.find(str(folder / "__init__.py"))
    assert (loaded.name, loaded.summary, loaded.path, len(loaded.digest)) == ("mine", "A suite.", folder, 64)
    printed = []
    loaded.suite.train(SimpleNamespace(resident=lambda: printed.append("called") or ()), None)
    assert printed == ["called"]
    loop.write_text(loop.read_text().replace("print(batch)", "print(2)"))
    assert files.find(str(folder)).digest != loaded.digest
    loop.write_text("print 2")
    with pytest.raises(UserError, match=r"loop\.py.*cannot be read"):
        assert files.find(str(folder)).digest


def test_what_cannot_be_found_read_or_left_is_a_line(tmp_path):
    with pytest.raises(UserError, match=r"there are .*resnet"):
        files.find("vgg")
    with pytest.raises(UserError, match="no such file"):
        files.find("vgg.py")
    with pytest.raises(UserError, match="does not load: SystemExit"):
        files.load(write(tmp_path, "raise SystemExit(3)"))
    with pytest.raises(UserError, match="does not load: FileNotFoundError"):
        files.load(tmp_path / "gone.py")


@pytest.mark.parametrize(("settings", "words"), [
    ({"speed": "1"}, "no such parameter; there are .*size"),
    ({"kind": "c"}, "one of a, b"),
    ({"size": "big"}, "a whole number"),
    ({"size": "-1"}, "a whole number, 0 or more"),
    ({"on": "maybe"}, "true or false"),
])  # fmt: skip
def test_a_wrong_parameter_names_what_is_allowed(tmp_path, settings, words):
    loaded = files.find(str(write(tmp_path, GOOD)))
    with pytest.raises(UserError, match=words):
        loaded.resolve_params(settings)


def test_a_users_suite_shadows_no_module_and_two_of_one_name_are_refused(tmp_path):
    import json

    files.find(str(write(tmp_path, GOOD, "json.py")))
    import sys

    assert sys.modules["json"] is json
    (tmp_path / "other").mkdir()
    first, second = write(tmp_path, GOOD), write(tmp_path / "other", GOOD)
    assert [each.path for each in files.find_all([str(first), str(first)])] == [first]
    with pytest.raises(UserError, match="same name"):
        files.find_all([str(first), str(second)])


@pytest.mark.parametrize(("param", "texts", "words"), [
    (Param(1.0, "a float"), ("nan",), "a number"),
    (Param("a", "a text"), ("b c", "b\n"), "no spaces"),
    (Param(1, "an int"), ("nan", "inf", "1e999"), "a whole number"),
    (Param(30.0, "epochs", least=1), ("inf", "nan", "0", "-1"), "1 or more"),
])  # fmt: skip
def test_a_parameter_that_a_row_cannot_store_is_refused(param, texts, words):
    for text in texts:
        with pytest.raises(UserError, match=words):
            param.parse("x", text)
