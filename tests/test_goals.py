"""Ways to a goal: accuracy and stages over hours, published series by processes, works beside what they compare."""

import json
import runpy
from pathlib import Path

import pytest
from answers import answered, section, table
from facts import lacking
from rows import row

from gpubench.rows.table import epochs_in, hours_by_size, stages_in

ROOT = Path(__file__).parents[1]
EPOCHS = [["epoch", "hours", "top1", "top5", "crop", "size"], [1, 0.5, 0.25, 0.5, "square", 128],
          [2, 1.25, 0.75, 0.9375, "rectangle", 288], [2, 1.25, 0.5, 0.75, "square", 288]]  # fmt: skip
OWN = {"suite": "imagenet", "model": "resnet50", "table": json.dumps(EPOCHS), "params": "goal=0.93"}
SERIES = {"suite": "imagenet", "model": "resnet50", "mode": "published", "session": "a-2018", "source": "a/b"}


def others(answer, study):
    return [each for each in answer.results if each.kind == study]


# Epochs


def test_the_tables_of_epochs_and_phases():
    first, last = epochs_in(json.dumps(EPOCHS))
    assert (first.number, first.hours, first.top1, first.size) == (1, 0.5, 0.25, 128)
    assert (last.number, last.top5) == (2, 0.9375), "of an epoch's lines the first"
    theirs = [["epoch", "hours", "top1Accuracy"], ["1.0", "0.5", "50.0"], ["2", "N/A", "60"], ["3", "1.5", "N/A"]]
    assert [(each.number, each.top1) for each in epochs_in(json.dumps(theirs))] == [(1, 0.5), (3, None)]
    phases = json.dumps([["epochs", "size", "hours"], ["0-13", 128, 1.25]])
    for other in ("", "[]", "3", phases, '[["epoch","hours"],[null,1]]', '[["epoch","hours"],[1,"inf"]]'):
        assert epochs_in(other) == []
    assert hours_by_size(stages_in(json.dumps(PHASES))) == [(128, 1.25), (224, 2.5), (288, 1.0)]
    assert hours_by_size(stages_in(json.dumps(EPOCHS_BY_SIZE))) == [(128, 1.0), (224, 1.0)]
    assert hours_by_size(stages_in(json.dumps([EPOCHS_BY_SIZE[0], EPOCHS_BY_SIZE[3]]))) == []
    for other in ("", "[]", "3", '[["a"],[1]]', '[["hours","size"],[1]]', "{"):
        assert stages_in(other) == []


def test_own_runs_have_a_table_beside_published_ones_but_not_of_one_epoch(tmp_path):
    theirs = row(**OWN | SERIES, card="NVIDIA TITAN RTX", processes=8)
    missed = row(**OWN, precision="fp16", status="goal_missed", seconds=None)
    found = section(answered(tmp_path, [theirs, row(**OWN), missed]), "epochs")
    said = [each.said for each in found.results]
    assert "resnet50 has 93.8% top-5 after epoch 2, 75 min, on RTX 2080 Ti" in said
    assert "missed the goal" in " ".join(result.sentence for result in found.results if result.origin.endswith("fp16"))
    assert {each.name for each in found.tables} == {
        "epochs of resnet50, fp32, RTX 2080 Ti", "epochs of resnet50, fp16, RTX 2080 Ti",
        "epochs of resnet50, fp32, 8 x TITAN RTX",
    }  # fmt: skip
    lines = table(found, "epochs of resnet50, fp16")
    assert [(line["hours"], line["top-1"], line["top-5"]) for line in lines] == [
        ("0.5000", "25.00%", "50.00%"), ("1.2500", "75.00%", "93.75%"),
    ]  # fmt: skip
    one = row(**OWN | {"table": json.dumps(EPOCHS[:2])})
    assert "epochs" not in {each.study for each in answered(tmp_path, [one]).sections}
    assert "epochs" not in {each.study for each in answered(tmp_path, [row(**OWN)], metric="rate").sections}


# A published series by processes


def series(*counts_and_seconds, **changes):
    return [
        row(**SERIES | {"params": f"goal=0.93 phases=p{count}", "processes": count, "nodes": count // 8} | changes,
            seconds=seconds)
        for count, seconds in counts_and_seconds
    ]  # fmt: skip


def test_a_published_series_keeps_a_share_of_perfect_scaling_and_two_works_are_two(tmp_path):
    found = section(answered(tmp_path, series((8, 6400.0), (16, 3200.0), (64, 1600.0))), "scaling")
    (said,) = found.results
    assert said.sentence == (
        "64 processes reach the goal 4.00 times as fast as 8 on RTX 2080 Ti: scaling efficiency 50%"
        " (imagenet, resnet50, 1 run each, published, schedules differ)."
    )
    lines = [list(line.values()) for line in table(found, "minutes")]
    assert [line[:5] for line in lines] == [
        ["1", "8", "107", "1.00", "100.0%"],
        ["2", "16", "53.3", "2.00", "100.0%"],
        ["8", "64", "26.7", "4.00", "50.0%"],
    ]
    assert [chart.name for chart in said.charts] == ["imagenet-goal-efficiency"]
    both = [*series((8, 6400.0), (16, 3200.0)), *series((8, 640.0), (32, 320.0), session="b-2019")]
    assert sorted(each.value for each in others(answered(tmp_path, both), "scaling")) == [2.0, 2.0]


@pytest.mark.parametrize(
    "changes",
    [{"params": "phases=p"}, {"params": "goal=0"}, {"params": "goal=soon"}, {"mode": "full"}, {"session": ""},
     {"status": "goal_missed"}],
)  # fmt: skip
def test_what_is_no_published_series_to_a_goal(tmp_path, changes):
    assert not others(answered(tmp_path, series((8, 6400.0), (16, 3200.0), **changes)), "scaling")


# A work beside those that it compares itself with


def test_a_work_stands_beside_what_it_compares_itself_with_and_may_lack_a_source(tmp_path):
    work = {**SERIES, "studies": "published", "params": "a=1"}
    gains = json.dumps([["what", "times", "baseline"], ["its own all-reduce", 11, "NCCL's"], ["x", "no", "y"]])
    rows = [
        row(**work, seconds=396.0, processes=2048, accuracy=0.758),
        row(**work | {"source": "c/d"}, card="Tesla P100", seconds=900.0, processes=1024, accuracy=0.749),
        row(**work | {"source": "c/d"}, card="Tesla P100", seconds=None, samples_per_second=None, accuracy=0.7),
        row(**work, seconds=None, samples_per_second=None, table=gains),
        row(**work | {"session": "another"}, seconds=1.0),
        row(**work | {"studies": "", "source": "e/f"}, seconds=1.0),
    ]
    answer = answered(tmp_path, rows)
    sooner, stated = others(answer, "published")
    facts = ("resnet50", "6.6 min", "2,048 x RTX 2080 Ti", "15 min", "1,024 x Tesla P100", 2.27, "imagenet", "1 run")
    assert lacking(sooner.sentence, *facts) == []
    assert sooner.sentence.count("resnet50") == 1
    assert sooner.origin == "75.8% against 74.9%"
    assert stated.said == "resnet50 on RTX 2080 Ti is up to 11.0 times as fast with its own all-reduce as with NCCL's"
    assert stated.caveats
    assert answer.failed == 0, "what never stated a time lacks none"
    (found, _) = [each for each in answer.sections if each.study == "published"]
    assert [line["accuracy"] for line in table(found, "published")] == ["75.8%", "74.9%", "70.0%"]
    assert [line["minutes"] for line in table(found, "published")] == ["6.60", "15.0", ""]
    lone = row(**SERIES | {"studies": "published", "source": "", "session": ""})
    assert not others(answered(tmp_path, [lone]), "published")


# Dollars


def test_stated_dollars_are_taken_before_a_price(tmp_path):
    rows = [row(seconds=3600.0, mode="published", dollars=40.0), row(seconds=3600.0, precision="fp16")]

    def costs(**question):
        (found,) = answered(tmp_path, rows, metric="cost", **question).sections
        return [line["dollars/run"] for line in table(found, "cases")]

    rows[1] = row(seconds=7200.0, precision="fp16", mode="published")
    assert costs(prices={"2080 Ti": 3.0}) == ["40.0", "6.00"]
    assert costs() == ["40.0", ""]


# The published files


@pytest.mark.parametrize(
    "script", ["published_2018", "published_imagenet", pytest.param("published_cifar10", marks=pytest.mark.e2e)]
)
def test_the_published_file_is_what_its_script_writes(tmp_path, script):
    runpy.run_path(str(ROOT / "benchmarks" / f"{script}.py"))["main"](tmp_path)
    (written,) = tmp_path.iterdir()
    assert written.read_text() == (ROOT / "results" / written.name).read_text()


PHASES = [
    ["epochs", "size", "batch", "hours"],
    ["0-13", 128, 512, 1.25],
    ["13-25", 224, 224, 2.5],
    ["25-28", 288, 128, 1],
]
EPOCHS_BY_SIZE = [["epoch", "hours", "size"], [1, 0.5, 128], [2, 1.0, 128], [3, 2.0, 224], [3, 2.0, 224]]


def test_each_case_has_its_hours_and_another_figure_has_none(tmp_path):
    imagenet = {"suite": "imagenet", "model": "resnet50", "table": json.dumps(PHASES), "measured": "projected"}
    rows = [row(precision=name, seconds=4.75 * 3600, card="RTX 4090", **imagenet) for name in ("fp32", "fp16")]
    found = section(answered(tmp_path, rows), "stages")
    said = "resnet50 in fp32 takes 4.75 h on RTX 4090: 1.25 h at 128 px, 2.5 h at 224 px, 1 h at 288 px"
    assert said in [result.said for result in found.results]
    assert all(result.projected for result in found.results)
    one_size = [row(seconds=3600.0, **{**imagenet, "table": json.dumps(EPOCHS_BY_SIZE[:3])})]
    assert not [section for section in answered(tmp_path, one_size).sections if section.study == "stages"]
    found = answered(tmp_path, [row(suite="imagenet", table=json.dumps(PHASES))], metric="rate")
    assert "stages" not in {each.study for each in found.sections}
