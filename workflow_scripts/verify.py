"""Check every artefact below results/stages against the SHA-256 in its manifest.

    python workflow_scripts/verify.py

Prints one line per stage that is torn or edited and ends with status 1 when there is one.
"""

import sys

from teleport.stage import MANIFEST, STAGES, Artefact


def main():
    manifests = sorted(STAGES.glob(f"*/*/{MANIFEST}"))
    bad = 0
    for manifest in manifests:
        try:
            Artefact(manifest.parent).verify()
        except ValueError as error:
            print(error)
            bad += 1
    print(f"{len(manifests) - bad} stages sound, {bad} torn or edited")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
