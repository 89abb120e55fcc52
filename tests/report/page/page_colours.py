"""Contrast ratios of colours, by WCAG 2, and what a colour with an opacity is over a ground."""

GROUNDS = {"light": "#ffffff", "dark": "#15171b"}


def channels(colour):
    """The red, green and blue (0 to 255) of "#rrggbb"."""
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def over(colour, opacity, ground):
    """The colour ("#rrggbb") that one with an opacity is on a ground."""
    mixed = (
        round(opacity * one + (1 - opacity) * other)
        for one, other in zip(*map(channels, (colour, ground)), strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)


def contrast(one, other):
    """The contrast ratio of two colours ("#rrggbb")."""

    def luminance(colour):
        parts = [part / 255 for part in channels(colour)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)
