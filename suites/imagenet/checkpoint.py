"""Saves a checkpoint after each epoch, from which a killed run continues."""

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
"""A line of the row's table: an epoch, or a phase."""


class Checkpoint:
    """Model and clock after each epoch, and the seconds that the run has taken so far."""

    def __init__(self, trial: Trial) -> None:
        case = trial.case
        params = json.dumps(dict(case.params), sort_keys=True)
        alike = (case.suite_digest, case.model, case.precision, case.device, case.processes, trial.seed)
        name = hashlib.sha256(repr((*alike, case.batch_size, params, case.data)).encode()).hexdigest()[:16]
        self.kept, self.folder = bool(trial.checkpoint_dir), Path(trial.checkpoint_dir)
        self.file, self.beat = self.folder / f"{name}.pt", self.folder / f"{name}.json"
        self.first, self.written, self.trouble = 0, 0.0, False
        self.processes, self.leads = case.processes, trial.rank == 0

    def resume(self, net: Network, clock: Clock, source: Source) -> list[Line]:
        """Restore the checkpoint of an earlier process, if there is one; return its lines of the table."""
        if not self.kept:
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
        """Return the seconds that the run has taken, and its last checkpoint (empty if none); None: no earlier run."""
        if not self.beat.is_file():
            return None
        try:
            elapsed = float(json.loads(self.beat.read_text(encoding="utf-8"))["elapsed"])
            if not self.file.is_file():
                return elapsed, {}
            return elapsed, torch.load(self.file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises many
            raise UserError(
                f"{self.folder}: the checkpoint there cannot be read ({type(error).__name__}); remove it to start anew"
            ) from None

    def save(self, epoch: int, net: Network, clock: Clock, source: Source, lines: Sequence[Line]) -> None:
        """Save everything before `epoch` begins; an incomplete file is never left behind."""
        if not self.kept or not self.leads or epoch <= self.first:
            return
        state = {"epoch": epoch, "net": net.state(), "source": source.state(), "clock": clock.state()}
        part = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            torch.save({**state, "lines": [dict(line) for line in lines]}, part)
            part.replace(self.file)
        except (OSError, RuntimeError) as error:  # a full disk raises either, and must not end the training
            part.unlink(missing_ok=True)
            if not self.trouble:
                clock.remarks.append(f"no checkpoint could be saved ({str(error).partition(chr(10))[0]})")
            self.trouble = True

    def heartbeat(self, clock: Clock) -> None:
        """Write about once a second how long the run has taken, because a killed process cannot."""
        now = time.monotonic()
        if not self.kept or not self.leads or self.trouble or now - self.written < 1.0:
            return
        self.written = now
        part = self.beat.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"elapsed": clock.elapsed}), encoding="utf-8")
            part.replace(self.beat)

    def remove(self) -> None:
        """Remove the files: the run is complete."""
        if self.kept and self.leads:
            self.file.unlink(missing_ok=True)
            self.beat.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()  # fails if other runs have files in it
