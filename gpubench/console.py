"""rich's console for what runs report: what it prints is as `printed` shows it."""

from typing import IO, Any

from rich.console import Console
from rich.text import Text

from gpubench.printed import shown_lines


class Screen(Console):
    """On stdout, stderr or a file, without markup: brackets in a name are brackets."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, file=file, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Each text that is printed, in a table or by itself."""
        return super().render_str(shown_lines(text), **options)
