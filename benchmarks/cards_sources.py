"""Look up every published speed in a clone of its source, at the commit that public_speeds.csv names.

    git clone https://github.com/OWNER/NAME CLONES/OWNER+NAME    # for each source of `gpubench cards --sources`
    python benchmarks/cards_sources.py CLONES

A figure is found if its file (or a log in its folder) has the same number, to four digits, or the seconds or
milliseconds of a step that give this rate with the figure's batch. Medians and means of several numbers are found only
by chance. Figures that are not found are printed.
"""

import argparse
import re
import subprocess
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpubench.studies.cards.figures import Figure, read_figures

NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*\.?\d*(?:[eE][-+]?\d+)?")
MINUTES = re.compile(r"(\d+)m(\d+)s")
CLOSE = 6e-4
"""Four digits, rounded."""


def git(repository: Path, *arguments: str) -> str:
    """Return the output of git; empty if it fails."""
    done = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


@cache
def numbers_in(repository: Path, commit: str, file: str) -> list[float]:
    """Return all numbers of a file, or of the logs in a folder, sorted."""
    if git(repository, "cat-file", "-t", f"{commit}:{file}").strip() == "tree":
        names = git(repository, "ls-tree", "-r", "--name-only", commit, file).splitlines()
        texts = [git(repository, "show", f"{commit}:{name}") for name in names if name.endswith(".txt")]
    else:
        texts = [git(repository, "show", f"{commit}:{file}")]
    text = "\n".join(texts)
    if file.endswith(".csv"):
        text = text.replace(",", " ")
    found = {float(number.replace(",", "")) for number in NUMBER.findall(text)}
    found |= {60.0 * int(minutes) + int(seconds) for minutes, seconds in MINUTES.findall(text)}
    return sorted(found)


def forms(figure: Figure) -> Iterator[float]:
    """Yield the numbers by which a source may print the figure: its rate, seconds and milliseconds of a step."""
    yield figure.figure
    if re.fullmatch(r"\d+", figure.batch):
        yield int(figure.batch) / figure.figure
        yield 1000 * int(figure.batch) / figure.figure


def is_among(value: float, ordered: list[float]) -> bool:
    """Return whether one of the sorted numbers equals the value to four digits."""
    at = bisect_left(ordered, value * (1 - CLOSE))
    return at < len(ordered) and ordered[at] <= value * (1 + CLOSE)


def main() -> None:
    """Print the figures that were not found, and how many of each source were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    clones = parser.parse_args().clones
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for figure in read_figures():
        repository = clones / figure.source.replace("/", "+")
        if not repository.is_dir():
            continue
        ordered = numbers_in(repository, figure.commit, figure.file)
        found = any(is_among(value, ordered) for value in forms(figure))
        counts[figure.source][found] += 1
        if not found:
            print(
                f"not found: line {figure.line}, {figure.card}, {figure.workload}, {figure.figure:g} in {figure.where}"
            )
    for source, found in counts.items():
        print(f"{source}: {found[True]} of {found.total()}")
    print(f"{sum(found[True] for found in counts.values())} of {sum(found.total() for found in counts.values())}")


if __name__ == "__main__":
    main()
