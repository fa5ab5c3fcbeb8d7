"""Text of a row's `params` column: `name=value ...`, sorted, joined by spaces. Written by runs, read by studies."""

from collections.abc import Collection, Mapping


def params_text(params: Mapping[str, object]) -> str:
    """Return parameters as the row has them."""
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in sorted(params.items())
    )


def params_of(text: object) -> dict[str, str]:
    """Return the parameters of a row by name; words without `=` are none."""
    return {name: value for name, equals, value in (word.partition("=") for word in str(text).split()) if equals}


def params_without(text: object, names: Collection[str]) -> str:
    """Return the text of a row's parameters without some of them."""
    return " ".join(word for word in str(text).split() if word.partition("=")[0] not in names)
