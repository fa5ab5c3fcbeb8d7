"""What stops a run on purpose: the user's mistake, and what a machine cannot do."""


class UserError(Exception):
    """Something the user can put right; the message says what to do next."""

    exit_code = 2
    data = ""
    """Lines that belong to the user and are nowhere else, to be printed below the message as they are."""


class Unsupported(Exception):
    """A suite found that this machine cannot do the case; the trial's row is `unsupported`, with the message."""
