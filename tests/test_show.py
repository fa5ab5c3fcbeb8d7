"""`gpubench show`: networks and schedules are those that train, blocks are found, all fits a screen and a picture."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pytest
from facts import lacking
from gpubench.suites.cifar10 import training as cifar10
from gpubench.suites.largebatch import training as largebatch
from gpubench.suites.wordlm import VOCABULARY
from inside import run_inside
from matplotlib.text import Text
from PIL import Image

from gpubench.cli.show import network_of
from gpubench.show.network import blocks_of, lines
from gpubench.show.network_chart import figure_of
from gpubench.show.style import themed
from gpubench.suite import files

ADDING = (Path(__file__).parents[1] / "docs/adding-a-suite.md").read_text()
MINE, BLUEPRINT = (
    re.search(rf"```python title={title}\n(.*?)```", ADDING, re.DOTALL)[1] for title in (r"mine\.py", "blueprint")
)


@pytest.fixture(autouse=True)
def inside(monkeypatch):
    monkeypatch.setattr("gpubench.runner.process.run_child", run_inside)


@cache
def network(suite, model="", processes=1, **settings):
    return network_of(suite, model, settings, processes)


needs_llm = pytest.mark.skipif(find_spec("peft") is None, reason="needs the extra llm: pip install -e '.[llm]'")
ALL = [
    ("cifar10", "baseline", {}),
    ("cifar10", "speedrun", {}),
    pytest.param("finetune", "llama-6m", {"method": "full", "context": "64"}, marks=needs_llm),
    pytest.param("finetune", "llama-6m", {"method": "lora", "context": "64"}, marks=needs_llm),
    ("gpt", "gpt2-6m", {}),
    ("imagenet", "resnet50", {}),
    ("largebatch", "small", {}),
    ("reference", "bert-base", {}),
    ("resnet", "resnet18", {"recipe": "article"}),
    ("scaling", "alexnet-bn", {}),
    ("tricks", "plain", {}),
    ("wordlm", "transformer", {}),
]


def test_every_suite_has_a_network_and_a_resnet_is_folded_to_its_blocks():
    assert {getattr(entry, "values", entry)[0] for entry in ALL} == set(files.built_in_names())
    assert all(files.find(name).suite.blueprint for name in files.built_in_names())
    blocks = [
        (f"{'+ ' * block.residual}{block.label}", block.shortcut, block.times, block.shape)
        for block in blocks_of(network("imagenet", "resnet50").layers)
    ]
    assert blocks[0] == ("conv 7x7 /2, norm, ReLU, max pool", "", 1, (64, 32, 32))
    assert blocks[1] == ("+ conv 1x1, 3x3, 1x1", "conv 1x1", 1, (256, 32, 32))
    assert blocks[2] == ("+ conv 1x1, 3x3, 1x1", "", 2, (256, 32, 32))
    assert [times for *_, times, _ in blocks] == [1, 1, 2, 1, 3, 1, 5, 1, 2, 1, 1]
    first = [blocks_of(network("cifar10", rung).layers)[0].label for rung in ("baseline", "no-duplicates")]
    assert first == ["conv 3x3, norm, ReLU", "conv 3x3"], "norm and ReLU of the first block follow"
    assert blocks[-2:] == [("average pool", "", 1, (2048, 1, 1)), ("linear", "", 1, (1000,))]


@pytest.mark.parametrize(("suite", "model", "settings"), ALL)
def test_it_fits_a_screen_and_a_picture(suite, model, settings):
    found = network(suite, model, **settings)
    said = list(lines(found, every=False))
    assert len(said) <= 40
    assert max(map(len, [*said, *lines(found, every=True)])) <= 79
    assert sum(layer.weights for layer in found.layers) == found.weights
    if suite != "finetune":  # whose attention is no module, and which computes activations again
        assert sum(layer.flops for layer in found.layers) == pytest.approx(found.flops), "of each layer alone"
    with matplotlib.rc_context(themed("light")):
        figure = figure_of(found)
        assert tuple(figure.get_size_inches()) == (8.0, 4.5)
        texts = [each for each in figure.findobj(Text) if each.get_text() and each.get_visible()]
        assert min(each.get_fontsize() for each in texts) * 150 / 72 >= 20
        edge = figure.bbox
        assert all(
            edge.contains(*box.min) and edge.contains(*box.max) for box in (t.get_window_extent() for t in texts)
        )


def test_frozen_and_shared_weights_are_counted_as_such():
    article = network("resnet", "resnet18", recipe="article")
    assert article.trained < article.weights / 10
    assert "11.2 million of them frozen" in article.headline
    tied, apart = (network("wordlm", "lstm", tied=tied, bptt="2") for tied in ("true", "false"))
    assert apart.weights - tied.weights == 200 * VOCABULARY


def test_the_schedule_is_the_one_that_steps(monkeypatch):
    from test_cifar10 import run_small

    rates = []
    step = cifar10.Run.step

    def watched(self, batch):
        loss = step(self, batch)
        groups = self.optimizers[0].param_groups
        rates.append((self.epochs * self.steps / self.total_steps, groups[0]["lr"] / groups[0]["factor"]))
        return loss

    monkeypatch.setattr(cifar10.Run, "step", watched)
    run_small("gpu-preprocessing", train_images="8", epochs="2", batch=4)
    shown = dict(network("cifar10", "gpu-preprocessing", epochs="2").schedule["learning rate"])
    steps = [(epoch, rate) for epoch, rate in rates if epoch <= 2]
    assert len(steps) >= 4
    for epoch, rate in steps:
        assert shown[epoch] == pytest.approx(rate)


def test_one_cycle_is_the_one_that_fastai_steps(monkeypatch):
    from fastai.callback.schedule import ParamScheduler
    from test_resnet import run_small

    kept = []
    begin = ParamScheduler.before_fit
    monkeypatch.setattr(ParamScheduler, "before_fit", lambda self: (begin(self), kept.append(self.hps)))
    run_small(monkeypatch, pipeline="device", epochs="2", train_images="16")
    hyper = kept[0]
    schedule = network("resnet", "resnet18", epochs="2").schedule
    steps = len(hyper["lr"])
    for name, own in (("learning rate", "lr"), ("momentum", "mom")):
        shown = dict(schedule[name])
        assert [shown[2 * step / steps] for step in range(steps)] == pytest.approx([float(each) for each in hyper[own]])


def test_processes_and_batches_move_the_rate_as_in_training():
    alone, eight = network("imagenet", "resnet50").schedule, network("imagenet", "resnet18", 8).schedule
    assert dict(alone["learning rate"])[7] == pytest.approx(2.0 / 8)
    assert dict(eight["learning rate"])[7] == pytest.approx(2.0)
    assert [dict(eight["images in a step"])[epoch] for epoch in (0, 13, 28)] == [4096, 1792, 1024]
    found = dict(network("largebatch", global_batch="2048", optimizer="sgd").schedule["learning rate"])
    assert max(found.values()) == pytest.approx(largebatch.peak_rate("sgd", 0.0, 2048)) == pytest.approx(0.4)


def test_a_suite_in_one_file_says_what_it_trains_or_is_told_so(tmp_path, cli):
    (tmp_path / "mine.py").write_text(MINE)
    silent = cli("show", "mine.py")
    assert (silent.returncode, lacking(silent.stderr, "mine", "blueprint", "docs/adding-a-suite.md")) == (2, [])
    code = MINE.replace("import Param, Suite", "import Blueprint, Param, Suite")
    (tmp_path / "mine.py").write_text(code.replace("\nSUITE = ", f"\n{BLUEPRINT}\n\nSUITE = ").replace(
        "Suite(train,", "Suite(train, blueprint=blueprint,"))  # fmt: skip
    done = cli("show", "mine.py", "linear", "--all", "--chart", "mine.png")
    assert done.returncode == 0, done.stderr
    assert "mine linear: 650 weights" in done.stdout
    assert lacking(done.stdout, "learning rate 0.1", "2 epochs") == []
    with Image.open(tmp_path / "mine.png") as picture:
        assert picture.size == (1200, 675)


def test_what_cannot_be_shown_is_said_in_a_line(cli, tmp_path):
    (tmp_path / "none").write_text("")
    for line, is_built, *words in (
        ("scaling", True, "scaling", "allreduce", "resnet50", "alexnet-bn"),
        ("cifar10 resnet18", False, "cifar10", "baseline, no-duplicates"),
        ("tricks plain --chart a.gif", False, "--chart a.gif", ".png, .svg or .pdf"),
        ("tricks plain --chart none/a.png", True, "cannot be written"),
    ):
        done = cli("show", *line.split())
        assert (done.returncode, "building" in done.stderr, lacking(done.stderr, *words)) == (2, is_built, [])
    broken = MINE.replace("\nSUITE = ", "\ndef blueprint(trial):\n    return 1 / 0\n\n\nSUITE = ")
    (tmp_path / "mine.py").write_text(broken.replace("Suite(train,", "Suite(train, blueprint=blueprint,"))
    assert lacking(cli("show", "mine.py").stderr, "mine linear", "ZeroDivisionError: division by zero") == []
