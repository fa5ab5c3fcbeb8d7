"""Phases files: what is read, and how a broken or malicious one is refused."""

import re

import pytest

from gpubench.data.built_in_schedules import BUILT_IN, TINY, TITAN_RTX
from gpubench.data.schedules import line_of, parse, read, schedule_of
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
epochs = [0, 4]
lr = [0.2, 0.1]
"""


def at(text):
    """Number of the line that holds the mark `#!`."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if "#!" in line)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_line_of_a_row_stands_for_the_whole_schedule(name):
    line = read(name)
    assert " " not in line
    assert schedule_of(line) == parse(BUILT_IN[name], name)
    assert read(line) == line == line_of(schedule_of(line))


def test_the_published_schedule():
    schedule = parse(TITAN_RTX, "titan-rtx")
    assert [(p.size, p.batch, p.end) for p in schedule.phases] == [(128, 512, 13), (224, 224, 25), (288, 128, 28)]
    assert schedule.lr(0, 8 * 512) == 1
    assert schedule.lr(7, 8 * 512) == 2
    assert schedule.lr(0, 512) == 1 / 8  # one process instead of eight
    assert schedule.lr(13, 8 * 224) == pytest.approx(224 / 512)
    assert schedule.lr(27.999, 8 * 128) == pytest.approx(0.00025, rel=0.01)
    assert schedule.batch(schedule.phases[1], 16) == 7


def test_a_schedule_is_stretched_to_fewer_epochs():
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


def test_a_phase_that_would_have_no_epoch_is_left_out_and_batches_stay_in_proportion():
    line = read("titan-rtx")
    whole, short = schedule_of(line), schedule_of(line, 1)
    assert [p.size for p in short.phases] == [224]
    assert short.first_batch == whole.first_batch
    assert short.batch(short.phases[0], 512) == whole.batch(whole.phases[1], 512) < 512


def test_a_ramp_may_fall_by_a_power():
    schedule = parse(BUILT_IN["four-minutes"], "four-minutes")
    assert schedule.peak == 20
    assert schedule.lr(2.5, 65536) == 10, "the warm-up is straight"
    assert schedule.lr(47.5, 65536) == pytest.approx(20 / 4), "half of the epochs are left"
    assert schedule.lr(90, 65536) == 0
    assert schedule.lr(47.5, 65536 // 256) == pytest.approx(20 / 4 / 256)
    with pytest.raises(UserError, match=r"^mine, line 17: power = 0"):
        parse(PLAIN + "power = 0", "mine")


def test_a_file_is_read_and_its_name_is_not_kept(tmp_path):
    (tmp_path / "mine.toml").write_text(TINY)
    assert read(str(tmp_path / "mine.toml")) == read("tiny")


BROKEN = {
    "code instead of a number": ('size = __import__("os").system("true") #!', "invalid value"),
    "code in a string": ("size = \"__import__('os').abort()\" #!", "a whole number from 16"),
    "a negative size": ("size = -128 #!", "size = -128"),
    "no size at all": ("size = 0 #!", "size = 0"),
    "a huge size": ("size = 99999999999999999999 #!", "size = "),
    "a fraction": ("size = 12.5 #!", "size = 12.5"),
    "truth for a number": ("size = true #!", "size = True"),
    "an unknown key": ("size = 64\nexec = 1 #!", "exec: a phase has"),
    "a key twice": ("size = 64\nsize = 64 #!", "cannot overwrite a value"),
    "a scale above 1": ("size = 64\nmin_scale = 1.5 #!", "min_scale = 1.5"),
    "not a number": ("size = 64\nmin_scale = nan #!", "min_scale: nan is not a number"),
    "copies that are too small": ("size = 64\ncopies = 32 #!", "smaller than size"),
    "a word for true": ('size = 64\nrect_val = "yes" #!', "true or false"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_phase_is_refused_with_its_line(name):
    lines, why = BROKEN[name]
    text = PLAIN.replace("size = 64", lines)
    with pytest.raises(UserError, match=rf"^mine.toml, line {at(text)}: .*{re.escape(why)}"):
        parse(text, "mine.toml")


EPOCHS = {
    "a gap between phases": ("epochs = [3, 5]\nsize", "epochs = [4, 5] #!\nsize", "a gap: no phase"),
    "phases that overlap": ("epochs = [3, 5]\nsize", "epochs = [2, 5] #!\nsize", "an overlap: "),
    "a late start": ("epochs = [0, 3]", "epochs = [1, 3] #!", "a gap: no phase has the epochs from 0 to 1"),
    "backwards": ("epochs = [3, 5]\nsize", "epochs = [5, 3] #!\nsize", "the first epoch"),
    "below zero": ("epochs = [0, 3]", "epochs = [-1, 3] #!", "the first epoch"),
    "three numbers": ("epochs = [0, 3]", "epochs = [0, 1, 3] #!", "two numbers"),
    "half an epoch": ("epochs = [0, 3]", "epochs = [0, 2.5] #!", "whole epochs"),
    "ramps that overlap": ("epochs = [2, 5]\nlr", "epochs = [1, 5] #!\nlr", "an overlap: "),
    "a gap between ramps": ("epochs = [2, 5]\nlr", "epochs = [2.5, 5] #!\nlr", "a gap: no ramp"),
    "ramps that end early": ("epochs = [5, 6]\nlr", "epochs = [5, 5.5] #!\nlr", "the ramps end at epoch 5.5"),
    "a negative rate": ("lr = [0.2, 0.4]", "lr = [-0.2, 0.4] #!", "a learning rate is"),
    "an endless rate": ("lr = [0.2, 0.4]", "lr = [inf, 0.4] #!", "inf is not a number"),
    "no rate": ("lr = [0.2, 0.4]", 'lr = ["eval", 1] #!', "is not a number"),
    "no batch for rates": ("lr_batch = 128", "lr_batch = 0 #!", "lr_batch = 0"),
    "an unknown table": ("lr_batch = 128", "lr_batch = 128\n[shutdown] #!", "shutdown: there is"),
}


@pytest.mark.parametrize("name", EPOCHS)
def test_epochs_that_do_not_join_are_refused_with_their_line(name):
    old, new, why = EPOCHS[name]
    assert TINY.count(old) == 1
    text = TINY.replace(old, new)
    with pytest.raises(UserError, match=rf"^f.toml, line {at(text)}: .*{re.escape(why)}"):
        parse(text, "f.toml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "lr_batch is missing"),
        ("lr_batch = 1\nphase = 3", "line 2: write each phase as a table"),
        ("lr_batch = 1\nphase = [{epochs=[0,1],size=32,batch=1}]\nramp = []", "line [[phase]]"),
        ("lr_batch = 1\n[[phase]]\nsize = 32", "[[ramp]], at least one"),
        ("a = " + "[" * 5000, "f, line 1"),
        ("lr_batch = 1\n[[phase]", "line 2"),
    ],
)
def test_what_is_no_schedule_is_refused(text, why):
    with pytest.raises(UserError, match=re.escape(why)):
        parse(text, "f")


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
    with pytest.raises(UserError, match="line 2: not UTF-8"):
        read(str(tmp_path / "binary.toml"))


def test_a_one_line_schedule_is_checked_like_a_file():
    with pytest.raises(UserError, match="size = -1"):
        read("lr_batch=1;phase:epochs=[0,1],size=-1,batch=1;ramp:epochs=[0,1],lr=[1,1]")
    with pytest.raises(UserError, match="phases, line"):
        read("lr_batch=1;phase:epochs=[0,1],size=eval(1),batch=1;ramp:epochs=[0,1],lr=[1,1]")
