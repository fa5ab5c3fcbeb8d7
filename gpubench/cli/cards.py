"""`gpubench cards`: its options, as what is shown of published figures."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli.options import DRAWN, FLAG, SHOWN, SIDES, Format, Price, Theme
from gpubench.errors import UserError

CARDS_EXAMPLES = """
Examples:

Every card that others measured, ranked: `gpubench cards`

Is it worth more than that one? `gpubench cards "RTX 4090" "RTX 3090"`

What transformers gain: `gpubench cards "RTX 4090" "RTX 3090" --family matmul`

Per dollar: `gpubench cards --relative-to "RTX 3090" --price prices.toml`

Whose figures they are: `gpubench cards --sources`
"""


def cards(
    card: Annotated[
        list[str] | None, typer.Argument(help="One card: all its figures. Two: the first one over the second.")
    ] = None,
    relative_to: Annotated[
        str, typer.Option(metavar="CARD", help="The card that has speed 1; else an A100 SXM.", rich_help_panel=SIDES)
    ] = "",
    precision: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="half, single (fp32 as the card does it: TF32 from Ampere on) or strict (fp32 without TF32); by"
            " default half and single.",
            autocompletion=completion.one_of("half", "single", "strict"),
            rich_help_panel=SIDES,
        ),
    ] = "",
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="convolution or matmul (transformers, recurrent nets) alone; by default both count alike.",
            autocompletion=completion.one_of("convolution", "matmul"),
            rich_help_panel=SIDES,
        ),
    ] = "",
    price: Price = None,
    every: Annotated[
        bool, typer.Option("--all", metavar=FLAG, help="Every card, not only the best known.", rich_help_panel=SHOWN)
    ] = False,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", metavar=FLAG, help="Whose figures they are, and what was left out.", rich_help_panel=SHOWN
        ),
    ] = False,
    source: Annotated[
        str, typer.Option(metavar="TEXT", help="The figures of one source, card by card.", rich_help_panel=SHOWN)
    ] = "",
    table: Format = "terminal",
    charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the chart.", rich_help_panel=DRAWN)
    ] = None,
    theme: Theme = "light",
) -> None:
    """Rank cards by what others published, with intervals, or compare two of them; measures nothing."""
    from gpubench.commands.cards import Shape, show_cards, show_sources

    if theme not in {"light", "dark"}:
        raise UserError(f"--theme {theme}: there is light and dark")
    if sum((bool(card), sources, bool(source))) > 1:
        raise UserError("cards, --sources and --source are different questions: ask one of them")
    if (sources or source) and (precision or family or price or every or charts or relative_to):
        raise UserError("--sources and --source are about all figures: they take --format alone")
    if sources or source:
        show_sources(source, table)
    else:
        show_cards(
            card or (),
            Shape(
                precision=precision,
                family=family,
                relative_to=relative_to,
                price=price,
                every=every,
                charts=charts,
                theme=theme,
                table=table,
            ),
        )
