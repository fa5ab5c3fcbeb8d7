"""The one exception that the command line turns into a line of advice."""


class UserError(Exception):
    """Something the user can put right; the message says what to do next."""

    exit_code = 2
