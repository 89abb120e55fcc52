#!/bin/sh
# Runs the GPU campaign of this kit with the torch that is here: ./run.sh [PYTHON] [arguments of the campaign]
# Nothing is written outside this folder, nothing is fetched. RESULTS: kit/results/campaign.
set -eu
kit=$(cd "$(dirname "$0")" && pwd)
python=python3
case "${1:-}" in ''|-*) ;; *) python=$1; shift ;; esac
"$python" -W ignore - <<'PYTHON' || exit 1
import sys
if sys.version_info[:2] not in ((3, 11), (3, 12)):
    sys.exit(f"error: this is Python {sys.version.split()[0]}, the kit has wheels for 3.11 and 3.12: ./run.sh PYTHON")
try:
    import torch
except ImportError as error:
    sys.exit(f"error: this Python has no torch that loads ({error}). Name one that has: ./run.sh /path/to/python")
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11):
    sys.exit(f"error: torch {torch.__version__} is here, the kit needs 2.11 or newer.")
PYTHON
"$python" "$kit/prepare.py" "$kit"
PATH="$kit/env/bin:$PATH"
export PATH HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 TMPDIR="${TMPDIR:-$kit/tmp}"
mkdir -p "$kit/results" "$TMPDIR"
cd "$kit"
env/bin/python repository/workflow_scripts/manage.py doctor repository/config/config.yaml || \
    echo "the doctor found something that fails: the campaign is tried all the same"
gpu=$(env/bin/python -c "import torch; print(torch.cuda.is_available())")
[ "$gpu" = True ] || set -- --small "$@"
exec env/bin/python repository/bench/gpu_campaign.py "$@"
