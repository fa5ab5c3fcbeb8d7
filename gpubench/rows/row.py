"""The row: one trial as one CSV line. Its dataclass fields are the columns; appending is locked and synced."""

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from filelock import FileLock

from gpubench.errors import UserError

SCHEMA = 1
"""History: 1 (2026-11) the first."""


def column(doc: str, default: Any = "") -> Any:
    """A field with its line for results/README.md."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Row:
    """One trial. Empty means unknown or not applicable, never zero. No host or user name appears here."""

    schema: int = column("version of this table", SCHEMA)
    # What was asked.
    suite: str = column("name of the suite, its file's stem")
    suite_version: int | None = column("raised when an edit can change a timing or a result", None)
    suite_digest: str = column("SHA-256 of the code that was timed: the suite and what runs it, without comments")
    model: str = column("model inside the suite")
    rung: int | None = column("place of the model in a suite whose models are the steps of a ladder, from 1", None)
    studies: str = column(
        "what the suite's models answer beside how fast they train: ladder, ablation, batch, stages, scaling"
    )
    precision: str = column("fp32, tf32, fp16, bf16, fp16-master or fp16-pure; never `mixed`")
    batch_size: int | None = column("samples in one step of one process; columns of text for a language model", None)
    batch_policy: str = column(
        "how the batch was chosen: fixed, max, fastest, max-fp32 (the batch that max found for fp32),"
        " author (a published figure's own)"
    )
    batch_capped: bool | None = column("max met the cap, a twentieth of the dataset", None)
    batch_curve: str = column(
        "JSON list of [batch, samples per second or 0 where it did not fit, peak bytes] of the search"
    )
    params: str = column("every parameter of the suite, `name=value` sorted and joined by spaces")
    processes: int | None = column("training processes (ranks), all machines together: the world size", None)
    nodes: int | None = column("machines they ran on", None)
    data: str = column("datasets joined by +, or synthetic")
    weights: str = column("pretrained weights the run starts from; random where they were meant but absent")
    mode: str = column("sampled, full, quick, or published for a figure from elsewhere")
    seed: int | None = column("seed of the trial", None)
    memory_limit_bytes: int | None = column("--memory-limit", None)
    # Where.
    card: str = column("name of the GPU or CPU model")
    device: str = column("device as torch calls it: cuda:0, cpu")
    device_hash: str = column("salted hash that tells two specimens of one card apart")
    card_memory_bytes: int | None = column("memory of the card, or of the host for a CPU", None)
    driver: str = column("driver of the device")
    power_limit_watts: float | None = column("power limit of the card as it was set", None)
    default_power_limit_watts: float | None = column("power limit it comes with", None)
    card_max_sm_clock_mhz: int | None = column("highest SM clock the card allows", None)
    card_max_memory_clock_mhz: int | None = column("highest memory clock the card allows", None)
    clocks_policy: str = column(
        "default, or what was done to the clocks: application clock, offset (a lock by nvidia-smi -lgc cannot be read)"
    )
    ecc: str = column("error correction of the card's memory: on or off")
    mig: str = column("on where the device is a slice of a card")
    persistence: str = column("whether the driver stays loaded between processes: on or off")
    max_pcie_generation: int | None = column("PCIe generation that card and slot can do", None)
    max_pcie_width: int | None = column("PCIe lanes that card and slot can do", None)
    numa_node: int | None = column("memory node of the host that the card is attached to", None)
    cpu: str = column("model of the host's CPU")
    cpu_count: int | None = column("logical CPUs the process may use", None)
    threads: int | None = column("threads torch computed with", None)
    memory_format: str = column("layout of images and weights where the suite has both: contiguous or channels_last")
    os: str = column("operating system and release")
    cpu_governor: str = column("frequency governor of the CPUs; empty where there is none, as in a virtual machine")
    numa_nodes: int | None = column("memory nodes of the host", None)
    container: str = column("docker, podman, kubernetes, apptainer, another's name, or none")
    load_average: float | None = column("processes that wanted a CPU in the minute before the run began", None)
    host_reference_seconds: float | None = column(
        "a fixed Python loop and a copy of 64 MiB, once per run: the host's own speed, which launch-bound work feels",
        None,
    )
    # Software.
    torch: str = column("version of torch, with its build")
    torchvision: str = column("version of torchvision")
    fastai: str = column("version of fastai")
    cuda: str = column("CUDA version torch was built for")
    cudnn: str = column("cuDNN version")
    switches: str = column("environment variables that change what CUDA or torch's memory does, as they were set")
    python: str = column("version of Python")
    gpubench: str = column("version of gpubench")
    commit: str = column("commit of gpubench's checkout, with + where it was edited")
    # Which run.
    session: str = column("random name of the run; trials of one session are interleaved")
    trial: int | None = column("round inside the session, from 0", None)
    until: float | None = column(
        "--until: rounds were added until every case's interval was this share of its median to either side;"
        " empty where their number was fixed",
        None,
    )
    started: str = column("UTC time the trial started, ISO 8601")
    source: str = column("where a published figure comes from; empty for our own rows")
    # What came of it.
    status: str = column("ok, unsupported, out_of_memory, timed_out, failed, goal_missed or interrupted")
    reason: str = column("why the status is not ok, or what to know about an ok row")
    seconds: float | None = column("the whole run: all epochs, training and validation", None)
    seconds_low: float | None = column(
        "lower end of the projection's band (measured projected/full ratios of the suite on a CPU,"
        " docs/tested.md); empty where measured",
        None,
    )
    seconds_high: float | None = column("upper end of the projection's band; empty where measured", None)
    measured: str = column("`measured` or `projected`: what `seconds` is")
    samples_per_second: float | None = column(
        "training samples / wall time of the timed laps; where a published figure has none, `compare` takes that of its"
        " whole run",
        None,
    )
    train_seconds: float | None = column("part of `seconds` in the training phases", None)
    valid_seconds: float | None = column("part of `seconds` in the validation phases", None)
    epochs: int | None = column("epochs that `seconds` stands for", None)
    samples: int | None = column("samples really trained in this trial, warm-up included", None)
    resumed: str = column(
        "where the trial went on after an earlier process of it was stopped; `seconds` is the time of all of them"
    )
    steady: str = column("how the steady state was found, or `unsteady` and why")
    marks: str = column(
        "what speaks against the trial, which counts all the same: throttled (slowed by heat or hardware, or an SM"
        " clock that fell by 3% for no reason given), clock_fell (the same under a power cap), shared (others computed"
        " on the card, or took over a tenth of the CPU, as a device), unsteady, resumed (parts of it ran at another"
        " time)"
    )
    data_stall: float | None = column(
        "1 - (step time on one resident batch / step time with the pipeline); noise can make it negative",
        None,
    )
    loader_wait: float | None = column("share of the timed laps that the host waited for the loader", None)
    resident_samples_per_second: float | None = column("training samples / wall time on one resident batch", None)
    run_samples: int | None = column("training samples of the whole run that `seconds` stands for", None)
    step_samples: int | None = column("samples in the step that was counted", None)
    flops_per_sample: float | None = column(
        "FLOPs of forward and backward per sample: torch's FlopCounterMode, or the suite's formula where it has one",
        None,
    )
    bytes_per_sample: float | None = column(
        "bytes a sample moves, a model: every call reads its tensors and writes its results once (no fusion, no cache)",
        None,
    )
    ops_per_step: int | None = column("calls that torch dispatched in one training step, views not counted", None)
    odd_flops_share: float | None = column(
        "share of the FLOPs in products with a dimension (of a convolution: channels) that is no multiple of 8", None
    )
    measured_peak_flops: float | None = column(
        "`gpubench peak` of this device and precision: FLOP/s of the fastest matrix product", None
    )
    measured_bandwidth_bytes_per_second: float | None = column(
        "`gpubench peak` of this device: bytes read and written per second by a large copy", None
    )
    op_overhead_seconds: float | None = column(
        "`gpubench peak` of this device and precision: seconds per call of a training step on tiny tensors", None
    )
    startup_seconds: float | None = column(
        "what the trial cost beyond its training: interpreter, imports, device, probes, shutdown", None
    )
    setup_seconds: float | None = column("building model and data, before the first step", None)
    precision_error: float | None = column(
        "largest relative error of the probe's matmul, convolution and RNN against float64", None
    )
    precision_proof: str = column("what the probe, the flags and the operands of the model's own calls showed")
    loss_scale: float | None = column("loss scale at the end of the training; empty where no loss is scaled", None)
    skipped_steps: int | None = column(
        "training steps that were not taken because a gradient overflowed; fp16-pure takes them all", None
    )
    nonfinite_losses: int | None = column("training steps whose loss was infinite or not a number", None)
    peak_memory_bytes: int | None = column(
        "accelerator: most memory allocated (CUDA: after the first lap); CPU: peak resident of the process", None
    )
    allocator_retries: int | None = column(
        "CUDA: how often the allocator had to give memory back and ask again, in steps on a resident batch", None
    )
    # Read by the parent over the timed training laps; empty where less than a second of them was read.
    device_memory_bytes: int | None = column("most memory in use on the card, by everyone", None)
    mean_power_watts: float | None = column("energy / seconds of the timed training laps", None)
    energy_joules: float | None = column("energy of the device over the timed training laps", None)
    energy_source: str = column(
        "counter (the card's own), integrated (power readings over time: coarser), or rapl (all CPU packages)"
    )
    joules_per_sample: float | None = column("energy / samples of the timed training laps", None)
    cpu_energy_joules: float | None = column("energy of all CPU packages meanwhile, by RAPL where readable", None)
    mean_sm_clock_mhz: float | None = column("SM clock", None)
    min_sm_clock_mhz: float | None = column("lowest reading of the SM clock", None)
    mean_memory_clock_mhz: float | None = column("memory clock", None)
    max_temperature_celsius: float | None = column("highest temperature of the card", None)
    mean_utilisation: float | None = column("share of the time in which anything ran on the card", None)
    pcie_generation: int | None = column("PCIe generation the link ran at", None)
    pcie_width: int | None = column("PCIe lanes the link ran with", None)
    throttle: str = column(
        "share of the time for each reason that kept the clock from being higher (power_cap is normal under load),"
        " or none"
    )
    foreign_load: str = column(
        "others' processes on the card, as `1 compute, 2 graphics`, none, or unknown where the driver's process ids"
        " mean nothing here, as in most containers; on a CPU the share that others took of it, if over a tenth"
    )
    accuracy: float | None = column("fraction right on the validation set at the end; full runs only", None)
    loss: float | None = column("validation loss at the end; full runs only", None)
    top5: float | None = column("fraction whose class is among the five likeliest at the end; full runs only", None)
    success_rate: float | None = column(
        "share of the process's runs (most often one) whose quality reached the suite's goal; full runs only", None
    )
    perplexity: float | None = column(
        "of the validation text at the best epoch, exp of the mean loss per token; full runs only", None
    )
    test_perplexity: float | None = column(
        "of the test text, with the weights that were best in validation; full runs only", None
    )
    backend: str = column("how several processes talk: nccl, gloo; empty for one process")
    interconnect: str = column(
        "what lies between them: loopback, NVLink, PCIe, a network and its speed; what NCCL tells of its way"
    )
    rank_spread: float | None = column(
        "slowest process's own step time, loader included and all-reduce left out, over the fastest's, less 1", None
    )
    straggler: str = column("the process that is over a tenth slower than the median one; empty where none is")
    communication_share: float | None = column(
        "1 - (step time without the gradients' all-reduce / step time with it), both on a resident batch", None
    )
    laps: str = column(
        "JSON list of laps: [phase, epoch, kind, steps, samples, seconds, seconds waiting for the loader]"
    )
    table: str = column(
        "JSON: the suite's own figures, a list of columns and then lines; imagenet's are an epoch or a phase each"
        " (hours, top-1 and top-5 where it was trained), scaling's those of nccl-tests"
        " (seconds of one all-reduce, algbw and busbw in GB/s, elements that were not the exact sum)"
    )
    end: str = column("always `end`: a line without it was torn", "end")


COLUMNS = tuple(f.name for f in fields(Row))


def to_cells(row: Row) -> list[str]:
    """The row as text: empty for None, `true`/`false`, floats so that they read back exactly."""
    return [_cell(getattr(row, name)) for name in COLUMNS]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value))  # NumPy's floats are floats too, and their repr is np.float64(1.5)
    # One row is one line, so that a torn write can only hurt the last line.
    return " ".join(str(value).split()) if isinstance(value, str) else str(value)


def check_writable(path: Path) -> None:
    """Make the folder and try the file, before hours of work; raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock(path):  # another run may be about to write its header
            with path.open("ab"):
                pass
            if path.stat().st_size == 0:
                path.unlink()
                return
        with path.open(encoding="utf-8", errors="replace") as file:
            header = file.readline()
    except OSError as error:
        raise UserError(f"--out {path}: cannot write there ({error.strerror}); give another --out") from None
    whole = header.endswith("\n")
    if whole and tuple(header.rstrip("\r\n").split(",")) != COLUMNS:
        raise UserError(f"--out {path}: it holds another table, or rows of another gpubench; give a new file")


def seal(path: Path) -> str:
    """End a torn last line with a newline, so that the next row stays whole; says so, or returns an empty string.

    Raises UserError where the file cannot be written.
    """
    try:
        with lock(path):
            return _seal(path)
    except OSError as error:
        raise UserError(f"{path}: its torn last line could not be ended ({error.strerror}); make room first") from None


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows at the end, flushed and synced, under a lock; writes the header to a new file.

    Raises UserError where the disk is full or the file cannot be written.
    """
    try:
        with lock(path):
            _seal(path)
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not path.exists() or path.stat().st_size == 0:
                writer.writerow(COLUMNS)
            writer.writerows(to_cells(row) for row in rows)
            with path.open("ab") as file:
                file.write(text.getvalue().encode())
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"{path}: the row could not be written ({error.strerror}); rows written before it are safe."
            " Make room or give another --out, then run the same command to go on"
        ) from None


def lock(path: Path) -> FileLock:
    """The lock that guards appends to `path`, kept outside the results folder."""
    import hashlib
    import tempfile

    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir()) / f"gpubench-{name}.lock")


def _seal(path: Path) -> str:
    if not path.exists() or path.stat().st_size == 0:
        return ""
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return ""
        file.seek(0)
        before, newline, torn = file.read().rpartition(b"\n")
        if newline and torn.endswith(b",end") and torn.count(b'"') % 2 == 0:
            file.write(b"\n")  # whole; an editor took its newline
            return ""
        if not newline:  # not even the header was whole
            file.truncate(0)
            return f"{path}: only a torn header was there (a run was killed while writing it); started anew"
        # An open quote would swallow the lines that follow, for every reader that honours quotes.
        file.seek(len(before) + 1 + len(torn))
        file.write(b'"\n' if torn.count(b'"') % 2 else b"\n")
    return f"{path}: the last line was torn (a run was killed while writing it); it is kept and not used"


def columns_markdown() -> str:
    """The table of results/README.md."""
    lines = ["| column | type | meaning |", "| --- | --- | --- |"]
    for f in fields(Row):
        kind = str(f.type).replace(" | None", "").replace("<class '", "").replace("'>", "")
        lines.append(f"| `{f.name}` | {kind} | {f.metadata['doc']} |")
    return "\n".join(lines) + "\n"
