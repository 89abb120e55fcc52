"""What is refused because a person is at fault: a setting, a file, a machine too small. All other errors are ours."""


class Refusal(ValueError):
    """One sentence for a person: the rule, the offending value and where it is, the remedy. Shown without a traceback;
    every other error is a defect and keeps its own. What reads a configuration, a file or a finished stage refuses what
    is missing, torn or in another form. So do validators of settings, of which what reads these says the place."""


class Remedy(str):
    """A sentence with a name, or one that is refused later; `running.code` leaves its text out of code digests."""
