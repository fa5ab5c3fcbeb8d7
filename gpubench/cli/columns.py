"""`gpubench columns`: the columns of a CSV file, as a table in Markdown."""

from gpubench.printed import say


def columns() -> None:
    """Print every column of the CSV and its meaning, in Markdown."""
    from gpubench.rows.column import columns_markdown
    from gpubench.rows.row import Row

    say(*columns_markdown(Row).splitlines())
