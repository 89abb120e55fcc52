"""A table as people read it: Markdown and LaTeX, three decimals, best of a column bold, significance marked."""

import pandas as pd

LATEX_ESCAPES = str.maketrans(
    {sign: "\\" + sign for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
LATEX_SIGNS = str.maketrans({"±": r"$\pm$", "†": r"$^{\dagger}$"})


def cells(spec, table, bold):
    """The measures' columns as text: "0.505", with " ± 0.003" over several seeds and "†" where p is below the level.

    The best of each column, as printed, goes through `bold`, a format such as "**{}**"; a hole rate (`Hole@k`) says
    nothing about quality and has no best. "–" where a system has no run for a split.
    """
    printed, level = table.means.round(3), (spec["significance"] or {"level": 0})["level"]
    columns = {}
    for name in printed.columns:
        best, texts = None if "Hole@" in name else printed[name].max(), []
        for mean, sd, p in zip(printed[name], table.deviations[name], table.p_values[name], strict=True):
            if pd.isna(mean):
                texts.append("–")
                continue
            text = bold.format(f"{mean:.3f}") if mean == best else f"{mean:.3f}"
            texts.append(text + (f" ± {sd:.3f}" if pd.notna(sd) else "") + ("†" if p < level else ""))
        columns[name] = texts
    return pd.DataFrame(columns)


def footer(spec, table, collection, queries):
    """What a reader must know beside the figures: a list of sentences. queries: the counts of `count_queries`."""
    facts, test = collection.facts, spec["significance"]
    digest, passages = facts["corpus_digest"][:16], f"{facts['num_passages']:,} passages"
    notes = [f"Collection {digest}: {', '.join([passages, *queries])}."]
    if "versions" in facts:
        notes.append(f"Made from {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}.")
    if table.deviations.notna().any(axis=None):
        notes.append("Mean ± standard deviation over seeds.")
    if test:
        kind = f"permutation test over queries, {test['resamples']:,} resamples"
        if test.get("test") == "t-test":
            kind = "t-test over queries"
        notes.append(
            f"† differs from {test['baseline']}, p < {test['level']:g} (two-sided paired {kind}, Holm-corrected within "
            "the column)."
        )
    notes.append("Best of each column in bold.")
    return notes


def markdown(spec, table, notes):
    """The table in Markdown, with title and footer (text)."""
    texts = cells(spec, table, "**{}**")
    lines = [["System", "Episode", *texts.columns], [":--", *["--:"] * (1 + len(texts.columns))]]
    for (system, episode), row in zip(table.rows.to_numpy(), texts.to_numpy(), strict=True):
        lines.append([system.replace("|", r"\|"), str(episode), *row])
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{spec['title']}\n\n{body}\n\n" + "\n\n".join(notes) + "\n"


def latex(spec, table, notes):
    """The table in LaTeX, for the package booktabs, with caption and footer (text)."""
    texts = cells(spec, table, r"\textbf{{{}}}").map(lambda text: text.translate(LATEX_SIGNS))
    frame = pd.concat([table.rows.rename(columns=str.capitalize), texts], axis=1)
    frame["System"] = frame["System"].map(escape)
    frame.columns = [escape(name) for name in frame.columns]
    body = frame.style.hide(axis="index").to_latex(
        column_format="lr" + "r" * len(texts.columns),
        hrules=True,
        caption=escape(spec["title"]),
        label=f"tab:{spec['name']}",
        position_float="centering",
    )
    remarks = "\n".join(rf"\par\footnotesize {escape(note)}" for note in notes)
    return body.replace(r"\end{table}", remarks + "\n" + r"\end{table}")


def escape(text):
    """Plain text for LaTeX."""
    return text.translate(LATEX_ESCAPES).translate(LATEX_SIGNS)
