"""Options become cases and interleaved trials; every refusal says why."""

from dataclasses import replace

import pytest

from gpubench.errors import UserError
from gpubench.measuring.environment import Device
from gpubench.measuring.plan import (
    Options,
    check_processes,
    choose_devices,
    choose_precisions,
    expected,
    params_text,
    plan,
    schedule,
)
from gpubench.suite import LoadedSuite, Param, Suite

GPU = Device("cuda:0", "cuda", "Card", 10**10, "8.6", "1", "aa", {})
GPU1 = replace(GPU, device="cuda:1", device_hash="bb")
TURING = replace(GPU, unsupported={"tf32": "sm_75 has no TF32", "bf16": "emulated"})
CPU = Device("cpu", "cpu", "Chip", 10**10, "", "", "cc", {"tf32": "a CPU has no TF32"})


def loaded(tmp_path, **changes) -> LoadedSuite:
    facts = {
        "train": print,
        "models": ("small", "large"),
        "params": {"epochs": Param(3, "epochs"), "recipe": Param("full", "how", ("full", "old"))},
        "version": 1,
        "presets": {"recipe": {"old": {"epochs": 30}}},
    } | changes
    return LoadedSuite("demo", tmp_path / "demo.py", "d" * 64, Suite(**facts))


def cases_of(tmp_path, devices=(GPU,), **options):
    return plan([loaded(tmp_path)], Options(**options), list(devices), {"demo": "toy"}, {})


def test_both_is_resolved_to_concrete_names_per_device():
    assert choose_precisions("both", GPU) == ["fp32", "fp16"]
    assert choose_precisions("both", CPU) == ["fp32", "bf16"]
    assert choose_precisions("all", TURING) == ["fp32", "fp16", "fp16-master", "fp16-pure"]
    assert choose_precisions("bf16,mixed,bf16", CPU) == ["bf16"]


def test_an_unknown_precision_lists_the_known():
    with pytest.raises(UserError, match="fp8: no such precision; there are fp32"):
        choose_precisions("fp8", GPU)


def test_a_precision_the_device_lacks_is_a_refusal_not_a_substitute(tmp_path):
    cases = cases_of(tmp_path, [TURING], precision="fp32,bf16", batch="8", models=("small",))
    assert [(case.precision, case.refusal) for case in cases] == [("fp32", ""), ("bf16", "emulated")]


def test_devices_auto_several_and_unknown():
    assert choose_devices("auto", [GPU, GPU1, CPU]) == [GPU]
    assert choose_devices("auto", [CPU]) == [CPU]
    assert choose_devices("all", [GPU, GPU1, CPU]) == [GPU, GPU1]
    assert choose_devices("cuda:1,cuda:0", [GPU, GPU1, CPU]) == [GPU1, GPU]
    with pytest.raises(UserError, match="cuda:3: not on this machine, which has cuda:0, cpu"):
        choose_devices("cuda:3", [GPU, CPU])
    with pytest.raises(UserError, match="gpubench doctor"):
        choose_devices("cuda", [replace(GPU, problem="no kernel image")])


def test_max_on_a_cpu_needs_a_limit_and_the_default_there_is_fixed(tmp_path):
    with pytest.raises(UserError, match="--memory-limit"):
        cases_of(tmp_path, [CPU], batch="max")
    case = cases_of(tmp_path, [CPU], models=("small",))[0]
    assert (case.batch_policy, case.batch_size) == ("fixed", 16)


def test_max_gives_each_mixed_case_a_twin_at_the_batch_of_fp32(tmp_path):
    cases = cases_of(tmp_path, models=("small",))
    assert [(c.precision, c.batch_policy) for c in cases] == [
        ("fp32", "max"),
        ("fp16", "max"),
        ("fp16", "max-fp32"),
    ]
    assert [c.batch_policy for c in cases_of(tmp_path, models=("small",), mode="quick")] == ["max", "max"]


def test_how_long_it_will_take_is_told_beforehand(tmp_path):
    cases = cases_of(tmp_path, models=("small",))
    assert expected(cases, Options()).startswith("about 13 min: 18 trials and 2 batch searches")
    assert expected(cases[:1], Options(mode="full")).startswith("1 whole runs")


@pytest.mark.parametrize("batch", ["0", "-8", "many", "1.5"])
def test_a_bad_batch_is_refused(tmp_path, batch):
    with pytest.raises(UserError, match="give max, fastest or a number above 0"):
        cases_of(tmp_path, batch=batch)


def test_params_presets_and_their_order(tmp_path):
    suite = loaded(tmp_path)
    assert suite.resolve_params({})["epochs"] == 3
    assert suite.resolve_params({"recipe": "old"})["epochs"] == 30
    assert suite.resolve_params({"recipe": "old", "epochs": "2"})["epochs"] == 2
    with pytest.raises(UserError, match="recipe is one of full, old"):
        suite.resolve_params({"recipe": "new"})
    with pytest.raises(UserError, match="epochs is a number"):
        suite.resolve_params({"epochs": "nan"})
    with pytest.raises(UserError, match="no such parameter; it has cudnn_benchmark"):
        suite.resolve_params({"epoch": "1"})


def test_every_round_holds_every_case_once_in_an_order_of_its_own(tmp_path):
    cases = cases_of(tmp_path, [GPU, GPU1], batch="8", precision="fp32,tf32,fp16,bf16")
    trials = schedule(cases, 6, seed=1)
    rounds = [[t.case for t in trials if t.index == index] for index in range(6)]
    assert all(len(r) == len(cases) and set(map(id, r)) == set(map(id, cases)) for r in rounds)
    assert len({tuple(map(id, r)) for r in rounds}) == 6
    assert trials == schedule(cases, 6, seed=1)
    assert {t.seed for t in trials if t.index == 2} == {3}


def test_refused_cases_come_once(tmp_path):
    cases = cases_of(tmp_path, [CPU], precision="fp32,tf32", models=("small",))
    trials = schedule(cases, 4, seed=1)
    assert [t.case.precision for t in trials] == ["tf32", "fp32", "fp32", "fp32", "fp32"]


def test_params_text_is_sorted_and_lower_case():
    assert params_text({"b": True, "a": 3, "c": "x"}) == "a=3 b=true c=x"


def test_models_of_several_suites(tmp_path):
    with pytest.raises(UserError, match="huge: no such model; there are small, large"):
        cases_of(tmp_path, models=("huge",))


def test_a_broken_card_is_never_replaced_by_the_cpu_and_stays_in_all():
    broken = replace(GPU, problem="no kernel image")
    for wish in ("auto", "all"):
        with pytest.raises(UserError, match="--device cpu measures the CPU"):
            choose_devices(wish, [broken, CPU])
    assert choose_devices("all", [broken, GPU1, CPU]) == [broken, GPU1]
    assert choose_devices("auto", [broken, GPU1, CPU]) == [GPU1]


def test_a_broken_card_among_good_ones_is_a_refusal(tmp_path):
    broken = replace(GPU, problem="no kernel image")
    refusals = [case.refusal for case in cases_of(tmp_path, [broken, GPU1], precision="fp32", batch="8")]
    assert [bool(refusal) for refusal in refusals] == [True, True, False, False]
    assert "no kernel image" in refusals[0]


def test_a_batch_larger_than_the_data_is_refused(tmp_path):
    suites = [loaded(tmp_path, train_samples=lambda params: 10 * params["epochs"])]
    with pytest.raises(UserError, match="30"):
        plan(suites, Options(batch="31"), [GPU], {"demo": "toy"}, {})
    assert plan(suites, Options(batch="30"), [GPU], {"demo": "toy"}, {})


def test_a_memory_limit_is_refused_where_torch_has_none(tmp_path):
    apple = replace(GPU, device="mps:0", kind="mps")
    with pytest.raises(UserError, match="--memory-limit"):
        cases_of(tmp_path, [apple], batch="8", memory_limit_bytes=10**9)


def test_a_memory_limit_above_the_cards_own_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cuda:0, Card, has 9.31 GiB"):
        cases_of(tmp_path, batch="8", memory_limit_bytes=11 * 2**30)
    assert cases_of(tmp_path, batch="8", memory_limit_bytes=10**10)


def test_processes_beside_two_devices_are_told_both_ways():
    with pytest.raises(UserError, match=r"--device cuda:0 alone .* without --processes each .* in turn"):
        check_processes(Options(processes=(2,)), [GPU, GPU1], [GPU, GPU1, CPU])
    with pytest.raises(UserError, match="has 1; give fewer"):
        check_processes(Options(processes=(2,)), [GPU1], [GPU, GPU1, CPU])
    check_processes(Options(processes=(2,)), [GPU], [GPU, GPU1, CPU])


def test_a_card_that_shares_the_hosts_memory_is_asked_for_no_more_than_a_cpu(tmp_path):
    spark = replace(GPU, card="NVIDIA GB10", integrated=True)
    assert cases_of(tmp_path, [spark], models=("small",))[0].batch_size == 16
    with pytest.raises(UserError, match="GB10, whose memory is the host's, needs --memory-limit"):
        cases_of(tmp_path, [spark], batch="max")
    case = cases_of(tmp_path, [spark], batch="max", memory_limit_bytes=10**9)[0]
    assert case.memory_limit_bytes == 10**9
    with pytest.raises(UserError, match="give a number"):
        cases_of(tmp_path, [replace(GPU, kind="mps", device="mps:0")], batch="max")


def test_a_machine_with_fewer_cpus_than_processes_is_refused():
    with pytest.raises(UserError, match=r"--processes 2: this machine gives 1 CPU, .* cpus_per_task"):
        check_processes(Options(processes=(2,)), [GPU], [GPU, GPU1, CPU], 1)
    check_processes(Options(processes=(2,)), [GPU], [GPU, GPU1, CPU], 2)
    check_processes(Options(processes=(2,)), [CPU], [CPU], 1)  # where processes share it on purpose
