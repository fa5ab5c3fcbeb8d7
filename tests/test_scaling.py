"""The suite scaling, and what compare makes of its rows: exact sums, T(N) and e(N)."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from answers import answered, section, table
from brief import brief
from gpubench.suites.scaling import training
from gpubench.suites.scaling.training import BUNDLES, Algorithm, Payload, buckets_of, calls_in_a_bundle, wrong_sums
from measured_rows import rows_of_run
from rows import row
from small_trials import MIXED, small_trial

from gpubench.rows.table import table_of
from gpubench.suite import files
from gpubench.training.clock.clock import Clock

SCALING = files.find("scaling")
COLUMNS = ["algorithm", "fusion_bytes", "what", "tensors", "bytes", "type", "seconds", "algbw", "busbw", "wrong"]


def allreduce(processes, algorithm, group):
    """A row with a table of messages, of which each byte takes 80 ns."""
    lines = [COLUMNS]
    for size in (1 << 10, 1 << 14, 1 << 18, 1 << 22):
        seconds = 8e-8 * size
        lines.append([algorithm, 0, "message", 1, size, "float32", seconds, size / seconds / 1e9, 0.1, 0])
    return row(
        suite="scaling", model="allreduce", processes=processes, nodes=1, params=f"group={group}",
        backend="gloo", interconnect="loopback", table=json.dumps(lines),
    )  # fmt: skip


def test_rate_and_efficiency_by_number_of_processes(tmp_path):
    table = json.dumps([["gradient_bytes", "gradient_type", "images_a_step"], [10**6, "float16", 50]])
    rates = {1: 100.0, 2: 190.0, 4: 360.0}
    rows = [
        row(suite="scaling", model="resnet50", processes=count, samples_per_second=rate, table=table)
        for count, rate in rates.items()
    ]
    ((title, points),) = efficiencies(tmp_path, rows).items()
    assert title.endswith(", batch 50 per process, gradients sent as float16")
    assert [point[:2] for point in points] == [(1, 1.0), (2, 0.95), (4, 0.9)]


def scaled(counts, factor=1.0, **changes):
    return [
        row(suite="scaling", model="resnet50", processes=n, samples_per_second=100.0 * factor * n, **changes)
        for n in counts
    ]


def efficiencies(tmp_path, rows):
    """By title of the curve: processes, efficiency and trials of what was measured."""
    sections = [each for each in answered(tmp_path, rows).sections if each.study == "scaling"]
    tables = [table for each in sections for table in each.tables]
    return {table.name: [(line[1], round(line[4], 6), line[6]) for line in table.lines] for table in tables}


def test_which_rows_are_one_curve(tmp_path):
    old = scaled([1, 2], factor=0.5, torch="2.9.0", session="s2")
    other = scaled([1, 2], factor=0.7, device_hash="bbbb", session="s3")
    found = efficiencies(tmp_path, scaled([1, 2]) + old + other)
    assert set(map(tuple, found.values())) == {((1, 1.0, 1), (2, 1.0, 1))}
    assert [sum(text in title for title in found) for text in ("device_hash=bbbb", "torch=2.9.0")] == [1, 1]
    cards = answered(tmp_path, [*scaled([1, 2]), *scaled([1, 2], card="NVIDIA A100", session="s4")]).results
    assert {result.place for result in cards if result.kind == "scaling"} == {"RTX 2080 Ti", "A100"}
    rows = [each for n in (1, 2, 4) for each in scaled([n], session=f"s{n}", device_hash=f"h{n}")]
    (found,) = efficiencies(tmp_path, rows).values()
    assert found == [(1, 1.0, 1), (2, 1.0, 1), (4, 1.0, 1)]


def test_what_may_mislead_about_a_curve(tmp_path):
    def result(*rows):
        (result,) = [result for result in answered(tmp_path, rows).results if result.kind == "scaling"]
        return result.differences, result.caveats, result.projected

    one, two = scaled([1], reason="read new files"), scaled([2], factor=1.2, marks="throttled", measured="projected")
    above = "efficiency above 100%: the sides may be unlike"
    assert result(*one, *two) == ((), (above, "1 of 2 runs throttled", "read new files"), True)
    unlike = {"session": "s2", "cpu": "Arm", "suite_digest": "d2", "batch_policy": "max"}
    expected = ("another card or session", "another cpu", "the timed code differs", "batch policies differ")
    assert result(*scaled([1]), *scaled([2], **unlike)) == (expected, (), False)


def with_batch(batch, accuracy, setting):
    params = f"epochs=8 global_batch={batch} optimizer=sgd {setting}"
    return row(suite="largebatch", studies="batch", params=params, accuracy=accuracy)


def test_recipes_are_lines_of_their_own_unless_the_rate_goes_with_the_batch(tmp_path):
    recipes = ((16, 0.6), (64, 0.9))
    rows = [with_batch(n, quality, f"width={width}") for width, quality in recipes for n in (512, 1024)]
    found = section(answered(tmp_path, rows), "batch")
    assert [(line["recipe"], line["batch"], line["accuracy"]) for line in table(found, "accuracy")] == [
        (f"width={width}", batch, f"{quality:.2%}") for width, quality in recipes for batch in ("512", "1,024")
    ]

    def lines(*points):
        rows = [with_batch(n, accuracy, f"lr={lr}") for n, lr, accuracy in points]
        accuracies = table(section(answered(tmp_path, rows), "batch"), "accuracy")
        return [(line["recipe"], line["batch"], line["lr"]) for line in accuracies]

    assert lines((512, 0.1, 0.6), (1024, 0.2, 0.5)) == [("accuracy", "512", "0.1"), ("accuracy", "1,024", "0.2")]
    found = lines((512, 0.1, 0.6), (512, 0.4, 0.7), (1024, 0.2, 0.5))
    assert [line[0] for line in found] == ["lr=0.1", "lr=0.4", "lr=0.2"], "at one batch they are what is compared"
    searched = answered(tmp_path, [row(batch_curve="[[8, 9.0], [16, 5.0]]")])
    assert "Batch 8 trains 1.80 times as fast as batch 16" in searched.headline


@pytest.mark.slow
def test_every_algorithms_sums_are_exact_in_two_groups_of_two(cli_process, tmp_path):
    options = ("--models", "allreduce", "--precision", "fp32", "--quick", "--processes", 4)
    sizes = {"group": 2, "largest": 4096, "fusion_mib": 16, "gradients": "true"}
    lines = table_of(rows_of_run(cli_process, tmp_path, "scaling", *options, **sizes)["table"][0])
    ways = {(line["algorithm"], line["fusion_bytes"]) for line in lines}
    assert ways == {(name, fusion) for name in ("flat", "hierarchical") for fusion in (0, 16 << 20)}
    assert {line["what"] for line in lines} == {"message", "resnet50", "alexnet-bn"}
    assert all(line["wrong"] == 0 for line in lines)
    assert all(line["busbw"] == pytest.approx(line["algbw"] * 1.5, rel=1e-4) for line in lines)


def test_a_wrong_sum_is_seen_and_sums_of_many_processes_are_exact_in_bf16():
    parts, payload = [], Payload("9 B", (9,))

    def wrong(change, dtype, rank, processes):
        trial = SimpleNamespace(rank=rank, case=SimpleNamespace(processes=processes))
        return wrong_sums(Algorithm("made", 0, change), payload, dtype, torch.device("cpu"), trial)

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert wrong(lambda tensor: None, torch.float32, 0, 2) == 6  # a third has nothing to add
        for rank in range(500):
            wrong(lambda tensor: parts.append(tensor.clone()), torch.bfloat16, rank, 500)
        assert wrong(lambda tensor: tensor.copy_(sum(parts)), torch.bfloat16, 0, 500) == 0
    finally:
        torch.distributed.destroy_process_group()


def test_fusion_keeps_order_and_size():
    tensors = [torch.full((count,), float(count)) for count in (10, 20, 30, 4000, 5)]
    buckets = list(buckets_of(tensors, 400))
    assert [[len(each) for each in bucket] for bucket in buckets] == [[10, 20, 30], [4000], [5]]
    Algorithm("twice", 400, lambda tensor: tensor.mul_(2)).sum(tensors)
    assert [float(tensor[0]) for tensor in tensors] == [20, 40, 60, 8000, 10]


def test_alone_allreduce_is_unsupported(cli, tmp_path):
    frame = rows_of_run(cli, tmp_path, "scaling", "--models", "allreduce")
    assert set(frame["status"]) == {"unsupported"}


def test_a_network_takes_steps_of_lars_over_the_batches_of_a_step(monkeypatch):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 63 * 63, training.CLASSES))
    before = network[1].weight.detach().clone()
    monkeypatch.setattr(training, "imagenet_network", lambda name: network)
    made = []

    class Kept(training.Lars):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append(self)

    monkeypatch.setattr(training, "Lars", Kept)
    settings = {"image_size": "63", "accumulate": "3", "train_images": "24", "lr": "0.25", "epochs": "1"}
    clock = Clock(brief("full"), watch=lambda: [nullcontext()])
    assert training.train(small_trial(SCALING, "resnet50", "fp32", settings, batch=4), clock) == {}
    assert not torch.equal(network[1].weight, before)
    (optimizer,) = made
    assert {(group["lr"], group["momentum"]) for group in optimizer.param_groups} == {(0.25, 0.9)}
    assert {id(weight) for group in optimizer.param_groups for weight in group["params"]} == {
        id(weight) for weight in network.parameters()
    }
    summary = clock.summary()
    assert summary["samples"] == 24
    (line,) = summary["table"]
    assert (line["images_a_step"], line["gradient_type"]) == (12, "float32")
    assert line["gradient_bytes"] == 4 * sum(weight.numel() for weight in network.parameters())


@pytest.mark.e2e
@pytest.mark.parametrize("model", ["resnet50", pytest.param("alexnet-bn", marks=pytest.mark.slow)])
def test_networks_train_with_accumulation_in_two_processes(cli_process, tmp_path, model):
    options = ("--models", model, "--precision", MIXED, "--quick", "--batch", 2, "--processes", 2)
    width = {"resnet50": "fp16", "alexnet-bn": "fp32"}[model]
    frame = rows_of_run(cli_process, tmp_path, "scaling", *options, image_size=63, accumulate=2, gradients_as=width)
    assert frame["samples"][0] % 8 == 0
    (line,) = table_of(frame["table"][0])
    weights, width = {"resnet50": (25_557_032, 2), "alexnet-bn": (62_000_000, 4)}[model]
    assert line["gradient_bytes"] == pytest.approx(weights * width, rel=0.02)
    assert line["gradient_type"] == f"float{8 * width}"


@pytest.mark.parametrize("seconds", [10e-6, 1e-3, 8e-3, 17e-3, 0.2])
def test_a_size_is_timed_for_half_a_second_and_twenty_calls(seconds):
    calls = calls_in_a_bundle(seconds, "cuda") * (BUNDLES - 1)
    assert calls >= 20
    assert calls * seconds >= 0.5
    assert calls * seconds <= max(0.6, 20 * seconds + 1e-9)


def test_a_step_of_64k_images_holds_no_more_of_them_than_one_of_32():
    settings = {"image_size": "63", "accumulate": "2048", "train_images": "131072"}
    trial = small_trial(SCALING, "resnet50", "fp32", settings, batch=32)
    loader = training.Images(trial, torch.device("cpu"), torch.channels_last)
    steps = list(loader)
    assert (len(loader), len(steps), [len(parts) for parts in steps]) == (2, 2, [2048] * 2)
    assert loader.images_a_step == sum(len(labels) for _, labels in steps[0]) == 65_536
    held = {images.data_ptr(): images.nbytes for parts in steps for images, _ in parts}
    assert sum(held.values()) == training.POOL * 32 * 3 * 63 * 63 * 4
