"""The suite tricks: each trick is one parameter, early stopping counts its own epochs, two processes train as one."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from answers import answered, section, table
from brief import brief
from facts import lacking
from gpubench.suites.tricks import training
from rows import rows
from small_trials import MIXED

from gpubench.hardware.environment import Device
from gpubench.rows.read import load
from gpubench.runner.cases import cases_of, recipes_of
from gpubench.runner.options import Options
from gpubench.suite import files
from gpubench.suite.trial import Trial
from gpubench.training import process_group
from gpubench.training.clock.clock import Clock

TRICKS = files.find("tricks")
CPU = Device("cpu", "cpu", "Chip", 10**10, "", "", "cc", {"tf32": "a CPU has no TF32"})
OLD_CPU = Device("cpu", "cpu", "Chip", 10**10, "", "", "cc", {"bf16": "emulated"})
SWITCHES = ("loading", "ddp", "stopping", "sharded", "evaluation")
SMALL = ("epochs=1", "width=2", "train_images=64", "valid_images=33", "test_images=17", "patience=1")


def cases(mode="full", device=CPU, **settings):
    options = Options(suites=("tricks",), device="cpu", mode=mode, settings=settings)
    return {case.model: case for case in cases_of(recipes_of(options, [TRICKS]), options, [device])}


def test_each_trick_alone_sets_one_thing_or_is_refused_with_its_reason():
    found = cases()
    on = {model: {name for name in SWITCHES if case.params[name]} for model, case in found.items()}
    assert on["plain"] == on["mixed"] == set()
    assert all(on[name] == {name} for name in SWITCHES)
    assert on["with-stopping"] == {"loading", "ddp", "stopping"}
    assert on["all-six"] == {"loading", "sharded", "stopping", "evaluation"}  # FSDP in place of DDP
    precisions = {model: case.precision for model, case in found.items()}
    assert precisions["plain"] == precisions["ddp"] == precisions["with-ddp"] == "fp32"
    assert precisions["mixed"] == precisions["all-six"] == "bf16"
    assert {model: case.processes for model, case in found.items() if case.processes > 1}.keys() == {
        "ddp", "sharded", "with-ddp", "with-mixed", "with-stopping", "with-sharded", "all-six",
    }  # fmt: skip
    assert cases(device=OLD_CPU)["mixed"].refusal == "emulated"
    assert cases(device=OLD_CPU)["plain"].refusal == ""
    assert "--full" in cases(mode="sampled")["stopping"].refusal
    assert "always dynamic" in cases(loss_scale="128")["mixed"].refusal


class Scripted:
    """A pipeline whose validation losses are a list."""

    def __init__(self, losses, **params):
        self.losses, self.params, self.ranks = iter(losses), SimpleNamespace(**params), 1

    def steps(self, clock, phase):
        return clock.steps([[0]] * 2, ("train", "valid", "test")[phase])

    def sums(self):
        return {"loss": next(self.losses), "accuracy": 0.5}

    def train_step(self, batch, together=True):
        pass

    evaluate = train_step


@pytest.mark.parametrize(("stopping", "epochs"), [(True, 4), (False, 6)])
def test_early_stopping_counts_the_epochs_that_ran(stopping, epochs):
    clock = Clock(brief("full"), watch=lambda: [nullcontext()])
    pipeline = Scripted([3, 2, 2.5, 2, 1, 1, 9], stopping=stopping, patience=2, epochs=6)
    assert training.run_epochs(pipeline, clock) == {"loss": 1 if stopping else 9, "accuracy": 0.5}
    summary = clock.summary()
    assert summary["epochs"] == epochs
    assert summary["measured"]


@pytest.mark.parametrize(("samples", "batch", "ranks"), [(20, 8, 1), (20, 8, 2), (33, 16, 2)])
def test_the_processes_share_every_step_and_an_epoch_is_the_dataset(samples, batch, ranks):
    shares = [list(training.Batches(samples, batch, 7, rank, ranks, False)) for rank in range(ranks)]
    assert sorted(i for share in shares for step in share for i in step) == list(range(samples))
    assert len({len(share) for share in shares}) == 1
    shuffled = [list(training.Batches(samples, batch, 7, rank, ranks, True)) for rank in range(ranks)]
    together = [sorted(i for share in shuffled for i in share[step]) for step in range(len(shuffled[0]))]
    alone = training.Batches(samples, batch, 7, 0, 1, True)
    assert together == [sorted(step) for step in list(alone)[: len(together)]]


def evaluating(network, ranks):
    """A process of a pipeline that only evaluates."""
    pipeline = object.__new__(training.Pipeline)
    pipeline.params = SimpleNamespace(evaluation=True, loading=False)
    pipeline.device, pipeline.model = torch.device("cpu"), network
    pipeline.trial = SimpleNamespace(case=SimpleNamespace(processes=ranks))
    pipeline.batch_sums, pipeline.images = [], 0
    return pipeline


def test_two_processes_evaluate_as_one(monkeypatch):
    """Uneven shares: of 7 images in batches of 4, the first process has 2 and 2, the other one 2 and 1."""
    torch.manual_seed(1)
    network, images, labels = torch.nn.Linear(6, 10), torch.randn(7, 6), torch.randint(10, (7,))
    alone = evaluating(network, 1)
    alone.evaluate([images, labels])
    shares = []

    def gather(numbers):
        shares.append(numbers)
        return shares

    monkeypatch.setattr(process_group, "_gather", gather)
    for rank in (1, 0):
        process = evaluating(network, 2)
        for step in training.Batches(7, 4, 1, rank, 2, False):
            process.evaluate([images[step], labels[step]])
        found = process.sums()
    assert [share[-1] for share in shares] == [3, 4]
    assert found == pytest.approx(alone.sums())
    assert (process.batch_sums, process.images) == ([], 0)


@pytest.mark.slow
def test_ddp_and_fsdp_train_on_two_processes(cli_process, tmp_path):
    pytest.importorskip("lightning")
    processes = {"plain": 1, "ddp": 2, "sharded": 2} | ({"all-six": 2} if MIXED == "bf16" else {})
    settings = [word for setting in SMALL for word in ("--set", setting)]
    asked = ["--suite", "tricks", "--device", "cpu", "--synthetic", "--full", "--batch", "32"]
    done = cli_process("run", *asked, "--models", ",".join(processes), *settings, "--out", "a.csv")
    assert done.returncode == 0, done.stderr
    frame = load([tmp_path / "a.csv"]).frame.set_index("model")
    assert set(frame["status"]) == {"ok"}
    assert frame["processes"].to_dict() == processes
    assert set(frame["epochs"]) == {1}
    assert set(frame["samples"]) == {64}


def trick(name, seconds, width=64, **changes):
    params = " ".join(f"{switch}={str(switch == name).lower()}" for switch in SWITCHES) + f" width={width}"
    usual = {"suite": "tricks", "studies": "ablation", "model": name, "params": params,
             "peak_memory_bytes": 10**9, "accuracy": 0.9, "epochs": 30, "loader_wait": 0.1,
             "valid_seconds": 1.0, "resident_samples_per_second": 700.0, "device": "cpu", "cpu_count": 2,
             "data": "cifar10"}  # fmt: skip
    return rows(seconds, **(usual | changes))


def test_compare_says_of_each_trick_whether_it_helped_and_why_not(tmp_path):
    steady = [100, 101, 102, 99, 98, 100.5]
    found = [
        *trick("plain", steady),
        *trick("loading", [s / 2 for s in steady]),
        *trick("ddp", [s * 2 for s in steady], processes=2, threads=1, samples_per_second=250.0),
        *trick("mixed", [s * 1.5 for s in steady], precision="bf16", resident_samples_per_second=450.0),
        *trick("sharded", [s * 3 for s in steady], processes=2, peak_memory_bytes=6 * 10**8),
        *trick("evaluation", [None], status="out_of_memory", reason="no such thing"),
    ]
    answer = answered(tmp_path, found)
    assert [each.study for each in answer.sections] == ["ablation", "roofline"]
    ablation = section(answer, "ablation")
    said = {line["change"]: line for line in table(ablation, "changes")}
    assert said["loading"].get("notes", "") == ""
    assert said["loading"]["speedup"] == "2.00"
    assert said["loading"]["95% of speedup"]
    assert lacking(said["ddp"]["notes"], 250, "(plain: 500)", "processes=2", "threads=1") == []
    assert lacking(said["mixed"]["notes"], 450, "(plain: 700)", "resident batch", "bf16") == []
    assert (said["evaluation"]["verdict"], said["evaluation"]["notes"]) == ("out of memory", "no such thing")
    assert lacking(ablation.results[0].said, "loading", "2.00", "plain", "RTX 2080 Ti") == []
    (speedups,) = ablation.charts
    assert [group.name for group in speedups.groups] == ["loading", "mixed", "ddp", "sharded"], "best at the top"


@pytest.mark.parametrize(("model", "workers", "expected"), [
    ("plain", "0", 0), ("loading", "0", 6), ("loading", "3", 3), ("with-ddp", "0", 3), ("ddp", "0", 0),
])  # fmt: skip
def test_loader_processes_are_as_many_as_there_are_cpus(model, workers, expected, monkeypatch):
    monkeypatch.setattr(training, "cpu_count", lambda: 6)
    assert training.workers_of(Trial(cases(workers=workers)[model], 0, 1)) == expected


OTHER_CARD = {"card": "NVIDIA GeForce GTX 1080 Ti", "device_hash": "bbbb", "session": "s2"}


def changes(answer):
    """What every change is worth: (change, precision, card, gain)."""
    return [
        (each.subject, each.origin.partition(",")[0], each.place, round(each.value, 2))
        for each in answer.results
        if each.kind == "ablation"
    ]


def test_tricks_are_compared_between_cards_too(tmp_path):
    steady = [100, 101, 102, 99, 98, 100.5]
    slow = [2 * seconds for seconds in steady]
    found = [*trick("plain", steady), *trick("loading", [s / 2 for s in steady])]
    found += [*trick("plain", slow, **OTHER_CARD), *trick("loading", [s / 4 for s in slow], **OTHER_CARD)]
    answer = answered(tmp_path, found)
    assert {(each.what, round(each.value, 1)) for each in answer.results if each.kind == "card"} == {
        ("CPU RTX 2080 Ti / CPU GTX 1080 Ti", 1.4)
    }
    assert changes(answer) == [("loading", "fp32", "CPU GTX 1080 Ti", 4.0), ("loading", "fp32", "CPU RTX 2080 Ti", 2.0)]


def test_a_change_is_compared_with_the_plain_pipeline_of_its_precision_and_recipe(tmp_path):
    bf16 = {"precision": "bf16"}
    found = [*trick("plain", [100.0]), *trick("loading", [80.0])]
    found += [*trick("plain", [50.0], **bf16), *trick("loading", [25.0], **bf16), *trick("mixed", [40.0], **bf16)]
    card = "CPU RTX 2080 Ti"
    assert changes(answered(tmp_path, found)) == [
        ("loading", "bf16", card, 2.0), ("loading", "fp32", card, 1.25), ("mixed", "bf16", card, 1.25),
    ]  # fmt: skip
    found = [each for width in (32, 64) for each in trick("plain", [width], width) + trick("loading", [20.0], width)]
    for by in (None, "width"):  # both widths in one session
        answer = answered(tmp_path, found, by=by)
        assert sorted(gain for *_, gain in changes(answer)) == [1.6, 3.2]
    cards = [line["card"] for line in table(section(answer, "pairs"), "cases")]
    assert cards == [f"{card}, width={width}" for width in (32, 64)] * 2
    found += [each for width in (32, 64) for each in trick("plain", [16.0], width, **bf16)]
    answer = answered(tmp_path, found, by="width,precision")
    assert sorted(each.value for each in answer.results if each.kind == "precision") == pytest.approx([2.0, 4.0])
    assert {line.get("width") for line in table(section(answer, "pairs"), "speedups")} == {"32", "64", ""}
    own = {"session": "", "source": "somebody", "mode": "published", "studies": "ablation", "suite": "mine"}
    found = [
        *rows([100.0], model="plain", params="epochs=1", **own), *rows([80.0], model="a", params="epochs=1", **own),
        *rows([1000.0], model="plain", params="epochs=10", **own), *rows([500.0], model="a", params="epochs=10", **own),
    ]  # fmt: skip
    answer = answered(tmp_path, found)
    assert (sorted(gain for *_, gain in changes(answer)), "nan%" in str(answer.sections)) == ([1.25, 2.0], False)
    answer = answered(tmp_path, [*trick("plain", [None], status="failed"), *trick("loading", [50.0, 51.0])])
    assert [line["seconds"] for line in table(section(answer, "pairs"), "cases")] == ["50.5", "failed"]
