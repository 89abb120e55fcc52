"""Check every artefact below results/stages against the SHA-256 in its manifest, and the links of the experiments.

    python workflow_scripts/verify.py

Prints one line per stage that is torn or edited and per link to a stage that is not there, each with the remedy, and
ends with status 1 when there is one.
"""

import sys
from pathlib import Path

from teleport.report.experiments import stage_links
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact, remake

EXPERIMENTS = Path("results/experiments")


def bad_stages(manifests):
    """What is wrong with the stages of some manifests (list of str)."""
    found = []
    for manifest in manifests:
        try:
            Artefact(manifest.parent).verify()
        except ValueError as error:
            found.append(str(error))
    return found


def broken_links():
    """What is wrong with the links of the experiments to their stages (list of str)."""
    return [
        f"{link} leads to {name}, a stage that is not there. {remake(*name.split('/'))} If the experiment is not "
        "wanted any more, delete its folder."
        for link, name in sorted(stage_links(EXPERIMENTS).items())
        if not (link / MANIFEST).is_file()
    ]


def main():
    manifests = sorted(STAGES.glob(f"*/*/{MANIFEST}"))
    bad, broken = bad_stages(manifests), broken_links()
    print("".join(f"{line}\n" for line in bad + broken), end="")
    print(f"{len(manifests) - len(bad)} stages sound, {len(bad)} torn or edited, {len(broken)} links lead nowhere")
    sys.exit(1 if bad or broken else 0)


if __name__ == "__main__":
    main()
