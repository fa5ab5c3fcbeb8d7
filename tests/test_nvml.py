"""Values that NVML returns for each generation of cards; a value that it refuses is None."""

from types import SimpleNamespace
from unittest.mock import Mock

import pynvml
import pytest
from nvml_answers import A100_MIG, GRAPHICS, H100, MIB, RECORDED, UUID, V100S, Nvml, find, processes

from gpubench.hardware.environment import Device
from gpubench.hardware.makers.nvidia import reason_names
from gpubench.hardware.readers import readers, unread_sensors, with_free_memory
from gpubench.hardware.state import CardState, Processes, Reading

SLICE = "0a1b2c3d-0000-1111-2222-333344445555"


IDLE = frozenset({"idle"})
READ = {
    "P2000": Reading(4.61, None, 139, 405, 34, 0.0, 1 * MIB, 1, 8, IDLE),
    "GTX 1050": Reading(None, None, 683, 2504, 44, 0.07, 65 * MIB, 3, 8, IDLE),
    "V100S": Reading(232.8, 5e6, 1410, 1107, 66, 0.97, 31689 * MIB, 3, 16, frozenset()),
    "H100": Reading(72.02, 9e6, 345, 2619, 33, 0.0, 2 * MIB, 5, 16, IDLE),
}
SET_UP = {
    "P2000": CardState(75, 75, 1721, 3504, "default", "", "", "on", 3, 16),
    "GTX 1050": CardState(None, None, 1911, 3504, "", "", "", "on", 3, 16),
    "V100S": CardState(250, 250, 1597, 1107, "default", "on", "", "off", 3, 16),
    "H100": CardState(700, 700, 1980, 2619, "default", "on", "off", "on", 5, 16),
}


@pytest.mark.parametrize("name", RECORDED)
def test_values_of_each_generation(name):
    card = find(Nvml(RECORDED[name]), UUID)
    assert (card.read(), card.state()) == (READ[name], SET_UP[name])


def test_a_mig_slice_has_the_clocks_of_its_card_but_not_its_power_however_cuda_names_it():
    card = find(Nvml(A100_MIG, slices={SLICE: 12}), SLICE)
    assert card.identity == f"MIG-{SLICE}"
    reading = card.read()
    assert reading.power_watts is None
    assert reading.energy_joules is None
    assert (reading.sm_clock_mhz, reading.temperature_celsius, reading.memory_used_bytes) == (1275, 27, 12 * MIB)
    assert card.state().mig == "on"
    card = find(Nvml(A100_MIG), UUID)
    assert card.read().power_watts is None
    assert card.state().mig == "on"


@pytest.mark.parametrize("refusal", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_card_that_refuses_every_value_has_only_empty_fields(refusal):
    card = find(Nvml({}, refusal=refusal), UUID)
    assert card.read() == Reading()
    assert card.state() == CardState()
    assert card.processes() is None


def test_meaningless_values_are_none():
    """A GB10 reports generation 1 x1 (nvtop#499)."""
    card = find(Nvml(H100), UUID, integrated=True)
    assert (card.state().max_pcie_generation, card.state().max_pcie_width) == (None, None)
    assert (card.read().pcie_generation, card.read().pcie_width) == (None, None)
    card = find(Nvml(H100, nvmlDeviceGetPowerUsage=2**32 - 1, nvmlDeviceGetTotalEnergyConsumption=2**64 - 1), UUID)
    assert card.read().power_watts is None
    assert card.read().energy_joules is None


def test_a_card_is_found_by_its_uuid_and_an_unknown_one_is_no_card():
    assert {find(Nvml(H100), uuid).identity for uuid in (UUID, f"GPU-{UUID}")} == {f"GPU-{UUID}"}
    assert {find(Nvml(H100), uuid) for uuid in ("", "00000000-1111-2222-3333-444444444444")} == {None}


def test_a_changed_limit_changed_clocks_and_reason_names_are_read():
    changes = {"nvmlDeviceGetGpcClkVfOffset": 150, "nvmlDeviceGetPowerManagementLimit": 200_000}
    state = find(Nvml(V100S, nvmlDeviceGetApplicationsClock={GRAPHICS: 1005}, **changes), UUID).state()
    assert state.clocks_policy == "application clock 1005 MHz of 1245, offset +150 MHz"
    assert (state.power_limit_watts, state.default_power_limit_watts) == (200, 250)
    assert reason_names(0) == frozenset()
    assert reason_names(0x4 | 0x40) == {"power_cap", "hw_thermal"}
    assert reason_names(0x80 | 0x10000) == {"power_brake", "0x10000"}


def test_an_older_driver_is_called_by_the_older_function_name():
    def mismatch():
        raise pynvml.NVMLLibraryMismatchError("no such function")

    old = Nvml(
        V100S,
        nvmlDeviceGetComputeRunningProcesses=mismatch,
        nvmlDeviceGetComputeRunningProcesses_v2=processes(5),
        nvmlDeviceGetGraphicsRunningProcesses=processes(6),
    )
    assert find(old, UUID).processes() == Processes(frozenset({5}), frozenset({6}))


def test_makers_of_the_device_kind_are_tried_in_order(monkeypatch):
    makers = [
        maker("cuda", "a", {"cuda1"}),
        maker("cuda", "b", {"cuda0", "cuda1"}),
        maker("xpu", "c", {"xpu0"}, library=None),
        maker("mps", "d"),
    ]
    monkeypatch.setattr("gpubench.hardware.readers.MAKERS", makers)
    devices = [SimpleNamespace(device=name, kind=name[:-1]) for name in ("cuda0", "cuda1", "xpu0", "cpu0")]
    assert readers(devices) == {"cuda0": "b", "cuda1": "a", "xpu0": None, "cpu0": None}
    assert not makers[3].library.called
    assert unread_sensors(devices[0]).advice == "install a; install b"


def maker(kind, name, knows=(), *, library="there"):
    """Return a fake maker whose reader is its name."""
    find = Mock(side_effect=lambda library, device: name if device.device in knows else None)
    return SimpleNamespace(KIND=kind, MISSING=f"install {name}", library=Mock(return_value=library), find=find)


@pytest.mark.parametrize(
    ("used", "integrated", "free"),
    [(2 << 20, False, None), (30 << 30, False, 50 << 30), (90 << 30, False, 0), (30 << 30, True, None)],
)
def test_memory_used_before_a_run_is_not_free(used, integrated, free):
    device = Device("cuda:0", "cuda", "A card", 80 << 30, integrated=integrated)
    card = find(Nvml(H100, nvmlDeviceGetMemoryInfo=SimpleNamespace(used=used)), UUID)
    assert with_free_memory(device, card).available_bytes == free
    assert with_free_memory(device, None) is device
