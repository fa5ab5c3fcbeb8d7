"""What AMD's cards tell through amdsmi, in the shapes that its releases give, and that a refusal is an empty field."""

from types import SimpleNamespace

import pytest

from gpubench.hardware.advice import CardCheck, of_card
from gpubench.hardware.makers import amd
from gpubench.hardware.state import CardState, Processes, Reading

BUS = "0000:c1:00"


Clock, Sensor = SimpleNamespace(GFX=1, MEM=5), SimpleNamespace(EDGE=0, HOTSPOT=1)
MI300X = {
    "amdsmi_get_power_info": {"socket_power": 612, "current_socket_power": 612, "average_socket_power": "N/A"},
    "amdsmi_get_power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
    "amdsmi_get_energy_count": {"energy_accumulator": 2_000_000_000, "counter_resolution": 15.259},
    "amdsmi_get_clock_info": {
        Clock.GFX: {"clk": 1420, "max_clk": 2100}, Clock.MEM: {"clk": 1300, "max_clk": 1300},
    },
    "amdsmi_get_temp_metric": {Sensor.HOTSPOT: 71},
    "amdsmi_get_gpu_activity": {"gfx_activity": 98},
    "amdsmi_get_gpu_memory_usage": 40_000_000_000,
    "amdsmi_get_pcie_info": {
        "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000},
        "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000},
    },
    "amdsmi_get_gpu_perf_level": "AMDSMI_DEV_PERF_LEVEL_AUTO",
    "amdsmi_get_gpu_process_list": [{"pid": 7}, {"pid": 8}],
    "amdsmi_get_gpu_metrics_info": {"ppt_residency_acc": 10, "socket_thm_residency_acc": 4},
}  # fmt: skip
RX_6800 = {  # as ROCm 6.0 named and scaled things; most counters are not there
    "amdsmi_get_power_info": {"average_socket_power": 203, "current_socket_power": "N/A"},
    "amdsmi_get_power_cap_info": {"power_cap": 180, "default_power_cap": 203},
    "amdsmi_get_energy_count": {"power": 3_000_000, "counter_resolution": 15.3},
    "amdsmi_get_clock_info": {Clock.GFX: {"cur_clk": 2200, "max_clk": 2475}},
    "amdsmi_get_temp_metric": {Sensor.EDGE: 65},
    "amdsmi_get_gpu_activity": {"gfx_activity": 0xFFFF},
    "amdsmi_get_pcie_info": {"pcie_metric": {"pcie_width": 8, "pcie_speed": 16}},
    "amdsmi_get_gpu_perf_level": "AMDSMI_DEV_PERF_LEVEL_MANUAL",
    "amdsmi_get_gpu_process_list": [object()],
}


class Smi:
    """amdsmi on a machine with the cards at these addresses, all giving `answers`; all other questions are refused."""

    AmdSmiClkType, AmdSmiTemperatureType = Clock, Sensor
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)

    def __init__(self, answers, *addresses: str) -> None:
        self.answers, self.addresses = dict(answers), addresses or (f"{BUS}.0",)

    def amdsmi_get_processor_handles(self):
        return list(range(len(self.addresses)))

    def amdsmi_get_gpu_device_bdf(self, handle):
        return self.addresses[handle]

    def __getattr__(self, name):
        def ask(handle, *more):
            answer = self.answers.get(name)
            if name in {"amdsmi_get_clock_info", "amdsmi_get_temp_metric"} and answer:
                answer = answer.get(more[0])
            if answer is None:
                raise RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")
            return answer

        return ask


def find(smi, bus, *, integrated=False):
    return amd.find(smi, SimpleNamespace(bus=bus, integrated=integrated))


def test_a_card_of_the_data_centre():
    card = find(Smi(MI300X), BUS)
    assert card.state() == CardState(750, 750, 2100, 1300, "default", "", "", "", 5, 16)
    energy = pytest.approx(2e9 * 15.259e-6)
    assert card.read() == Reading(612, energy, 1420, 1300, 71, 0.98, 40e9, 5, 16, None)
    assert card.processes() == Processes(frozenset({7, 8}))


def test_an_older_release_and_a_card_that_tells_less_with_the_doctors_commands():
    card = find(Smi(RX_6800), BUS)
    assert card.state() == CardState(180, 203, 2475, None, "performance level manual", "", "", "", None, None)
    assert card.read() == Reading(203, pytest.approx(45.9), 2200, None, 65, None, None, 4, 8, None)
    assert card.processes() is None
    card = find(Smi(RX_6800), BUS)
    check = CardCheck("cuda:0", card.commands, card.state(), card.read(), card.processes(), [card.read()])
    advice = [result.advice for result in of_card(check) if result.level == "fix"]
    assert advice[0] == f"sudo amd-smi set -g {BUS}.0 --power-cap 203"
    assert advice[1].startswith(f"sudo amd-smi set -g {BUS}.0 --perf-level AUTO")
    assert not any("nvidia-smi -i" in each for each in advice)


def test_a_limit_held_where_its_counter_has_risen_since_the_last_reading():
    smi = Smi(MI300X)
    card = find(smi, BUS)
    assert card.read().reasons is None  # nothing to compare with yet
    assert card.read().reasons == frozenset()
    smi.answers["amdsmi_get_gpu_metrics_info"] = {"ppt_residency_acc": 12, "socket_thm_residency_acc": 4}
    assert card.read().reasons == {"power_cap"}
    smi.answers["amdsmi_get_gpu_metrics_info"] = {"ppt_residency_acc": 12, "socket_thm_residency_acc": 5}
    assert card.read().reasons == {"sw_thermal"}


def test_a_card_is_found_by_its_address_and_one_that_refuses_or_is_integrated_has_empty_fields():
    assert find(Smi(MI300X, "0000:01:00.0", "0000:C1:00.0"), BUS) is not None
    assert find(Smi(MI300X, "0000:c1:00.0", "0000:c1:00.1"), BUS) is None
    assert find(Smi(MI300X), "0000:c2:00") is None
    assert find(Smi(MI300X), "") is None
    card = find(Smi({"amdsmi_get_gpu_perf_level": "AMDSMI_DEV_PERF_LEVEL_UNKNOWN"}), BUS)
    assert card.read() == Reading()
    assert card.state() == find(Smi({}), BUS).state() == CardState()
    assert card.processes() is None
    card = find(Smi(MI300X), BUS, integrated=True)
    assert (card.state().max_pcie_generation, card.state().max_pcie_width) == (None, None)
    assert (card.read().pcie_generation, card.read().pcie_width) == (None, None)


def test_without_its_package_nothing_is_printed(capsys):
    amd.library()
    assert capsys.readouterr().out == ""
