"""Errors that a user can mend: a wrong setting or file, or too small a machine. All other errors are ours."""


class Refusal(ValueError):
    """One sentence for a person: the rule, the offending value with its location, and the remedy. It is shown without a
    traceback; any other error is a defect and keeps its traceback. Readers of configurations, files and finished stages
    refuse whatever is missing, torn or in another form. Validators of settings refuse too, and their caller adds the
    location."""


class Remedy(str):
    """A sentence that is kept in a variable, or refused with later. `running.code` leaves its text out of code
    digests."""
