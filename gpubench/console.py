"""The rich console that prints progress, tables and notes, with unsafe characters replaced (see printed.py)."""

from typing import IO, Any

from rich.console import Console
from rich.text import Text

from gpubench.printed import shown_lines


class Screen(Console):
    """A console on stdout, stderr or a file. Brackets are printed as they are, not as markup."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None) -> None:
        super().__init__(stderr=stderr, file=file, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to print, also in a table, with unsafe characters replaced."""
        return super().render_str(shown_lines(text), **options)
