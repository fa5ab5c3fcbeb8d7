"""On a real card: NVML's figures against nvidia-smi's, and a trial's columns. Run with `pytest -n 0 -m gpu`."""

import subprocess

import pytest

from gpubench.hardware import environment
from gpubench.hardware.makers import nvidia
from gpubench.rows.read import load
from gpubench.runner.process import describe

pytestmark = pytest.mark.gpu


def smi(uuid: str, *fields: str) -> list[str]:
    """What nvidia-smi prints for these fields of the card."""
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [field.strip() for field in done.stdout.splitlines()[0].split(",")]


def card():
    """What reads the card that torch computes on."""
    device = next(device for device in environment.devices_of(describe()) if device.kind == "cuda")
    reader = nvidia.find(nvidia.library(), device)
    assert reader is not None, "torch's UUID names no card of NVML's"
    assert smi(reader.identity, "name") == [device.card]
    return reader


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("power.limit", "power_limit_watts"),
        ("power.default_limit", "default_power_limit_watts"),
        ("clocks.max.sm", "card_max_sm_clock_mhz"),
        ("clocks.max.memory", "card_max_memory_clock_mhz"),
        ("pcie.link.gen.max", "max_pcie_generation"),
        ("pcie.link.width.max", "max_pcie_width"),
    ],
)
def test_the_set_up_is_nvidia_smis(field, column):
    reader = card()
    (printed,) = smi(reader.identity, field)
    ours = getattr(reader.state(), column)
    if printed.startswith("["):  # [N/A], [Not Supported]
        assert ours is None
    else:
        assert ours == pytest.approx(float(printed), abs=0.01)


def test_readings_are_nvidia_smis():
    reader = card()
    before = reader.read()
    temperature, used, power = smi(reader.identity, "temperature.gpu", "memory.used", "power.draw")
    after = reader.read()
    assert before.temperature_celsius - 2 <= float(temperature) <= after.temperature_celsius + 2
    assert float(used) * 2**20 == pytest.approx(after.memory_used_bytes, rel=0.2, abs=2**30)
    if not power.startswith("["):
        assert float(power) == pytest.approx(after.power_watts, rel=0.3)


def test_a_trials_columns(cli_process, tmp_path):
    # A process of its own, which is read while it computes; a trial inside this one is read between its laps only.
    done = cli_process(
        "run", "--suite", "resnet", "--models", "resnet18", "--precision", "fp32", "--synthetic", "--batch", "64",
        "--repeats", "1", "--set", "image_size=64", "--out", "a.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = load([tmp_path / "a.csv"]).frame.iloc[0]
    assert row["mean_sm_clock_mhz"] > 100
    assert row["max_temperature_celsius"] > 10
    assert row["foreign_load"]
    assert row["throttle"]
    if row["energy_source"]:
        assert row["joules_per_sample"] == pytest.approx(row["mean_power_watts"] / row["samples_per_second"], rel=0.3)
        assert row["mean_power_watts"] <= 1.2 * row["power_limit_watts"]
