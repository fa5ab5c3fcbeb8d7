"""The imagenet suite, small: all phases on a tree of photographs, rectangles, bad files, kill and resume."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from brief import brief
from facts import lacking
from gpubench.suites.imagenet import data
from gpubench.suites.imagenet import network as networks
from gpubench.suites.imagenet.data import Source, workers_of
from gpubench.suites.imagenet.network import Network, no_algorithm_search
from gpubench.suites.imagenet.training import first_reached, rate
from measured_rows import rows_of_run
from PIL import Image, ImageDraw
from small_trials import MIXED, run_trial, small_trial

from gpubench.data import datasets, images
from gpubench.data.schedules import schedule_of
from gpubench.errors import UserError
from gpubench.suite import files
from gpubench.suite.trial import Measurement
from gpubench.training import imagenet_network
from gpubench.training.clock.clock import Clock
from gpubench.worker.run_trial import judged

IMAGENET = files.find("imagenet")
PHASES = (
    "lr_batch=64;phase:epochs=[0,2],size=32,batch=16,copies=40;phase:epochs=[2,3],size=48,batch=8,copies=64,min_scale=0.5;"
    "phase:epochs=[3,4],size=64,batch=8,min_scale=0.5,rect_val=true;ramp:epochs=[0,1],lr=[0.1,0.2];ramp:epochs=[1,4],lr=[0.2,0.01]"
)
ONE = "lr_batch=64;phase:epochs=[0,1],size=32,batch=16;ramp:epochs=[0,1],lr=[0.1,0.01]"
"""A single epoch, for what is the same in all of them."""
SMALL = {"phases": PHASES, "workers": "0", "copies": "false", "goal": "0"}


def photo(path, label, dice):
    """A picture whose class shows: a shape of one colour on noise, in a frame of any size."""
    size = dice.choice([(90, 60), (60, 90), (70, 70), (120, 50)])
    noise = Image.frombytes("RGB", (8, 8), dice.randbytes(192)).resize(size)
    colour = [(230, 30, 30), (30, 30, 230), (30, 230, 30)][label]
    ImageDraw.Draw(noise).rectangle((size[0] // 4, size[1] // 4, 3 * size[0] // 4, 3 * size[1] // 4), fill=colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise.save(path, quality=90)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A tree of 3 classes, 16 training and 6 validation images each."""
    root, dice = tmp_path_factory.mktemp("photos"), random.Random(1)
    for label, name in enumerate(("red", "blue", "green")):
        for number in range(22):
            photo(root / ("train" if number < 16 else "val") / name / f"{number}.jpg", label, dice)
    return root


def trial_of(root, *, mode="full", model="small", name="fp32", batch=16, folder="", events="", **settings):
    folders = {"data_dir": str(root or ""), "checkpoint_dir": str(folder), "tensorboard_dir": str(events)}
    data = images.read_tree(root).name if root else "synthetic"
    return small_trial(IMAGENET, model, name, {**SMALL, **settings}, mode=mode, batch=batch, data=data, **folders)


def run(trial, clock=None):
    """Run a trial; return its qualities and its clock."""
    quality, clock, _ = run_trial(IMAGENET, trial, clock)
    return quality, clock


def network(trial, classes=3):
    torch.manual_seed(1)
    return Network(trial, Clock(brief("full")), classes)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """The folder of TensorBoard events of `whole`."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def whole(photos, events):
    """An uninterrupted run: quality and clock."""
    return run(trial_of(photos, events=events if find_spec("tensorboard") else ""))


def test_it_trains_all_phases_and_the_loss_falls(whole):
    quality, clock = whole
    summary = clock.summary()
    assert summary["measured"]
    assert summary["samples"] == 4 * 48
    table = summary["table"]
    assert [(each["epoch"], each["size"]) for each in table] == [(1, 32), (2, 32), (3, 48), (4, 64), (4, 64)]
    assert [each["crop"] for each in table] == ["square"] * 3 + ["rectangle", "square"]
    assert table[3]["train_loss"] < table[0]["train_loss"]
    hours = [each["hours"] for each in table]
    assert hours == sorted(hours)
    assert hours[3] * 3600 == pytest.approx(summary["seconds"], rel=0.5)
    assert quality["top5"] == 1.0  # there are 3 classes
    assert 0 <= quality["accuracy"] <= 1
    assert clock.watched_samples


def test_the_goal_is_reached_at_the_first_epoch_above_it_and_then_no_end_is_a_miss(photos):
    trial = trial_of(photos, goal="0.9")
    lines = [{"epoch": number, "hours": number / 2, "top5": top5} for number, top5 in enumerate([0.85, 0.9, 0.88], 1)]
    assert first_reached(lines, trial) == lines[1]
    assert first_reached(lines[:1], trial) is None
    assert first_reached(lines, trial_of(photos, goal="0")) is None
    trial = trial_of(photos, goal="0.9")
    below = {"top5": 0.88, "accuracy": 0.6}
    missed = judged(Measurement(status="ok", quality=below, reason="odd images"), IMAGENET.suite, trial)
    assert (missed.status, missed.reason) == ("goal_missed", "top5 0.8800, and the goal is 0.9; odd images")
    assert missed.quality["success_rate"] == 0
    passed = judged(Measurement(status="ok", quality={**below, "success_rate": 1.0}), IMAGENET.suite, trial)
    assert (passed.status, passed.quality["success_rate"]) == ("ok", 1)
    no_goal = trial_of(photos, goal="0")
    assert judged(Measurement(status="ok", quality=below), IMAGENET.suite, no_goal).status == "ok"


@pytest.mark.parametrize("rectangles", [False, True])
def test_the_processes_share_every_image_once(photos, rectangles):
    """Also where the last step is uneven: 43 images in steps of 2 x 8 leave 11, of which process 0 has 5."""
    files = [files_of(photos, rank, train_images="43", workers="0") for rank in (0, 1)]
    phase = schedule_of(PHASES).phases[-1]
    validated = [file.valid(phase, 4, rectangles=rectangles).specs for file in files]
    assert [len(each) for each in validated] == [len(validated[0])] * 2, "steps have to meet"
    assert all(a.width == b.width and a.height == b.height for a, b in zip(*validated, strict=True))
    assert sorted(index for specs in validated for spec in specs for index in spec.indices) == list(range(18))
    trained = [file.train(1, phase, 8) for file in files]
    indices = [index for each in trained for spec in each.batches.specs for index in spec.indices]
    assert len(indices) == len(set(indices)) == 43
    steps = list(zip(*(each.batches.specs for each in trained), strict=True))
    assert [tuple(len(spec.indices) for spec in step) for step in steps] == [(8, 8), (8, 8), (5, 6)]
    weights = [each.weights[-1] for each in trained]
    assert weights == [[pytest.approx(10 / 11)], [pytest.approx(12 / 11)]]
    assert trained[0].images_per_step == 16
    assert files[0].train(1, phase, 64).images_per_step == 42, "the rate is for the step that is taken"


def trained_by(photos, rank, batch, **settings):
    phase = schedule_of(PHASES).phases[-1]
    return files_of(photos, rank, train_images="43", **settings).train(1, phase, batch)


def test_a_step_of_several_batches_counts_every_image_alike(photos):
    """43 images of two processes: 32 in the first step, 11 in the second."""
    steps = [trained_by(photos, rank, 8, global_batch="32") for rank in (0, 1)]
    assert [len(each) for each in steps] == [2, 2]
    assert [each.images_per_step for each in steps] == [32, 32]
    assert [each.weights[0] for each in steps] == [[0.5, 0.5]] * 2
    assert [each.weights[1] for each in steps] == [[pytest.approx(10 / 11)], [pytest.approx(12 / 11)]]
    assert [len(parts) for parts in steps[0]] == [2, 1]
    alone = trained_by(photos, 0, 8)
    assert (len(alone), alone.images_per_step) == (3, 16)


@pytest.mark.parametrize(
    ("batch", "parts"), [(7, [7, 7, 2]), (5, [5, 5, 4, 2]), (16, [16]), (1, [1] * 16), (3, [3, 3, 3, 3, 2, 2])]
)
def test_a_step_has_exactly_global_batch_images(photos, batch, parts):
    training = trained_by(photos, 0, batch, global_batch="32")
    assert training.images_per_step == 32
    sizes = [len(spec.indices) for spec in training.batches.specs]
    assert sizes[: len(parts)] == parts
    assert training.weights[0] == pytest.approx([size / 16 for size in parts])
    assert sum(sizes) == 16 + 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"global_batch": 33}, "multiple"),
        ({"global_batch": 8}, "smaller --batch"),
        ({"global_batch": 36}, ""),
        ({"global_batch": 0}, ""),
    ],
)
def test_a_step_that_cannot_be_shared_is_refused(photos, settings, words):
    case = replace(trial_of(photos, batch=8).case, processes=2)
    said = IMAGENET.suite.refuse(replace(case, params={**case.params, **settings}))
    assert words in said
    assert bool(said) == bool(words)


def test_lars_learns_with_steps_of_several_batches(photos):
    quality, clock = run(
        trial_of(photos, optimizer="lars", global_batch="32", lr="4", batch=8, phases=ONE.replace("[0,1]", "[0,4]"))
    )
    assert clock.complete
    table = clock.summary()["table"]
    assert table[3]["train_loss"] < table[0]["train_loss"]
    assert quality["accuracy"] > 0.34, "of 3 classes"


def files_of(root, rank, **settings):
    trial = trial_of(root, **settings)
    return Source(replace(trial, rank=rank, case=replace(trial.case, processes=2)))


@pytest.mark.e2e
def test_two_processes_train_and_validate_as_one(photos, whole, cli_process, tmp_path, known_peaks):
    options = ("--models", "small", "--precision", MIXED, "--data", photos, "--full", "--batch", 8, "--seed", 1)
    row = rows_of_run(cli_process, tmp_path, "imagenet", *options, "--processes", 2, **SMALL).iloc[0]
    assert row["samples"] == 4 * 48
    heads, *lines = json.loads(row["table"])
    one = whole[1].summary()["table"]
    assert heads == list(one[0])
    assert [line[0] for line in lines] == [line["epoch"] for line in one]
    losses = [line[heads.index("train_loss")] for line in lines]
    assert losses[-1] < losses[0]
    assert row["accuracy"] > 0.5, "of 3 classes"
    assert not list(tmp_path.glob("*.checkpoints/*"))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "resnet18", "phases": ONE},
        pytest.param({"name": "bf16"}, marks=pytest.mark.e2e),
        pytest.param({"workers": "1"}, marks=pytest.mark.e2e),
        pytest.param({"memory_format": "contiguous"}, marks=pytest.mark.slow),
    ],
)
def test_it_trains_in_other_ways_too(photos, settings):
    quality, clock = run(trial_of(photos, **settings))
    assert clock.complete
    assert quality["loss"] < 10


def test_a_sampled_run_takes_epochs_of_each_phase_of_photos_or_synthetic_images(photos):
    quality, clock = run(trial_of(photos, mode="quick"))
    summary = clock.summary()
    assert quality == {}
    assert not summary["measured"]
    assert {lap.epoch for lap in summary["laps"]} == {0, 2, 3}
    assert summary["run_samples"] == 4 * 48
    assert [each["epochs"] for each in summary["table"]] == ["0-2", "2-3", "3-4"]
    assert sum(each["hours"] for each in summary["table"]) * 3600 == pytest.approx(summary["seconds"])
    _, clock = run(trial_of(None, mode="quick", train_images="32", valid_images="16"))
    sizes = {lap.epoch for lap in clock.summary()["laps"]}
    assert sizes == {0, 2, 3}


def test_batched_rectangles_predict_as_one_image_at_a_time_does(photos):
    trial = trial_of(photos)
    net = network(trial)
    model = net.model.eval()
    source = Source(trial)
    phase = schedule_of(PHASES).phases[2]
    found = {}
    for batch in (8, 1):
        validation = source.valid(phase, batch, rectangles=True)
        with torch.inference_mode():
            for spec, (x, _) in zip(validation.specs, validation, strict=True):
                assert x.shape[2:] == (spec.height, spec.width)
                for index, logits in zip(spec.indices, model(net.prepare(x)), strict=True):
                    found.setdefault(index, []).append(logits)
    assert len(found) == 18
    assert len({spec.width for spec in validation.specs}) > 1
    for together, alone in found.values():
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
        assert together.argmax() == alone.argmax()


@pytest.mark.parametrize(
    ("mode", "memory", "again"), [("sampled", 2**40, True), ("sampled", 2**10, False), ("full", 2**40, False)]
)
def test_a_sample_reads_the_files_of_its_first_epoch_again_if_they_stay_in_memory(
    photos, monkeypatch, mode, memory, again
):
    monkeypatch.setattr(data, "memory_for_files", lambda: memory)
    source = Source(trial_of(photos, mode=mode))
    phase = schedule_of(PHASES).phases[0]
    read = []
    make = source.feed.loader.dataset.__class__.__getitem__
    monkeypatch.setattr(
        source.feed.loader.dataset.__class__,
        "__getitem__",
        lambda self, spec: (read.append(spec.indices), make(self, spec))[1],
    )
    epochs = []
    for epoch in (0, 1):
        read.clear()
        for number, _ in enumerate(source.train(epoch, phase, 8)):
            if number == 1:  # as the clock ends a sample
                break
        epochs.append({index for indices in read for index in indices})
    assert (epochs[0] == epochs[1]) == again
    assert any("memory" in remark for remark in source.remarks()) == (memory == 2**10)


def test_the_rate_weights_and_order_of_a_run(photos):
    trial = trial_of(photos)
    phase = schedule_of(PHASES).phases[0]
    first, again = (Source(trial).train(1, phase, 8) for _ in range(2))
    for ((x, y),), ((x2, y2),) in zip(first, again, strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
    assert first.batches.specs != Source(trial).train(2, phase, 8).batches.specs
    net = network(trial_of(photos))
    decayed, free = net.optimizer.param_groups
    assert decayed["weight_decay"] == 1e-4
    assert free["weight_decay"] == 0
    assert all(weight.ndim > 1 for weight in decayed["params"])
    assert all(not block.bn2.weight.detach().any() for block in net.model.layer1)
    schedule = schedule_of(PHASES)
    assert rate(schedule, 1, 32, 0.0) == pytest.approx(0.1)
    assert rate(schedule, 1, 32, 3.0) == pytest.approx(3)
    assert rate(schedule, 0, 4096, 3.0) == pytest.approx(1.5)


def test_bad_training_files_are_skipped_and_named(tmp_path):
    dice = random.Random(2)
    for label, name in enumerate(("red", "blue")):
        for number in range(8):
            photo(tmp_path / ("train" if number < 6 else "val") / name / f"{number}.jpg", label, dice)
    (tmp_path / "train" / "red" / "0.jpg").write_bytes(b"no image")
    grey = Image.open(tmp_path / "train" / "blue" / "1.jpg").convert("L")
    grey.save(tmp_path / "train" / "blue" / "1.jpg")
    quality, clock = run(trial_of(tmp_path, batch=4, phases=ONE))
    assert quality
    text = clock.summary()["reason"]
    assert lacking(text, "skipped 1 image", "train/red/0.jpg") == []
    assert lacking(text, "RGB", "train/blue/1.jpg") == []
    whole = (tmp_path / "val" / "red" / "7.jpg").read_bytes()
    (tmp_path / "val" / "red" / "7.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cannot use 1 image: val/red/7.jpg \(truncated\)"):
        run(trial_of(tmp_path, batch=4, phases=ONE))
    for file in (tmp_path / "train").rglob("*.jpg"):
        file.write_bytes(b"no image")
    with pytest.raises(UserError, match="nothing to train on: cannot use 12 images: "):
        run(trial_of(tmp_path, batch=4, phases=ONE))


def test_copies_are_read_and_asked_for(photos, tmp_path, monkeypatch):
    # Processes resize them in test_images.py.
    monkeypatch.setattr(images, "ProcessPoolExecutor", lambda count, mp_context: ThreadPoolExecutor(count))
    trial = trial_of(photos, copies="true")
    check = IMAGENET.suite.check
    with pytest.raises(UserError, match=r"prepare imagenet --sizes 40,64 --data"):
        check(trial.case.params, photos, trial.case.data)
    tree = images.read_tree(photos)
    for size in (40, 64):
        images.prepare(tree, size, datasets.cache_folder(), 1)
    check(trial.case.params, photos, trial.case.data)
    next(Path(images.copies_folder(datasets.cache_folder(), tree.name, 40)).glob("train/*/*.jpg")).unlink()
    quality, clock = run(trial)
    assert quality
    assert "training skipped 1 image" in clock.summary()["reason"]


class Killed(BaseException):
    pass


class KillingClock(Clock):
    """Dies at a step of an epoch."""

    def steps(self, loader, phase, samples=None, **options):
        for number, batch in enumerate(super().steps(loader, phase, samples, **options)):
            if phase == "train" and (self._run.epoch, number) == self.kill_at:
                raise Killed
            yield batch


@pytest.mark.parametrize(
    "kill_at", [(2, 3), *(pytest.param(where, marks=pytest.mark.slow) for where in ((0, 1), (3, 0)))]
)
def test_a_killed_run_goes_on_and_ends_alike(photos, whole, tmp_path, kill_at):
    trial = trial_of(photos, folder=tmp_path / "kept")
    clock = KillingClock(brief("full"))
    clock.kill_at = kill_at
    with pytest.raises(Killed):
        run(trial, clock)
    kept = json.loads(next((tmp_path / "kept").glob("*.json")).read_text())
    quality, resumed = run(trial)
    expected, uninterrupted = whole
    assert quality == pytest.approx(expected, rel=1e-3)
    summary = resumed.summary()
    assert summary["resumed"].startswith(f"at epoch {kill_at[0]}, ")
    assert summary["samples"] == 4 * 48
    assert summary["measured"]
    assert [each["epoch"] for each in summary["table"]] == [1, 2, 3, 4, 4]
    assert summary["seconds"] >= kept["elapsed"]
    losses = [[each["train_loss"] for each in c.summary()["table"]] for c in (resumed, uninterrupted)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert not (tmp_path / "kept").exists()


def test_a_broken_checkpoint_is_named_and_one_that_cannot_be_saved_ends_nothing(photos, tmp_path):
    assert "no checkpoint could be saved (" in run(trial_of(photos, folder=photos / "train/red/0.jpg"))[1].remarks[0]
    trial = trial_of(photos, folder=tmp_path)
    clock = KillingClock(brief("full"))
    clock.kill_at = (1, 1)
    with pytest.raises(Killed):
        run(trial, clock)
    next(tmp_path.glob("*.pt")).write_bytes(b"torn")
    with pytest.raises(UserError, match="remove it to start anew"):
        run(trial)


@pytest.mark.parametrize("network_of", [partial(networks.network_of, classes=1000), imagenet_network])
@pytest.mark.parametrize("model", ["resnet50", "alexnet-bn"])
def test_the_last_layer_begins_with_a_deviation_of_a_hundredth(network_of, model):
    *_, last = (layer for layer in network_of(model).modules() if isinstance(layer, torch.nn.Linear))
    assert float(last.weight.detach().std()) == pytest.approx(0.01, rel=0.01)
    assert last.out_features == 1000


def test_a_quick_run_suits_the_machine_and_the_data(photos, cli):
    asked = ["run", "--suite", "imagenet", "--data", photos, "--quick", "--dry-run", "--device", "cpu"]
    planned = cli(*asked)
    assert lacking(planned.stderr, "phases=tiny:", "copies=false:") == []
    assert planned.returncode == 0
    assert "cannot run" not in planned.stdout
    assert "resized copies" in cli(*asked, "--set", "copies=true").stderr


def test_a_batch_that_the_tree_or_a_cpu_cannot_take_is_refused(photos):
    trial = trial_of(photos, mode="quick")
    with pytest.raises(UserError, match="batch 512 is too large: a step of all processes"):
        run(replace(trial, case=replace(trial.case, batch_policy="max", batch_size=512)))
    case = small_trial(IMAGENET, "resnet50", "fp32", {"copies": "false"}, batch=512).case
    assert IMAGENET.suite.recipe_batch("resnet50", case.params, "fp32") == 512
    assert "--set phases=tiny" in IMAGENET.suite.refuse(case)


def test_tensorboard_events_have_the_tags_of_the_original(whole, events):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = EventAccumulator(str(next(events.iterdir())))
    written.Reload()
    assert {"first", "losses/test_1", "losses/test_5", "times/eval_sec"} <= set(written.Tags()["scalars"])
    scores = [100 * line["top1"] for line in whole[1].summary()["table"][:4]]
    assert [event.value for event in written.Scalars("losses/test_1")] == pytest.approx(scores)


def test_loader_processes_share_the_cpus_that_there_are(monkeypatch):
    monkeypatch.setattr(data, "cpu_count", lambda: 32)

    def workers(wanted, **case):
        trial = trial_of(None, workers=wanted)
        return workers_of(replace(trial, case=replace(trial.case, **case)))

    assert [workers("-1"), workers("-1", processes=8), workers("-1", processes=8, nodes=2)] == [31, 3, 7]
    assert [workers("0"), workers("5"), workers("-1", processes=64)] == [0, 5, 1]


def test_rectangles_are_validated_without_a_race_of_algorithms():
    torch.backends.cudnn.benchmark = True
    with no_algorithm_search():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
