"""Every check on card and host: the state that calls for it, and the command that puts it right."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpubench.hardware.advice import CardCheck, of_card, of_host, of_switches
from gpubench.hardware.environment import switches
from gpubench.hardware.makers.nvidia import nvidia_commands
from gpubench.hardware.readers import unread_sensors
from gpubench.hardware.state import CardState, Host, Processes, Reading

FINE = CardCheck(
    device="cuda:0",
    commands=nvidia_commands("GPU-1"),
    state=CardState(350, 350, 2000, 9500, "default", "on", "off", "on", 4, 16),
    idle=Reading(utilisation=0.0),
    processes=Processes(),
    loaded=[Reading(sm_clock_mhz=1900, temperature_celsius=60, pcie_generation=4, pcie_width=16, reasons=frozenset())],
)


def loaded(**changes):
    return replace(FINE, loaded=[replace(FINE.loaded[0], **changes)])


def state(**changes):
    return replace(FINE, state=replace(FINE.state, **changes))


CHECKS = {
    "power limit below default": (state(power_limit_watts=349.6), "fix", "349.6 W, below", "smi -i GPU-1 -pl 350"),
    "power limit above default": (state(power_limit_watts=400), "note", "400 W, above", "-pl 350"),
    "changed clocks": (state(clocks_policy="application clock 1005 MHz of 1245"), "fix", "1005 MHz", "-rac"),
    "MIG": (state(mig="on"), "note", "slice of a card", "-mig 0"),
    "ECC off": (state(ecc="off"), "note", "ECC is off", "-e 1"),
    "persistence off": (state(persistence="off"), "note", "persistence mode is off", "-pm 1"),
    "others compute": (replace(FINE, processes=Processes(frozenset({7, 8}))), "fix", "2 other process", "wait"),
    "busy, but nobody to be seen": (replace(FINE, idle=Reading(utilisation=0.07)), "fix", "busy 7%", "nvidia-smi"),
    "a desktop": (replace(FINE, processes=Processes(graphics=frozenset({7}))), "note", "desktop", "multi-user.target"),
    "narrow link": (loaded(pcie_width=8), "fix", "generation 4 x8 of a possible generation 4 x16", "seat the card"),
    "slow link": (loaded(pcie_generation=1), "fix", "generation 1 x16 of a possible generation 4 x16", "BIOS"),
    "heat": (loaded(reasons=frozenset({"sw_thermal"}), temperature_celsius=88), "fix", "heat", "fans"),
    "power brake": (loaded(reasons=frozenset({"power_brake"})), "fix", "power_brake", "power supply"),
    "locked clock": (loaded(sm_clock_mhz=1200), "fix", "1200 of 2000 MHz", "nvidia-smi -i GPU-1 -rgc"),
    "no load": (replace(FINE, loaded=(), load_failure="CUDA error"), "fix", "failed: CUDA error", "restart"),
    "nodes": (replace(state(numa_node=1), leaves_node=True), "note", "memory node 1", "--cpunodebind=1 --membind=1"),
    "unknown generation": (
        replace(loaded(pcie_width=8), state=replace(FINE.state, max_pcie_generation=None)),
        "fix", "4 x8 of a possible generation ? x16", "seat the card",
    ),
}  # fmt: skip


def test_a_card_in_order_at_rest_at_its_power_cap_or_silent_is_fine():
    resting = replace(FINE.loaded[0], sm_clock_mhz=210, pcie_generation=1, reasons=frozenset({"idle"}))
    capped = replace(resting, pcie_generation=4, reasons=frozenset({"power_cap"}))
    limited = replace(capped, reasons=capped.reasons | {"board_limit"})
    silent = CardCheck("cuda:0", nvidia_commands("GPU-1"), CardState(), Reading(), None, [Reading()])
    readings = (FINE.loaded, [resting], [resting, FINE.loaded[0]], [capped], [limited])
    for check in (silent, *(replace(FINE, loaded=loaded) for loaded in readings)):
        (found,) = of_card(check)
        assert found.level == "ok"


@pytest.mark.parametrize(("kind", "words"), [("cuda", "utility"), ("hpu", "watch")])
def test_an_accelerator_that_nothing_tells_of_is_named_with_what_would_help(kind, words):
    check = unread_sensors(SimpleNamespace(device=f"{kind}:0", kind=kind))
    assert check.level == "note"
    assert check.text.startswith(f"{kind}:0: ")
    assert "power" in check.text
    assert words in check.advice


QUIET = Host(16, "performance", 0.2, "none", True, 64 << 30)
ON_HOST = {
    "governor": (replace(QUIET, cpu_governor="powersave"), "fix", "powersave", "cpupower frequency-set -g performance"),
    "load": (replace(QUIET, load_average=9.0), "fix", "load average 9.0 on 16 CPUs", "top"),
    "few CPUs": (replace(QUIET, cpu_count=2), "note", "2 CPU(s)", "--cpus"),
    "hidden processes": (
        replace(QUIET, container="docker", all_processes_visible=False), "note", "container (docker)", "--pid=host",
    ),
    "WSL2": (replace(QUIET, in_wsl=True), "note", "WSL2", "Windows"),
    "small shared memory": (replace(QUIET, shared_memory_bytes=64 << 20), "fix", "64 MiB", "--shm-size"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHECKS | ON_HOST)
def test_every_result_says_what_is_wrong_and_what_to_do(case):
    of, level, words, advice = (CHECKS | ON_HOST)[case]
    (check,) = of_host(of, accelerator=True) if isinstance(of, Host) else of_card(of)
    assert check.level == level
    assert check.text.startswith("cuda:0: ") or isinstance(of, Host)
    assert words in check.text
    assert advice in check.advice


def test_a_quiet_host_is_said_to_be_and_switches_that_change_figures_are_named():
    assert of_host(QUIET, accelerator=True)[0].level == "ok"
    alone = replace(QUIET, cpu_count=2, container="docker", all_processes_visible=False)
    assert [check.level for check in of_host(alone, accelerator=False)] == ["ok"]
    environ = {"CUDA_LAUNCH_BLOCKING": "1", "NVIDIA_TF32_OVERRIDE": "", "HOME": "/"}
    assert switches(environ) == "CUDA_LAUNCH_BLOCKING=1"
    (found,) = of_switches(environ)
    assert found.text.startswith("CUDA_LAUNCH_BLOCKING=1: ")
    assert found.level == "fix"
    assert found.advice == "unset CUDA_LAUNCH_BLOCKING"
