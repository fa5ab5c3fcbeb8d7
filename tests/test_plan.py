"""Options become cases and interleaved trials; every refusal says why."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import pytest
from facts import lacking
from rows import row

from gpubench.errors import UserError
from gpubench.hardware.environment import Device
from gpubench.runner.cases import cases_of, choose_models, choose_precisions, choose_threads, recipes_of, settings_for
from gpubench.runner.devices import check_processes, choose_devices, with_devices
from gpubench.runner.options import Options
from gpubench.runner.progress import FirstRatios
from gpubench.runner.rounds import schedule
from gpubench.suite.files import LoadedSuite
from gpubench.suite.precisions import LINEAR_ONLY, NO_LARGE_LINEAR, PRECISIONS, unsupported, without_low_precision
from gpubench.suite.suite import Param, Suite
from gpubench.suite.trial import Case

GPU = Device("cuda:0", "cuda", "Card", 10**10, "8.6", "1", "aa", {})
GPU1 = replace(GPU, device="cuda:1", device_hash="bb")
TURING = replace(
    GPU,
    unsupported=unsupported({"tf32": "sm_75 has no TF32", "bf16": "emulated"}) | without_low_precision("Card", (7, 5)),
)
CPU = Device("cpu", "cpu", "Chip", 10**10, "", "", "cc", {"tf32": "a CPU has no TF32"})


def loaded(tmp_path, **changes) -> LoadedSuite:
    facts = {
        "train": print,
        "models": ("small", "large"),
        "params": {"epochs": Param(3, "epochs"), "recipe": Param("full", "how", ("full", "old"))},
        "version": 1,
        "presets": {"recipe": {"old": {"epochs": 30}}},
    } | changes
    (tmp_path / "demo.py").touch()
    return LoadedSuite("demo", tmp_path / "demo.py", Suite(**facts))


def plan(suites, options, devices, cpu_count=1, **weights):
    recipes = [
        replace(recipe, data="toy", weights=weights.get(recipe.model, "")) for recipe in recipes_of(options, suites)
    ]
    return cases_of(recipes, options, devices, cpu_count)


def demo_cases(tmp_path, devices=(GPU,), **options):
    return plan([loaded(tmp_path)], Options(**options), list(devices))


def test_what_the_device_lacks_or_is_broken_is_a_refusal(tmp_path):
    cases = demo_cases(tmp_path, [TURING], precision="fp32,bf16", batch="8", models=("small",))
    assert [(case.precision, case.refusal) for case in cases] == [("fp32", ""), ("bf16", "emulated")]
    broken = replace(GPU, problem="no kernel image")
    refusals = [case.refusal for case in demo_cases(tmp_path, [broken, GPU1], precision="fp32", batch="8")]
    assert [bool(refusal) for refusal in refusals] == [True, True, False, False]
    assert "no kernel image" in refusals[0]


def test_which_devices_are_chosen():
    assert choose_devices("auto", [GPU, GPU1, CPU]) == [GPU]
    assert choose_devices("auto", [CPU]) == [CPU]
    assert choose_devices("all", [GPU, GPU1, CPU]) == [GPU, GPU1]
    assert choose_devices("cuda:1,cuda:0", [GPU, GPU1, CPU]) == [GPU1, GPU]
    with pytest.raises(UserError, match="cuda:3: not on this machine, which has cuda:0, cpu"):
        choose_devices("cuda:3", [GPU, CPU])
    with pytest.raises(UserError, match="gpubench doctor"):
        choose_devices("cuda", [replace(GPU, problem="no kernel image")])
    assert choose_devices("cuda,cpu,cuda:0", [GPU, GPU1, CPU]) == [GPU, CPU]
    xpu, mps = replace(GPU, device="xpu:0", kind="xpu"), replace(GPU, device="mps:0", kind="mps")
    assert choose_devices("mps,xpu", [xpu, mps, CPU]) == [mps, xpu]
    assert choose_devices("all", [CPU]) == [CPU]
    broken = replace(GPU, problem="no kernel image")
    for wish in ("auto", "all"):
        with pytest.raises(UserError, match="--device cpu"):
            choose_devices(wish, [broken, CPU])
    assert choose_devices("all", [broken, GPU1, CPU]) == [broken, GPU1]
    assert choose_devices("auto", [broken, GPU1, CPU]) == [GPU1]


def test_max_needs_a_limit_on_a_cpu(tmp_path):
    with pytest.raises(UserError, match="--memory-limit"):
        demo_cases(tmp_path, [CPU], batch="max")
    case = demo_cases(tmp_path, [CPU], models=("small",))[0]
    assert (case.batch_policy, case.batch_size) == ("fixed", 16)


def test_rounds_hold_every_case_once_and_begin_with_the_smallest(tmp_path):
    cases = demo_cases(tmp_path, [GPU, GPU1], batch="8", precision="fp32,tf32,fp16,bf16")
    trials = schedule(cases, 6, seed=1)
    rounds = [[t.case for t in trials if t.index == index] for index in range(6)]
    assert all(len(r) == len(cases) and set(map(id, r)) == set(map(id, cases)) for r in rounds)
    assert len({tuple(map(id, r)) for r in rounds}) == 6
    assert trials == schedule(cases, 6, seed=1)
    assert {t.seed for t in trials if t.index == 2} == {3}
    cases = demo_cases(tmp_path, [GPU], precision="fp32", batch="8")
    refused = replace(cases[0], refusal="no")
    trials = schedule([*cases, refused], 2, seed=40)
    assert [(t.case.refusal, t.index, t.seed) for t in trials] == [
        ("no", 0, 40), ("", 0, 40), ("", 0, 40), ("", 1, 41), ("", 1, 41),
    ]  # fmt: skip
    # A ratio then comes after two trials, and the dearest model last.
    cases = demo_cases(tmp_path, [GPU, GPU1], batch="8", precision="fp32,fp16")
    first = [(t.case.model, t.case.device, t.case.precision) for t in schedule(cases, 1, seed=1)]
    assert first == list(product(("small", "large"), ("cuda:0", "cuda:1"), ("fp32", "fp16")))


def test_a_ratio_is_printed_once_both_precisions_have_an_ok_trial(tmp_path):
    fp32, fp16, twin = (
        replace(case, model="small") for case in demo_cases(tmp_path, batch="max", precision="fp32,fp16")[:3]
    )
    assert twin.batch_policy == "max-fp32"
    ratios = FirstRatios()
    figures = {
        "fp32": {"seconds": 1 / 100, "samples_per_second": 100.0, "batch_size": 64},
        "fp16": {"seconds": 1 / 185, "samples_per_second": 185.0, "batch_size": 128},
    }
    printed = [
        ratios.after(case, row(precision=case.precision, **figures[case.precision]))
        for case in (twin, fp32, fp16, twin, fp16, fp32)
    ]
    assert [bool(lines) for lines in printed] == [False, False, True, False, False, False]
    assert lacking(printed[2][0], "demo small", "fp16", "fp32", "1.85", "batch 128 / 64", "rough") == []
    fp32, fp16 = demo_cases(tmp_path, precision="fp32,fp16", batch="8", models=("small",))
    ratios = FirstRatios()
    assert ratios.after(fp16, row(seconds=2.0, samples_per_second=50.0)) == []
    assert ratios.after(fp32, row(status="failed", samples_per_second=None)) == []
    assert lacking(ratios.after(fp32, row(seconds=1.0, samples_per_second=90.0))[0], "0.50") == []


def test_batches_and_limits_that_cannot_be_are_refused(tmp_path):
    for batch in ("0", "-8", "many", "1.5"):
        with pytest.raises(UserError, match="give max, fastest or a number above 0"):
            recipes_of(Options(batch=batch), [])  # before a suite's data is looked for
    suites = [loaded(tmp_path, train_samples=lambda params: 10 * params["epochs"])]
    with pytest.raises(UserError, match="30"):
        plan(suites, Options(batch="31"), [GPU])
    assert plan(suites, Options(batch="30"), [GPU])
    apple = replace(GPU, device="mps:0", kind="mps")
    with pytest.raises(UserError, match="--memory-limit"):
        demo_cases(tmp_path, [apple], batch="8", memory_limit_bytes=10**9)
    with pytest.raises(UserError, match=r"cuda:0, Card, .*9\.31 GiB"):
        demo_cases(tmp_path, batch="8", memory_limit_bytes=11 * 2**30)
    assert demo_cases(tmp_path, batch="8", memory_limit_bytes=10**10)


@pytest.mark.parametrize(("options", "rounds"), [
    ({}, 6), ({"mode": "full"}, 1), ({"mode": "quick"}, 1), ({"mode": "full", "until": 0.01}, 6),
    ({"repeats": 3}, 3), ({"mode": "full", "repeats": 2}, 2),
])  # fmt: skip
def test_how_many_rounds(options, rounds):
    assert Options(**options).rounds == rounds


@pytest.mark.parametrize(("processes", "nodes", "threads", "expected"), [
    ((1,), 1, 0, 0), ((1, 2, 4), 1, 0, 2), ((4,), 1, 0, 2), ((1,), 2, 0, 10), ((16,), 1, 0, 1), ((4,), 1, 3, 3),
    ((1,), 2, 3, 3),
])  # fmt: skip
def test_processes_share_the_ten_cpus_of_a_machine(processes, nodes, threads, expected):
    options = Options(processes=processes, nodes=nodes)
    assert choose_threads(options, {"threads": threads, "epochs": 3}, 10) == {"threads": expected, "epochs": 3}


@pytest.mark.parametrize(("device", "wish", "expected"), [
    (GPU, "mixed", ["fp16"]),
    (GPU, "both,bf16", ["fp32", "fp16", "bf16"]),
    (GPU, "fp16-pure,fp32", ["fp16-pure", "fp32"]),
    (GPU, "all", list(PRECISIONS)),
    (CPU, "both", ["fp32", "bf16"]),
    (CPU, "all", [name for name in PRECISIONS if name not in {"tf32", "float8", "int8-mixed"}]),
    (CPU, "int8-mixed,mxfp8", ["int8-mixed", "mxfp8"]),
    (CPU, "bf16,mixed,bf16", ["bf16"]),
    (TURING, "all", ["fp32", "fp16", "fp16-master", "fp16-pure"]),
])  # fmt: skip
def test_precisions_in_the_order_asked(device, wish, expected):
    assert choose_precisions(wish, device) == expected


def test_models_and_settings_go_to_their_suites(tmp_path):
    suite = loaded(tmp_path, models=("a", "b", "c"), default_models=("c", "a"))
    other = loaded(tmp_path, models=("d",))
    assert choose_models(suite, (), [suite]) == ["a", "c"]
    assert choose_models(suite, ("c", "b"), [suite]) == ["b", "c"]
    assert choose_models(suite, ("d", "b"), [suite, other]) == ["b"]
    assert choose_models(other, (), [other]) == ["d"]
    with pytest.raises(UserError, match=r"e: no such model; there are a, b, c, d$"):
        choose_models(suite, ("b", "e"), [suite, other])
    demo = loaded(tmp_path)
    other = LoadedSuite("other", demo.path, replace(demo.suite, params={"rate": Param(0.5, "pace")}))
    options = Options(settings={"epochs": "5", "rate": "2", "nobody": "7"})
    assert settings_for(demo, options.settings, [demo, other]) == {"epochs": "5", "nobody": "7"}
    assert settings_for(other, options.settings, [demo, other]) == {"rate": "2", "nobody": "7"}
    assert settings_for(demo, options.settings, [demo]) == {"epochs": "5", "rate": "2", "nobody": "7"}


@pytest.mark.parametrize(("device", "options", "changes", "answer"), [
    (GPU, {}, {}, ("max", None)),
    (CPU, {}, {"cpu_batch": 12}, ("fixed", 12)),
    (CPU, {}, {"batch": "24"}, ("fixed", 24)),
    (CPU, {}, {"batch": "fastest"}, ("fixed", 16)),
    (GPU, {}, {"batch": "fastest"}, ("fastest", None)),
    (GPU, {}, {"batch": "24"}, ("fixed", 24)),
    (CPU, {}, {"recipe_batch": lambda model, params, precision: len(model) * params["epochs"]}, ("fixed", 15)),
    (GPU, {"batch": "48"}, {"recipe_batch": lambda model, params, precision: 7}, ("fixed", 48)),
    (CPU, {"batch": "fastest"}, {}, ("fastest", None)),
    (CPU, {"batch": "max", "memory_limit_bytes": 5}, {}, ("max", None)),
    (GPU, {"batch": "max", "memory_limit_bytes": 5}, {}, ("max", None)),
    (GPU, {"batch": "60"}, {"train_samples": 60}, ("fixed", 60)),
    (GPU, {"batch": "31", "processes": (2,)}, {"train_samples": 60, "processes": True}, "only 60 samples for 2 proc"),
])  # fmt: skip
def test_the_batch_and_how_it_was_chosen(tmp_path, device, options, changes, answer):
    asked = Options(models=("small",), precision="fp32", **options)
    with pytest.raises(UserError, match=answer) if isinstance(answer, str) else nullcontext():
        (case,) = plan([loaded(tmp_path, **changes)], asked, [device])
        assert (case.batch_policy, case.batch_size) == answer


GPU2 = replace(GPU, device="cuda:2", device_hash="ee")
BROKEN = replace(GPU2, problem="no kernel image")


@pytest.mark.parametrize(("options", "chosen", "words"), [
    ({"nodes": 2}, GPU, "--nodes 2 needs --rendezvous"), ({"rendezvous": "a:1"}, GPU, "--rendezvous needs --nodes"),
    ({"processes": (1, 4)}, GPU, r"--processes 4: .* cuda:0 .*\b3\b"),
    ({"processes": (3,)}, GPU1, r"--processes 3: .* cuda:1 .*\b2\b"), ({}, GPU1, ""),
    ({"nodes": 2, "rendezvous": "a:1"}, GPU, ""), ({"processes": (3,)}, GPU, ""),
    ({"processes": (2, 1)}, GPU1, ""), ({"processes": (9,)}, CPU, ""),
])  # fmt: skip
def test_processes_for_which_there_are_devices_or_none(options, chosen, words):
    with pytest.raises(UserError, match=words) if words else nullcontext():
        check_processes(Options(**options), [chosen], [CPU, GPU, GPU1, GPU2], 16)


@pytest.mark.parametrize(("first", "devices", "refusal"), [
    (GPU, [GPU, CPU], "it trains on 2 devices; this machine has no cuda:1"),
    (GPU, [GPU, replace(GPU1, problem="no kernel image"), CPU], "it trains on 2 devices; this machine has no cuda:1"),
    (GPU, [GPU, GPU1, CPU], ""),
    (CPU, [GPU, CPU], ""),
])  # fmt: skip
def test_a_suite_that_wants_more_devices_than_there_are_is_unsupported(tmp_path, first, devices, refusal):
    suite = loaded(tmp_path, models=("small",), ranks=lambda params: 2)
    options = Options(precision="fp32", batch="8")
    (case,) = plan([suite], options, [first])
    assert with_devices(case, devices).refusal == refusal


def test_a_case_has_all_that_was_asked(tmp_path):
    suite = loaded(
        tmp_path, models=("small", "large"), studies=("ladder",), processes=True, precisions={"large": "bf16"}
    )
    options = Options(batch="64", precision="fp32", mode="full", processes=(1, 2), nodes=3, memory_limit_bytes=10**9)
    cases = plan([suite], options, [GPU], 8, large="imagenet")
    params = {
        "epochs": 3, "recipe": "full", "threads": 4, "cudnn_benchmark": True, "reduced_reduction": False,
        "huge_pages": True, "loss_scale": 0,
    }  # fmt: skip
    first = Case(
        suite="demo", suite_version=1, suite_digest=suite.digest, suite_path=str(tmp_path / "demo.py"), model="small",
        precision="fp32", device="cuda:0", params=params, batch_policy="fixed", batch_size=64, mode="full", data="toy",
        weights="", processes=3, nodes=3, memory_limit_bytes=10**9, rung=1, studies=("ladder",),
    )  # fmt: skip
    second = replace(first, model="large", precision="bf16", weights="imagenet", rung=2)
    assert cases == [first, replace(first, processes=6), second, replace(second, processes=6)]


@pytest.mark.parametrize(("changes", "options", "refusal"), [
    ({}, {"processes": (2,)}, "the suite demo trains in one process"),
    ({"processes": True}, {"processes": (2,)}, "sm_75 has no TF32"),
    ({"processes": True, "refuse": lambda case: f"no {case.model}"}, {}, "sm_75 has no TF32"),
    ({"large_linears": False}, {}, "sm_75 has no TF32"),
    ({"torch": False}, {}, ""),
    ({"torch": False, "refuse": lambda case: f"no {case.model}"}, {}, "no small"),
])  # fmt: skip
def test_why_a_case_cannot_run(tmp_path, changes, options, refusal):
    asked = Options(batch="8", precision="tf32", models=("small",), **options)
    (case,) = plan([loaded(tmp_path, **changes)], asked, [TURING, GPU1][:1])
    assert case.refusal == refusal


@pytest.mark.parametrize("torch", [True, False])
@pytest.mark.parametrize(("name", "changes", "refusal"), [
    ("float8", {"large_linears": False}, NO_LARGE_LINEAR),
    ("float8", {"large_linears": True}, ""),
    ("int8-mixed", {}, ""),
    ("bf16", {"large_linears": False}, ""),
    ("mxfp8", {}, "gpubench has no proof of mxfp8 yet"),
    ("nvfp4", {}, "gpubench has no proof of nvfp4 yet"),
])  # fmt: skip
def test_precisions_of_large_linear_layers(tmp_path, name, changes, refusal, torch):
    ada = replace(GPU, unsupported=without_low_precision("Card", (12, 0)))
    asked = Options(batch="8", precision=name, models=("small",))
    (case,) = plan([loaded(tmp_path, torch=torch, **changes)], asked, [ada])
    assert case.refusal == (refusal if torch or name not in LINEAR_ONLY else "")


def test_functions_and_settings_of_a_suite_that_are_wrong(tmp_path):
    def broken(*arguments):
        raise KeyError("no such thing")

    for name in ("refuse", "ranks", "recipe_batch", "train_samples", "check"):
        recipes = recipes_of(Options(), [loaded(tmp_path, **{name: broken})])
        for case in cases_of([replace(recipe, folder=tmp_path) for recipe in recipes], Options(batch="8"), [GPU]):
            assert case.refusal_status == "failed"
            assert "KeyError" in case.refusal
    demo = loaded(tmp_path)
    other = LoadedSuite("other", demo.path, replace(demo.suite, models=("tiny",)))
    with pytest.raises(UserError, match="epochs is a whole number"):
        plan([demo, other], Options(models=("tiny",), settings={"epochs": "x"}), [GPU])


def test_which_cases_have_a_twin_at_the_batch_of_fp32(tmp_path):
    def policies(*devices, **options):
        return [(c.precision, c.batch_policy) for c in demo_cases(tmp_path, devices, models=("small",), **options)]

    assert policies(GPU) == [("fp32", "max"), ("fp16", "max"), ("fp16", "max-fp32")]
    assert policies(GPU, mode="quick") == [("fp32", "max"), ("fp16", "max")]
    assert policies(TURING, precision="fp32,bf16") == [("fp32", "max"), ("bf16", "max")]
    assert policies(GPU, precision="fp16") == [("fp16", "max")]
    assert policies(GPU, batch="8") == [("fp32", "fixed"), ("fp16", "fixed")]
    assert policies(GPU, batch="fastest") == [("fp32", "fastest"), ("fp16", "fastest")]


def test_processes_need_devices_from_the_first_on_and_cpus():
    with pytest.raises(UserError, match=r"cuda:0 .*\b2\b"):
        check_processes(Options(processes=(3,)), [GPU], [GPU, GPU1, BROKEN, CPU], 16)
    with pytest.raises(UserError, match=r"--processes 2: .*\b1\b.* cpus_per_task"):
        check_processes(Options(processes=(2,)), [GPU], [GPU, GPU1, CPU], 1)
    check_processes(Options(processes=(2,)), [GPU1], [BROKEN, GPU1, GPU2, CPU], 2)
    check_processes(Options(processes=(2,)), [CPU], [CPU], 1)  # where processes share it on purpose


def test_a_card_that_shares_the_hosts_memory_is_asked_for_no_more_than_a_cpu(tmp_path):
    spark = replace(GPU, card="NVIDIA GB10", integrated=True, memory_bytes=None)
    assert demo_cases(tmp_path, [spark], models=("small",))[0].batch_size == 16
    with pytest.raises(UserError, match=r"GB10.* --memory-limit"):
        demo_cases(tmp_path, [spark], batch="max")
    case = demo_cases(tmp_path, [spark], batch="max", memory_limit_bytes=10**9)[0]
    assert case.memory_limit_bytes == 10**9
    known = replace(spark, available_bytes=100 * 2**30, memory_bytes=128 * 2**30)
    for batch in ("max", "fastest"):
        case = demo_cases(tmp_path, [known], batch=batch)[0]
        assert (case.batch_policy, case.memory_limit_bytes) == (batch, int(0.7 * 128 * 2**30))
    with pytest.raises(UserError, match=r"80 GiB are free.* --memory-limit"):
        demo_cases(tmp_path, [replace(known, available_bytes=80 * 2**30)], batch="max")
    assert demo_cases(tmp_path, [known], batch="8")[0].memory_limit_bytes is None
    assert demo_cases(tmp_path, [known], batch="max", memory_limit_bytes=10**9)[0].memory_limit_bytes == 10**9
    with pytest.raises(UserError, match="give a number"):
        demo_cases(tmp_path, [replace(GPU, kind="mps", device="mps:0")], batch="max")


def test_miopen_does_not_search_unless_it_is_asked_to(tmp_path):
    amd = replace(GPU, rocm=True)
    (asked,) = demo_cases(
        tmp_path, [amd], precision="fp32", batch="8", models=("small",), settings={"cudnn_benchmark": "true"}
    )
    (default,) = demo_cases(tmp_path, [amd], precision="fp32", batch="8", models=("small",))
    (nvidia,) = demo_cases(tmp_path, precision="fp32", batch="8", models=("small",))
    assert [case.params["cudnn_benchmark"] for case in (asked, default, nvidia)] == [True, False, True]
