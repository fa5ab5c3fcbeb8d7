"""The doctor: advice that follows from facts, its visit to cards whose answers are data, Apex, and other hosts."""

import ast
from pathlib import Path
from unittest.mock import Mock

import pynvml
import pytest
from gpubench.suites.wordlm import why_no_apex
from inside import skip_sleep
from rows import rows

from gpubench.cli.doctor import device_checks, examine
from gpubench.hardware import advice
from gpubench.hardware.advice import Card, CardCheck, of_card, of_torch
from gpubench.hardware.environment import Device
from gpubench.hardware.state import CardState, Commands, Host, Processes, Reading
from gpubench.rows import write
from gpubench.runner.process import Outcome, run_child


def facts(cuda="13.2", **device):
    card = {
        "device": "cuda:0", "kind": "cuda", "card": "NVIDIA Card", "memory_bytes": 11 * 2**30, "capability": "8.6",
        "driver": "595.1", "unsupported": {}, "problem": "",
    }  # fmt: skip
    cpu = {**card, "device": "cpu", "kind": "cpu", "card": "CPU", "capability": "", "driver": ""}
    cpu["unsupported"] = {"tf32": "a CPU has no TF32"}
    devices = [card | device, cpu] if device else [cpu]
    return {"torch": "2.15.0", "cuda": cuda, "cudnn": "92600", "devices": devices}


def fixes(*arguments):
    return [check for check in of_torch(*arguments) if check.level == "fix"]


NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"


@pytest.mark.parametrize(("card", "capability"), [("GTX 1080 Ti", "6.1"), ("V100", "7.0")])
@pytest.mark.parametrize("problem", [NO_KERNEL, "cuDNN refuses it"])
def test_an_old_card_is_told_which_build_has_its_kernels(card, capability, problem):
    (check,) = fixes(facts(card=card, capability=capability, problem=problem))
    assert card in check.text
    assert f"no kernels for sm_{capability.replace('.', '')}" in check.text
    assert "whl/cu126" in check.advice
    assert "torch>=2.6,<2.15" in check.advice
    assert not fixes(facts("12.6", card=card, capability=capability))


@pytest.mark.parametrize(
    ("card", "capability", "words"), [("GTX 780", "3.5", "as old as this"), ("RTX 5090", "12.0", "newer torch")]
)
def test_a_card_too_old_or_too_new_for_the_build_is_told_so(card, capability, words):
    (check,) = fixes(facts("12.6", card=card, capability=capability, problem=NO_KERNEL))
    assert words in check.advice


def test_a_good_card_a_broken_one_and_none():
    found = of_torch(facts(card="RTX 2080 Ti", capability="7.5", unsupported={"tf32": "no TF32", "bf16": "emulated"}))
    assert {check.level for check in found} == {"ok"}
    (card,) = [f.text for f in found if "RTX 2080 Ti, 11.0 GiB, driver 595.1; precisions fp32, fp16" in f.text]
    assert card.endswith("(no others: no TF32; emulated)")
    (found,) = fixes(facts(problem="CUDA error: something"))
    assert "CUDA error: something" in found.text
    assert [f.text[:12] for f in of_torch(facts(cuda="")) if f.level != "ok"] == ["No GPU found"]


@pytest.mark.parametrize(
    ("cuda", "driver_cuda", "words"),
    [
        ("", "13.2", "built without CUDA"),
        ("13.2", "12.4", "newer NVIDIA driver"),
        ("13.2", "13.0", "CUDA_VISIBLE_DEVICES"),
        ("12.6", "12.4", "CUDA_VISIBLE_DEVICES"),  # minor versions are compatible
    ],
)
def test_a_card_that_torch_does_not_see_has_a_reason(cuda, driver_cuda, words):
    (check,) = fixes(facts(cuda=cuda), [Card("RTX 3090", "550.1", driver_cuda)])
    assert "does not see the RTX 3090" in check.text
    assert words in check.advice


def test_surroundings_name_data_and_room(tmp_path, monkeypatch):
    monkeypatch.setattr(advice, "ROOMY_BYTES", 1)
    checks = list(advice.of_data_and_disk(None, tmp_path / "new" / "results"))
    assert any(f.level == "note" and f.advice == "gpubench data fetch cifar100" for f in checks)
    assert not [f for f in checks if f.level == "fix"]
    monkeypatch.setattr(advice, "ROOMY_BYTES", 1 << 60)
    assert len([f for f in advice.of_data_and_disk(None, tmp_path) if f.level == "fix"]) == 2
    assert any("not there" in f.text for f in advice.of_data_and_disk(tmp_path, tmp_path))


def test_every_check_that_is_not_ok_says_what_to_do():
    package = Path(advice.__file__).parent
    calls = [
        call
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Check"
    ]
    assert len(calls) > 30
    for call in calls:
        level = getattr(call.args[0], "value", "")
        assert level == "ok" or len(call.args) == 3, ast.unparse(call)


def test_a_driver_is_told_from_its_traces_where_the_library_is_not_of_its_version(monkeypatch, tmp_path):
    refusal = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    monkeypatch.setattr(pynvml, "nvmlInit", Mock(side_effect=refusal))
    monkeypatch.setattr(advice, "DRIVER_TRACES", (tmp_path / "nvidia0",))
    assert advice.nvidia_cards() == []
    monkeypatch.setattr(advice, "DRIVER_TRACES", (tmp_path,))
    (fix,) = fixes(facts(), advice.nvidia_cards())
    assert "NVML" in fix.text
    assert "restart the machine" in fix.advice


def test_an_integrated_card_has_no_memory_of_its_own(monkeypatch):
    """NVML names GB10 and its driver, and no memory."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: 13020)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.95")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA GB10")
    refusal = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", Mock(side_effect=refusal))
    assert advice.nvidia_cards() == [Card("NVIDIA GB10", "580.95", "13.2")]


def hosts(rates, **changes):
    """Three trials at each rate, each rate of another host."""
    made = []
    for number, rate in enumerate(rates):
        host = {"session": f"other{number}", "device_hash": f"host{number}", "samples_per_second": rate}
        made += rows([100.0] * 3, **(host | changes))
    return made


def compared(cli, folder, rate, references, **changes):
    """What `doctor --against` prints about one case at this rate, beside these references, and its exit code."""
    write.append(folder / "mine.csv", rows([100.0] * 3, samples_per_second=rate, **changes))
    write.append(folder / "others.csv", references)
    done = cli("doctor", "mine.csv", "--against", "others.csv")
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize(("rate", "code"), [(466.0, 0), (464.0, 1), (600.0, 0)])
def test_a_case_more_than_7_percent_below_the_median_of_other_hosts_is_slow(cli, tmp_path, rate, code):
    returned, text = compared(cli, tmp_path, rate, hosts([480.0, 500.0, 510.0]))
    assert (returned, f"RTX 2080 Ti: {code} of 1" in text) == (code, True), text
    assert "480" in text
    assert "510" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": "2.9.0"}, {"batch_size": 32}, {"precision": "fp16"}, {"card": "NVIDIA GeForce RTX 2070"},
        {"device_hash": "aaaa"}, {"marks": "throttled"}, {"mode": "quick"},
    ],
)  # fmt: skip
def test_another_case_or_the_same_card_is_nothing_to_compare(cli, tmp_path, changes):
    assert compared(cli, tmp_path, 100.0, hosts([500.0] * 2, **changes))[0] == 3


@pytest.mark.parametrize(("rate", "code"), [(1200.0, 0), (300.0, 1)])
def test_without_rows_of_the_card_published_figures_are_used(cli, tmp_path, rate, code):
    case = {
        "suite": "reference", "studies": "placing", "model": "resnet50", "precision": "fp16", "mode": "sampled",
        "params": "image_size=224", "memory_format": "channels_last", "card": "NVIDIA GeForce RTX 3090",
    }  # fmt: skip
    returned, text = compared(cli, tmp_path, rate, hosts([500.0]), **case)
    assert (returned, "published figures" in text) == (code, True), text


def test_the_newest_session_of_each_case_is_used(cli, tmp_path):
    mine = {"old": {"samples_per_second": 400.0}, "new": {}, "newest": {"model": "resnet50"}}
    for month, (session, changes) in enumerate(mine.items(), 1):
        started = f"2026-0{month}-01T00:00:00+00:00"
        write.append(tmp_path / "mine.csv", rows([100.0], session=session, started=started, **changes))
    write.append(tmp_path / "others.csv", hosts([500.0]))
    assert cli("doctor", "mine.csv", "--against", "others.csv").returncode == 0


def test_rows_of_this_machine_are_found_and_what_is_missing_is_a_usage_error(cli, tmp_path, monkeypatch):
    write.append(tmp_path / "all.csv", [*rows([100.0] * 3, samples_per_second=400.0), *hosts([500.0])])
    monkeypatch.setattr("gpubench.cli.health.this_machine", lambda: {"aaaa"})
    assert cli("doctor", "--against", "all.csv").returncode == 1
    monkeypatch.setattr("gpubench.cli.health.this_machine", lambda: {"bbbb"})
    assert cli("doctor", "--against", "all.csv").returncode == 2
    assert cli("doctor", "--against", "missing.csv").returncode == 2
    assert cli("doctor", "all.csv").returncode == 2


QUIET = Host(16, "performance", 0.2, "none", True, 64 << 30)
XPU = {"device": "xpu:7", "kind": "xpu", "card": "A card"}


class BusyCard:
    """A card that is busy at first and idle later."""

    commands = Commands()

    def __init__(self) -> None:
        self.looks = 0

    def state(self):
        return CardState(power_limit_watts=300, default_power_limit_watts=300)

    def read(self):
        self.looks += 1
        return Reading(utilisation=0.9 if self.looks < 3 else 0.0, power_watts=50.0)

    def processes(self):
        return Processes()


def test_an_accelerator_without_a_reader_and_the_host_are_both_spoken_of():
    facts = {"torch": "2.15.0", "cuda": "", "cudnn": "", "devices": [XPU]}
    texts = [check.text for check in device_checks(facts, QUIET, [])]
    assert any(text.startswith("xpu:7: ") and "power, energy, clocks" in text for text in texts)
    assert texts[-1] == "no problems on the host"


def test_a_card_is_seen_at_rest_and_a_load_that_fails_is_a_result(monkeypatch):
    skip_sleep(monkeypatch)
    device = Device("xpu:7", "xpu", "A card", None, "", "", "aaaa", {})
    child = Mock(return_value=Outcome("died", 2.0, exit_code=1, tail="no such device"))
    check = examine(device, BusyCard(), child)
    assert [call.args[0] for call in child.mock_calls] == [{"task": "soak", "devices": ["xpu:7"], "seconds": 5.0}]
    assert check.idle.utilisation == 0.0  # our own work a moment ago fades
    assert check.state.power_limit_watts == 300
    (found,) = of_card(check)
    assert found.level == "fix"
    assert "multiplying matrices on it failed" in found.text
    assert "no such device" in found.text


@pytest.mark.parametrize(
    ("held", "graphics", "words"), [(3, {7}, "desktop"), (3, (), "programs use 3 GiB"), (1, (), "no problems")]
)
def test_memory_that_no_listed_program_holds_is_named(held, graphics, words):
    idle = Reading(utilisation=0.0, memory_used_bytes=held << 30)
    (check,) = of_card(CardCheck("cuda:0", Commands(), CardState(), idle, Processes(graphics=frozenset(graphics))))
    assert words in check.text


@pytest.mark.e2e
def test_a_load_that_goes_well_is_no_result(monkeypatch):
    """On the CPU, which any machine has."""
    monkeypatch.setattr("gpubench.cli.doctor.LOAD_SECONDS", 3.0)
    check = examine(Device("cpu", "cpu", "A CPU", None, "", "", "aaaa", {}), BusyCard(), run_child)
    assert check.load_failure == ""
    assert check.loaded


NOW = ("optimizers", "multi_tensor_apply", "normalization")
THEN = (*NOW, "amp", "fp16_utils", "parallel", "RNN")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (THEN, ""),
        (NOW, "has no amp, fp16_utils"),
        ([part for part in THEN if part != "multi_tensor_apply"], "has no multi_tensor_apply"),
        (("amp", "fp16_utils", "multi_tensor_apply"), "not NVIDIA Apex"),
        ((), "not NVIDIA Apex"),
    ],
)
def test_an_apex_is_told_by_its_modules(tmp_path, monkeypatch, parts, words):
    for folder in (tmp_path / "apex", *(tmp_path / "apex" / part for part in parts)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert words in why_no_apex()
    assert bool(words) == bool(why_no_apex())
