"""What a configuration will cost on a machine, before anything starts: stages, disk, memory, hours.

    python workflow_scripts/forecast.py config/config.yaml
    python workflow_scripts/forecast.py --hardware h200 config/marco.yaml config/ablations/negatives.yaml

Files are merged as `--configfile` merges them. Hardware lines stand in config/hardware.yaml; `bench/calibrate.py`
measures this machine, and its line is then the default. With --strict a warning ends the command with status 1.
"""

import argparse
import sys

from teleport.forecast.counts import encoder_shape
from teleport.forecast.hardware import read_hardware
from teleport.forecast.table import forecast, render, total_line, warnings
from teleport.plan.plan import Plan
from teleport.settings.read import load_files


def heading(plan, counts, name, hardware):
    """What the figures rest on (list of str): collection, tokens, encoder, hardware."""
    queries = ", ".join(f"{num:,} {split}" for split, num in counts.queries.items())
    text = [f"collection: {counts.passages:,} passages; queries: {queries} (from {counts.source})"]
    encoder = plan.config.encoder
    tokens = next((stage for stage in plan.stages.values() if stage.kind == "tokens"), None)
    if tokens is not None:
        mean = counts.tokens_per_text(tokens, "passages", encoder.max_passage_tokens)
        text.append(f"tokens: {mean:.1f} a passage, cut at {encoder.max_passage_tokens}")
    for stage in plan.stages.values():
        if stage.kind == "pretrained":
            shape, source = encoder_shape(stage)
            text.append(f"encoder: {shape.parameters / 1e6:.1f} M parameters (from {source})")
    return [*text, f"hardware: {name} ({hardware.source.strip()})"]


def main():
    parser = argparse.ArgumentParser(description="Forecast stages, disk, memory and hours of a configuration.")
    parser.add_argument("files", nargs="+", help="the files of the configuration, as after --configfile")
    parser.add_argument("--hardware", help="a line of config/hardware.yaml; default: this machine if it was measured")
    parser.add_argument("--strict", action="store_true", help="end with status 1 when something is too small")
    arguments = parser.parse_args()
    try:
        plan = Plan(*load_files(arguments.files))
        name, hardware = read_hardware(arguments.hardware)
        lines, counts = forecast(plan, hardware)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print("\n".join(heading(plan, counts, name, hardware)), render(lines), sep="\n\n")
    total = total_line(lines)
    if total.measured:
        print(f"\ndone stages took {total.measured:.0f} s, forecast {total.estimated:.0f} s: ", end="")
        print(f"{total.estimated / total.measured:.2f} times")
    print("\ntime: as if one job ran after another; of done stages disk and memory are those measured")
    found = warnings(lines, hardware)
    for warning in found:
        print(f"warning: {warning}")
    sys.exit(1 if found and arguments.strict else 0)


if __name__ == "__main__":
    main()
