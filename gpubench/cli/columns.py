"""`gpubench columns`: the columns of a CSV file, as a table in Markdown."""

from gpubench.printed import say

EXAMPLES = "Example: `gpubench columns`"


def columns() -> None:
    """Print every column of the CSV and its meaning, in Markdown."""
    from gpubench.rows.markdown import columns_markdown

    say(*columns_markdown().splitlines())
