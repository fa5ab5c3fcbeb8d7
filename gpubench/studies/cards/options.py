"""Finds the cards that a user names. `gpubench cards` calls it."""

from collections.abc import Sequence

from gpubench.analysis.metrics import did_you_mean, means, words_of
from gpubench.errors import UserError
from gpubench.studies.cards.figures import short_name
from gpubench.studies.words import listed

DEFAULT_CLASSES = ("half", "fp32")
"""Classes without --precision; the first one orders the cards."""
PREFIXES = ("", "rtx", "gtx", "radeon", "radeonrx", "intel")
"""Words that users leave out before a name."""
MORE_WORDS = {"H100 80GB HBM3": "SXM SXM5"}
"""Words that users add to a card's name."""


class UnknownCardError(UserError):
    """No card, or several, have the given name; `hint` names similar ones."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(f"{text}: not in our data{hint} (gpubench cards --all)")
        self.hint = hint


def cards_in(texts: Sequence[str], cards: Sequence[str]) -> list[str]:
    """Return the cards that these words name, one after the other: `RTX 4090 RTX 3090` needs no quotes.

    Raises UserError for words that name none.
    """
    words = " ".join(texts).split()
    unknown = []
    for end in range(len(words), 0, -1):
        if len(set(words[:end])) == end:
            try:
                return [find_card(" ".join(words[:end]), cards), *cards_in(words[end:], cards)]
            except UnknownCardError as error:
                unknown.append(error)
    if not unknown:
        return []
    raise UnknownCardError(" ".join(words), next((error.hint for error in unknown if error.hint), ""))


def find_card(text: str, cards: Sequence[str]) -> str:
    """Return the card that `text` names: by its name, without its first word, or by words that no other card has.

    Raises UnknownCardError.
    """
    names = {_letters_and_digits(card): card for card in cards}
    wanted = short_name(text)
    for prefix in PREFIXES:
        if prefix + _letters_and_digits(wanted) in names:
            return names[prefix + _letters_and_digits(wanted)]
    long_names = {card: f"{card} {MORE_WORDS.get(card, '')}" for card in cards}
    with_words = [card for card in cards if words_of(wanted) and words_of(wanted) <= words_of(long_names[card])]
    matches = [card for card in with_words if means(wanted, long_names[card])]
    if len(matches) == 1 and len(with_words) == 1:
        return matches[0]
    squashed = _letters_and_digits(wanted)
    similar = with_words or [card for name, card in names.items() if len(wanted) > 1 and squashed in name]
    raise UnknownCardError(text, f"; there is {listed(sorted(similar))}" if similar else did_you_mean(text, cards))


def _letters_and_digits(name: str) -> str:
    """Return only the letters and digits, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))
