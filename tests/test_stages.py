"""Hours of each stage of a training, as answers have them."""

import json

from answers import answered, section
from rows import row

from gpubench.rows.table import hours_by_size, stages_in

PHASES = [
    ["epochs", "size", "batch", "hours"],
    ["0-13", 128, 512, 1.25],
    ["13-25", 224, 224, 2.5],
    ["25-28", 288, 128, 1],
]
EPOCHS = [["epoch", "hours", "size"], [1, 0.5, 128], [2, 1.0, 128], [3, 2.0, 224], [3, 2.0, 224]]


def test_hours_of_phases_and_of_epochs():
    assert hours_by_size(stages_in(json.dumps(PHASES))) == [(128, 1.25), (224, 2.5), (288, 1.0)]
    assert hours_by_size(stages_in(json.dumps(EPOCHS))) == [(128, 1.0), (224, 1.0)]
    assert hours_by_size(stages_in(json.dumps([EPOCHS[0], EPOCHS[3]]))) == []
    assert stages_in('[["hours","size"]]') == [], "a table without lines still has hours in all"
    for other in ("", "[]", "3", '[["a"],[1]]', '[["hours","size"],[1]]', "{"):
        assert stages_in(other) is None


def test_each_case_has_its_hours_and_says_so(tmp_path):
    imagenet = {"suite": "imagenet", "model": "resnet50", "table": json.dumps(PHASES), "measured": "projected"}
    rows = [row(precision=name, seconds=4.75 * 3600, card="RTX 4090", **imagenet) for name in ("fp32", "fp16")]
    found = section(answered(tmp_path, rows), "stages")
    said = "resnet50 in fp32 takes 4.75 h on RTX 4090: 1.25 h at 128 px, 2.5 h at 224 px, 1 h at 288 px"
    assert said in [result.said for result in found.results]
    assert all(result.projected for result in found.results)
    one_size = [row(seconds=3600.0, **{**imagenet, "table": json.dumps(EPOCHS[:3])})]
    assert not [section for section in answered(tmp_path, one_size).sections if section.study == "stages"]


def test_another_figure_has_no_hours(tmp_path):
    found = answered(tmp_path, [row(suite="imagenet", table=json.dumps(PHASES))], metric="rate")
    assert "stages" not in {each.study for each in found.sections}
