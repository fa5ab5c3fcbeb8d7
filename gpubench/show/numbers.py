"""Figures as text, with as many digits as mean something; the same in tables and charts."""

import math


def seconds_text(seconds: float, half_width: float | None = None) -> str:
    """Three digits, or as many as the interval of `half_width` seconds a side leaves a meaning."""
    digits = 3 if not half_width else math.ceil(math.log10(seconds / half_width)) + 1
    decimals = min(max(digits, 2), 6) - 1 - math.floor(math.log10(seconds))
    return f"{seconds:,.{max(0, decimals)}f}"


def rate_text(rate: float) -> str:
    """Samples a second with three digits; empty where they are not known."""
    return seconds_text(rate) if 0 < rate < math.inf else ""
