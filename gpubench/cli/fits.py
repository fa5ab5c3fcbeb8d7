"""`gpubench fits`: whether a training step fits the memory of a card. Needs no card."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from gpubench.cli.options import Settings, check_choice, examples, parse_settings, parse_size
from gpubench.errors import UserError, names_there
from gpubench.printed import say
from gpubench.show.wrap import line_width, wrapped

if TYPE_CHECKING:
    from gpubench.suite.trial import Case

EXAMPLES = examples(
    'One card: `gpubench fits llama-8b --method lora --card "RTX 4090"`',
    "Well-known cards: `gpubench fits llama-8b --method qlora --sequence 4096`",
    "GPT-2: `gpubench fits gpt2-1.5b --batch 8`",
)


def fits(
    model: Annotated[str, typer.Argument(help="A model of finetune or gpt, or of your suite (--suite).")],
    method: Annotated[str, typer.Option(metavar="NAME", help="full, lora or qlora; default the suite's.")] = "",
    sequence: Annotated[
        int, typer.Option(min=0, metavar="N", help="Tokens of a sequence; 0 is the suite's default.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences in a step.")] = 1,
    precision: Annotated[str, typer.Option(metavar="NAME", help="A precision with fp32 weights.")] = "bf16",
    settings: Settings = None,
    suite: Annotated[str, typer.Option(metavar="PATH", help="Your own suite.")] = "",
    card: Annotated[str, typer.Option(metavar="CARD", help="A card; default all well-known ones.")] = "",
    memory_limit: Annotated[str, typer.Option(metavar="SIZE", help="The memory of a card, such as 16GiB.")] = "",
) -> None:
    """Compute whether a training step fits a card, from shapes. Trains nothing and needs no card."""
    from gpubench.cli.child import result_of
    from gpubench.show.terminal import table_lines
    from gpubench.studies import fit

    cards = _cards(card, memory_limit)
    given = {name: value for name, value in {"method": method, "context": str(sequence or "")}.items() if value}
    case = fitting_case(model, parse_settings(settings or []) | given, precision, batch, suite)
    limits = [fit.room_bytes(size) for size in cards.values()]
    say("computing the memory of a step from shapes, which may take a minute", err=True)
    computed = result_of("memory", case, "steps", time_limit_seconds=900, limits_bytes=limits)
    steps = [fit.StepMemory(**step) for step in computed]
    context = int(case.params["context"])
    lines = fit.lines_of(steps, cards)
    name = " ".join(filter(None, [model, str(case.params.get("method", "")), precision]))
    say(*wrapped(f"{name}, {batch} x {context:,} tokens: {fit.headline(steps[0], lines)}"))
    for table in (fit.parts(steps[0]), fit.table(lines, context)):
        say("", *table_lines(table, line_width()))
    say("", *wrapped(fit.RULE))


def _cards(card: str, memory_limit: str) -> dict[str, float]:
    """Return the memory in bytes of the card, of a card with that memory, or of all well-known cards."""
    from gpubench.studies.cards.figures import data_sheets
    from gpubench.studies.cards.options import find_card
    from gpubench.studies.cards.ranking import WELL_KNOWN
    from gpubench.studies.fit import GIB

    if card and memory_limit:
        raise UserError("--card and --memory-limit: give one of them")
    if memory_limit:
        return {f"a card with {memory_limit}": float(parse_size(memory_limit))}
    sheets = data_sheets()
    names = [find_card(card, list(sheets))] if card else WELL_KNOWN
    sizes = {name: size * GIB for name in names if (size := sheets[name].memory_gb)}
    if not sizes:
        raise UserError(f"--card {card}: sold with several sizes of memory; give --memory-limit 16GiB")
    return sizes


def fitting_case(model: str, settings: Mapping[str, str], precision: str, batch: int, path: str) -> "Case":
    """Return the case of a model, on the CPU. Raises UserError if no suite computes its memory, or it cannot run."""
    from dataclasses import replace

    from gpubench.cli.child import case_of
    from gpubench.hardware.environment import cpu_device
    from gpubench.runner.options import Options
    from gpubench.suite import files
    from gpubench.suite.precisions import FLOAT32, PRECISIONS

    loaded_suites = [files.find(name) for name in ([path] if path else files.built_in_names())]
    suites = {name: loaded for loaded in loaded_suites if loaded.suite.fits for name in loaded.suite.models}
    if model not in suites:
        raise UserError(f"fits {model}: no such model; {names_there(model, suites or ['none in this suite'])}")
    if "method" in settings and "method" not in suites[model].suite.params:
        raise UserError(f"--method {settings['method']}: suite {suites[model].name} has no methods; leave it out")
    known = [name for name, kind in PRECISIONS.items() if kind.weights == FLOAT32 and not kind.linears]
    check_choice("--precision", precision, known)
    options = Options(models=(model,), precision=precision, batch=str(batch), mode="full", settings=settings)
    case = case_of(suites[model], options, replace(cpu_device(), unsupported={}))
    if case.refusal:
        raise UserError(f"fits {model}: {case.refusal}")
    return case
