"""What is found in rows, in which order, and in which words it stands on a screen of 80 columns."""

from dataclasses import replace
from pathlib import Path

import pytest
from facts import lacking
from rows import rows

from gpubench.analysis.compare import Question
from gpubench.cli.run import print_results, results_of
from gpubench.printed import duration
from gpubench.rows import write as records
from gpubench.runner.session import RunSummary
from gpubench.show import numbers
from gpubench.show.wrap import WIDTH
from gpubench.studies import words
from gpubench.studies.answer import answer, headline
from gpubench.studies.pairs import precision_name
from gpubench.studies.section import Part, Result, in_order

RESULTS = Path(__file__).parents[1] / "results"
SLOW = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
FAST = [seconds / 2 for seconds in SLOW]
TI = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb"}


def found(tmp_path, *own, **options):
    """The results of these rows, written to a file of their own."""
    (tmp_path / "a.csv").unlink(missing_ok=True)
    records.append(tmp_path / "a.csv", [row for part in own for row in part])
    return list(answer([tmp_path / "a.csv"], Question(**options)).results)


def result(**changes):
    """A finding as studies make it, with what it rests on as `answer` adds that."""
    usual = {
        "kind": "card", "suite": "resnet",
        "subject": "A", "baseline": "B", "precision": "fp32", "value": 2.0,
        "interval": None, "verdict": "one run", "models": ("resnet18",), "trials": (1, 1),
    }  # fmt: skip
    made = Result(said="", **(usual | changes))
    said = f"{made.subject} trains {made.value:.2f} times as fast as {made.baseline} {made.where}"
    return replace(made, said=said, basis=words.basis(made))


def test_all_published_results_fit_a_screen_and_begin_with_the_cards(cli):
    done = cli("compare", *RESULTS.glob("20[0-9][0-9]-*.csv"))
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= WIDTH
    first = " ".join(lines[:5])
    assert all(word in first for word in ("RTX 2080 Ti", "GTX 1080 Ti", "1.42", "1.30"))


def test_a_card_over_another_and_models_that_are_pooled(tmp_path):
    (one,) = found(tmp_path, rows(FAST), rows(SLOW, **TI))
    assert (one.kind, one.subject, one.baseline, one.where) == ("card", "RTX 2080 Ti", "GTX 1080 Ti", "in fp32")
    assert one.value == pytest.approx(2.0)
    assert one.interval[0] < 2 < one.interval[1]
    assert (one.verdict, one.models, one.trials) == ("faster", ("resnet18",), (6, 6))
    assert [(part.model, part.subject, part.baseline) for part in one.parts] == [
        ("resnet18", pytest.approx(50.05), pytest.approx(100.1))
    ]
    faster = [seconds / 8 for seconds in SLOW]
    bf16 = {"precision": "bf16"}
    (one,) = found(
        tmp_path, rows(SLOW), rows(FAST, **bf16), rows(SLOW, model="resnet34"), rows(faster, model="resnet34", **bf16)
    )
    assert one.value == pytest.approx(4.0)
    assert (one.verdict, one.models, one.what) == ("faster", ("resnet18", "resnet34"), "bf16 / fp32")
    (one,) = found(
        tmp_path, rows(SLOW), rows(FAST, **bf16), rows(SLOW, model="resnet34"), rows(SLOW, model="resnet34", **bf16)
    )
    assert one.verdict == "undecided"


def test_the_order_of_results_and_the_headline():
    order = [
        result(subject="C", value=3.0, verdict="faster"),
        result(subject="D", value=9.0),
        result(subject="D", value=0.5, precision="fp16"),
        result(kind="precision", value=20.0),
        result(kind="ablation", value=30.0),
    ]
    assert in_order(order[::-1]) == order
    results = [result(value=2.0), result(value=1.5, precision="fp16"), result(value=1.2, models=("a", "b"))]
    assert lacking(headline(results), "A", "2.00", "B", "fp32", "1.50", "fp16") == []
    others = [result(kind="precision", place=place, precision="") for place in ("X", "Y")]
    assert headline(others) == others[0].sentence


@pytest.mark.parametrize(
    ("changes", "basis"),
    [
        ({"models": ("a", "b"), "trials": (1, 0)}, ("resnet", "2 models", "at least 1 run each")),
        ({"verdict": "faster", "interval": (1.5, 2.5), "trials": (6, 6)}, ("6 runs", "95%", "1.50", "2.50")),
        ({"verdict": "undecided", "trials": (6, 1)}, ("6 and 1 runs", "undecided")),
        ({"verdict": "not judged", "caveats": ("differs in X (1 / 8)",)}, ("not judged", "differs in X (1 / 8)")),
        ({"settings": ("width=8", "depth=2", "third=3")}, ("width=8", "depth=2")),
    ],
)
def test_what_a_result_is_based_on(changes, basis):
    made = result(**changes)
    assert lacking(made.basis, *basis) == []
    assert "third=3" not in made.basis
    assert made.sentence == f"{made.said} ({made.basis})."


def test_times_as_people_say_them():
    expected = {
        2.14: "2.14 s", 89: "89 s", 95: "1 min 35 s", 300: "5 min",
        2075: "35 min", 6300: "1 h 45 min", 36e3: "10 h", 5.4e6: "62.5 days",
    }  # fmt: skip
    assert {seconds: duration(seconds) for seconds in expected} == expected
    sides = {(9, 10): "9.00/10 s", (1680, 2100): "28/35 min", (8.64e5, 1.728e6): "10/20 days",
             (0.005551, 0.0072): "0.00555/0.00720 s"}  # fmt: skip
    of = {(one, other): result(parts=(Part("m", one, other, other / one),)) for one, other in sides}
    assert {key: numbers.sides_of(made, "s") for key, made in of.items()} == sides
    assert numbers.sides_of(of[1680, 2100], "samples/s") == "1,680/2,100"
    assert numbers.sides_of(of[8.64e5, 1.728e6], "samples/dollar") == "0.864/1.73 million"
    assert numbers.sides_of(replace(of[9, 10], unit="samples/s"), "s") == "9.00/10 samples/s"


def test_a_first_look_does_not_join_what_is_compared(cli, tmp_path):
    scripted = Path(__file__).parent / "suites" / "scripted.py"
    for mode in ("--quick", "--full"):
        assert cli("run", "--suite", scripted, "--device", "cpu", "--models", "short", mode).returncode == 0
    assert len([*tmp_path.glob("results/*.csv")]) == 1
    assert len([*tmp_path.glob("results/quick/*.csv")]) == 1


def test_the_headline_lends_its_certainty_to_nothing(tmp_path):
    noisy = [60.0, 140.0, 90.0, 130.0, 70.0, 100.0]
    fp16 = {"precision": "fp16"}
    both = found(
        tmp_path, rows(FAST), rows(SLOW, **TI), rows(noisy, **fp16), rows([s * 1.1 for s in noisy], **fp16, **TI)
    )
    cards = [each for each in both if each.kind == "card"]
    assert [each.verdict for each in cards] == ["faster", "undecided"]
    assert headline(both) == cards[0].sentence
    assert " and " not in headline(both)


def test_means_are_of_the_models_that_are_named_and_batches_are_not_pooled(tmp_path):
    old = {"card": "NVIDIA GeForce GTX 980", "device_hash": "cccc"}
    own = []
    for model, factor in (("a", 1), ("b", 1), ("c", 16), ("d", 16)):
        own += [rows(SLOW, model=model), rows([s * factor for s in SLOW], model=model, **TI)]
        own += [rows(SLOW, model=model, **old)] if factor == 1 else []
    all_of_them = found(tmp_path, *own, by="card", baseline="1080")
    (mine,) = [each for each in all_of_them if each.subject == "RTX 2080 Ti"]
    assert (len(mine.models), mine.value) == (4, pytest.approx(4.0))
    fast, faster = {"batch_size": 64}, {"batch_size": 256}
    small = [rows(FAST, **fast), rows(SLOW, **fast, **TI)]
    large = [rows([s / 8 for s in SLOW], **faster), rows(SLOW, **faster, **TI)]
    both = found(tmp_path, *small, *large)
    assert sorted(round(each.value) for each in both) == [2, 8]
    assert {each.settings for each in both} == {("batch 64",), ("batch 256",)}


def test_names_tell_cards_and_other_columns_apart(tmp_path):
    (one,) = found(
        tmp_path,
        rows(FAST, card="Radeon Graphics (gfx1103)"),
        rows(SLOW, card="Radeon Graphics (gfx902)", device_hash="b"),
    )
    assert {one.subject, one.baseline} == {"Radeon Graphics (gfx1103)", "Radeon Graphics (gfx902)"}
    master = {"precision": "fp16-master"}
    (one,) = found(tmp_path, rows(FAST, **master), rows(SLOW, **master, torch="2.6.0", session="s2"), by="torch")
    assert (one.kind, one.subject, one.baseline) == ("other", "torch 2.15.0+cu132", "2.6.0")
    assert one.said.endswith("in mixed precision on RTX 2080 Ti")
    small, large = {"params": "epochs=1 width=8"}, {"params": "epochs=1 width=64"}
    bf16 = {"precision": "bf16"}
    both = found(tmp_path, *(rows(s, **p, **m) for s, m in ((SLOW, {}), (FAST, bf16)) for p in (small, large)))
    assert sorted(each.settings for each in both) == [("width=64",), ("width=8",)]


@pytest.mark.parametrize(
    ("precision", "name"), [("fp16-master", "mixed"), ("fp16-pure", "fp16-pure"), ("bf16", "bf16")]
)
def test_only_the_recipe_of_2019_is_called_mixed(tmp_path, precision, name):
    (one,) = found(tmp_path, rows(SLOW), rows(FAST, precision=precision))
    assert one.subject == name
    assert precision_name("fp16") == precision_name("bf16") == precision_name("fp16-master") == "mixed"


@pytest.mark.parametrize("accuracies", [(0.0, 0.5), (0.7, 0.6)])
def test_a_batch_that_learnt_nothing_is_no_crash(tmp_path, accuracies):
    same = {"suite": "largebatch", "model": "small", "studies": "batch", "marks": "throttled"}
    own = [
        rows([1.0], params=f"epochs=9 global_batch={batch} optimizer=sgd", accuracy=accuracy, **same)
        for batch, accuracy in zip((512, 4096), accuracies, strict=True)
    ]
    lost = replace(own[1][0], trial=1, status="failed", reason="diverged: the loss is nan", accuracy=None)
    (one,) = [result for result in found(tmp_path, *own, [lost]) if result.kind == "batch"]
    assert one.caveats[0] == "batch 4,096: 1 of 2 trials diverged or reached the time limit"
    assert one.figure == f"{(accuracies[1] - accuracies[0]) * 100:+.1f} pt"
    (chart,) = answer([tmp_path / "a.csv"], Question()).sections[0].charts
    assert ("by images per step" in chart.subtitle, chart.foot.endswith("; 2 of 2 runs throttled")) == (True, True)


def test_a_chart_says_why_there_is_no_verdict(tmp_path):
    (one,) = found(tmp_path, rows(SLOW[:3]), rows([seconds * 0.98 for seconds in SLOW[:3]], precision="bf16"))
    feet = [(chart.foot.partition(";")[0], "bf16 may be" in chart.title) for chart in one.charts]
    assert feet == [("no verdict: few trials", True)] * 2


@pytest.mark.parametrize("content", [b"\x00\xff", None])
def test_rows_that_cannot_be_read_do_not_fail_a_run_and_the_reason_is_printed(tmp_path, capsys, content):
    path = tmp_path / "a.csv"
    if content:
        path.write_bytes(content)
    assert print_results(RunSummary(4, path, frozenset({"s1"}))) == 4
    first, *rest = capsys.readouterr().out.splitlines()
    assert lacking(first, "UserError", "rows are complete") == []
    assert str(path) in " ".join(rest)


def test_a_run_prints_results_of_its_own_rows(tmp_path):
    path = tmp_path / "a.csv"
    records.append(path, [*rows(SLOW), *rows(FAST, precision="bf16"), *rows(SLOW, session="s3")])
    assert results_of(path, {"s1"})[0]
    assert lacking(" ".join(results_of(path, {"s3"})[0]), "6 runs, 95%", "95% interval") == []
    assert results_of(path, {"another"})[1] == "gpubench doctor"
    reasons = {"s2": "CUDA error (line 3 of the suite)", "s4": "KeyError: 'x' (line 3 of the suite's a.py)"}
    reasons |= {"s5": "diverged: the last loss was not finite", "s6": ""}
    for session, reason in reasons.items():
        records.append(path, rows(SLOW, session=session, status="failed", reason=reason))
    following = [results_of(path, {session})[1].partition(" ")[0] for session in reasons]
    assert following == ["gpubench", "GPUBENCH_TRACEBACK=1", "", "gpubench"]
