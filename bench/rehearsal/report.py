"""The figures of a rehearsal beside its forecast: a line for each long stage, and one for each kind of stage."""

import csv
from pathlib import Path

LONG_SECONDS = 10.0  # a stage that took longer has a line of its own
MEASURED = {"seconds": 1.5, "memory": 1.25, "disk": 1.25}  # and the factor within which a forecast counts as right


def compare(files):
    """A line per finished stage: what was measured beside its forecast (list of dicts; seconds, bytes)."""
    from commands.forecast.forecast import Forecast
    from commands.forecast.hardware import read_hardware
    from teleport.plan.plan import Plan
    from teleport.running.artefact import STAGES, read_manifest

    plan = Plan.of_files(files)
    estimates = Forecast(plan, read_hardware()[1]).stages
    lines = []
    for name in plan.stages:
        if not (STAGES / name / "manifest.json").is_file():
            continue
        manifest, estimate = read_manifest(STAGES / name, "", ""), estimates[name]
        made = manifest["provenance"]
        lines.append(
            {
                "stage": name,
                "processor_seconds": processor_seconds(name),
                "seconds": made["wall_seconds"],
                "seconds_forecast": estimate.seconds,
                "memory": made["peak_memory_bytes"],
                "memory_forecast": estimate.cost.memory + estimate.cost.mapped,
                "disk": sum(file["bytes"] for file in manifest["files"].values()),
                "disk_forecast": estimate.cost.bytes,
            }
        )
    return lines


def processor_seconds(name):
    """Return the processor seconds of the job that made a stage, by Snakemake's benchmark: on a busy machine the wall
    clock says little."""
    path = Path(f"results/benchmarks/{name}.tsv")
    rows = list(csv.DictReader(path.open(), delimiter="\t")) if path.is_file() else []
    return float(rows[-1]["cpu_time"]) if rows else float("nan")


def by_kind(lines):
    """The lines summed per kind of stage, with the largest memory, and `longest`, the seconds of the longest stage."""
    kinds = {}
    for line in lines:
        kind = kinds.setdefault(line["stage"].partition("/")[0], [])
        kind.append(line)
    return [
        {"stage": f"{len(of)} {kind}", "longest": max(line["seconds"] for line in of)}
        | {name: (max if "memory" in name else sum)(line[name] for line in of) for name in of[0] if name != "stage"}
        for kind, of in kinds.items()
    ]


def render(lines):
    """The lines as text, sizes in GB, with the ratio of each figure to its forecast; `!` beyond its factor."""
    rows = [("stage", "longest", "processor s", *("seconds", "forecast", "x", "GB of memory", "forecast", "x"))]
    rows[0] += ("GB of disk", "forecast", "x")
    for line in lines:
        row = [line["stage"], f"{line.get('longest', line['seconds']):.1f}", f"{line['processor_seconds']:.1f}"]
        for name, factor in MEASURED.items():
            measured, forecast = line[name], line[f"{name}_forecast"]
            ratio = measured / forecast if forecast else float("nan")
            unit, digits = (1, 1) if name == "seconds" else (1e9, 3)
            row += [f"{measured / unit:.{digits}f}", f"{forecast / unit:.{digits}f}"]
            row.append(f"{ratio:.2f}{'' if not forecast or 1 / factor <= ratio <= factor else '!'}")
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
