"""Errors that end a command or a trial on purpose."""


class UserError(Exception):
    """An error that the user can correct; the message says how."""

    exit_code = 2
    data = ""
    """Lines of the user's that are stored nowhere else, to be printed unchanged below the message."""


class Unsupported(Exception):
    """Raised by a suite if a machine cannot do the case: its row is `unsupported`, with the message as the reason."""
