"""Phases files: what is read, and how a broken or malicious one is refused."""

import pytest

from gpubench.data.schedules import BUILT_IN, line_of, parse, read, schedule_of
from gpubench.errors import UserError

PLAIN = """
lr_batch = 128

[[phase]]
epochs = [0, 3]
size = 32
batch = 16

[[phase]]
epochs = [3, 4]
size = 64
batch = 8

[[ramp]]
epochs = [0, 2]
lr = [0.2, 0.4]

[[ramp]]
epochs = [2, 4]
lr = [0.4, 0.1234567]
"""


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_line_of_a_row_stands_for_the_whole_schedule(name):
    line = read(name)
    assert " " not in line
    assert read(line) == line == line_of(schedule_of(line))


def test_the_published_schedules():
    schedule = schedule_of(read("titan-rtx"))
    assert [(p.size, p.batch, p.end) for p in schedule.phases] == [(128, 512, 13), (224, 224, 25), (288, 128, 28)]
    assert schedule.lr(0, 8 * 512) == 1
    assert schedule.lr(7, 8 * 512) == 2
    assert schedule.lr(0, 512) == 1 / 8  # one process instead of eight
    assert schedule.lr(13, 8 * 224) == pytest.approx(224 / 512)
    assert schedule.lr(27.999, 8 * 128) == pytest.approx(0.00025, rel=0.01)
    assert schedule.batch(schedule.phases[1], 16) == 7
    schedule = schedule_of(read("four-minutes"))
    assert schedule.peak == 20
    assert schedule.lr(2.5, 65536) == 10, "the warm-up is straight"
    assert schedule.lr(47.5, 65536) == pytest.approx(20 / 4), "half of the epochs are left"
    assert schedule.lr(90, 65536) == 0
    assert schedule.lr(47.5, 65536 // 256) == pytest.approx(20 / 4 / 256)
    with pytest.raises(UserError, match=r"^mine: ramp 2: power = 0"):
        parse(PLAIN + "power = 0", "mine")


def test_a_schedule_is_stretched_to_fewer_epochs_and_may_lose_a_phase():
    line = read("titan-rtx")
    whole, short = schedule_of(line), schedule_of(line, 7)
    assert [(p.size, p.first, p.end) for p in short.phases] == [(128, 0, 3), (224, 3, 6), (288, 6, 7)]
    assert short.epochs == 7
    for before, after in zip(whole.phases, short.phases, strict=True):
        assert short.lr(after.first, 4096) == pytest.approx(whole.lr(before.first, 4096)), (
            "the ramps go with the phases"
        )
        assert short.batch(after, 64) == whole.batch(before, 64)
    assert schedule_of(line, 0) == whole
    line = read("titan-rtx")
    whole, short = schedule_of(line), schedule_of(line, 1)
    assert [p.size for p in short.phases] == [224]
    assert short.first_batch == whole.first_batch
    assert short.batch(short.phases[0], 512) == whole.batch(whole.phases[1], 512) < 512


def test_a_file_or_a_line_is_read_and_checked(tmp_path):
    (tmp_path / "mine.toml").write_text(PLAIN)
    assert schedule_of(read(str(tmp_path / "mine.toml"))) == parse(PLAIN, "mine.toml")
    with pytest.raises(UserError, match="size = -1"):
        read("lr_batch=1;phase:epochs=[0,1],size=-1,batch=1;ramp:epochs=[0,1],lr=[1,1]")
    with pytest.raises(UserError, match=r"^phases: "):
        read("lr_batch=1;phase:epochs=[0,1],size=eval(1),batch=1;ramp:epochs=[0,1],lr=[1,1]")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size = 64", 'size = __import__("os").system("true")', "line 11"),
        ("size = 64", "size = \"__import__('os').abort()\"", "phase 2: size = .* a whole number"),
        ("size = 64", "size = -128", "phase 2: size = -128"),
        ("size = 64", "size = 99999999999999999999", "phase 2: size = "),
        ("size = 64", "size = true", "phase 2: size = True"),
        ("size = 64", "size = 64\nexec = 1", "phase 2: exec: unknown"),
        ("size = 64", "", "phase 2: no size"),
        ("size = 64", "size = 64\nmin_scale = 1.5", "phase 2: min_scale = 1.5"),
        ("size = 64", "size = 64\ncopies = 32", "phase 2: copies = 32"),
        ("size = 64", 'size = 64\nrect_val = "yes"', "phase 2: rect_val = 'yes'"),
        ("[3, 4]", "[4, 5]", r"phase 2: epochs = \[4, 5\]: must begin at 3"),
        ("[0, 3]", "[1, 3]", r"phase 1: epochs = \[1, 3\]: must begin at 0"),
        ("[3, 4]", "[4, 3]", r"phase 2: epochs = \[4, 3\]"),
        ("[0, 3]", "[0, 1, 3]", "phase 1: epochs = .* two"),
        ("[0, 3]", "[0, 2.5]", "phase 1: epochs = .* a whole number"),
        ("[2, 4]", "[1, 4]", r"ramp 2: epochs = \[1, 4\]"),
        ("[2, 4]", "[2, 3.5]", "ramps end at epoch 3.5"),
        ("[0.2, 0.4]", "[inf, 0.4]", "ramp 1: lr = "),
        ("[0.2, 0.4]", '["eval", 1]', "ramp 1: lr = "),
        ("lr_batch = 128", "lr_batch = 0", "lr_batch = 0"),
        ("lr_batch = 128", "", "no lr_batch"),
        ("lr_batch = 128", "lr_batch = 128\n[shutdown]", "shutdown: unknown"),
        (PLAIN, "lr_batch = 1\nphase = 3\nramp = []", "no .*phase"),
        (PLAIN, "lr_batch = 1\nphase = [3]\nramp = []", "phase 1: write it as a table"),
        (PLAIN, "a = " + "[" * 5000, "nested too deep"),
    ],
)
def test_a_broken_schedule_is_refused_with_its_place(old, new, words):
    assert PLAIN.count(old) == 1
    with pytest.raises(UserError, match=rf"(?s)^mine.toml: .*{words}"):
        parse(PLAIN.replace(old, new), "mine.toml")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read(str(tmp_path / "missing.toml"))
    with pytest.raises(UserError, match="not a file"):
        read("/dev/zero")
    with pytest.raises(UserError, match="not a file"):
        read(str(tmp_path))
    with pytest.raises(UserError, match="cannot be read"):
        read("[{'ep': 0}]\0")
    (tmp_path / "big.toml").write_bytes(b"#" * 70_000)
    with pytest.raises(UserError, match="larger than"):
        read(str(tmp_path / "big.toml"))
    (tmp_path / "binary.toml").write_bytes(b"lr_batch = 1\n\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        read(str(tmp_path / "binary.toml"))
