"""NVML's answers as recorded from cards of several generations, and a library that gives them again.

The figures are what nvidia-smi, which prints NVML's answers, recorded (N/A: the card refuses the question):

- Quadro P2000 (Pascal, at rest, eight of sixteen lanes), driver 525.125.06: influxdata/telegraf's test data
- GeForce GTX 1050 (Pascal, a desktop's card), driver 515.65.01, and Tesla V100S (Volta, at work), driver 460.73.01:
  test data of GuanceCloud's datakit
- A100-SXM4-80GB (Ampere, cut into MIG slices), driver 535.54.03: influxdata/telegraf's test data
- H100 80GB HBM3 (Hopper, at rest), driver 545.23.08: notes of a Princeton node, `nvidia-smi -a`

Energy counters are not among what nvidia-smi prints; NVML's reference has them from Volta on.
"""

from types import SimpleNamespace
from typing import Any

import pynvml

from gpubench.hardware.makers import nvidia

MIB = 2**20
GRAPHICS, SM, MEMORY = pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM


def card(
    *, power=None, limit=None, clocks, top, application=None, temperature, utilisation, used_mib, link, top_link,
    ecc=None, mig=None, persistence, reasons, energy=None, old_names=False,
) -> dict[str, Any]:  # fmt: skip
    """Answers by function name; what is None is refused. `limit` is the set power limit and the default one."""
    answers = {
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetTotalEnergyConsumption": energy,
        "nvmlDeviceGetPowerManagementLimit": limit and limit[0],
        "nvmlDeviceGetPowerManagementDefaultLimit": limit and limit[1],
        "nvmlDeviceGetClockInfo": {SM: clocks[0], MEMORY: clocks[1]},
        "nvmlDeviceGetMaxClockInfo": {SM: top[0], MEMORY: top[1]},
        "nvmlDeviceGetApplicationsClock": application and {GRAPHICS: application[0]},
        "nvmlDeviceGetDefaultApplicationsClock": application and {GRAPHICS: application[1]},
        "nvmlDeviceGetTemperature": {pynvml.NVML_TEMPERATURE_GPU: temperature},
        "nvmlDeviceGetUtilizationRates": None if utilisation is None else SimpleNamespace(gpu=utilisation),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=used_mib * MIB),
        "nvmlDeviceGetCurrPcieLinkGeneration": link[0],
        "nvmlDeviceGetCurrPcieLinkWidth": link[1],
        "nvmlDeviceGetMaxPcieLinkGeneration": top_link[0],
        "nvmlDeviceGetMaxPcieLinkWidth": top_link[1],
        "nvmlDeviceGetEccMode": ecc,
        "nvmlDeviceGetMigMode": mig,
        "nvmlDeviceGetPersistenceMode": persistence,
        "nvmlDeviceGetCurrentClocksThrottleReasons": reasons,
        "nvmlDeviceGetComputeRunningProcesses": [],
    }
    if not old_names:
        answers["nvmlDeviceGetCurrentClocksEventReasons"] = reasons
    return {name: answer for name, answer in answers.items() if answer is not None}


P2000 = card(
    power=4610, limit=(75_000, 75_000), clocks=(139, 405), top=(1721, 3504), application=(1075, 1075), temperature=34,
    utilisation=0, used_mib=1, link=(1, 8), top_link=(3, 16), persistence=1, reasons=0x1, old_names=True,
)  # fmt: skip
GTX_1050 = card(
    clocks=(683, 2504), top=(1911, 3504), temperature=44, utilisation=7, used_mib=65, link=(3, 8), top_link=(3, 16),
    persistence=1, reasons=0x1, old_names=True,
)  # fmt: skip
V100S = card(
    power=232_800, limit=(250_000, 250_000), clocks=(1410, 1107), top=(1597, 1107), application=(1245, 1245),
    temperature=66, utilisation=97, used_mib=31689, link=(3, 16), top_link=(3, 16), ecc=[1, 1], persistence=0,
    reasons=0x0, energy=5_000_000_000, old_names=True,
)  # fmt: skip
A100_MIG = card(
    power=67_030, limit=(500_000, 500_000), clocks=(1275, 1593), top=(1410, 1593), application=(1275, 1275),
    temperature=27, utilisation=None, used_mib=50, link=(4, 16), top_link=(4, 16), ecc=[1, 1], mig=[1, 1],
    persistence=0, reasons=0x0, energy=7_000_000_000,
)  # fmt: skip
H100 = card(
    power=72_020, limit=(700_000, 700_000), clocks=(345, 2619), top=(1980, 2619), application=(1980, 1980),
    temperature=33, utilisation=0, used_mib=2, link=(5, 16), top_link=(5, 16), ecc=[1, 1], mig=[0, 0], persistence=1,
    reasons=0x1, energy=9_000_000_000,
)  # fmt: skip
RECORDED = {"P2000": P2000, "GTX 1050": GTX_1050, "V100S": V100S, "H100": H100}
UUID = "10f35015-e921-bfab-2eb8-4e9b6664d5f1"


class Nvml:
    """The binding of a machine with one card: `answers` by function name; all other questions are refused.

    An answer may be a function without arguments. With `slices` (UUID to memory in MiB) the card has MIG on,
    and each slice a handle of its own.
    """

    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = GRAPHICS, SM, MEMORY
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, answers, *, refusal=pynvml.NVML_ERROR_NOT_SUPPORTED, slices=None, **changes) -> None:
        self.answers, self.refusal, self.slices = {**answers, **changes}, refusal, slices or {}

    def nvmlDeviceGetHandleByUUID(self, uuid):
        known = {f"GPU-{UUID}", *(f"MIG-{each}" for each in self.slices)}
        if uuid not in known:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        if not handle.startswith("MIG-"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return f"GPU-{UUID}"

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def ask(handle, *more):
            answer = self.answers.get(name)
            if handle.startswith("MIG-"):
                used = self.slices[handle.removeprefix("MIG-")]
                answer = SimpleNamespace(used=used * MIB) if name == "nvmlDeviceGetMemoryInfo" else None
            if isinstance(answer, dict):
                answer = answer.get(more[0])
            if callable(answer):
                answer = answer()
            if answer is None:
                raise pynvml.NVMLError(self.refusal)
            return answer

        return ask


def processes(*pids: int) -> list[SimpleNamespace]:
    """A process list as NVML gives it."""
    return [SimpleNamespace(pid=pid, usedGpuMemory=100 * MIB) for pid in pids]


def find(nvml, uuid, *, integrated=False):
    """What reads the card of this UUID."""
    return nvidia.find(nvml, SimpleNamespace(uuid=uuid, integrated=integrated))
