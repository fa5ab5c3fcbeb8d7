"""Caveats of a result: in its sentence, as a mark on its bars and its line; such results come later."""

import answers
import pytest
from facts import lacking
from rows import row, rows

import gpubench
from gpubench.errors import UserError
from gpubench.rows import write as records
from gpubench.show.terminal import screen

MIXED = {"precision": "bf16"}


def answered(folder, *groups, **question):
    return answers.answered(folder, [each for group in groups for each in group], **question)


def wide(**changes):
    """Two models in two precisions, of which one gains four times as much as the other; one run was shared."""
    slow = rows([100.0], **changes), rows([400.0], model="resnet34", marks="shared", **changes)
    return *slow, rows([95.0], **MIXED, **changes), rows([95.0], model="resnet34", **MIXED, **changes)


def test_shared_runs_and_wide_ranges_are_in_the_sentence_on_the_chart_and_on_the_screen(tmp_path):
    (result,) = answered(tmp_path, *wide(measured="projected")).results
    facts = (
        "bf16",
        1.05,
        4.21,
        "fp32",
        "RTX 2080 Ti",
        "2 models",
        "projected",
        2.11,
        "1 of 4",
        "shared with other programs: fp32",
    )
    assert lacking(result.sentence, *facts) == []
    seconds, speedup = result.charts
    assert "1.05 to 4.21 times" in seconds.title
    assert seconds.subtitle.endswith("projected from a sample; lower is better; the mean is 2.11; " + result.caveats[1])
    assert [bar.note for group in seconds.groups for bar in group.bars] == ["", "", "shared", ""]
    assert [bar.note for group in speedup.groups for bar in group.bars] == ["", "shared", ""]
    said = answered(tmp_path, *wide(measured="projected"))
    text = " ".join(" ".join(screen(said)).split())
    assert "~1.05-4.21* one run" in text
    assert lacking(text, "~", "projected", "*", "--all") == []
    assert "#:" not in text


def test_a_full_run_and_a_sample_that_contradict_each_other_both_say_so(tmp_path):
    sample = {"mode": "sampled", "measured": "projected", "session": "s2"}
    quick = sample | {"mode": "quick", "session": "s3"}
    full = rows([100.0]), rows([90.0], **MIXED)
    samples = [rows([100.0], **quick), rows([70.0], **MIXED, **quick)]
    samples += [rows([100.0], **sample), rows([70.0], **MIXED, **sample)]
    answer = answered(tmp_path, *full, *samples)
    sampled, _, whole = (" ".join(result.caveats) for result in answer.results)  # the newest session first
    assert lacking(whole, "1.43") == lacking(sampled, "1.11") == []
    assert [result.contradicted for result in answer.results] == [0, 0, 2]
    agreeing = answered(tmp_path, *full, rows([100.0], **sample), rows([88.0], **MIXED, **sample))
    assert [result.caveats for result in agreeing.results] == [(), ()]
    faster = rows([100.0]), rows([70.0], **MIXED)
    slower = answered(tmp_path, *faster, rows([100.0], **sample), rows([90.0], **MIXED, **sample))
    assert all(result.caveats for result in slower.results)


def test_caveats_name_unlike_rows_count_a_baseline_once_and_come_last(tmp_path):
    alike = "as on the page"
    for source, first in (("a/b", ()), ("", (f"resnet18 and resnet34: {alike}",))):
        theirs = {"reason": alike, "source": source}
        given = rows([100.0], **theirs), rows([90.0], **theirs | {"reason": f"{alike}; another rate"}, model="resnet34")
        mixed = rows([50.0], **theirs, **MIXED), rows([50.0], **theirs, model="resnet34", **MIXED)
        (result,) = answered(tmp_path, *given, *mixed).results
        assert result.caveats == (*first, "resnet34: another rate")
    remarked = [row(trial=n, reason=text) for n, text in enumerate(("", "read 5 files; slow", "slow; read 6 files"))]
    (result,) = answered(tmp_path, remarked, rows([50.0], **MIXED)).results
    assert result.caveats == ("resnet18: read 5 files", "resnet18: slow")
    given = [row(precision=precision, marks="unsteady") for precision in ("fp32", "bf16", "fp16")]
    results = answered(tmp_path, given).results
    assert {each.caveats for each in results} == {("2 of 2 runs unsteady",)}
    assert {str(chart).count("unsteady") for result in results for chart in result.charts} == {1}
    others = rows([100.0], suite="mine"), rows([90.0], suite="mine", **MIXED)
    assert [each.suite for each in answered(tmp_path, *wide(), *others).results] == ["mine", "resnet"]


def test_models_and_trials_without_a_figure_on_one_side_are_caveats(tmp_path):
    other = {"card": "NVIDIA A100", "device_hash": "b", "session": "s2"}
    for changes, where in ((MIXED, "with bf16"), (other, "on A100")):
        ran = [row(), row(**changes), *(row(model=model) for model in ("m1", "m2", "m3"))]
        never = {"seconds": None, "measured": "", "samples_per_second": None, "status": "timed_out", **changes}
        lost = [row(trial=1, **never), row(model="m1", **never), row(**never | {"status": "failed", "model": "m4"})]
        lost += [row(**never | {"status": "failed", "reason": "diverged: nan"}, model="m2")]
        (result,) = answered(tmp_path, ran, lost).results
        trials = f"resnet18 {where.split()[1]}: 1 of 2 trials have no result"
        assert result.caveats == (f"m1: timed out {where}", f"m2: diverged {where}", trials)


@pytest.mark.parametrize(
    ("metric", "one", "other", "text"),
    [
        ("energy", {"energy_source": "rapl"}, {"energy_source": "counter"}, "energy from rapl / counter"),
        ("memory", {"device": "cpu"}, {"energy_source": "rapl"}, "memory from the process / torch's allocator"),
        ("seconds", {"host_reference_seconds": 3.0}, {"host_reference_seconds": 2.0}, "one host is 1.50 times as slow"),
        ("seconds", {"host_reference_seconds": 3.0}, {"host_reference_seconds": 2.9}, ""),
        ("seconds", {"energy_source": "rapl"}, {"clocks_policy": "default"}, ""),
    ],
)
def test_figures_of_unlike_origin_and_unlike_hosts_are_differences(tmp_path, metric, one, other, text):
    halves = {"peak_memory_bytes": 2**29, "joules_per_sample": 0.5, "card": "NVIDIA A100", "device_hash": "b"}
    doubles = {"peak_memory_bytes": 2**30, "joules_per_sample": 1.0}
    (result,) = answered(
        tmp_path, rows([50.0], **halves | one), rows([100.0], **doubles | other), metric=metric
    ).results
    assert (", ".join(result.differences)) == text


@pytest.mark.parametrize("version", ["", "nightly", "²", "9" * 5000, "2.x.dev"])
def test_versions_that_are_none_compare_as_texts(tmp_path, version):
    given = rows([100.0], torch="2.15.0+cu132"), rows([90.0], torch=version, session="s2")
    (result,) = answered(tmp_path, *given, by="torch").results
    assert result.value == pytest.approx(100 / 90)
    assert not result.said.startswith("torch is")


def test_a_library_takes_lists_and_prices_and_refuses_tables(tmp_path):
    records.append(tmp_path / "rows.csv", [row(), row(card="NVIDIA GeForce GTX 1080 Ti", device_hash="bbbb")])
    loaded = gpubench.load(tmp_path)
    assert len(gpubench.compare(loaded, by=["card", "precision"]).results) == 1
    (result,) = gpubench.compare(loaded, metric="cost", prices={"1080 Ti": 0.1, "2080 Ti": {"hourly": 0.2}}).results
    assert result.value == pytest.approx(2.0)
    for wrong, words in (
        (lambda: gpubench.compare(loaded.frame), "not a DataFrame"),
        (lambda: gpubench.load(5), "not a int"),
        (lambda: gpubench.compare(loaded, metric="cost", prices={"1080": "dear"}), "needs hourly"),
        (lambda: gpubench.compare(loaded, by=[1]), "no such column"),
    ):
        with pytest.raises(UserError, match=words):
            wrong()
