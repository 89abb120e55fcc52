"""What a dry run of the workflow says: a line per job, and what all of them cost."""

from pathlib import Path

from commands.snakemake_internals import LogEvent, TerminalHandler, get_event

MOST_JOBS = 200  # that are listed
REASONS = ("Reasons:", "    (check individual jobs", "    ")  # the hashes behind each job
LAST = "This was a dry-run"


class DryRun(TerminalHandler):
    """What a dry run says: a line per job, and at the end what `costs` (function of the stages' names) says of all."""

    def __init__(self, usual, costs):
        super().__init__(usual)
        self.costs, self.jobs, self.stages, self.counted = costs, 0, set(), False

    def emit(self, record):
        event, text = get_event(record), str(record.msg)
        if event == LogEvent.JOB_INFO:
            if record.rule_msg:
                self.jobs += 1
                self.stages |= {"/".join(Path(path).parts[-3:-1]) for path in record.output[:1]}
                if self.jobs <= MOST_JOBS:
                    self.say(f"Job {record.jobid}: {' '.join(record.rule_msg.split())}")
        elif event == LogEvent.RUN_INFO:
            if not self.counted:
                super().emit(record)
            self.counted = True
        elif not text.startswith(REASONS):
            last = text.startswith(LAST) and self.jobs
            if last and self.jobs > MOST_JOBS:
                more = f"and {self.jobs - MOST_JOBS} more jobs"
                self.say(f"{more}: name results/experiments/NAME, or a folder below it, to see those of one experiment")
            super().emit(record)
            if last:  # not in `close`, whose errors Snakemake drops
                self.say(self.costs(self.stages))

    def say(self, text):
        self.stream.write(f"{text}\n")
