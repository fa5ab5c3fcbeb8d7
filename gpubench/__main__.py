"""`python -m gpubench`: the same program as the `gpubench` command."""

from gpubench.cli import app

app()
