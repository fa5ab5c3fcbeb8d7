"""`python -m gpubench`: the same program as the `gpubench` command."""

from gpubench.cli.app import app

app()
