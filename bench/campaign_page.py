"""The lines of a GPU campaign as a table, which goes between two marks of docs/gpu.md.

python bench/gpu_campaign.py --folder FOLDER --page
"""

import json
import sys

from rounds import REPOSITORY

PAGE = REPOSITORY / "docs/gpu.md"
BEGIN, END = "<!-- campaign: made by bench/gpu_campaign.py --page -->", "<!-- campaign: end -->"
IN_HARDWARE = "calibrate"  # whose figures are an entry of config/hardware.yaml


def last_done(lines):
    """{step: its last line that was done, else its last one}, in the order in which steps came first."""
    found = {}
    for line in lines:
        if line["status"] == "done" or found.get(line["step"], line)["status"] != "done":
            found[line["step"]] = line
    return found


def shown(name, value):
    """A figure as text: bytes in GB, other numbers with four digits."""
    if "bytes" in name and isinstance(value, int | float):
        return f"{value / 1e9:.2f} GB"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def figures(line):
    """[(name, value as text)] of a line: what came of the tests, or rates and figures of a benchmark."""
    if line["status"] != "done":
        return [("", line["status"])]
    found = line.get("figures", {})
    if line["step"] == IN_HARDWARE:
        return [("", "an entry of config/hardware.yaml (`--hardware`)")]
    if "medians" not in found:
        return [(name, str(value)) for name, value in found.items()]
    rates = {f"{found['unit']}/s, {name}": found["amount"] / taken for name, taken in found["medians"].items()}
    named = rates | {name: value for name, value in found["figures"].items() if not isinstance(value, dict)}
    return [(name.replace("_", " "), shown(name, value)) for name, value in named.items()]


def table(lines):
    """Lines of Markdown for each machine and commit among the lines (list of dict) of a campaign."""
    machines = {}
    for line in lines:
        hardware = line["hardware"]
        of = (
            hardware.get("gpu", f"no GPU, {hardware['processor']}"),
            line["versions"]["torch"],
            line["commit"] or "unknown",
        )
        machines.setdefault(of, []).append(line)
    text = []
    for (device, torch, commit), own in machines.items():
        text += [f"{device}, torch {torch}, commit {commit[:7]}:", "", "| step | figure | |", "|---|---|--:|"]
        for step, line in last_done(own).items():
            text += [f"| {step} | {name} | {value} |" for name, value in figures(line)]
        text.append("")
    return "\n".join(text)


def write_page(path):
    """Put the table of the lines in a file between the marks of the page."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if not lines:
        sys.exit(f"error: {path} has no line of a campaign: python bench/gpu_campaign.py")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"error: {PAGE} lacks the marks {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}")
