"""Converts parameters to the text of a row's `params` column (`epochs=30 lr=0.1`) and back."""

from collections.abc import Collection, Mapping


def params_text(params: Mapping[str, object]) -> str:
    """Return the text of these parameters, sorted by name."""
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in sorted(params.items())
    )


def params_of(text: object) -> dict[str, str]:
    """Return the parameters of a row by name; words without `=` are left out."""
    return {name: value for name, equals, value in (word.partition("=") for word in str(text).split()) if equals}


def params_without(text: object, names: Collection[str]) -> str:
    """Return the text of a row's parameters without some of them."""
    return " ".join(word for word in str(text).split() if word.partition("=")[0] not in names)
