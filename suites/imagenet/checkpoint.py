"""Saves a checkpoint after each epoch, from which a killed run goes on."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpubench import Clock, Trial, UserError

from .data import Source
from .network import Network, State

Line = dict[str, Any]
"""One of the row's table: an epoch, or a phase."""


class Checkpoint:
    """What a killed run goes on from: model and clock after each epoch, and how long the running one has lasted."""

    def __init__(self, trial: Trial) -> None:
        case = trial.case
        params = json.dumps(dict(case.params), sort_keys=True)
        who = (case.suite_digest, case.model, case.precision, case.device, case.processes, trial.seed)
        same = (*who, case.batch_size, params, case.data)
        name = hashlib.sha256(repr(same).encode()).hexdigest()[:16]
        self.folder = Path(trial.checkpoint_dir) if trial.checkpoint_dir else None
        self.file, self.beat = Path(f"{name}.pt"), Path(f"{name}.json")
        self.first, self.written, self.trouble = 0, 0.0, False
        self.processes, self.leads = case.processes, trial.rank == 0
        if self.folder:
            self.file, self.beat = self.folder / self.file, self.folder / self.beat

    def resume(self, net: Network, clock: Clock, source: Source) -> list[Line]:
        """Take up what an earlier process left, if anything; returns its lines of the table."""
        if not self.folder:
            return []
        left = [self.read() if self.leads else None]
        if self.processes > 1:
            dist.broadcast_object_list(left, src=0)  # other machines have no file
        if left[0] is None:
            return []
        elapsed, state = left[0]
        if state:
            net.restore(state["net"])
            if self.leads:
                source.restore(state["source"])
        clock.resume(state.get("clock", {}), elapsed)
        self.first = int(state.get("epoch", 0))
        return list(state.get("lines", []))

    def read(self) -> tuple[float, State] | None:
        """Seconds that the run has lasted, and the last checkpoint if it had one; None where there is neither."""
        if not self.beat.is_file():
            return None
        try:
            elapsed = float(json.loads(self.beat.read_text(encoding="utf-8"))["elapsed"])
            there = self.file.is_file()
            return elapsed, torch.load(self.file, map_location="cpu", weights_only=True) if there else {}
        except Exception as error:  # torch.load has many
            raise UserError(
                f"{self.folder}: the checkpoint there cannot be read ({type(error).__name__}); remove it to start anew"
            ) from None

    def save(self, epoch: int, net: Network, clock: Clock, source: Source, lines: Sequence[Line]) -> None:
        """Keep everything, before `epoch` begins; the file appears whole or not at all."""
        if not self.folder or not self.leads or epoch <= self.first:
            return
        state = {"epoch": epoch, "net": net.state(), "source": source.state(), "clock": clock.state()}
        part = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            torch.save({**state, "lines": [dict(line) for line in lines]}, part)
            part.replace(self.file)
        except (OSError, RuntimeError) as error:  # a full disk is both; hours of training are worth more
            part.unlink(missing_ok=True)
            if not self.trouble:
                clock.remarks.append(f"no checkpoint could be kept ({str(error).partition(chr(10))[0]})")
            self.trouble = True

    def heartbeat(self, clock: Clock) -> None:
        """Note, about once a second, how long the run has lasted, because a killed process cannot."""
        now = time.monotonic()
        if not self.folder or not self.leads or self.trouble or now - self.written < 1.0:
            return
        self.written = now
        part = self.beat.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"elapsed": clock.elapsed}), encoding="utf-8")
            part.replace(self.beat)

    def remove(self) -> None:
        """The run is over."""
        if self.folder and self.leads:
            self.file.unlink(missing_ok=True)
            self.beat.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()  # others may have theirs in it
