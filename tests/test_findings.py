"""What is found in rows, in which order, and in which words it stands on a screen of 80 columns."""

from pathlib import Path

import pytest
from rows import rows

from gpubench import records
from gpubench.comparing.compare import Question, answer
from gpubench.show.terminal import MOST, WIDTH, duration, headline, screen, told
from gpubench.studies.answer import Answer, findings_of
from gpubench.studies.finding import Finding

RESULTS = Path(__file__).parents[1] / "results"
SLOW = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
FAST = [seconds / 2 for seconds in SLOW]
TI = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb"}


def found(tmp_path, *own):
    """The findings of these rows."""
    records.append(tmp_path / "a.csv", [row for part in own for row in part])
    return findings_of(answer([tmp_path / "a.csv"], Question()))


def finding(**changes):
    usual = {
        "kind": "card", "suite": "resnet", "subject": "A", "baseline": "B", "where": "in fp32", "value": 2.0,
        "interval": None, "verdict": "one run", "models": ("resnet18",), "trials": 1,
    }  # fmt: skip
    return Finding(**(usual | changes))


def test_the_article_is_one_sentence_and_a_table_of_its_models(cli):
    done = cli("compare", RESULTS / "2019-rtx-2080-ti-gtx-1080-ti.csv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert " ".join(lines[:2]) == (
        "RTX 2080 Ti trains 1.42 times as fast as GTX 1080 Ti in mixed precision, and 1.30 times in fp32"
        " (resnet, 4 models, one run each, so no verdict)."
    )
    assert lines[4].split() == ["1080", "Ti", "2080", "Ti", "speedup"] * 2
    assert lines[5].split() == ["resnet18", "35", "min", "28", "min", "1.26", "34", "min", "28", "min", "1.20"]
    assert lines[9].split() == ["mean", "1.30", "1.42"]
    assert "Mixed precision is 1.33 times as fast as fp32 on RTX 2080 Ti." in lines


def test_all_published_results_fit_a_screen_and_begin_with_the_cards(cli):
    done = cli("compare", *RESULTS.glob("20[0-9][0-9]-*.csv"))
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= WIDTH
    first = " ".join(lines[:5])
    assert all(word in first for word in ("RTX 2080 Ti", "GTX 1080 Ti", "1.42", "1.30"))


def test_every_case_is_shown_on_request(cli):
    path = RESULTS / "2019-rtx-2080-ti-gtx-1080-ti.csv"
    short, long = cli("compare", path).stdout, cli("compare", path, "--all").stdout
    assert long.startswith(short)
    assert "geometric mean speedup" in long


@pytest.mark.parametrize(("only", "there", "gone"), [("wordlm", "lstm", "resnet18"), ("2060", "RTX 2060", "2080 Ti")])
def test_one_suite_or_card_in_full(cli, only, there, gone):
    done = cli("compare", *RESULTS.glob("20[0-9][0-9]-*.csv"), "--only", only)
    assert done.returncode == 0, done.stderr
    assert there in done.stdout
    assert gone not in done.stdout


def test_only_what_is_not_there_names_what_is(cli):
    done = cli("compare", RESULTS / "2019-rtx-2080-ti-gtx-1080-ti.csv", "--only", "RTX 5090")
    assert done.returncode == 2
    assert "there is resnet, GTX 1080 Ti, RTX 2080 Ti" in done.stderr


def test_a_card_over_another_by_hand(tmp_path):
    (one,) = found(tmp_path, rows(FAST), rows(SLOW, **TI))
    assert (one.kind, one.subject, one.baseline, one.where) == ("card", "RTX 2080 Ti", "GTX 1080 Ti", "in fp32")
    assert one.value == pytest.approx(2.0)
    assert one.interval[0] < 2 < one.interval[1]
    assert (one.verdict, one.models, one.trials) == ("faster", ("resnet18",), 6)
    assert [(part.model, part.subject, part.baseline) for part in one.parts] == [
        ("resnet18", pytest.approx(50.05), pytest.approx(100.1))
    ]


def test_models_are_pooled_by_their_geometric_mean_and_agree_or_are_unsure(tmp_path):
    faster = [seconds / 8 for seconds in SLOW]
    bf16 = {"precision": "bf16"}
    (one,) = found(
        tmp_path, rows(SLOW), rows(FAST, **bf16), rows(SLOW, model="resnet34"), rows(faster, model="resnet34", **bf16)
    )
    assert one.value == pytest.approx(4.0)
    assert (one.verdict, one.models, one.what) == ("faster", ("resnet18", "resnet34"), "bf16 / fp32")
    (tmp_path / "a.csv").unlink()
    (one,) = found(
        tmp_path, rows(SLOW), rows(FAST, **bf16), rows(SLOW, model="resnet34"), rows(SLOW, model="resnet34", **bf16)
    )
    assert one.verdict == "unsure"


def test_cards_come_first_then_what_is_decided_then_the_largest():
    order = [
        finding(subject="C", value=3.0, verdict="faster"),
        finding(subject="D", value=9.0),
        finding(subject="D", value=0.5, where="in fp16"),
        finding(kind="precision", value=20.0),
        finding(kind="trick", value=30.0),
    ]
    from gpubench.studies.finding import in_order

    assert in_order(order[::-1]) == order


def test_thirty_cards_fit_a_screen_the_best_first():
    cards = [finding(subject=f"RTX {number} Ti SUPER 24GB", value=number / 10) for number in range(10, 40)]
    from gpubench.studies.finding import in_order

    lines = screen(Answer(tuple(in_order(cards)), 30, 360, 2))
    assert len(lines) <= 25
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("RTX 39 Ti SUPER 24GB trains 3.90 times as fast as B in fp32")
    assert f"{30 - MOST} more findings: --all." in lines[-2]
    assert "2 rows without a result." in lines[-2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "A trains 2.00 times as fast as B in fp32 (resnet, resnet18, one run each, so no verdict)."),
        (
            {"verdict": "faster", "interval": (1.5, 2.5), "trials": 6},
            "A trains 2.00 times as fast as B in fp32 (resnet, resnet18, 6 runs a side, 95%: 1.50 to 2.50).",
        ),
        ({"verdict": "unsure", "trials": 6, "value": 0.09}, "not sure)."),
        ({"kind": "precision", "subject": "mixed", "where": "on X"}, "Mixed precision is 2.00 times as fast as B on X"),
        ({"best": ("cheaper", "dearer"), "value": 12.34}, "A is 12.3 times as cheap as B in fp32"),
        (
            {"kind": "ladder", "models": ("17 steps",), "where": "in fp16 on X"},
            "The steps from B to A make training 2.00 times as fast in fp16 on X",
        ),
        (
            {"kind": "scaling", "subject": "8 processes", "baseline": "1", "where": "", "verdict": "80% kept"},
            "as 1: 80%",
        ),
    ],
)
def test_a_finding_in_words(changes, words):
    assert words in told(finding(**changes))


def test_findings_that_read_alike_say_in_what_they_differ(tmp_path):
    small, large = {"params": "epochs=1 width=8"}, {"params": "epochs=1 width=64"}
    bf16 = {"precision": "bf16"}
    both = found(tmp_path, *(rows(s, **p, **m) for s, m in ((SLOW, {}), (FAST, bf16)) for p in (small, large)))
    assert sorted(each.settings for each in both) == ["width=64", "width=8"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.14, "2.14 s"), (89, "89 s"), (95, "2 min"), (2075, "35 min"), (6300, "1 h 45"), (36e3, "10 h 00")],
)
def test_times_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_the_headline_names_what_the_same_models_ran():
    findings = [finding(value=2.0), finding(value=1.5, where="in fp16"), finding(value=1.2, models=("a", "b"))]
    assert headline(findings).startswith("A trains 2.00 times as fast as B in fp32, and 1.50 times in fp16 (")


def test_a_run_ends_with_what_it_found(cli):
    scripted = Path(__file__).parent / "suites" / "scripted.py"
    done = cli(
        "run", "--suite", scripted, "--device", "cpu", "--precision", "both", "--models", "short", "--out", "a.csv"
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert any(line.startswith("bf16 is ") and " times as fast as fp32 on " in line for line in said), said


@pytest.mark.parametrize("name", ["markdown", "json"])
def test_every_finding_is_in_every_format_that_holds_an_answer(cli, name):
    done = cli("compare", *RESULTS.glob("20[0-9][0-9]-*.csv"), "--format", name)
    said = answer([*RESULTS.glob("20[0-9][0-9]-*.csv")], Question())
    assert len(findings_of(said)) > MOST
    for each in findings_of(said):
        assert (told(each) if name == "json" else f"| {each.subject} / {each.baseline}") in done.stdout


def test_every_finding_is_in_the_report(cli, tmp_path):
    files = [*RESULTS.glob("20[0-9][0-9]-*.csv")]
    assert cli("report", *files, "-o", "r.html").returncode == 0
    page = (tmp_path / "r.html").read_text()
    assert all(told(each) in page for each in findings_of(answer(files, Question())))


def test_a_first_look_does_not_join_what_is_compared(cli, tmp_path):
    scripted = Path(__file__).parent / "suites" / "scripted.py"
    for mode in ("--quick", "--full"):
        assert cli("run", "--suite", scripted, "--device", "cpu", "--models", "short", mode).returncode == 0
    assert len([*tmp_path.glob("results/*.csv")]) == 1
    assert len([*tmp_path.glob("results/quick/*.csv")]) == 1
