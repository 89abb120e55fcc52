"""Times and sizes as text for people."""

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def duration(seconds, decimals=0):
    """Seconds as text: "40 s", "12 min", "3 h 05 min"; below 10 s with `decimals` decimals; – for None."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.{decimals if seconds < 9.95 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(num_bytes):
    """A number of bytes as text with three digits, in the unit in which at most three are before the point."""
    unit = next((power for power in range(4) if num_bytes < 999.5 * 1000**power), 4)
    return f"{num_bytes / 1000**unit:.3g} {UNITS[unit]}"
