"""Whether a device is the card that was rented, by their names."""

import re

from gpubench.errors import UserError
from gpubench.studies.cards.asked import find_card
from gpubench.studies.cards.figures import short_name


def is_called(card: str, kind: str) -> bool:
    """Whether people call this card so: by whole words, of which D, Ti, SUPER, Laptop or MIG make another card."""
    name = short_name(card)
    # A100-SXM4-80GB is an `A100 SXM` too.
    return any(_fits(kind, each) for each in (name, re.sub(r"\b(SXM)\d\b", r"\1", name)))


def _fits(kind: str, name: str) -> bool:
    try:
        return find_card(kind, [name]) == name
    except UserError:
        return False
