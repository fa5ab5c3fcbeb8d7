"""Facts in a sentence: a test names the numbers and names that a line has, and leaves its wording free."""

import re


def lacking(text: str, *facts: object) -> list[str]:
    """The facts that the text does not have as whole words or numbers, in any place and with any words around them."""
    joined = " ".join(text.split())
    return [
        str(fact)
        for fact in facts
        if not re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(str(fact))}(?!\w)(?![.,]\d)", joined)
    ]
