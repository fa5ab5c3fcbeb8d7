"""`gpubench cards`: ranks the cards that others measured, compares two of them, and lists the sources."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.errors import UserError
from gpubench.printed import say
from gpubench.show.terminal import WIDTH, table_lines, wrapped
from gpubench.studies.cards import REFERENCE, options, ranking, versus
from gpubench.studies.cards.figures import CLASSES, Published, published, sources
from gpubench.studies.cards.model import fitted_model
from gpubench.studies.section import Answer, Column, Table
from gpubench.studies.words import listed


@dataclass(frozen=True)
class Shape:
    """What is shown, and how."""

    precision: str = ""
    family: str = ""
    relative_to: str = ""
    price: Path | None = None
    every: bool = False
    charts: Path | None = None
    theme: str = "light"
    table: str = "terminal"


def show_cards(cards: Sequence[str], shape: Shape) -> None:
    """The ranking; of one card every figure, of two the answer and what it rests on. Raises UserError."""
    found, model = published(), fitted_model()
    names = sorted({group.card for group in found.groups})
    chosen = [options.find_card(card, names) for card in cards]
    _check(chosen, shape)
    classes, families = options.classes_of(shape.precision), options.families_of(shape.family)
    reference = options.find_card(shape.relative_to or REFERENCE, names)
    dollars = _dollars(shape.price, names)
    if len(chosen) == 2:
        answer = versus.answer(model, found, (chosen[0], chosen[1]), classes, families, dollars)
        tables = [versus.brief(table, shape.every) for table in answer.sections[0].tables[1:]]
    elif chosen:
        (card,) = chosen
        known = [kind for kind in (classes if shape.precision else CLASSES) if model.has_figures(card, kind, families)]
        if not known:
            raise UserError(f"{card} has no such figure; all of its figures: gpubench cards {card!r}")
        answer = versus.one_card(found, card, ranking.rank(model, reference, known, families))
        tables = list(answer.sections[0].tables)
    else:
        ranked = ranking.rank(model, reference, classes, families, dollars)
        lines, drawn = (
            ranked.lines if shape.every else ranked.best_known(most)
            for most in (ranking.MOST_LINES, ranking.MOST_DRAWN)
        )
        answer = ranking.answer(ranked, found, drawn)
        tables = [ranking.short_table(ranked, lines)]
        for name in ("src", "W"):
            if len(table_lines(tables[0], WIDTH)) > len(lines) + 2:  # it is in two parts
                tables = [ranking.without(tables[0], name)]
    _show(answer, shape.table, tables, notes_first=bool(chosen))
    if shape.charts is not None:
        _draw(answer, shape.charts, shape)


def _check(chosen: Sequence[str], shape: Shape) -> None:
    """Whether the options are about what is asked; raises UserError."""
    if len(chosen) > 2 or len(chosen) != len(set(chosen)):
        raise UserError("give no card for the ranking, one for its figures, or two that differ to compare them")
    if chosen and shape.charts is not None:
        raise UserError("--charts: the ranking has a chart; name no card")
    if len(chosen) == 2 and shape.relative_to:
        raise UserError(
            f"--relative-to {shape.relative_to}: the first of two cards is relative to the second; leave it out"
        )
    if len(chosen) == 1 and shape.price is not None:
        raise UserError("--price: for the ranking, or for two cards")


def _draw(answer: Answer, folder: Path, shape: Shape) -> None:
    from gpubench.show.charts import draw

    for path in draw(answer, folder, every=True, kinds=("png", "svg"), theme=shape.theme):
        say(str(path), err=shape.table != "terminal")


def show_sources(source: str, form: str) -> None:
    """All sources, or the figures of one. Raises UserError."""
    found = published()
    answer = _sources(found)
    if source:
        names = sorted({group.source for group in found.groups if source.lower() in group.source.lower()})
        if len(names) != 1:
            raise UserError(f"--source {source}: {listed(names) if names else 'no such source'} (--sources lists them)")
        answer = versus.by_source(found, names[0])
    _show(answer, form, answer.sections[0].tables)


def _sources(found: Published) -> Answer:
    """Every source with what of it is used; why the rest is not."""
    columns = (Column("source"), Column("commit"), *(Column(name, "count") for name in ("cards", "used", "left out")))
    lines = [
        (source, commit, len({each.card for each in used}), len(used), len(against))
        for source, commit, used, against in sources(found)
    ]
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for figure, reason in found.left_out:
        reasons[reason][figure.source] += 1
    left_out = [
        f"{sum(counts.values())}: {reason} ({listed(f'{count} of {source}' for source, count in counts.items())})"
        for reason, counts in sorted(reasons.items())
    ]
    said = f"{len(found.figures):,} published training speeds, of which {len(found.used):,} are used."
    return ranking.answer_with(said, "sources", (Table("sources", columns, tuple(lines)),), left_out=left_out)


def _dollars(path: Path | None, names: Sequence[str]) -> dict[str, float] | None:
    """An hour, by card; which entries name none is said. Raises UserError."""
    if path is None:
        return None
    from gpubench.analysis.metrics import read_prices

    found, astray = options.priced(read_prices(path), names)
    if astray:
        say(f"--price: {listed(astray)}: no such card, or several (gpubench cards --all has their names)", err=True)
    return found


def _show(answer: Answer, form: str, tables: Sequence[Table], *, notes_first: bool = False) -> None:
    """In the format that was asked for; a terminal gets these tables instead of the answer's own."""
    if form != "terminal":
        from gpubench.show.text import FORMATS, rendered

        if form not in FORMATS:
            raise UserError(f"--format {form}: there is terminal, {', '.join(FORMATS)}")
        say(*rendered(answer, form).removesuffix("\n").split("\n"))
        return
    (section,) = answer.sections
    notes = [line for note in section.notes for line in wrapped(note)]
    say(*wrapped(answer.headline), *(notes if notes_first else ()))
    for table in tables:
        say("", *table_lines(table, WIDTH))
    if notes and not notes_first:
        say("", *notes)
    if section.left_out:
        say("", "Left out:")
        for text in section.left_out:
            first, *more = wrapped(text, WIDTH - 2)
            say(f"- {first}", *(f"  {line}" for line in more))
