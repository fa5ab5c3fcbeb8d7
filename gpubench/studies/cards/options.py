"""Finds the cards that a user names. `gpubench cards` and `gpubench fits` call it."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from gpubench.analysis.metrics import means, words_of
from gpubench.errors import UserError, did_you_mean
from gpubench.studies.cards.figures import short_name
from gpubench.studies.words import listed

DEFAULT_CLASSES = ("half", "fp32")
"""Classes without --precision; the first one orders the cards."""
PREFIXES = ("", "rtx", "gtx", "radeon", "radeonrx", "intel")
"""Words that users leave out before a name."""
MORE_WORDS = {"H100 80GB HBM3": "SXM SXM5"}
"""Words that users add to a card's name."""


class UnknownCardError(UserError):
    """Raised if no card, or more than one, has the given name."""


def cards_in(texts: Sequence[str], cards: Sequence[str]) -> list[str]:
    """Return the cards that these words name, one after the other: `RTX 4090 RTX 3090` needs no quotes.

    A text with a blank in it (given in quotes) is one name. Raises UserError for words that name no card.
    """
    chosen = []
    for is_quoted, group in groupby(texts, key=lambda text: " " in text.strip()):
        names = list(group)
        chosen += [find_card(name, cards) for name in names] if is_quoted else _cards_in_words(names, cards)
    return chosen


def _cards_in_words(words: Sequence[str], cards: Sequence[str]) -> list[str]:
    """Return the cards that the words name; each name takes as many words as possible."""
    if not words:
        return []
    # A repeated word belongs to the next name.
    for end in (end for end in range(len(words), 0, -1) if len(set(words[:end])) == end):
        with suppress(UnknownCardError):
            card = find_card(" ".join(words[:end]), cards)
            break
    else:
        end = next((at for at, word in enumerate(words, start=1) if any(map(str.isdigit, word))), len(words))
        card = find_card(" ".join(words[:end]), cards)  # raises the error of the first name
    return [card, *_cards_in_words(words[end:], cards)]


def find_card(text: str, cards: Sequence[str]) -> str:
    """Return the card that `text` names: by its name, or by words that together only its name has.

    A first word such as `RTX` (PREFIXES) may be missing. Raises UnknownCardError.
    """
    names = {_letters_and_digits(card): card for card in cards}
    wanted = short_name(text)
    for prefix in PREFIXES:
        if prefix + _letters_and_digits(wanted) in names:
            return names[prefix + _letters_and_digits(wanted)]
    long_names = {card: f"{card} {MORE_WORDS.get(card, '')}" for card in cards}
    alike = [card for card in cards if words_of(wanted) and words_of(wanted) <= words_of(long_names[card])]
    if len(alike) == 1 and means(wanted, long_names[alike[0]]):
        return alike[0]
    squashed = _letters_and_digits(wanted)
    alike = sorted(alike or [card for name, card in names.items() if len(squashed) > 1 and squashed in name])
    if len(alike) < 2:  # one: another card of the series, as RX 6800 is not RX 6800 XT
        near = f"; did you mean {alike[0]}?" if alike else did_you_mean(text, cards)
        raise UnknownCardError(f"{text or 'no name'}: no card of our data{near} (gpubench cards --all)")
    named = listed(alike, most=5)
    raise UnknownCardError(f"{text}: give more of the name; there are {named} (gpubench cards --all)")


def _letters_and_digits(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
