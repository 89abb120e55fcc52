"""Errors of the user: a wrong setting or file, or too small a machine. All other errors are ours."""


class Refusal(ValueError):
    """One sentence for a person: the rule, the offending value and where it is, the remedy. Shown without a traceback;
    every other error is a defect and keeps its own. Readers of configurations, files and finished stages refuse what is
    missing, torn or in another form. Validators of settings refuse too; their caller adds the place."""


class Remedy(str):
    """A sentence with a name, or one that is refused later; `running.code` leaves its text out of code digests."""
