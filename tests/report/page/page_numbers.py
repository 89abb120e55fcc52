"""The numbers that a report page shows, each beside what plain loops over the artefacts give: [(what, shown, true)]."""

import html
import json
import re
from itertools import pairwise

import numpy as np
import pandas as pd

MINING = ("encode", "index", "retrieve", "lexical_index", "bm25", "negatives_file", "positives", "merge")


def charts_of(text):
    """[(title, rows)] of the charts of a page."""
    found = re.findall(r'<strong>([^<]*)</strong>.*?<script type="application/json">(.*?)</script>', text, re.S)
    return [(html.unescape(title), json.loads(spec)["datasets"]["values"]) for title, spec in found]


def data_of(folder, name):
    """The value of a data file of a page."""
    return json.loads((folder / f"{name}.js").read_text().partition(",")[2].removesuffix(");\n"))


def query_scores(results, key, measure):
    """{query id: score} of an evaluate stage."""
    frame = pd.read_parquet(results / "stages/evaluate" / key / "per_query.parquet")
    frame = frame[frame["measure"] == measure]
    return dict(zip(frame["query_id"], frame["value"], strict=True))


def cells_of(index):
    """{(label, column): (mean as shown, [keys of evaluate stages])} of all figures of the first page's tables."""
    found = re.findall(r"<h3>([^<]*): ([^<:]*)</h3>.*?<dd>([\d.]+) over.*?<code>(.*?)</code>", index, re.S)
    return {
        (html.unescape(label), html.unescape(column)): (float(mean), re.findall(r"evaluate/(\w+)/manifest", command))
        for label, column, mean, command in found
    }


def spent(manifest):
    """Seconds that a stage took."""
    return manifest["provenance"]["wall_seconds"] + manifest["facts"].get("earlier_seconds", 0.0)


def mined_for(trainings, stages):
    """{name: manifest} of the stages that mined for trainings (manifests), but for those of an earlier pool."""
    found, unread = {}, list(trainings)
    while unread:
        for role, name in unread.pop()["inputs"].items():
            if name.split("/")[0] in MINING and role not in ("momentum", "dev") and name not in found:
                found[name] = json.loads((stages / name / "manifest.json").read_text())
                unread.append(found[name])
    return found


def numbers(results, page, experiments):
    """{kind of number: [(what, shown, true)]} of a page (a folder), for a configuration of one seed and the split test.

    results: its folder results; experiments: {label: folder of links of that experiment}
    """
    index, found = (page / "index.html").read_text(), {}
    cells = cells_of(index)
    true = {
        (label, column): np.mean([list(query_scores(results, key, column).values()) for key in keys])
        for (label, column), (_, keys) in cells.items()
    }
    found["means"] = [(key, mean, true[key]) for key, (mean, _) in cells.items()]
    found["scores"], scores, queries = [], data_of(page, "scores-test"), data_of(page, "queries-test")
    labels = data_of(page, "index")["labels"]
    for (label, measure), (_, keys) in cells.items():
        values, shown = query_scores(results, keys[0], measure), scores["scores"][measure][labels.index(label)]
        pairs = zip(queries["ids"], shown, strict=True)
        found["scores"] += [((label, measure, query), score, values[query]) for query, score in pairs]
    manifests = {
        f"{path.parts[-3]}/{path.parts[-2]}": json.loads(path.read_text())
        for path in (results / "stages").glob("*/*/manifest.json")
    }
    for title, rows in charts_of(index):
        if title == "Time by kind of stage.":
            for row in rows:
                kind = [spent(manifest) for name, manifest in manifests.items() if name.startswith(f"{row['kind']}/")]
                found.setdefault("times", []).append((row["kind"], row["seconds"], sum(kind)))
        for row in rows if any(title == f"{column}." for _, column in cells) else ():
            found.setdefault("dots", []).append((row["label"], row["mean"], true[row["label"], title[:-1]]))
    for label, folder in experiments.items():
        for kind, given in of_experiment(results, page, label, folder).items():
            found.setdefault(kind, []).extend(given)
    if experiments:
        found["rates"] = rates(results, page, experiments, next(iter(scores["scores"])))
    return {kind: given for kind, given in found.items() if given}


def of_experiment(results, page, label, folder):
    """{kind of number: [(what, shown, true)]} of one experiment: costs, pools and losses."""
    manifests = {path.resolve() / "manifest.json" for path in folder.rglob("*") if path.is_symlink()}
    manifests = [json.loads(path.read_text()) for path in manifests if path.is_file()]
    index = (page / "index.html").read_text()
    line = re.search(rf'data-system="{label}">(.*?)</tr>', index.partition('class="costs"')[2], re.S)
    found = {"costs": [], "sources": [], "first": [], "losses": []}
    trained = {f"train/{manifest['key']}": manifest for manifest in manifests if manifest["kind"] == "train"}
    mined = mined_for(trained.values(), results / "stages")
    for text, stages in zip(re.findall(r"<td>([^<]*) s</td>", line[1]), (mined, trained), strict=False):
        shown, true = float(text.replace(",", "")), sum(map(spent, stages.values()))
        found["costs"].append(((label, *stages), shown, shown if abs(shown - true) <= 0.5 else true))
    charts = dict(charts_of((page / f"experiment-{folder.name}.html").read_text()))
    episodes = sorted(folder.glob("episode-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    pools = {}
    for number, episode in enumerate(episodes, 1):
        losses = pd.read_csv(episode / "train/losses.tsv", sep="\t")["loss"].tolist()
        shown = [row["value"] for row in charts["Loss."] if row["episode"] == number]
        found["losses"] += [((label, number, at), *pair) for at, pair in enumerate(zip(shown, losses, strict=True))]
        if not (episode / "merge").exists():
            continue
        offsets, passages, sources = (np.load(episode / f"merge/{n}.npy") for n in ("offsets", "passages", "sources"))
        queries = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pools[number] = set(zip(queries.tolist(), passages.tolist(), strict=True))
        found_by = json.loads((episode / "merge/sources.json").read_text())
        names = [[name for place, name in enumerate(found_by) if bits >> place & 1] for bits in sources.tolist()]
        names = ["momentum" if "momentum" in each else each[0] for each in names]
        for row in [row for row in charts["Sources."] if row["episode"] == number]:
            found["sources"].append(((label, number, row["source"]), row["count"], names.count(row["source"])))
        earlier = {}
        for first, pairs in pools.items():
            earlier |= {pair: first for pair in pairs if pair not in earlier}
        for row in charts["Since when: the pool."] if number in pools else ():
            if row["episode"] == number:
                true = sum(earlier[pair] == row["first"] for pair in pools[number])
                found["first"].append(((label, number, row["first"]), row["count"], true))
    return found


def rates(results, page, experiments, measure):
    """[(what, shown, true)] of the forgetting rates of the test queries."""
    charts = charts_of((page / "experiments.html").read_text())
    shown = next(rows for title, rows in charts if title == "Forgetting rate.")  # training queries come last
    found = []
    for label, folder in experiments.items():
        count = len(list(folder.glob("episode-*")))
        folders = [folder / "evaluate-test", *(folder / f"episode-{n}/evaluate-test" for n in range(1, count + 1))]
        keys = [each.resolve().name for each in folders]
        values = [query_scores(results, key, measure) for key in keys]
        for step, (before, after) in enumerate(pairwise(values), 1):
            true = np.mean([after[query] < before[query] for query in before])
            rate = next(row["rate"] for row in shown if (row["label"], row["step"]) == (label, step))
            found.append(((label, step), rate, true))
    return found


def thirty(found, seed=30):
    """Thirty numbers drawn at random: every kind of number has its turn."""
    rng, kinds = np.random.default_rng(seed), sorted(found)
    chosen = [found[kinds[at % len(kinds)]] for at in range(30)]
    return [(kinds[at % len(kinds)], *given[rng.integers(len(given))]) for at, given in enumerate(chosen)]
