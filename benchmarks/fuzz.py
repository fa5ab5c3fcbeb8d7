"""Breaks real files at random, and checks that commands on them end with a result or a clear error.

    python benchmarks/fuzz.py                                   # about an hour on two cores
    python benchmarks/fuzz.py --seed 7 --count load=500,draw=20
    python benchmarks/fuzz.py --seed 7 --only draw:17 --keep broken/   # one file again; the folder keeps the file

Each file is one of results/ with bytes flipped, fields swapped, lines cut and doubled, odd quotes, absurd numbers,
other headers, other encodings, huge fields or NULs. These are faults:

- an exception other than UserError, a warning, or an exit code that docs/comparing.md does not have;
- more than 10 s of processor time or a minute in all; more memory than 300 MB and than 20 times the file;
- a character in the output that controls a terminal;
- a number that was read but is not in the file, or that was read from a text that is no number (a NUL, a byte that is
  no UTF-8, `5..3`, `1e`, `1,000`): such a row has to be left out and its line named.

A number that was changed into another valid number is no fault: nobody could see that.
"""

import argparse
import contextlib
import csv
import faulthandler
import gzip
import io
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
COUNTS = {"load": 10_000, "compare": 2000, "draw": 2000, "submit": 1000, "export": 1000, "toml": 2000}
"""Files of each kind; `draw` is compare, charts and report of one file."""
QUICK = {"load": 80, "compare": 10, "draw": 2, "submit": 10, "export": 10, "toml": 40}
MOST_SECONDS, MOST_WAITING, MOST_TIMES, MOST_BYTES = 10, 60, 20, 300e6
SPACE_BYTES = 8 << 30
"""Address space of a process. So a file that would fill the machine's memory ends in a MemoryError."""
ROWS = 30
"""Most lines that are taken from a real file, so that many files take few minutes."""
EXIT_CODES = {0, 2, 3, 4}

NUMBER = re.compile(rb"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?")
TOKEN = re.compile(rb'(?<![^,"\r\n])[ \t]*(' + NUMBER.pattern + rb')[ \t]*(?![^,"\r\n])')
"""A number that fills the whole field between commas, quotes and ends of lines."""
ABSURD = [
    *("1e308", "-1e308", "1e-308", "5e-324", "1e49", "-1e49", "1e-49", "-0.0", "0", "-1", "-2", "0.5", "1e18", "1e400"),
    *("inf", "-inf", "nan", "NaN", "", "true", "9" * 400, "2147483648", "9223372036854775808", "1000000", "3"),
]
INSERTS = [
    *(b"<script>alert(1)</script>", b'"', b'""', b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n", b",", b"=1+1"),
    *(b"NaN", b"inf", b"-1", b"1e308", b"1e-320", b"true", b"\x1b[2J\x1b]0;x\x07", "\u202e\u2066\u061c\u200b".encode()),
    *(b"'", b"{}", b"]]>", b"$x^{", b"[bold]", "\u4e2d\u0301\U0001f600".encode(), b"\\", b";", b"\t", b"%s{0}"),
]
LONG = ("table", "batch_curve", "laps", "params", "card", "started", "reason")
DEEP = ["[" * 100_000, '{"a":' * 50_000, '[["hours","size"],[1e999,' + "9" * 5000 + "]]", "[[8,1e300,1],[1e300,1,1]]"]


def broken_number(rng: Random, text: str) -> bytes:
    """Return the text of a number, changed so that it looks like a number but is none."""
    at = rng.randrange(len(text) + 1)
    return rng.choice(
        [
            *(f"{text[:at]}{mark}{text[at:]}".encode() for mark in ("\0", "..", "x", "\u200b", "--", "e-e")),
            *(text.encode()[:at] + mark + text.encode()[at:] for mark in (b"\xff", b"\xc3", b"\xed\xa0\x80")),
            *(f"{text}{end}".encode() for end in ("e", "e+", "_0", ".1.", "f", " 1", "\u0665", "%")),
            *(b'"1,234.5"', b"1_000", b"0x1F", b"5-3", b"\xef\xbc\x91\xef\xbc\x92", b"1d3", b"+-1", b"1 000", b"..5"),
            *(b"true", b"False", b"nan", b"-NaN", b"inf", b"NA", b"None", b"null", b"1970-01-01", b"-"),
        ]
    )


class Broken(Exception):
    """A fault that a file has shown."""


@dataclass
class Book:
    """A CSV file as lines of cells. Changes of cells come first; then it becomes bytes, which are changed further."""

    names: list[str]
    lines: list[list[str]]

    @classmethod
    def of(cls, path: Path, rng: Random) -> "Book":
        names, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
        kept = sorted(rng.sample(range(len(lines)), min(len(lines), rng.randint(1, ROWS))))
        return cls(names, [lines[at] for at in kept])

    @property
    def content(self) -> bytes:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.names, *self.lines])
        return out.getvalue().encode()

    def place(self, rng: Random, names: Sequence[str] = (), *, filled: bool = True) -> tuple[list[str], int]:
        """Return a random line and the index of a cell in it: any cell, or one of these columns that is not empty."""
        line = rng.choice(self.lines)
        places = [at for at, name in enumerate(self.names) if name in names and (line[at] or not filled)]
        return line, rng.choice(places or range(len(line)))


def of_cells(rng: Random, book: Book) -> None:
    """Change fields, lines or the header."""
    from gpubench.rows.row import NUMBERS

    line, at = book.place(rng)
    number_line, number_at = book.place(rng, NUMBERS)
    other = rng.choice(book.lines)
    match rng.randrange(10):
        case 0 | 1 | 2:
            absurd = rng.choice(ABSURD)
            for each in book.lines if rng.random() < 0.3 else [number_line]:
                each[number_at] = absurd
        case 3:
            line[at], other[at] = other[at], line[at]
        case 4:
            second = rng.randrange(len(line))
            line[at], line[second] = line[second], line[at]
        case 5:
            if rng.random() < 0.5 and len(book.lines) > 1:
                book.lines.remove(line)
            else:
                del line[at:]
        case 6:
            book.lines.insert(rng.randrange(len(book.lines)), list(other))
        case 7:
            book.names[at] = rng.choice([book.names[at - 1], "", book.names[at].upper(), "x", "seconds", "end", "a,b"])
        case 8:
            _, long_at = book.place(rng, LONG, filled=False)
            line[long_at] = rng.choice([*DEEP, "x" * 3_000_000, "[1]", "{}", "null", "0001-01-01T00:00"])
        case 9:
            for each in [line] if rng.random() < 0.5 else book.lines:
                each[at] = rng.choice(INSERTS).decode("utf-8", "replace").replace("\n", "")


def of_bytes(rng: Random, content: bytes) -> bytes:
    """Return the content with a random change of its bytes."""
    at = rng.randrange(len(content) or 1)
    match rng.randrange(9):
        case 0:
            return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        case 1:
            return content[:at] + rng.choice(INSERTS) + content[at:]
        case 2:
            return content[:at] + content[at + rng.randint(1, 200) :]
        case 3:
            start = rng.randrange(len(content) or 1)
            return content[:at] + content[start : start + rng.randint(1, 2000)] + content[at:]
        case 4:
            return content[:at]
        case 5:
            end = content.find(b",", at + 1)
            quoted = content[at : end if end > 0 else at + 1]
            quote = rng.choice([b'"', b'""', b"'"])
            return content[:at] + quote + quoted + rng.choice([quote, b""]) + content[at + len(quoted) :]
        case 6:
            return bytes(each ^ (rng.random() < 0.001) << rng.randrange(8) for each in content)
        case 7:
            coding = rng.choice(["utf-16", "utf-8-sig", "utf-32", "latin-1", "cp1252"])
            return content.decode("utf-8", "replace").encode(coding, "replace")
        case _:
            return rng.choice(
                [
                    *(content.replace(b"\n", end) for end in (b"\r\n", b"\r", b"\n\n", b"\0\n", b"\x85")),
                    *(content.replace(b",", comma) for comma in (b";", b"\t", b", ")),
                    *(
                        gzip.compress(content, mtime=0),
                        gzip.compress(content, mtime=0)[: at + 1],
                        b"\x89PNG\r\n\x1a\n" + content,
                    ),
                    b'<!doctype html><a id="gpubench-rows" href="data:application/gzip;base64,' + content,
                    *(content + content, b"\0" * 100_000, b""),
                ]
            )


@cache
def results() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "results").glob("*.csv")))


def a_file(rng: Random, folder: Path) -> Path:
    """Write a real table that was changed once or a few times; return its path."""
    book = Book.of(rng.choice(results()), rng)
    content = None
    for _ in range(rng.choice([1, 1, 2, 4])):
        whole = all(len(line) == len(book.names) for line in book.lines)
        if content is None and whole and rng.random() < 0.6:
            of_cells(rng, book)
        else:
            content = of_bytes(rng, book.content if content is None else content)
    path = folder / rng.choice(["a.csv", "a\x1b[2Jb.csv", "a\u202eb.csv"])
    path.write_bytes(book.content if content is None else content)
    return path


# The tests of a file.


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def command(*arguments: object) -> int:
    """Run a command in this process as on a terminal; return its exit code. Raises Broken."""
    from gpubench.cli.app import app
    from gpubench.printed import shown_lines

    out = Terminal()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            app([str(each) for each in arguments])
    except SystemExit as end:
        if end.code not in EXIT_CODES:
            raise Broken(f"exit code {end.code}: {out.getvalue()[-300:]}") from None
        if shown_lines(out.getvalue()) != out.getvalue():
            raise Broken(f"steers a terminal: {out.getvalue()!r:.300}") from None
        return int(end.code or 0)
    raise Broken("no exit code")


def load(rng: Random, folder: Path) -> None:
    """Load a broken file. Raises Broken if a row has a number that is not in the file."""
    from gpubench.rows.read import load

    if rng.random() < 0.3:
        return _load_broken_numbers(rng, folder)
    path = a_file(rng, folder)
    loaded = load([path], keep=True)
    _check_numbers(loaded.frame, path.read_bytes())
    if len(loaded.table().split(b"\n")) != len(loaded.frame) + 2:
        raise Broken("the table that is passed on has other rows")


def _check_numbers(frame: Any, content: bytes) -> None:
    from gpubench.rows.embed import table_in
    from gpubench.rows.row import NUMBERS

    if frame.empty:
        return
    known = {float(text) for text in TOKEN.findall(table_in(content) or content)}
    for name in NUMBERS:
        for value in set(frame[name].dropna()) - known:
            raise Broken(f"{name} is {value!r}, which is nowhere in the file")


def _load_broken_numbers(rng: Random, folder: Path) -> None:
    """Load a file with some broken numbers. Raises Broken unless their lines are named and all other rows are used."""
    from gpubench.rows.read import load
    from gpubench.rows.row import DIGEST, NUMBERS

    book, path = Book.of(rng.choice(results()), rng), folder / "a.csv"
    path.write_bytes(book.content)
    before = load([path]).frame
    hurt = rng.sample(range(len(book.lines)), rng.randint(1, min(3, len(book.lines))))
    lines = book.content.split(b"\n")
    for number in hurt:
        line = book.lines[number]
        at = rng.choice([at for at, name in enumerate(book.names) if name in NUMBERS and line[at]])
        cells = [_quoted(cell).encode() for cell in line]
        cells[at] = broken_number(rng, line[at])
        lines[number + 1] = b",".join(cells)
    path.write_bytes(b"\n".join(lines))
    loaded = load([path])
    kept = [number for number in range(len(book.lines)) if number not in hurt]
    # A row read alone has the digest of today's columns, which an older file lacks.
    frames = (frame.drop(columns=DIGEST) for frame in (loaded.frame, before.iloc[kept]))
    ours, expected = (frame.astype(str).reset_index(drop=True) for frame in frames)
    if set(ours) != set(expected) or not ours[list(expected)].equals(expected):  # their columns may come in any order
        raise Broken(f"{len(loaded.frame)} of {len(kept)} rows are used, or they are others; {loaded.problems}")
    for number in hurt:
        if not any(re.search(rf"line {number + 2}\b", problem) for problem in loaded.problems):
            raise Broken(f"line {number + 2} is not named: {loaded.problems}")


def _quoted(cell: str) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([cell, ""])
    return out.getvalue()[:-1]


METRICS = ("seconds", "rate", "energy", "memory", "batch", "accuracy", "time-to-goal")


def compare(rng: Random, folder: Path) -> None:
    """Run `compare` with random options on a broken file, alone or with a whole file."""
    files = [a_file(rng, folder), *rng.sample(results(), rng.choice([0, 0, 1]))]
    ask: list[object] = ["compare", *files, "--format", rng.choice(["terminal", "terminal", "markdown", "csv", "json"])]
    if rng.random() < 0.3:
        ask += ["--metric", rng.choice(METRICS)]
    if rng.random() < 0.3:
        ask += ["--by", rng.choice(["card", "precision", "torch", "batch_size", "model", "session", "processes,card"])]
    ask += rng.choice([[], ["--all"], ["--only", "roofline"], ["--only", "batch"]])
    command(*ask)


def draw(rng: Random, folder: Path) -> None:
    """Run `compare --all` with charts, and `report`, on a broken file."""
    path = a_file(rng, folder)
    command("compare", path, "--all", "--charts", folder / "charts")
    command("report", path, "-o", folder / "report.html")


def submit(rng: Random, folder: Path) -> None:
    """Run `submit` on a broken file."""
    command("submit", a_file(rng, folder))


def export(rng: Random, folder: Path) -> None:
    """Run `export` or `doctor --against` on a broken file: both use rows one by one."""
    path = a_file(rng, folder)
    if rng.random() < 0.5:
        command("doctor", path, "--against", rng.choice(results()))
    else:
        command("export", path, "--out", folder / "out")


PRICES = b'["RTX 4090"]\nhourly = 0.44\n\n["RTX 2080 Ti"]\nprice = 450\nyears = 3\nuse = 0.5\n'
SCHEDULE = b"""
lr_batch = 128
[[phase]]
epochs = [0, 3]
size = 48
copies = 64
batch = 16
[[ramp]]
epochs = [0, 3]
lr = [0.2, 0.4]
"""
ODD_TOML = [
    *(b"[" * 50_000, b"x = " + b"[" * 50_000, b"x = " + b"9" * 5000, b"x = 0x" + b"f" * 5000, b"a.b.c = 1"),
    *(b"1e308", b"-1", b"nan", b"inf", b"'x'", b"[[phase]]", b"\xff", b"\0", b"1979-05-27", b"{a={a={a=1}}}"),
]


def toml(rng: Random, folder: Path) -> None:
    """Read a broken schedule or a broken price file."""
    from gpubench.analysis.metrics import read_prices
    from gpubench.data import schedules
    from gpubench.errors import UserError

    prices = rng.random() < 0.5
    content = PRICES if prices else SCHEDULE
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.5:
            at = [found.span() for found in NUMBER.finditer(content)] or [(0, 0)]
            start, end = rng.choice(at)
            content = content[:start] + rng.choice([*ODD_TOML, rng.choice(ABSURD).encode()]) + content[end:]
        else:
            content = of_bytes(rng, content)
    (folder / "a.toml").write_bytes(content)
    with contextlib.suppress(UserError):
        read_prices(folder / "a.toml") if prices else schedules.read(str(folder / "a.toml"))


KINDS: dict[str, Callable[[Random, Path], None]] = {
    "load": load, "compare": compare, "draw": draw, "submit": submit, "export": export, "toml": toml,
}  # fmt: skip


# Everything below runs these functions in processes that may crash or hang.


@dataclass
class Tally:
    """The results of all files of one kind."""

    files: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slow: int = 0
    """The number of the slowest file."""
    memory: float = 0.0
    """The most memory that one file added to its process, in bytes."""
    results: list[str] = field(default_factory=list)


def once(kind: str, seed: str, number: int, folder: Path) -> tuple[float, float, str]:
    """Test one file; return its processor seconds, the memory it added in bytes, and its fault or an empty text."""
    began, had = time.process_time(), _memory("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    wrong = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            KINDS[kind](Random(f"{seed} {kind} {number}"), folder)
    except Broken as error:
        wrong = str(error)
    except Exception:
        wrong = traceback.format_exc()
    used = _memory("VmHWM") - had
    size = sum(path.stat().st_size for path in folder.glob("a*.*"))
    if used > max(MOST_TIMES * size, MOST_BYTES):
        wrong = wrong or f"{used / 1e6:.0f} MB for a file of {size / 1e6:.1f} MB"
    return time.process_time() - began, used, wrong


def _memory(name: str) -> float:
    """Return the resident memory of this process in bytes: now (VmRSS), or its peak (VmHWM)."""
    with contextlib.suppress(OSError):
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return 1024 * float(found[1]) if found else 0.0
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def worker(channel: Connection, stacks: str) -> None:
    """Test the files that come through the channel. A file that hangs ends this process; `stacks` gets its stack."""
    os.environ.update(TERM="dumb", COLUMNS="80", MPLBACKEND="agg")
    import matplotlib.figure  # noqa: F401
    import scipy.special  # noqa: F401

    from gpubench.show import charts, page  # noqa: F401

    resource.setrlimit(resource.RLIMIT_AS, (SPACE_BYTES, SPACE_BYTES))
    with Path(stacks).open("w") as file:
        faulthandler.register(signal.SIGPROF, file, chain=True)  # writes the stack; then SIGPROF ends the process
        for kind, seed, number, keep in iter(channel.recv, None):
            with tempfile.TemporaryDirectory() as own:
                folder = Path(keep or own)
                folder.mkdir(parents=True, exist_ok=True)
                signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
                faulthandler.dump_traceback_later(MOST_WAITING, exit=True, file=file)
                outcome = once(kind, seed, number, folder)
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_PROF, 0)
            channel.send(outcome)


class Hand:
    """A worker process, which is replaced if it ends."""

    def __init__(self, folder: Path, number: int) -> None:
        self.stacks = folder / f"{number}.txt"
        self.doing: tuple[str, str, int, str] | None = None
        self.start()

    def start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.channel, theirs = spawn.Pipe()
        self.process = spawn.Process(target=worker, args=(theirs, str(self.stacks)), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, task: tuple[str, str, int, str]) -> None:
        self.doing = task
        self.channel.send(task)

    def take(self) -> tuple[float, float, str]:
        """Return the result of its file; start a new worker if this one has ended."""
        self.doing = None
        try:
            outcome: tuple[float, float, str] = self.channel.recv()
        except EOFError:
            self.process.join()
            said = self.stacks.read_text() if self.stacks.exists() else ""
            outcome = MOST_SECONDS, 0.0, f"lost with exit code {self.process.exitcode}: {said or 'no word'}"
            self.start()
        return outcome


def run(counts: dict[str, int], seed: str, jobs: int, first: int = 0, keep: str = "") -> dict[str, Tally]:
    """Test `counts` files of each kind in `jobs` processes; return a tally of each kind."""
    tallies = {kind: Tally() for kind in counts}
    waiting = [(kind, seed, number, keep) for kind, count in counts.items() for number in range(first, first + count)]
    waiting.reverse()
    with tempfile.TemporaryDirectory() as folder:
        hands = [Hand(Path(folder), number) for number in range(min(jobs, len(waiting)))]
        for hand in hands:
            hand.give(waiting.pop())
        while any(hand.doing for hand in hands):
            ready = wait([hand.channel for hand in hands if hand.doing])
            for hand in (hand for hand in hands if hand.channel in ready):
                assert hand.doing
                kind, _, number, _ = hand.doing
                seconds, memory, wrong = hand.take()
                tally = tallies[kind]
                tally.files, tally.seconds = tally.files + 1, tally.seconds + seconds
                tally.slowest, tally.slow = max((tally.slowest, tally.slow), (seconds, number))
                tally.memory = max(tally.memory, memory)
                if wrong:
                    tally.results.append(f"{kind}:{number} {wrong}")
                    print(f"\n--seed {seed} --only {kind}:{number}\n{wrong.strip()}", flush=True)
                if waiting:
                    hand.give(waiting.pop())
        for hand in hands:
            hand.channel.send(None)
            hand.process.join()
    return tallies


def summary(tallies: dict[str, Tally]) -> str:
    lines = [f"{'':8} {'files':>6} {'results':>8} {'mean s':>7} {'slowest':>7} {'MB':>5}"]
    for kind, tally in tallies.items():
        mean = tally.seconds / tally.files if tally.files else math.nan
        line = f"{kind:8} {tally.files:6} {len(tally.results):8} {mean:7.3f} {tally.slowest:7.2f}"
        lines.append(f"{line} {tally.memory / 1e6:5.0f}  (slowest: {kind}:{tally.slow})")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", help="that of an earlier run; without, a new one is drawn")
    parser.add_argument("--quick", action="store_true", help="some seconds, as the tests do")
    parser.add_argument("--count", default="", help="other numbers of files: load=500,draw=20")
    parser.add_argument("--only", default="", metavar="KIND:NUMBER", help="one file again")
    parser.add_argument("--keep", default="", metavar="DIR", help="with --only: where its files stay")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    seed = chosen.seed or str(Random().randrange(10**9))
    counts = dict(QUICK if chosen.quick else COUNTS)
    if chosen.count:
        counts = {name: int(count) for name, count in (each.split("=") for each in chosen.count.split(","))}
    if chosen.only:
        counts = {chosen.only.partition(":")[0]: 1}
    print(f"--seed {seed}", flush=True)
    tallies = run(counts, seed, chosen.jobs, int(chosen.only.partition(":")[2] or 0), chosen.keep)
    print(summary(tallies))
    found = Counter(result.splitlines()[-1] for tally in tallies.values() for result in tally.results)
    for line, count in found.most_common(20):
        print(f"{count} x {line[:200]}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
