"""Is my card healthy: bands around reference rows of the same recipe, and honest silence where there are none."""

import pytest
from rows import rows

from gpubench.commands.health import health
from gpubench.errors import UserError
from gpubench.rows import write as records

OTHERS = {"session": "theirs", "device_hash": "bbbb"}


def judged(tmp_path, mine, *references):
    """The checks on rows at these rates, each set a dict of changes with `rate`."""
    tmp_path.mkdir(exist_ok=True)
    files = []
    for number, changes in enumerate([mine, *references]):
        path = tmp_path / f"{number}.csv"
        rate = changes.pop("rate")
        records.append(path, rows([100.0] * 3, samples_per_second=rate, **changes))
        files.append(path)
    return health(files[:1], files[1:])


@pytest.mark.parametrize(
    ("rate", "level", "words"),
    [(500, "ok", "1.00 of the reference"), (455, "ok", "0.91"), (440, "fix", "0.88"), (560, "note", "1.12")],
)
def test_a_card_is_held_against_others_of_its_kind_in_a_wide_band(tmp_path, rate, level, words):
    (found,) = judged(tmp_path, {"rate": rate}, {"rate": 500, **OTHERS})
    assert found.level == level
    assert words in found.text
    assert "within 10%" in found.text
    assert "3 trial(s) against 3 of 1 device(s)" in found.text
    if level == "fix":
        assert "gpubench doctor" in found.advice


def test_another_stack_widens_the_band_and_one_of_the_same_is_preferred(tmp_path):
    other = {"rate": 500, "torch": "2.9.0", **OTHERS}
    (found,) = judged(tmp_path, {"rate": 400}, dict(other))
    assert found.level == "ok"
    assert "another torch or CUDA; healthy within 25%" in found.text
    (found,) = judged(tmp_path / "both", {"rate": 400}, dict(other), {"rate": 405, **OTHERS, "session": "third"})
    assert "0.99 of the reference" in found.text


@pytest.mark.parametrize(
    "other", [{"card": "NVIDIA GeForce RTX 2070"}, {"batch_size": 32}, {"precision": "fp16"}, {"params": "epochs=2"}]
)
def test_another_card_or_recipe_is_no_reference(tmp_path, other):
    (found,) = judged(tmp_path, {"rate": 100}, {"rate": 500, **OTHERS, **other})
    assert found.level == "note"
    assert "no reference" in found.text
    assert "--against" in found.advice


def test_a_run_is_no_reference_for_itself(tmp_path):
    (found,) = judged(tmp_path, {"rate": 100}, {"rate": 500})
    assert "no reference" in found.text


def test_marks_of_the_trials_are_said(tmp_path):
    (found,) = judged(tmp_path, {"rate": 400, "marks": "throttled"}, {"rate": 500, **OTHERS})
    assert "some trials were throttled" in found.text


def test_a_folder_stands_for_its_files_and_an_empty_one_for_no_reference(tmp_path):
    mine, others = tmp_path / "mine.csv", tmp_path / "others"
    records.append(mine, rows([100.0] * 3))
    others.mkdir()
    assert "no reference" in health([mine], [others])[0].text
    records.append(others / "a.csv", rows([100.0] * 3, **OTHERS))
    assert health([mine], [others])[0].level == "ok"


@pytest.mark.parametrize("changes", [{"mode": "quick"}, {"status": "failed"}, {"samples_per_second": None}])
def test_rows_without_a_rate_worth_comparing_are_refused(tmp_path, changes):
    records.append(tmp_path / "a.csv", rows([100.0], **changes))
    with pytest.raises(UserError, match="gpubench run"):
        health([tmp_path / "a.csv"], [tmp_path])


def test_the_command(cli, tmp_path):
    records.append(tmp_path / "mine.csv", rows([100.0] * 3, samples_per_second=300.0))
    records.append(tmp_path / "theirs.csv", rows([100.0] * 3, **OTHERS))
    sick = cli("doctor", "mine.csv", "--against", "theirs.csv")
    assert (sick.returncode, sick.stdout.startswith("FIX ")) == (4, True), sick.stderr
    alone = cli("doctor", "mine.csv")
    assert alone.returncode == 2
    assert "--against" in alone.stderr


@pytest.mark.parametrize(("reached", "level", "words"), [(40e12, "note", "reach 74%"), (20e12, "fix", "reach 37%")])
def test_without_a_reference_the_measured_peak_is_held_against_the_listed_one(tmp_path, reached, level, words):
    card = {"card": "NVIDIA GeForce RTX 2080 Ti", "precision": "fp16", "measured_peak_flops": reached}
    (found,) = judged(tmp_path, {"rate": 100, **card}, {"rate": 500, **OTHERS})
    assert found.level == level
    assert words in found.text
