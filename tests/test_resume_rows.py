"""From what came back to the row (runner/record.py), and what a resumed run makes of rows (runner/resume.py)."""

import math
from dataclasses import asdict, replace

import pytest
from facts import lacking

from gpubench.errors import UserError
from gpubench.hardware.environment import Device, Environment
from gpubench.hardware.state import CardState
from gpubench.rows import write as records
from gpubench.rows.row import Row
from gpubench.runner.measured_peaks import Peak
from gpubench.runner.options import Options
from gpubench.runner.record import Setting, row_of
from gpubench.runner.resume import EarlierRun, case_terms, terms_of
from gpubench.suite.trial import Case, Lap, Measurement, Telemetry, Trial

GPU = Device("cuda:0", "cuda", "NVIDIA H100", 80 * 10**9, "9.0", "550.54", "aaaa", {})
CARD = CardState(power_limit_watts=650.0, default_power_limit_watts=700.0, ecc="on", numa_node=1)
HOST = Environment(
    torch="2.15.0", torchvision="0.30.0", fastai="2.8.7", cuda="13.2", cudnn="92600", python="3.11.7",
    gpubench="0.2.0", commit="abc+", cpu="AMD EPYC", cpu_count=16, os="Linux 6", load_average=0.25,
)  # fmt: skip
CASE = Case(
    suite="demo", suite_version=4, suite_digest="0123456789abcdef", suite_path="demo.py", model="small",
    precision="fp16", device="cuda:0", params={"epochs": 3, "wide": True}, batch_policy="max", batch_size=48,
    mode="full", data="toy", weights="imagenet", processes=2, nodes=2, rung=5, batch_capped=True,
    batch_curve=((8, 123.5, 1000), (16, 0.0, 0)), memory_limit_bytes=10**9,
)  # fmt: skip
QUALITY = {
    "accuracy": 0.123456789, "loss": 2.5, "top5": 0.75, "success_rate": 0.5, "perplexity": 90.5,
    "test_perplexity": 91.5,
}  # fmt: skip
DONE = Measurement(
    status="ok", reason="went well", seconds=1234.56789, measured=True, train_seconds=1000.25, valid_seconds=234.5,
    samples_per_second=4321.123456, epochs=3, samples=300, steady="flat", data_stall=0.0123456789, loader_wait=0.25,
    resident_samples_per_second=5000.5, run_samples=900, step_samples=48, flops_per_sample=1.5e9,
    bytes_per_sample=2.5e6, ops_per_step=77, odd_flops_share=0.125, setup_seconds=12.5, precision_error=2.5e-4,
    precision_proof="probe", backend="nccl", interconnect="NVLink", rank_spread=0.0625, straggler="rank 1",
    communication_share=0.375, peak_memory_bytes=7 * 10**9, loss_scale=1024.0, skipped_steps=2, nonfinite_losses=6,
    allocator_retries=9, quality=QUALITY, threads=8, resumed="at epoch 1", startup_seconds=7.654321987,
    table=({"size": 64, "time": 0.1234567891}, {"size": 128, "time": 2.0}),
    laps=(Lap("train", 0, "warmup", 1, 48, 1.23456789, 0.0000004, 9.0), Lap("train", 1, "timed", 4, 192, 2.0, 0.5)),
    telemetry=Telemetry(mean_power_watts=412.34567, energy_source="counter", pcie_width=16, marks="throttled"),
)  # fmt: skip


SETTING = Setting(GPU, CARD, HOST, "s1", projection_range=(0.8, 1.25), peak=Peak(9.87654321e14, 3.0e12, 2.5e-6, 8192))


def made(measurement=DONE, case=CASE, **changes):
    setting = replace(SETTING, **changes)
    return row_of(Trial(case, 2, 44), measurement, setting, started="2026-11-22")


def test_every_column_of_a_row():
    assert asdict(made()) == {
        **asdict(Row()), **asdict(CARD), **asdict(HOST),
        "suite": "demo", "suite_version": 4, "suite_digest": "0123456789abcdef", "model": "small", "rung": 5,
        "precision": "fp16", "batch_size": 48, "batch_policy": "max", "batch_capped": True,
        "batch_curve": "[[8,123.5,1000],[16,0.0,0]]", "params": "epochs=3 wide=true", "processes": 2, "nodes": 2,
        "data": "toy", "weights": "imagenet", "mode": "full", "seed": 44, "memory_limit_bytes": 10**9,
        "card": "NVIDIA H100", "device": "cuda:0", "device_hash": "aaaa", "card_memory_bytes": 80 * 10**9,
        "driver": "550.54", "threads": 8, "session": "s1", "trial": 2, "until": None, "started": "2026-11-22",
        "status": "ok", "reason": "went well", "seconds": 1234.57, "seconds_low": None, "seconds_high": None,
        "measured": "measured", "samples_per_second": 4321.12, "train_seconds": 1000.25, "valid_seconds": 234.5,
        "epochs": 3, "samples": 300, "resumed": "at epoch 1", "steady": "flat", "marks": "throttled resumed",
        "data_stall": 0.0123457, "loader_wait": 0.25, "resident_samples_per_second": 5000.5, "run_samples": 900,
        "step_samples": 48, "flops_per_sample": 1.5e9, "bytes_per_sample": 2.5e6, "ops_per_step": 77,
        "odd_flops_share": 0.125, "measured_peak_flops": 9.87654e14, "measured_bandwidth_bytes_per_second": 3.0e12,
        "op_overhead_seconds": 2.5e-6, "startup_seconds": 7.65432, "setup_seconds": 12.5, "precision_error": 2.5e-4,
        "precision_proof": "probe", "loss_scale": 1024.0, "skipped_steps": 2, "nonfinite_losses": 6,
        "peak_memory_bytes": 7 * 10**9, "allocator_retries": 9, "mean_power_watts": 412.346,
        "energy_source": "counter", "pcie_width": 16, "accuracy": 0.123457, "loss": 2.5, "top5": 0.75,
        "perplexity": 90.5, "test_perplexity": 91.5, "success_rate": 0.5, "backend": "nccl",
        "interconnect": "NVLink", "rank_spread": 0.0625, "straggler": "rank 1", "communication_share": 0.375,
        "laps": '[["train",0,"warmup",1,48,1.234568,0.0],["train",1,"timed",4,192,2.0,0.5]]',
        "table": '[["size","time"],[64,0.123457],[128,2.0]]',
    }  # fmt: skip


@pytest.mark.parametrize(("status", "seconds", "measured"), [
    ("ok", 1234.57, "measured"), ("goal_missed", 1234.57, "measured"), ("failed", None, ""),
    ("timed_out", None, ""), ("interrupted", None, ""), ("unsupported", None, ""),
])  # fmt: skip
def test_only_a_training_that_came_to_its_end_has_seconds(status, seconds, measured):
    found = made(replace(DONE, status=status))
    assert (found.status, found.seconds, found.measured) == (status, seconds, measured)


@pytest.mark.parametrize(
    ("changes", "bounds", "expected"),
    [
        ({"seconds": 100.0, "measured": False}, (0.8, 1.25), ("projected", 80.0, 125.0)),
        ({"seconds": 100.0, "measured": False}, (0.9, 1.6), ("projected", 62.5, 111.111)),
        ({"seconds": 100.0, "measured": False}, None, ("projected", None, None)),
        ({"seconds": 100.0, "measured": False, "later_ratio": 1.1}, None, ("projected", 100.0, 110.0)),
        ({"seconds": 100.0, "measured": False, "later_ratio": 1.1}, (0.8, 1.25), ("projected", 80.0, 137.5)),
        ({"seconds": 100.0, "measured": False, "later_ratio": 0.9}, (0.8, 1.25), ("projected", 72.0, 125.0)),
        ({"seconds": 100.0}, (0.8, 1.25), ("measured", None, None)),
        ({"seconds": None, "measured": False}, (0.8, 1.25), ("", None, None)),
        ({"seconds": 0.0, "measured": False}, (0.8, 1.25), ("projected", None, None)),
        ({"seconds": 9.0, "measured": False, "status": "failed"}, (0.8, 1.25), ("", None, None)),
    ],
)
def test_a_projection_has_the_range_of_its_suite_and_the_trend_of_its_sample(changes, bounds, expected):
    row = made(replace(DONE, **changes), projection_range=bounds)
    assert (row.measured, row.seconds_low, row.seconds_high) == expected


@pytest.mark.parametrize("changes", [{"mode": "sampled"}, {"data": "synthetic"}, {"weights": "random"}])
def test_what_teaches_nothing_has_no_quality(changes):
    found = made(case=replace(CASE, **changes))
    assert {getattr(found, name) for name in QUALITY} == {None}


@pytest.mark.parametrize(
    ("unsteady", "resumed", "telemetry", "marks"),
    [
        (False, "", "", ""),
        (True, "", "", "unsteady"),
        (False, "at epoch 3", "clock_fell", "clock_fell resumed"),
        (True, "at epoch 3", "throttled shared", "throttled shared unsteady resumed"),
    ],
)
def test_what_speaks_against_a_trial(unsteady, resumed, telemetry, marks):
    given = replace(DONE, unsteady=unsteady, resumed=resumed, telemetry=Telemetry(marks=telemetry))
    assert made(given).marks == marks
    beside_others = replace(SETTING.peak, shared=True)
    assert made(given, peak=beside_others).marks == f"{marks} shared_peak".strip()


def test_what_is_not_known_or_not_allowed_stays_empty():
    bare = Measurement(status="failed", quality={"loss": math.nan}, samples_per_second=math.inf)
    written = made(bare, replace(CASE, batch_policy="fixed", batch_curve=()), peak=None)
    names = (
        "threads", "batch_capped", "samples_per_second", "loss", "accuracy", "measured_peak_flops", "startup_seconds",
        "measured_bandwidth_bytes_per_second", "op_overhead_seconds", "mean_power_watts",
    )  # fmt: skip
    assert {name: getattr(written, name) for name in names} == dict.fromkeys(names)
    assert (written.batch_curve, written.laps, written.table, written.marks) == ("", "", "", "")
    assert written.allocator_retries == 0
    assert made(device=replace(GPU, kind="cpu")).allocator_retries is None
    # Else whoever reads the file would leave out the whole row.
    row = made(replace(DONE, quality={"accuracy": 94.0, "top5": 0.99}, loader_wait=-0.5))
    assert (row.accuracy, row.top5, row.loader_wait) == (None, 0.99, None)
    assert lacking(row.reason, "went well", "loader_wait", "-0.5", "accuracy", "94.0") == []


# What a file of an earlier run allows.

PLAIN = replace(
    CASE, processes=1, nodes=1, batch_policy="fixed", weights="", rung=None, batch_curve=(),
    batch_capped=False, memory_limit_bytes=None,
)  # fmt: skip


@pytest.fixture
def file_of(tmp_path):
    """An earlier run whose file holds these cases, each with what sets its row apart."""

    def earlier(*given):
        path = tmp_path / "rows.csv"
        path.unlink(missing_ok=True)
        records.append(
            path, [replace(made(case=case), **{"seed": 42, "trial": 0, **changes}) for case, changes in given]
        )
        return EarlierRun(path)

    return earlier


def differing(earlier, *cases, options=None, device=GPU, card=CARD, environment=HOST):
    """The keys that a resumed run is refused for; none where it may go on."""
    try:
        earlier.check(cases, options or Options(), {"cuda:0": device}, {"cuda:0": card}, environment)
    except UserError as error:
        return str(error).partition(" differs in ")[2].partition(";")[0].split(", ")
    return []


def test_the_same_again_may_go_on_and_the_message_says_why_another_may_not(file_of):
    earlier = file_of((PLAIN, {}), (PLAIN, {"trial": 1, "seed": 43}))
    assert (differing(earlier, PLAIN), earlier.problems) == ([], [])
    assert differing(file_of((replace(PLAIN, device="cuda:1", mode="quick"), {"device": "cuda:1"})), PLAIN) == []
    earlier = file_of((PLAIN, {}))
    with pytest.raises(UserError, match=r"--out .*rows\.csv .*differs in seed; .*--out"):
        earlier.check([PLAIN], Options(seed=7), {"cuda:0": GPU}, {"cuda:0": CARD}, HOST)


@pytest.mark.parametrize(
    ("facts", "keys"),
    [
        ({"device": replace(GPU, card="A100")}, ["card"]),
        ({"device": replace(GPU, device_hash="b")}, ["device_hash"]),
        ({"device": replace(GPU, driver="1")}, ["driver"]),
        ({"card": replace(CARD, power_limit_watts=600.0)}, ["power_limit_watts"]),
        ({"card": replace(CARD, power_limit_watts=None)}, ["power_limit_watts"]),
        ({"card": replace(CARD, default_power_limit_watts=1.0, ecc="off")}, []),
        ({"environment": replace(HOST, torch="1", torchvision="1", fastai="1")}, ["fastai", "torch", "torchvision"]),
        ({"environment": replace(HOST, cuda="1", cudnn="1", python="1")}, ["cuda", "cudnn", "python"]),
        ({"environment": replace(HOST, cpu="1", cpu_count=1, gpubench="1")}, ["cpu", "cpu_count", "gpubench"]),
        ({"environment": replace(HOST, commit="1", os="1", load_average=9.0)}, []),
        ({"environment": replace(HOST, cpu_governor="1", container="1", numa_nodes=2)}, []),
        ({"environment": replace(HOST, switches="CUDA_LAUNCH_BLOCKING=1")}, ["switches"]),
        ({"options": Options(seed=41)}, ["seed"]),
        ({"options": Options(until=0.01)}, ["until"]),
        ({"options": Options(session="s1")}, []),
        ({"options": Options(session="s2")}, ["session"]),
    ],
)
def test_another_card_stack_or_option_may_not(file_of, facts, keys):
    assert differing(file_of((PLAIN, {}), (PLAIN, {"trial": 1, "seed": 43})), PLAIN, **facts) == keys


@pytest.mark.parametrize(("changes", "keys"), [
    ({"suite_version": 5}, ["suite_version"]), ({"suite_digest": "f"}, ["suite_digest"]),
    ({"params": {"epochs": 4}}, ["params"]), ({"mode": "quick"}, ["mode"]),
    ({"data": "synthetic"}, ["data"]), ({"weights": "random"}, ["weights"]),
    ({"memory_limit_bytes": 5}, ["memory_limit_bytes"]), ({"batch_size": 49}, ["batch_size"]),
    ({"batch_policy": "max"}, ["batch_policy"]),
    ({"model": "large", "params": {"epochs": 4}, "weights": "random", "batch_size": 49}, []),
    ({"precision": "fp32", "params": {"epochs": 4}}, []), ({"model": "large", "mode": "quick"}, ["mode"]),
    ({"suite": "another", "mode": "quick"}, []), ({"mode": "quick", "data": "synthetic"}, ["data", "mode"]),
])  # fmt: skip
def test_another_case_may_not_where_it_ought_to_be_the_same(file_of, changes, keys):
    assert differing(file_of((PLAIN, {})), replace(PLAIN, **changes)) == keys


@pytest.mark.parametrize(
    ("there", "now", "keys"),
    [
        ("max", "max-fp32", []),
        ("max-fp32", "max", []),
        ("fastest", "max-fp32", ["batch_policy"]),
        ("max", "fixed", ["batch_policy"]),
    ],
)
def test_a_twin_comes_and_goes(file_of, there, now, keys):
    """Its batch is what the search finds, and so no term."""
    earlier = file_of((replace(PLAIN, batch_policy=there), {}))
    assert differing(earlier, replace(PLAIN, batch_policy=now, batch_size=40)) == keys


NONE = {"seconds": None, "measured": ""}
TURNS = (
    (PLAIN, {"seconds": 8.0}),
    (PLAIN, {"trial": 1, "status": "failed", **NONE}),
    (PLAIN, {"trial": 2, "status": "goal_missed", "seconds": 9.0}),
    (PLAIN, {"trial": 3, "status": "interrupted", **NONE}),
    (PLAIN, {"trial": 4, "status": "unsupported", **NONE}),
    (PLAIN, {"trial": 5, "seconds": 7.0, "session": "s2"}),
)


def test_which_trials_sessions_and_batches_are_there(file_of):
    earlier = file_of(*TURNS)
    assert [earlier.has(Trial(PLAIN, index, 42)) for index in range(7)] == [True, False, True, False, True, True, False]
    assert earlier.statuses_of(PLAIN) == ["ok", "goal_missed", "unsupported", "ok"]
    assert earlier.seconds_of(PLAIN) == [8.0, 7.0]
    assert (earlier.rounds, earlier.session_of(PLAIN)) == (6, "s2")
    other = replace(PLAIN, model="large")
    assert file_of((PLAIN, {}), (PLAIN, {"trial": 1})).session_of(other) is None
    assert file_of((PLAIN, {})).session_of(other) == "s1"
    unconfirmed = (PLAIN, {"batch_size": 64, "status": "interrupted", **NONE})
    earlier = file_of((PLAIN, {"batch_size": None}), unconfirmed, (PLAIN, {"batch_size": 56}), unconfirmed)
    assert earlier.batch_of(PLAIN)["batch_size"] == 56
    assert file_of(unconfirmed).batch_of(PLAIN)["batch_size"] == 64
    earlier = file_of()
    assert (earlier.rounds, earlier.session_of(PLAIN), earlier.batch_of(PLAIN)) == (0, None, None)
    assert differing(earlier, PLAIN) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"suite": "x"}, {"model": "x"}, {"precision": "x"}, {"batch_policy": "max"}, {"device": "cuda:1"},
        {"processes": 2}, {"nodes": 2, "processes": 1},
    ],
)  # fmt: skip
def test_trials_of_another_case_are_others(file_of, changes):
    other = replace(PLAIN, **changes)
    earlier = file_of(*TURNS)
    assert (earlier.has(Trial(other, 0, 42)), earlier.statuses_of(other), earlier.seconds_of(other)) == (False, [], [])
    assert earlier.batch_of(other) is None


def test_what_must_agree_for_one_session_and_on_every_machine():
    limited = replace(PLAIN, memory_limit_bytes=5, weights="imagenet")
    assert case_terms(limited, GPU, CARD, HOST) == {
        "card": "NVIDIA H100", "device_hash": "aaaa", "driver": "550.54", "power_limit_watts": 650.0,
        "torch": "2.15.0", "torchvision": "0.30.0", "fastai": "2.8.7", "cuda": "13.2", "cudnn": "92600",
        "python": "3.11.7", "cpu": "AMD EPYC", "cpu_count": 16, "gpubench": "0.2.0", "suite_version": 4,
        "suite_digest": "0123456789abcdef", "params": "epochs=3 wide=true", "mode": "full", "data": "toy",
        "weights": "imagenet", "memory_limit_bytes": 5, "switches": "", "clocks_policy": "",
    }  # fmt: skip
    second = replace(CASE, suite="other", model="large", suite_digest="f" * 20, data="", processes=1)
    assert terms_of([CASE, second, CASE], [GPU, replace(GPU, card="A100")], HOST) == {
        "torch": "2.15.0", "torchvision": "0.30.0", "fastai": "2.8.7", "cuda": "13.2", "cudnn": "92600",
        "gpubench": "0.2.0", "card": "NVIDIA H100, A100", "processes": "1, 2", "suite demo": "0123456789ab",
        "data of demo": "toy", "weights of small": "imagenet", "suite other": "f" * 12, "data of other": "",
        "weights of large": "imagenet",
    }  # fmt: skip
