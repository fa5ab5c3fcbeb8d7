"""Hours of each phase, as `compare` shows them."""

import json

from rows import row

from gpubench.analysis.compare import Question, answer, compare
from gpubench.comparing import hours
from gpubench.comparing.table import print_result
from gpubench.rows.row import append

PHASES = [
    ["epochs", "size", "batch", "hours"],
    ["0-13", 128, 512, 1.25],
    ["13-25", 224, 224, 2.5],
    ["25-28", 288, 128, 1],
]
EPOCHS = [["epoch", "hours", "size"], [1, 0.5, 128], [2, 1.0, 128], [3, 2.0, 224], [3, 2.0, 224]]


def test_hours_of_phases_and_of_epochs():
    assert hours.by_size(hours.read(json.dumps(PHASES))) == [(128, 1.25), (224, 2.5), (288, 1.0)]
    assert hours.by_size(hours.read(json.dumps(EPOCHS))) == [(128, 1.0), (224, 1.0)]
    assert hours.by_size(hours.read(json.dumps([EPOCHS[0], EPOCHS[3]]))) == []
    assert hours.read('[["hours","size"]]') == [], "a table without lines still has hours in all"
    for other in ("", "[]", "3", '[["a"],[1]]', '[["hours","size"],[1]]', "{"):
        assert hours.read(other) is None


def test_compare_shows_them(tmp_path, capsys):
    imagenet = {"suite": "imagenet", "model": "resnet50", "table": json.dumps(PHASES), "measured": "projected"}
    rows = [row(precision=name, seconds=4.75 * 3600, card="RTX 4090", **imagenet) for name in ("fp32", "fp16")]
    append(tmp_path / "a.csv", rows)
    print_result(compare([tmp_path / "a.csv"]))
    out = capsys.readouterr().out
    assert (
        "resnet50 fp32 on RTX 4090: 1.25 h at 128 px, 2.5 h at 224 px, 1 h at 288 px, 4.75 h in all (projected)" in out
    )


def test_another_figure_has_no_hours(tmp_path, capsys):
    append(tmp_path / "a.csv", [row(suite="imagenet", table=json.dumps(PHASES))])
    print_result(compare([tmp_path / "a.csv"], Question(metric="rate")))
    assert "h in all" not in capsys.readouterr().out
