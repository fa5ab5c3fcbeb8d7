"""The row: one trial as a line of a CSV file. Declares each column with its source, unit, range, role and meaning."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from gpubench.rows.column import ANY, AT_MOST_1, CELSIUS, POSITIVE, SHARE, Column, Role, column, figure, number, quality
from gpubench.rows.files import csv_line

SCHEMA = 1
"""Version of the table. History: 1 is the first (2026-11)."""


@dataclass(frozen=True)
class Row:
    """One trial. Empty means unknown or not applicable, never zero. No host or user name appears here."""

    schema: int = column("", "version of this table", SCHEMA)
    # The case.
    suite: str = column("case", "name of the suite: its file's stem, or its folder's name", role=Role.RECIPE)
    suite_version: int | None = number(
        "case", "", "version of the suite, raised when an edit can change a timing or a result", role=Role.RECIPE
    )
    suite_digest: str = column(
        "case", "SHA-256 of the code that was timed: the suite and what runs it, without comments", role=Role.CODE
    )
    model: str = column("case", "model inside the suite", role=Role.CASE)
    rung: int | None = number("case", "", "number of the rung in the suite's ladder, from 1")
    studies: str = column(
        "record",
        "studies of `compare` that use the row: ladder, ablation, batch, stages, scaling, placing, published (the runs"
        " of a publication, and others' runs to compare them with, all in one session)",
    )
    precision: str = column(
        "case", "fp32, tf32, fp16, bf16, fp16-master, fp16-pure, bf16-pure, float8, int8-mixed", role=Role.CASE
    )
    batch_size: int | None = number(
        "case",
        "samples",
        "samples in a batch of one process; columns or sequences of text for a language model",
        POSITIVE,
        role=Role.BATCH,
    )
    batch_policy: str = column(
        "case",
        "how the batch was chosen: fixed, max, fastest, max-fp32 (the batch that max found for fp32),"
        " author (chosen by the author of a published figure), author-doubled (twice that, in mixed precision)",
        role=Role.CASE,
    )
    batch_capped: bool | None = column("record", "whether something other than memory ended the batch search", None)
    batch_curve: str = column(
        "record", "JSON list of the batch search: [batch, samples per second or 0 where it did not fit, peak bytes]"
    )
    params: str = column(
        "record", "every parameter of the suite, `name=value` sorted and joined by spaces", role=Role.SCALE
    )
    processes: int | None = number(
        "case.processes",
        "",
        "training processes (ranks), all machines together: the world size",
        POSITIVE,
        role=Role.SCALE,
    )
    nodes: int | None = number("case", "", "machines that the processes ran on", POSITIVE, role=Role.SCALE)
    data: str = column("case", "datasets joined by +, or synthetic", role=Role.RECIPE)
    weights: str = column(
        "case", "pretrained weights the run starts from; random if the file was missing", role=Role.RECIPE
    )
    mode: str = column("case", "sampled, full, quick, or published for a figure from elsewhere", role=Role.RECIPE)
    seed: int | None = number("trial", "", "seed of the trial", ANY)
    memory_limit_bytes: int | None = number("case", "bytes", "--memory-limit", POSITIVE, role=Role.SETTING)
    # The device and its host.
    card: str = column("device", "name of the GPU or CPU model", role=Role.SPECIMEN)
    device: str = column("device", "device as torch calls it: cuda:0, cpu", role=Role.SPECIMEN)
    device_hash: str = column("device", "salted hash that tells two specimens of one card apart", role=Role.SPECIMEN)
    card_memory_bytes: int | None = number(
        "device.memory_bytes", "bytes", "memory of the card, or of the host for a CPU", POSITIVE
    )
    driver: str = column("device", "driver of the device", role=Role.HOST)
    power_limit_watts: float | None = number("card", "W", "power limit of the card as it was set", role=Role.SETTING)
    default_power_limit_watts: float | None = number("card", "W", "factory power limit")
    card_max_sm_clock_mhz: int | None = number("card", "MHz", "highest SM clock the card allows")
    card_max_memory_clock_mhz: int | None = number("card", "MHz", "highest memory clock the card allows")
    clocks_policy: str = column(
        "card",
        "default, or what was done to the clocks: application clock, offset (a lock by nvidia-smi -lgc cannot be read)",
        role=Role.SETTING,
    )
    ecc: str = column("card", "error correction of the card's memory: on or off")
    mig: str = column("card", "on if the device is a slice of a card")
    persistence: str = column("card", "whether the driver stays loaded between processes: on or off")
    max_pcie_generation: int | None = number("card", "", "PCIe generation that card and slot can do")
    max_pcie_width: int | None = number("card", "", "PCIe lanes that card and slot can do")
    numa_node: int | None = number("card", "", "memory node of the host that the card is attached to")
    cpu: str = column("environment", "model of the host's CPU", role=Role.HOST)
    cpu_count: int | None = number("environment", "", "logical CPUs the process may use", POSITIVE, role=Role.HOST)
    threads: int | None = number("measurement", "", "threads torch computed with", POSITIVE, role=Role.SETTING)
    memory_format: str = column(
        "measurement", "layout of images and weights where the suite can choose: contiguous or channels_last"
    )
    os: str = column("environment", "operating system and release")
    cpu_governor: str = column(
        "environment", "frequency governor of the CPUs; empty where there is none, as in a virtual machine"
    )
    numa_nodes: int | None = number("environment", "", "memory nodes of the host")
    container: str = column("environment", "docker, podman, kubernetes, apptainer, another's name, or none")
    load_average: float | None = figure(
        "environment", "", "mean number of processes that wanted a CPU in the minute before the run began"
    )
    host_reference_seconds: float | None = figure(
        "environment",
        "s",
        "time of a fixed Python loop and a copy of 64 MiB, once per run: a slow host slows launch-bound work",
    )
    # Software.
    torch: str = column("environment", "version of torch, with its build", role=Role.SOFTWARE)
    torchvision: str = column("environment", "version of torchvision", role=Role.SOFTWARE)
    fastai: str = column("environment", "version of fastai", role=Role.SOFTWARE)
    cuda: str = column("environment", "CUDA version torch was built for", role=Role.SOFTWARE)
    cudnn: str = column("environment", "cuDNN version", role=Role.SOFTWARE)
    switches: str = column(
        "environment", "environment variables that change how CUDA or torch works, with their values", role=Role.SETTING
    )
    python: str = column("environment", "version of Python", role=Role.HOST)
    gpubench: str = column("environment", "version of gpubench", role=Role.CODE)
    commit: str = column("environment", "commit of gpubench's checkout, with + if files were edited")
    # The run.
    session: str = column("run", "name of the run: random, or --session; its trials take turns", role=Role.SPECIMEN)
    trial: int | None = number("trial.index", "", "round inside the session, from 0")
    until: float | None = number(
        "run",
        "share",
        "largest half-width of an interval, as a share of its median, at which rounds end; empty without --until",
        POSITIVE,
    )
    started: str = column("record", "UTC time the trial started, ISO 8601")
    source: str = column("", "where a published figure comes from; empty for our own rows", role=Role.ORIGIN)
    # The results.
    status: str = column("measurement", "ok, unsupported, out_of_memory, timed_out, failed, goal_missed or interrupted")
    reason: str = column("record", "why the status is not ok, or what to know about an ok row")
    seconds: float | None = figure("record", "s", "the whole run: all epochs, training and validation")
    seconds_low: float | None = figure(
        "record",
        "s",
        "lower end of the projection's range (from ratios of projected to measured time of the suite on a CPU,"
        " docs/research/tested.md, and from a trend of the sample's steps); empty where measured",
    )
    seconds_high: float | None = figure("record", "s", "upper end of the projection's range; empty where measured")
    measured: str = column("record", "`measured` or `projected`: what `seconds` is", role=Role.ORIGIN)
    dollars: float | None = number(
        "",
        "dollars",
        "the whole run's cost, where a published figure states it; `--metric cost` uses it instead of a price",
    )
    samples_per_second: float | None = figure(
        "measurement",
        "1/s",
        "training samples / wall time of the timed laps; if a published figure has no rate, `compare` uses the rate of"
        " its whole run",
        role=Role.FIGURE,
    )
    train_seconds: float | None = figure("measurement", "s", "part of `seconds` in the training phases")
    valid_seconds: float | None = figure("measurement", "s", "part of `seconds` in the validation phases")
    epochs: int | None = number("measurement", "", "epochs of the run whose time is `seconds`", role=Role.FIGURE)
    samples: int | None = number("measurement", "samples", "samples really trained in this trial, warm-up included")
    resumed: str = column(
        "measurement",
        "where the trial went on after its process was stopped; `seconds` includes the time of the stopped process",
    )
    steady: str = column("measurement", "how the steady state was found, or `unsteady` and why")
    marks: str = column(
        "record",
        "caveats of the trial, which still counts: throttled (slowed by heat or hardware, or the SM clock fell by 10%"
        " without a power cap), clock_fell (the SM clock fell by 3%), shared (other programs used the card, or over a"
        " tenth of the CPU where that is measured), unsteady, resumed (parts of it ran at another time), shared_peak"
        " (other programs ran while the peak was measured)",
    )
    data_stall: float | None = figure(
        "measurement",
        "share",
        "1 - (step time on one resident batch / step time with the pipeline); noise can make it negative",
        AT_MOST_1,
        role=Role.FIGURE,
    )
    loader_wait: float | None = figure(
        "measurement", "share", "share of the timed laps that the host waited for the loader", SHARE, role=Role.FIGURE
    )
    resident_samples_per_second: float | None = figure(
        "measurement", "1/s", "training samples / wall time on one resident batch", role=Role.FIGURE
    )
    run_samples: int | None = number(
        "measurement", "samples", "training samples of the whole run whose time is `seconds`"
    )
    step_samples: int | None = number("measurement", "samples", "samples in the step whose FLOPs were counted")
    flops_per_sample: float | None = figure(
        "measurement",
        "FLOP",
        "FLOPs of forward and backward per sample: torch's FlopCounterMode, or the suite's formula where it has one",
        role=Role.FIGURE,
    )
    bytes_per_sample: float | None = figure(
        "measurement",
        "bytes",
        "bytes a sample moves if every call reads its tensors and writes its results once (no fusion, no cache)",
        role=Role.FIGURE,
    )
    ops_per_step: int | None = number(
        "measurement", "", "calls that torch dispatched in one training step, views not counted", role=Role.FIGURE
    )
    odd_flops_share: float | None = figure(
        "measurement", "share", "share of the FLOPs in products with a size or channels not a multiple of 8", SHARE
    )
    low_flops_share: float | None = figure("measurement", "share", "share of the FLOPs in float8 or int8", SHARE)
    measured_peak_flops: float | None = figure(
        "peak.flops_per_second",
        "FLOP/s",
        "`gpubench peak` of this device and precision: FLOP/s of the fastest matrix product",
        role=Role.FIGURE,
    )
    measured_bandwidth_bytes_per_second: float | None = figure(
        "peak.bytes_per_second",
        "bytes/s",
        "`gpubench peak` of this device: bytes read and written per second by a large copy",
        role=Role.FIGURE,
    )
    op_overhead_seconds: float | None = figure(
        "peak.op_seconds",
        "s",
        "`gpubench peak` of this device and precision: seconds per call of a training step on tiny tensors",
        role=Role.FIGURE,
    )
    start: str = column("measurement", "fresh process, or forked from one that has loaded the suite", role=Role.SETTING)
    startup_seconds: float | None = figure(
        "measurement", "s", "time of the trial outside its training: start, imports, device, probes, shutdown"
    )
    setup_seconds: float | None = figure("measurement", "s", "building model and data, before the first step")
    precision_error: float | None = figure(
        "measurement", "", "largest relative error of the probe's matmul, convolution and RNN against float64"
    )
    precision_proof: str = column(
        "measurement", "what the probe, the flags and the operands of the model's own calls showed"
    )
    loss_scale: float | None = number(
        "measurement", "", "loss scale at the end of the training; empty where no loss is scaled"
    )
    skipped_steps: int | None = number(
        "measurement", "", "training steps that were not taken because a gradient overflowed; fp16-pure takes them all"
    )
    nonfinite_losses: int | None = number("measurement", "", "training steps whose loss was infinite or not a number")
    peak_memory_bytes: int | None = number(
        "measurement",
        "bytes",
        "accelerator: most memory allocated (CUDA: after the first lap); CPU: most resident memory of the process",
        role=Role.FIGURE,
    )
    allocator_retries: int | None = number(
        "record",
        "",
        "CUDA: how often the allocator had to free its cache and allocate again, in steps on a resident batch",
    )
    # Read by the parent over the timed training laps; all but foreign_load are empty if less than a second was read.
    device_memory_bytes: int | None = number("telemetry", "bytes", "most memory in use on the card, by all programs")
    mean_power_watts: float | None = figure("telemetry", "W", "energy / seconds of the timed training laps")
    energy_joules: float | None = figure("telemetry", "J", "energy of the device over the timed training laps")
    energy_source: str = column(
        "telemetry",
        "counter (the card's own), integrated (power readings over time: coarser), or rapl (all CPU packages)",
    )
    joules_per_sample: float | None = figure("telemetry", "J", "energy / samples of the timed training laps")
    cpu_energy_joules: float | None = figure(
        "telemetry", "J", "energy of all CPU packages over the same laps, from RAPL if readable"
    )
    mean_sm_clock_mhz: float | None = figure("telemetry", "MHz", "mean SM clock")
    min_sm_clock_mhz: float | None = number("telemetry", "MHz", "lowest reading of the SM clock")
    mean_memory_clock_mhz: float | None = figure("telemetry", "MHz", "mean memory clock")
    max_temperature_celsius: float | None = number("telemetry", "°C", "highest temperature of the card", CELSIUS)
    mean_utilisation: float | None = figure(
        "telemetry", "share", "share of the time in which anything ran on the card", SHARE
    )
    pcie_generation: int | None = number("telemetry", "", "PCIe generation the link ran at")
    pcie_width: int | None = number("telemetry", "", "PCIe lanes the link ran with")
    throttle: str = column(
        "telemetry",
        "share of the time for each reason that kept the clock from being higher (power_cap is normal under load),"
        " or none",
    )
    foreign_load: str = column(
        "telemetry",
        "other programs' processes on the card, as `1 compute, 2 graphics`, none, or unknown (in most containers the"
        " driver's process ids are of no use); on a CPU: the share of it that other programs used, if over a tenth",
    )
    accuracy: float | None = quality(
        "share", "share of right predictions in validation at the end; full runs only", title="accuracy", allowed=SHARE
    )
    loss: float | None = quality(
        "", "validation loss at the end; full runs only", title="loss", better="lower", allowed=ANY
    )
    top5: float | None = quality(
        "share",
        "share of images whose class is among the five likeliest, at the end; full runs only",
        title="top-5",
        allowed=SHARE,
    )
    success_rate: float | None = quality(
        "share",
        "share of the trial's trainings (usually one) whose quality reached the suite's goal; full runs only",
        allowed=SHARE,
    )
    perplexity: float | None = quality(
        "",
        "exp of the mean loss per token of the validation text, at the best epoch; full runs only",
        title="perplexity",
        better="lower",
    )
    test_perplexity: float | None = quality(
        "", "exp of the mean loss per token of the test text (best epoch's weights); full runs only", better="lower"
    )
    backend: str = column(
        "measurement", "how several processes communicate: nccl, gloo; empty for one process", role=Role.LINK
    )
    interconnect: str = column(
        "measurement",
        "what connects the processes: loopback, NVLink, PCIe, a network and its speed; and NCCL's report of it",
        role=Role.LINK,
    )
    rank_spread: float | None = figure(
        "measurement",
        "share",
        "step time of the slowest process / step time of the fastest one - 1, with the loader, without the all-reduce",
    )
    straggler: str = column(
        "measurement", "the process that is over a tenth slower than the median one; empty where none is"
    )
    communication_share: float | None = figure(
        "measurement",
        "share",
        "1 - (step time without the gradients' all-reduce / step time with it), both on a resident batch",
        AT_MOST_1,
        role=Role.FIGURE,
    )
    laps: str = column(
        "record", "JSON list of laps: [phase, epoch, kind, steps, samples, seconds, seconds waiting for the loader]"
    )
    table: str = column(
        "record",
        "JSON list of the suite's own figures: the columns, then the lines. imagenet: an epoch or a phase per line"
        " (hours; top-1 and top-5 of a full run). scaling: the columns of nccl-tests"
        " (seconds of one all-reduce, algbw and busbw in GB/s, elements that were not the exact sum)",
    )
    row_digest: str = column(
        "",
        "first 16 digits of SHA-256 over the row's values (1e3 and 1000.0 are the same value): shows later changes, not"
        " whether the values are honest",
    )
    end: str = column("", "always `end`: a line without it was torn", "end")


ABOUT: Mapping[str, Column] = {f.name: f.metadata["column"] for f in fields(Row)}
"""The description of each column, by name."""
COLUMNS = tuple(ABOUT)
QUALITIES = {name: about for name, about in ABOUT.items() if about.source == "quality"}
SHOWN_QUALITIES = {name: about for name, about in QUALITIES.items() if about.title}
"""The qualities that results show."""


def _columns_of(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(Row) if f.type in (kind, kind | None))


INTEGERS = frozenset(_columns_of(int))
NUMBERS = _columns_of(int) + _columns_of(float)
FLAGS = _columns_of(bool)
DIGEST, END = COLUMNS[-2:]
DIGEST_DIGITS = 16


def to_cells(row: Row) -> list[str]:
    """Return the row as texts, with its digest: None becomes an empty text, and floats have all their digits."""
    values = [_cell(getattr(row, name), whole=name in INTEGERS) for name in COLUMNS[:-2]]
    return [*values, digest_of(values), row.end]


def digest_of(values: Sequence[str]) -> str:
    """Return the digest of a row's cells from `to_cells`, without the last two (digest and end)."""
    return hashlib.sha256(csv_line(values).encode()).hexdigest()[:DIGEST_DIGITS]


def _cell(value: object, *, whole: bool) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, float):
        # The repr of NumPy's floats is np.float64(1.5). Whole numbers are floats after reading.
        return str(int(value)) if whole and value.is_integer() else repr(float(value))
    text = str(value).encode(errors="backslashreplace").decode().replace("\0", " ")  # names of files may be no UTF-8
    # A row is one line, so that an interrupted write damages no other row.
    return " ".join(text.split())
