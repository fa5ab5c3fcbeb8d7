"""Parses the values of options: choices, sizes, durations, percentages, lists. Each function raises UserError."""

import re
from collections.abc import Sequence

from gpubench.errors import UserError


def check_choice(option: str, text: str, choices: Sequence[str]) -> None:
    """Raise UserError if `text` is not one of the choices."""
    if text not in choices:
        raise UserError(f"{option} {text}: give {', '.join(choices[:-1])} or {choices[-1]}")


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of `key=value` texts by name; the last one wins."""
    settings = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UserError(f"--set {text}: write it as key=value")
        settings[name] = value
    return settings


def parse_processes(text: str) -> tuple[int, ...]:
    """Return the numbers of processes in `4` or `1,2,4`."""
    counts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in counts):
        raise UserError(f"--processes {text}: give a number above 0, or several joined by commas")
    return tuple(dict.fromkeys(map(int, counts)))


def parse_size(text: str) -> int:
    """Return the bytes of `11GiB`, `2GB` or `500MiB`. A number without a unit is an error."""
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    number = text.strip().lower().rstrip("kmgib")
    unit = text.strip().lower()[len(number) :]
    try:
        size = float(number) * units[unit.strip()]
    except (KeyError, ValueError):
        raise UserError(f"--memory-limit {text}: write it as 11GiB, 2GB or 500MiB") from None
    if not 0 < size < float("inf"):
        raise UserError(f"--memory-limit {text}: give a size above 0")
    return int(size)


def parse_share(option: str, text: str) -> float:
    """Return the fraction that `1%` or `0.5 %` means."""
    number, sign, rest = text.strip().partition("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = 0.0
    if not sign or rest or not 0 < share < 1:
        raise UserError(f"{option} {text}: write it as a percentage, 1% or 0.5%")
    return share


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """Return the seconds of `90s`, `10m`, `1h30m` or `45`."""
    pattern = r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?"
    match = re.fullmatch(pattern, text.strip().lower(), re.ASCII)
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "0")
    total = float(hours) * 3600 + float(minutes) * 60 + float(seconds)
    if total <= 0:
        raise UserError(f"{option} {text}: write it as 90s, 10m or 1h30m")
    return total


def parse_session(text: str) -> str:
    """Return the name of a session: letters, digits, dots, dashes and underscores."""
    if not re.fullmatch(r"[\w.-]{1,64}", text, re.ASCII):
        raise UserError(f"--session {text}: up to 64 letters, digits, dots, dashes and underscores")
    return text
