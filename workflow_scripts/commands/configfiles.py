"""Checks that the files after --configfile can be read. Snakemake opens them later: it answers a typo with a traceback,
or names no file."""

import sys
from itertools import takewhile

from teleport.refusal import Refusal
from teleport.settings.yaml_mapping import read_mapping

OPTIONS = "--configfile", "--configfiles"


def require_configfiles(words):
    """End the process with a sentence if a file that a command line (its words) names holds no mapping."""
    for place, word in enumerate(words):
        option, _, joined = word.partition("=")
        if option in OPTIONS:
            following = takewhile(lambda each: not each.startswith("-"), words[place + 1 :])
            for name in [joined] if joined else following:
                try:
                    read_mapping(name)
                except Refusal as error:
                    sys.exit(f"error: --configfile: {error}")
