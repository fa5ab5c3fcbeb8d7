"""Kills runs at random moments and resumes them, or removes their files. Prints lost and doubled rows, and leftovers.

    python benchmarks/kills.py                                     # 200 kills and 5 of each other accident: 45 minutes
    python benchmarks/kills.py --count 2 --accidents 1 --seed 7    # as a test does (tests/test_benchmarks.py)

A kill is SIGKILL, SIGTERM, SIGINT, or SIGSTOP and then SIGKILL. It hits the child, the parent, or both. (If both were
stopped, only the parent is killed: its child has to end by itself.) The same command resumes each run until it ends
with 0. Then every trial has to be in its file once, without any other file, process or temporary folder.
The other accidents: a second run on the same file, a full disk (a small tmpfs, which only root can mount), a limit
on the size of files, and a file that is removed, replaced or overwritten during its run.
"""

import argparse
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

import psutil

from gpubench.rows.read import load

SUITE = '''"""Sleeps."""

import time

from gpubench import Suite


def train(trial, clock):
    """A fifth of a second."""
    for _ in clock.epochs(1):
        for _ in clock.steps([range(4)] * 20, phase="train"):
            time.sleep(0.01)
    for _ in clock.resident():
        time.sleep(0.01)
    return {}


SUITE = Suite(train=train, models=("a", "b"), params={}, version=1, torch=False)
'''
ROUNDS = 3
TRIALS = Counter((model, trial) for model in ("a", "b") for trial in range(ROUNDS))
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP, SIGKILL")
VICTIMS = ("child", "parent", "both")
PATIENCE_SECONDS = 120.0
FOREIGN = "name,price\nbread,3\n"
DISK_BYTES = 4096
"""Room for the header and one row."""
LEAST_BYTES, MOST_BYTES = 3000, 7000
"""Limits for the size of a file: the header has 2,500 bytes, a whole file 7,600."""
OTHERS = 40
"""Every other accident happens once for this many kills, and at least once."""


@dataclass
class Ground:
    """A folder in which runs are started, and the problems that were found."""

    folder: Path
    dice: Random
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        self.suite = self.folder / "sleeps.py"
        self.suite.write_text(SUITE)
        self.mark = os.urandom(8).hex()
        self.files = 0

    def new_file(self, folder: Path | None = None) -> Path:
        """Return a new path for the rows of a run."""
        self.files += 1
        own = folder or self.folder / f"run{self.files}"
        own.mkdir(exist_ok=True)
        return own / "rows.csv"

    def start(self, out: Path, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """The command that begins or resumes the run."""
        command = [sys.executable, "-m", "gpubench", "run", "--suite", str(self.suite), "--device", "cpu"]
        command += ["--precision", "fp32", "--repeats", str(ROUNDS), "--out", str(out)]
        env = os.environ | {"TMPDIR": str(self.temporary), "GPUBENCH_KILLS": self.mark}
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=limit)

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the end; return exit code and stderr. A traceback is a problem, except of Ctrl-C during start-up."""
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        if "Traceback" in said and "KeyboardInterrupt" not in said:
            self.problems.append(said)
        return process.returncode, said

    def expect(self, *, true: bool, otherwise: str) -> None:
        """Add `otherwise` to the problems unless `true`."""
        if not true:
            self.problems.append(otherwise)

    def resume(self, out: Path) -> None:
        """Run the same command until it ends with 0, at most three times; then check what is left."""
        for _ in range(3):
            code, said = self.ended(self.start(out))
            if code == 0:
                break
        self.expect(true=code == 0, otherwise=f"{out} does not come to its end: {code}, {said}")
        self.check(out)

    def check(self, out: Path) -> None:
        """Add a problem unless the file has every trial once, and no other file or process is left."""
        loaded = load([out])
        ok = loaded.frame[loaded.frame["status"] == "ok"]
        found = Counter(zip(ok["model"], ok["trial"].astype(int), strict=True))
        self.expect(true=found == TRIALS, otherwise=f"{out} has {dict(found)}")
        wrong = [problem for problem in loaded.problems if "torn" not in problem and "not a whole row" not in problem]
        self.expect(true=not wrong, otherwise=f"{out}: {wrong}")
        beside = [path for folder in (out.parent, self.temporary) for path in folder.iterdir() if path != out]
        self.expect(true=not beside, otherwise=f"left over: {beside}")
        alive = self.alive()
        self.expect(true=not alive, otherwise=f"still running: {alive}")

    def alive(self) -> list[psutil.Process]:
        """Return the living processes that runs in this folder have started."""
        found = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("GPUBENCH_KILLS") == self.mark
                if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def killed(ground: Ground, count: int) -> None:
    """Kill processes of runs `count` times; each run is killed and resumed until it ends with 0."""
    dice, hits = ground.dice, 0
    began = time.monotonic()
    ground.resume(ground.new_file())
    longest_seconds = time.monotonic() - began
    while hits < count:
        out, process = ground.new_file(), None
        while True:
            process = process or ground.start(out)
            try:
                process.wait(dice.uniform(0, longest_seconds) if hits < count else PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                hits += strike(ground, process, dice.choice(SIGNALS), dice.choice(VICTIMS))
            if process.poll() is not None:
                code, said = ground.ended(process)
                process = None
                ground.expect(true=code != 2, otherwise=said)
                if code in (0, 2):
                    break
        ground.check(out)
    print(f"{hits} kills of {ground.files} runs")


def strike(ground: Ground, process: subprocess.Popen[str], kind: str, whom: str) -> bool:
    """Send the signals; return whether there was a process to hit. If the parent is hit, wait for its end."""
    try:
        parent = psutil.Process(process.pid)
        children = parent.children(recursive=True)
    except psutil.NoSuchProcess:
        return False
    if whom == "child" and not children:
        return False
    victims = {"child": children, "parent": [parent], "both": [parent, *children]}[whom]
    *before, last = kind.split(", ")
    for number in before:
        send(victims, number)
        time.sleep(0.05)
    send([parent] if before and whom == "both" else victims, last)
    if whom != "child":
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
        ground.expect(true=process.poll() is not None, otherwise=f"{kind} of {whom} does not end the run")
    return True


def send(processes: Sequence[psutil.Process], name: str) -> None:
    """Send a signal to the processes that still exist."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(getattr(signal, name))


def two_writers(ground: Ground) -> None:
    """Check that a second run on the same file is refused."""
    out = ground.new_file()
    both = [ground.start(out)]
    time.sleep(ground.dice.uniform(0, 1.5))
    both.append(ground.start(out))
    ends = [ground.ended(each) for each in both]
    codes = sorted(code for code, _ in ends)
    ground.expect(true=codes == [0, 2], otherwise=f"two writers end with {codes}")
    refusals = [said for code, said in ends if code]
    ground.expect(true=all("another run is writing it" in said for said in refusals), otherwise=f"said {refusals}")
    ground.check(out)


def full_disk(ground: Ground) -> None:
    """Check a run on a disk with little room; does nothing if this user may not mount one."""
    folder = ground.folder / "small"
    folder.mkdir(exist_ok=True)
    mount = partial(subprocess.run, check=False, capture_output=True)
    if mount(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder]).returncode:
        print("no disk could be mounted")
        return
    try:
        no_room(ground, folder, None, lambda: mount(["mount", "-o", "remount,size=10m", folder]))
    finally:
        mount(["umount", folder])


def limited_files(ground: Ground) -> None:
    """Check a run with a limit on the size of files."""
    size = ground.dice.randrange(LEAST_BYTES, MOST_BYTES)
    no_room(ground, None, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)), lambda: None)


def no_room(
    ground: Ground, folder: Path | None, limit: Callable[[], None] | None, make_room: Callable[[], object]
) -> None:
    """Check that a row without room goes to another file, and that the rows in the file stay whole."""
    out = ground.new_file(folder)
    code, said = ground.ended(ground.start(out, limit))
    ground.expect(true=code == 4, otherwise=f"no room: {code}, {said}")
    whole = not out.exists() or out.read_bytes()[-1:] == b"\n"
    ground.expect(true=whole, otherwise=f"half a line in {out}")
    make_room()
    join(ground, out, said)
    ground.resume(out)


def taken_away(ground: Ground, how: str) -> None:
    """Check that a run does not write to a file that was taken away; its row goes to another file."""
    out, foreign = ground.new_file(), ground.folder / "foreign.csv"
    process, rows = ground.start(out), ground.dice.randint(1, 3)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (out.exists() and out.read_bytes().count(b"\n") > rows) and time.monotonic() < deadline:
        time.sleep(0.01)
    foreign.write_text(FOREIGN)
    if how == "removed":
        out.unlink()
    elif how == "replaced":
        foreign.replace(out)
    else:
        out.write_text(FOREIGN)
    code, said = ground.ended(process)
    ground.expect(true=code == 4 and str(out) in said, otherwise=f"{how}: {code}, {said}")
    if how != "removed":
        ground.expect(true=out.read_text() == FOREIGN, otherwise=f"{how}: rows went into a foreign file")
        out.unlink()
    ground.expect(true=not out.exists(), otherwise=f"{how}: the file was begun anew")
    join(ground, out, said)
    ground.resume(out)


def join(ground: Ground, out: Path, said: str) -> None:
    """Add the rescued rows (at least one) to the file, as the run told its user to."""
    named = re.search(r"in (\S+\.csv) instead", said)
    ground.expect(true=named is not None, otherwise=f"no rescued rows are named: {said}")
    if named:
        rescue = Path(named[1])
        ground.expect(true=len(load([rescue]).frame) > 0, otherwise=f"{rescue} has no rows")
        with out.open("ab") as file:
            file.write(rescue.read_bytes())
        rescue.unlink()


ACCIDENTS: dict[str, Callable[[Ground], None]] = {
    "a second run on the file": two_writers,
    "a full disk": full_disk,
    "a limit on the size of files": limited_files,
    "a file that is removed": partial(taken_away, how="removed"),
    "a file that is replaced": partial(taken_away, how="replaced"),
    "a file that is overwritten": partial(taken_away, how="overwritten"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all kills and accidents; return 1 if there was any problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--accidents", type=int, default=len(ACCIDENTS), help="random kinds of other accidents")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="default random")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and all they start
    print(f"seed {asked.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder), Random(asked.seed))
        killed(ground, asked.count)
        times = max(1, asked.count // OTHERS)
        for name in ground.dice.sample(list(ACCIDENTS), asked.accidents):
            for _ in range(times):
                ACCIDENTS[name](ground)
            print(f"{times} x {name}")
    print(*ground.problems, f"{len(ground.problems)} problems, {time.monotonic() - began:.0f} s", sep="\n")
    return 1 if ground.problems else 0


if __name__ == "__main__":
    sys.exit(main())
