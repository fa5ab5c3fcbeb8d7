"""A trial and its result: frozen data that is sent to a process, and back, as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from gpubench.suite.suite import ParamValue

Mode = Literal["sampled", "full", "quick", "probe"]
Status = Literal["ok", "unsupported", "out_of_memory", "timed_out", "failed", "goal_missed", "interrupted"]


def rnn_refusal(precision: str, device: str) -> str:
    """Why no RNN computes in this precision on `device` (`cuda:0`, `cpu`); empty where one does.

    torch's autocast casts what it hands to cuDNN's RNNs to fp16, whatever it was asked for (AutocastRNN.cpp).
    """
    if precision == "bf16" and device.startswith("cuda"):
        return "torch's autocast computes RNNs in fp16 on CUDA, not in bf16; ask for fp16"
    return ""


GOOD: frozenset[Status] = frozenset({"ok", "unsupported"})
"""Statuses of a run that went well."""
TRAINED: frozenset[Status] = frozenset({"ok", "goal_missed"})
"""Statuses of a training that came to its end, and so has its seconds."""
FINISHED: frozenset[Status] = GOOD | TRAINED
"""Statuses that a resumed run does not try again."""

Fault = Literal["", "crashed", "diverged", "lost_others", "waited_for_others"]
"""What is known of a failure beside its reason.

`crashed`: the process ended without an answer. `diverged`: everything ran and fitted, and taught nothing.
`lost_others` and `waited_for_others`: the cause lies with another process of the trial, which is gone or hangs.
"""


@dataclass(frozen=True)
class Case:
    """One thing to measure: a suite's model in one precision on one device, with everything that shapes its time."""

    suite: str
    suite_version: int
    suite_digest: str
    suite_path: str
    model: str
    precision: str
    device: str
    params: Mapping[str, ParamValue]
    batch_policy: str
    """`fixed`, `max`, `fastest`, or `max-fp32`: the batch that `max` found for fp32."""
    batch_size: int | None
    """None until the batch search has answered."""
    mode: Mode
    data: str
    """Dataset names joined by +, or `synthetic`."""
    weights: str = ""
    """Name of the pretrained weights, `random` where they could not be had, empty where none are meant."""
    processes: int = 1
    """Training processes (ranks) on all machines together."""
    nodes: int = 1
    """Machines they run on, with as many on each."""
    memory_limit_bytes: int | None = None
    rung: int | None = None
    """Place of the model on the suite's ladder, from 1."""
    studies: tuple[str, ...] = ()
    """What the suite's models answer beside how fast they train."""
    batch_capped: bool = False
    batch_curve: tuple[tuple[int, float, int], ...] = ()
    """(batch, samples per second or 0 where it did not fit, peak memory in bytes) of each probe."""
    refusal: str = ""
    """Why this case cannot run; it becomes a row without a trial."""
    refusal_status: Status = "unsupported"
    """Status of that row: `unsupported` where the device cannot, else how the search for a batch ended."""

    @property
    def label(self) -> str:
        """How the case is called in progress bars and messages."""
        batch = f" batch {self.batch_size}" if self.batch_size else ""
        many = f" x{self.processes}" if self.processes > 1 else ""
        return f"{self.suite} {self.model} {self.precision}{batch} {self.device}{many}"


@dataclass(frozen=True)
class Trial:
    """One case, once, in one fresh process, or in one group of them."""

    case: Case
    index: int
    """The round it belongs to, from 0."""
    seed: int
    data_dir: str = ""
    weights_dir: str = ""
    checkpoint_dir: str = ""
    """Where a full run may keep what it needs to go on after a kill; empty elsewhere."""
    tensorboard_dir: str = ""
    """Where TensorBoard events go (--tensorboard)."""
    prove: bool = True
    """Whether it proves its precision; of the probes of a batch search one is enough."""
    rank: int = 0
    """This process's number among the case's processes."""

    @property
    def params(self) -> Any:
        """The case's parameters as attributes: `trial.params.epochs`."""
        return SimpleNamespace(**self.case.params)

    @property
    def batch_size(self) -> int:
        """Samples in one step of one process; only asked for once the batch is known."""
        assert self.case.batch_size is not None
        return self.case.batch_size

    @property
    def synthetic(self) -> bool:
        """Whether data of the right shape stands in for the real dataset."""
        return self.case.data == "synthetic"

    @property
    def teaches(self) -> bool:
        """Whether it trains every epoch on real data, so that its quality means something."""
        return self.case.mode == "full" and not self.synthetic and self.case.weights != "random"


@dataclass(frozen=True)
class Lap:
    """One timed stretch of steps between two synchronisations."""

    phase: str
    epoch: int
    kind: Literal["warmup", "timed", "resident"]
    steps: int
    samples: int
    seconds: float
    wait_seconds: float
    """Part of `seconds` in which the loop waited for the loader."""
    started: float = 0.0
    """When it began, in seconds of the monotonic clock, which on one machine all processes share."""
    earlier: bool = False
    """Whether another process timed it, before the run was resumed: its clock may have been another."""


@dataclass(frozen=True)
class Telemetry:
    """What the parent read of the device while the timed training laps ran; None and empty where it could not.

    Its fields are columns of the row, which say more.
    """

    device_memory_bytes: int | None = None
    mean_power_watts: float | None = None
    energy_joules: float | None = None
    energy_source: str = ""
    joules_per_sample: float | None = None
    cpu_energy_joules: float | None = None
    mean_sm_clock_mhz: float | None = None
    min_sm_clock_mhz: float | None = None
    mean_memory_clock_mhz: float | None = None
    max_temperature_celsius: float | None = None
    mean_utilisation: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    throttle: str = ""
    foreign_load: str = ""
    marks: str = ""
    """Of `throttled`, `clock_fell` and `shared` those that hold; the row adds `unsteady`."""


@dataclass(frozen=True)
class Measurement:
    """What one trial's process answered."""

    status: Status
    reason: str = ""
    """In words, for a reader alone: what code asks for is in the fields below."""
    fault: Fault = ""
    error: str = ""
    """The class of the exception that ended it: `RuntimeError`, say."""
    seconds: float | None = None
    """The whole run: all epochs, training and validation; projected unless `measured`."""
    measured: bool = False
    train_seconds: float | None = None
    valid_seconds: float | None = None
    samples_per_second: float | None = None
    epochs: int | None = None
    samples: int | None = None
    """Samples trained in laps of any kind."""
    steady: str = ""
    """How the steady state was found, in words."""
    unsteady: bool = False
    """Whether there was none."""
    data_stall: float | None = None
    loader_wait: float | None = None
    resident_samples_per_second: float | None = None
    run_samples: int | None = None
    """Training samples of the whole run that `seconds` stands for."""
    step_samples: int | None = None
    """Samples in the step that was counted."""
    flops_per_sample: float | None = None
    bytes_per_sample: float | None = None
    ops_per_step: int | None = None
    odd_flops_share: float | None = None
    setup_seconds: float | None = None
    """From the call of `train` to its first step: building model and data."""
    precision_error: float | None = None
    precision_proof: str = ""
    backend: str = ""
    """How several processes talk (nccl, gloo), and empty for one."""
    interconnect: str = ""
    """What lies between them."""
    rank_spread: float | None = None
    """The slowest process's own time of a step over the fastest's, less 1: communication left out."""
    straggler: str = ""
    """The slowest process, where it stands out."""
    communication_share: float | None = None
    """1 - (step time without the gradients' all-reduce / step time with it)."""
    peak_memory_bytes: int | None = None
    resting_memory_bytes: int | None = None
    """Of an accelerator's, what stays allocated between steps."""
    loss_scale: float | None = None
    """At the end of the training; None where no loss was scaled."""
    skipped_steps: int | None = None
    nonfinite_losses: int | None = None
    allocator_retries: int = 0
    quality: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    """Those torch computed with."""
    memory_format: str = ""
    """Layout of images and weights, where the suite has several."""
    table: tuple[Mapping[str, str | int | float], ...] = ()
    """What a suite measured beside laps."""
    resumed: str = ""
    """Where the trial went on that an earlier process had begun, and what of it was lost; empty where none had."""
    laps: tuple[Lap, ...] = ()
    telemetry: Telemetry = Telemetry()
    """The parent's part: a child leaves it empty."""

    @property
    def diverged(self) -> bool:
        """Whether it failed in its figures only: everything ran, and fitted."""
        return self.status == "failed" and self.fault == "diverged"


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """Plain data for the trip to the child."""
    return asdict(trial)


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """The inverse of `trial_to_json`."""
    case = dict(data["case"])
    case["studies"] = tuple(case["studies"])
    case["batch_curve"] = tuple(tuple(point) for point in case["batch_curve"])
    return Trial(**{**data, "case": Case(**case)})


def measurement_from_json(data: Mapping[str, Any]) -> Measurement:
    """A measurement from what the child sent; raises TypeError where a field is unknown."""
    laps = tuple(Lap(**lap) for lap in data.get("laps", ()))
    known = {name: value for name, value in data.items() if name != "telemetry"}
    return Measurement(**{**known, "laps": laps, "table": tuple(data.get("table", ()))})
