"""Write the page docs/which-card.md: common pairs of cards by published figures.

    python benchmarks/which_card.py > docs/which-card.md

`tests/test_docs.py` fails if the page is older than the figures.
"""

from gpubench.studies.cards.figures import CLASSES, data_sheets, published
from gpubench.studies.cards.ratio import SpeedRatio, published_speeds
from gpubench.studies.words import gain

PAIRS = {
    "The next card of a desktop": (
        ("RTX 5090", "RTX 4090"), ("RTX 5090", "RTX 3090"), ("RTX 4090", "RTX 3090"), ("RTX 5080", "RTX 4080"),
        ("RTX 5070 Ti", "RTX 4070 Ti SUPER"), ("RTX 5060 Ti", "RTX 3060"), ("RTX 3090", "RTX 2080 Ti"),
        ("RTX 2080 Ti", "GTX 1080 Ti"),
    ),
    "Often compared": (
        ("RTX 5080", "RTX 4090"), ("RTX 5070 Ti", "RTX 3090"), ("RTX 4070 Ti SUPER", "RTX 3090"),
        ("Radeon RX 7900 XTX", "RTX 4080"), ("RTX 4060 Ti", "RTX 3080"),
    ),
    "Workstations": (
        ("RTX PRO 6000 Workstation", "RTX 5090"), ("RTX 6000 Ada", "RTX 4090"), ("RTX A6000", "RTX 3090"),
        ("GB10", "RTX 4090"),
    ),
    "To rent": (
        ("H100 80GB HBM3", "A100-SXM4-80GB"), ("H200", "H100 80GB HBM3"), ("B200", "H100 80GB HBM3"),
        ("MI300X", "H100 80GB HBM3"), ("L40S", "A100-SXM4-80GB"), ("RTX 4090", "A100-SXM4-80GB"), ("L4", "T4"),
        ("A100-SXM4-80GB", "V100-SXM2-16GB"),
    ),
}  # fmt: skip
"""(card, baseline), by what the reader buys."""

HEAD = """\
# Which card?

Each line shows how many times as fast the first card trains as the second one, by published figures and data sheets.
The interval contains 90% of workloads, so yours may be at either end. Typical is the middle. Our own trials are not
included. [How good this is](research/cards.md). `gpubench cards RTX 5090 RTX 4090` prints the figures behind a line;
`--price FILE` adds the ratio per dollar.
"""

FOOT = """\
Check memory first: a training that does not fit cannot run. GB is the memory of both cards; `?`: sold with several
sizes. FP32 includes TF32 where the card has it (Ampere and newer). Sources 0: nobody measured both cards with one
recipe, so the line is an estimate from other cards and data sheets.

Then measure: rent both cards for an hour, run `gpubench run --suite resnet --precision both` on each, and
`gpubench compare` both files. Its [kind `buyer`](comparing.md#kinds-of-question) compares one card in mixed precision
with another in fp32.
"""


def cells(ratio: SpeedRatio) -> str:
    """Return the typical ratio and its interval, as two cells."""
    return f"{gain(ratio.value)} | {gain(ratio.low)} to {gain(ratio.high)}"


def gigabytes(memory_gb: float | None) -> str:
    """Return a card's memory, or a question mark if the card was sold with several sizes."""
    return f"{memory_gb:g}" if memory_gb else "?"


def page() -> str:
    """Return the page as Markdown."""
    sheets = data_sheets()
    parts = [HEAD]
    for title, pairs in PAIRS.items():
        lines = [
            f"## {title}\n",
            "| card over card | GB | half, typical | half, 90% | fp32, typical | fp32, 90% | sources |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for card, other in pairs:
            half, fp32 = (published_speeds(kind).ratio(card, other) for kind in ("half", "fp32"))
            memory = " / ".join(gigabytes(sheets[name].memory_gb) for name in (card, other))
            lines.append(f"| {card} over {other} | {memory} | {cells(half)} | {cells(fp32)} | {half.sources} |")
        parts.append("\n".join(lines) + "\n")
    count = sum(len(group.figures) for group in published().groups)
    parts.append(FOOT)
    parts.append(
        f"{count:,} published figures. `half` is {CLASSES['half']}: fp16 or bf16. Made by `benchmarks/which_card.py`.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
