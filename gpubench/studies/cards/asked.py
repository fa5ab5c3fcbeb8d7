"""What is asked of published figures, by the names that people use: cards, prices, precisions, kinds of models."""

from collections.abc import Mapping, Sequence

from gpubench.errors import UserError
from gpubench.studies.cards.figures import CLASSES, short_name
from gpubench.studies.cards.model import FAMILIES
from gpubench.studies.words import listed

SHOWN = ("half", "single")
"""Classes that are shown unless one is asked for; the first one orders cards."""
PREFIXES = ("", "rtx", "gtx", "radeon", "radeonrx", "intel")
"""What may be left out before a name."""
CALLED_TOO = {"H100 80GB HBM3": "SXM SXM5"}
"""Words that people use of a card, and its driver does not."""


def find_card(wish: str, cards: Sequence[str]) -> str:
    """The card that somebody calls `wish`: its name, that without its first words, or words that no other card has.

    Raises UserError.
    """
    from gpubench.analysis.metrics import did_you_mean, means, words_of

    names = {_squashed(card): card for card in cards}
    wanted = short_name(wish)
    for before in PREFIXES:
        if before + _squashed(wanted) in names:
            return names[before + _squashed(wanted)]
    called = {card: f"{card} {CALLED_TOO.get(card, '')}" for card in cards}
    holding = [card for card in cards if words_of(wanted) and words_of(wanted) <= words_of(called[card])]
    fitting = [card for card in holding if means(wanted, called[card])]
    if len(holding) > 1 and fitting:
        raise UserError(f"{wish}: which one? There is {listed(sorted(holding))}")
    if fitting:
        return fitting[0]
    near = holding or [card for name, card in names.items() if len(wanted) > 1 and _squashed(wanted) in name]
    hint = f"; there is {listed(sorted(near))}" if near else did_you_mean(wish, cards)
    raise UserError(f"{wish}: nobody published a figure of that card{hint} (gpubench cards --all)")


def _squashed(name: str) -> str:
    """Letters and digits alone."""
    return "".join(filter(str.isalnum, name.lower()))


def priced(prices: Mapping[str, float], cards: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """Dollars an hour by card, and the entries that name none. Raises UserError where no entry names one."""
    found, astray = {}, []
    for name, hourly in prices.items():
        try:
            found[find_card(name, cards)] = hourly
        except UserError:
            astray.append(name)
    if not found:
        raise UserError(f"--price: {listed(astray) if astray else 'the file'} names no card of gpubench cards --all")
    return found, astray


def classes_of(wish: str) -> tuple[str, ...]:
    """The classes that --precision names; raises UserError."""
    return _chosen("--precision", wish, tuple(CLASSES)) if wish else SHOWN


def families_of(wish: str) -> tuple[str, ...]:
    """The kinds of models that --family names; raises UserError."""
    return _chosen("--family", wish, FAMILIES) if wish else FAMILIES


def _chosen(option: str, wish: str, known: Sequence[str]) -> tuple[str]:
    """Return the wish alone; raises UserError where it is not known."""
    if wish not in known:
        raise UserError(f"{option} {wish}: there is {', '.join(known)}")
    return (wish,)
