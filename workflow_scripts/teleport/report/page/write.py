"""The report page: pages that a browser opens from the disk, made from what finished stages have left behind."""

import re
from itertools import chain

import numpy as np

from teleport.report.page.charts import drawn
from teleport.report.page.drawings import (
    episode_figures,
    kind_figure,
    negatives_figures,
    rate_figure,
    river_figure,
    share_figure,
    shown,
    swing_figure,
    system_figures,
    trace_figure,
    training_figures,
)
from teleport.report.page.forgetting import LETTERS, STATES, Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.overview import costs, overview_tables, stage_content, status_of, training_curves
from teleport.report.page.queries import (
    MOST_DRAWN,
    compared_rows,
    fitting,
    life_figures,
    query_life,
    ranking_table,
    selected,
    split_content,
    tops_of,
    with_pools,
)
from teleport.report.page.reader import Reader
from teleport.report.page.site import Site, read_texts
from teleport.report.published_table import printed_published
from teleport.report.verdicts import labels_of, p_text

NAVIGATION = {"index": "Verdicts", "diff": "Compare", "list": "Queries", "experiments": "Experiments"}
NAVIGATION |= {"stages": "Stages", "papers": "Beside the papers"}
MOST_LISTED = 120  # characters of a query in a list; in a long one fewer
LONG_LIST = 2000
MOST_POSITIVES = 5  # of a query, besides those that some system finds
CONFIGURED = ".venv/bin/snakemake --cores all{files} -- {targets}"


def write_page(spec, root, output_folder, share=None):
    """Write the page of a specification (see page_specs.py) to a folder; returns its size in bytes.

    share: a file that has all of it, in the place of the folder. `root` (a Path) is the folder that holds results/.
    Raises Refusal for a torn or edited artefact and for a collection that is not there yet.
    """
    page = Page(spec, root)
    page.first_page()
    page.comparison()
    page.experiments()
    page.queries()
    page.stages()
    page.published(root)
    return page.site.write_one_file(share) if share else page.site.write(output_folder)


class Page:
    """The pages of one specification, section by section."""

    def __init__(self, spec, root):
        self.spec, self.reader = spec, Reader(root, spec["collection"])
        finished = [name for name in spec["stages"] if self.reader.finished(name)]
        self.stage_facts = {name: stage_content(self.reader.artefact(name), spec["stages"][name]) for name in finished}
        self.tables = overview_tables(self.reader, spec, root / "results/tables" / spec["name"])
        self.traces, self.compared = Traces(self.reader), compared_rows(self.reader, spec)
        self.splits = {split: split_content(self.reader, spec, split, self.compared) for split in spec["splits"]}
        self.splits = {split: content for split, content in self.splits.items() if content}
        self.trained = with_pools(self.reader, spec)
        last = max((each["started"] or "" for each in self.stage_facts.values()), default="")
        commits = {each["started"] or "": each["commit"] for each in self.stage_facts.values()}
        self.written, self.commit = last[:16].replace("T", " "), commits.get(last) or "unknown"
        only = spec["experiments"][0]["label"] if len(spec["experiments"]) == 1 else "Results"
        title = spec["name"] or only
        made = f"Made from {', '.join(spec['configuration'])} at commit {self.commit[:12]}"
        footer = f"{made}; last stage begun {self.written}."
        navigation = [(f"{name}.html", text) for name, text in NAVIGATION.items()]
        self.site = Site(title, footer, navigation)
        self.site.templates.globals |= {"reproduce": self.reproduce, "stages": self.stage_facts}

    def reproduce(self, names):
        """The command that makes stages in a fresh clone, at the commit that made them."""
        commit, changed, _ = (self.stage_facts[names[0]]["commit"] or "COMMIT").partition("+changes")
        files = "".join(f" {file}" for file in self.spec["configuration"])
        targets = " ".join(f"results/stages/{name}/manifest.json" for name in names)
        command = CONFIGURED.format(files=f" --configfile{files}" if files else "", targets=targets)
        note = "  # made with changes that are in no commit" if changed else ""
        return f"git checkout {commit} && make .venv/installed && {command}{note}"

    def behind(self, names):
        """All finished stages that some stages were made from, and themselves."""
        found, unread = {}, list(names)
        while unread:
            name = unread.pop()
            if name in self.stage_facts and name not in found:
                found[name] = None
                unread += self.stage_facts[name]["inputs"].values()
        return list(found)

    def spent(self, names):
        return sum(self.stage_facts[name]["seconds"] or 0 for name in names)

    def first_page(self):
        facts, stages = self.reader.facts(self.spec["collection"]), self.stage_facts
        machines = ", ".join(sorted({each["machine"] for each in stages.values() if each["machine"]}))
        queries = ", ".join(f"{each['queries']:,} {split}" for split, each in facts.get("splits", {}).items())
        labels = [experiment["label"] for experiment in self.spec["experiments"]]
        methods = ", ".join(labels[:6]) + (f" and {len(labels) - 6} more" if len(labels) > 6 else "") or "no training"
        about = {"Systems": methods, "Configuration": " ".join(self.spec["configuration"])}
        about |= {"Passages": f"{facts['num_passages']:,}", "Queries": queries or "–"}
        about |= {
            "Evaluated on": ", ".join(self.spec["splits"]),
            "Commit": self.commit[:12],
            "Last stage": self.written,
        }
        about |= {"Machine": machines or "–", "Stages": f"{len(stages):,} of {len(self.spec['stages']):,}"}
        for table in self.tables:
            table |= {"figures": shown(*system_figures(table)), "by_episode": shown(*episode_figures(table))}
            table["best"] = best_of(table)
        once = f"All stages of this configuration took {self.spent(stages) / 3600:.2f} hours, each counted once."
        self.site.add(
            "index.html",
            "index.html",
            "Verdicts",
            about=about.items(),
            tables=self.tables,
            evaluated=bool(self.compared),
            costs=costs(self.spec, stages),
            kinds=shown(kind_figure(stages)),
            machines=machines,
            whole=once,
            behind=self.behind,
            spent=self.spent,
            diff_of=self.diff_of,
        )

    def diff_of(self, column, a, b):
        """The address of two rows (labels), query by query; column: of a table."""
        numbers = {row["label"]: number for number, row in enumerate(self.compared)}
        split = next((split for split in self.splits if column.startswith(f"{split} ")), next(iter(self.splits), ""))
        return f"diff.html#{split}/{numbers.get(a, 0)}/{numbers.get(b, 0)}"

    def comparison(self):
        """The page that compares two systems, and the scores and queries that it loads."""
        numbers, pairs = {row["label"]: number for number, row in enumerate(self.compared)}, {}
        for table in self.tables:
            labels = labels_of(next(each for each in self.spec["tables"] if each["name"] == table["name"])["rows"])
            for split, content in self.splits.items():
                column = (
                    content["measures"][0] if len(self.spec["splits"]) == 1 else f"{split} {content['measures'][0]}"
                )
                for b, line in table["matrices"].get(column, {}).items():
                    for a, pair in line.items():
                        both = numbers.get(labels[a]), numbers.get(labels[b])
                        if None not in both and both[0] < both[1]:
                            pairs.setdefault(split, {})[f"{both[0]} {both[1]}"] = p_text(pair["p"])
        for split, content in self.splits.items():
            rounded = {name: np.round(values, 4).tolist() for name, values in content["scores"].items()}
            self.site.put(
                f"scores-{split}",
                {"systems": content["systems"], "measures": content["measures"], "scores": rounded},
            )
            self.put_queries(split, content["rows"], content["full"].tolist())
        if len(self.compared) > 1:
            index = {"splits": list(self.splits), "labels": [row["label"] for row in self.compared], "pairs": pairs}
            self.site.add("diff.html", "diff.html", "Compare", index=index, scatter=drawn("scatter", []))

    def put_queries(self, split, rows, full):
        ids, texts = (self.reader.queries(split, name) for name in ("query_id", "text"))
        numbers = rows.tolist()
        limit = MOST_LISTED if len(numbers) < LONG_LIST else MOST_LISTED // 2
        short = [texts[row].as_py()[:limit] for row in numbers]
        content = {"rows": numbers, "ids": [ids[row].as_py() for row in numbers], "texts": short, "full": full}
        self.site.put(f"queries-{split}", content)

    def experiments(self):
        """A page for each experiment, and one for all of them."""
        names, first, rates = {each["name"] for each in self.spec["experiments"]}, {}, {}
        self.listed = []
        for experiment in self.spec["experiments"]:
            label, seeds = experiment["label"], experiment["seeds"]
            pools = [said for seed in seeds if (said := negatives_of(self.reader, seed, self.spec["flags"]))]
            if pools:
                first[label] = pools[0]
            sets = [forgetting_of(self.traces, seed, self.spec["splits"], self.spec["measures"]) for seed in seeds]
            for said in chain(*sets):
                rates.setdefault((said["split"], said["measure"]), {}).setdefault(label, []).append(said)
            self.experiment_page(experiment, pools, sets)
        if not names:
            return
        ghosts = [tuple(each) for each in self.spec.get("ghosts", ())]
        tables = [(*key, rate_table(key, sets, ghosts)) for key, sets in rates.items()]
        last = {label: said["pools"][-1] for label, said in first.items()}
        self.site.add(
            "experiments.html",
            "experiments.html",
            "Experiments",
            experiments=[(each["name"], each["label"]) for each in self.spec["experiments"]],
            all=shown(share_figure(last), swing_figure(first)),
            rates=tables,
        )

    def experiment_page(self, experiment, pools, sets):
        name, seeds = experiment["name"], experiment["seeds"]
        curves = list(chain.from_iterable(training_curves(self.reader, seed) for seed in seeds))
        most = max((curve["points"] for curve in curves), default=0)
        drawn_points = max((len(curve["steps"]) for curve in curves), default=0)
        thinned = f"Curves of more than {drawn_points:,} steps are thinned evenly." if most > drawn_points else ""
        lists = {said["split"]: self.aligned(said) for said in (sets[0] if sets else ())}
        if lists:
            self.site.put(f"paths-{name}", lists)
            self.listed.append({"name": name, "label": experiment["label"], "splits": list(lists)})
        drawn_sets = [
            {"said": said, "listed": not number, "figures": shown(self.river(name, said), trace_figure(said))}
            for number, of_seed in enumerate(sets)
            for said in of_seed
        ]
        sections = {"negatives": pools, "forgetting": drawn_sets, "training": curves, "stages": seeds}
        titles = {"negatives": "Negatives", "forgetting": "Learned and forgotten"}
        self.site.add(
            f"experiment-{name}.html",
            "experiment.html",
            experiment["label"],
            name=name,
            label=experiment["label"],
            sections=[(each, titles.get(each, each.capitalize())) for each, there in sections.items() if there],
            pools=[{"said": said, "figures": negatives_figures(said)} for said in pools],
            sets=drawn_sets,
            training=training_figures(curves),
            thinned=thinned,
            grids=[(seed["seed"], grid(seed["rows"], self.stage_facts)) for seed in seeds],
            heat=lambda stage, most: (self.stage_facts[stage]["seconds"] or 0) / most,
        )

    def river(self, name, said):
        return river_figure(said, lambda at, state: f"list.html#{said['split']}/{name}/{at}/{state}")

    def aligned(self, said):
        """The paths of a set of queries in the order of the list of their split."""
        rows = self.traces.rows if said["split"] == "train" else self.splits[said["split"]]["rows"]
        paths, ways = (dict(zip(said["rows"], said[key], strict=True)) for key in ("paths", "ways"))
        aligned = {"paths": paths, "ways": ways}
        aligned = {key: [of.get(row, "") for row in rows.tolist()] for key, of in aligned.items()}
        return {"checkpoints": said["checkpoints"], "measure": said["measure"]} | aligned

    def queries(self):
        """A page for each query that is shown in full, and the list of all."""
        contents, full = [], {}
        labels = [(number, row["label"]) for number, row in enumerate(self.compared)]
        for split, content in self.splits.items():
            tops, positives = (
                tops_of(self.reader, self.compared, split, content["full"]),
                self.reader.positives(split=split),
            )
            measure, places = content["measures"][0], {row: at for at, row in enumerate(content["rows"].tolist())}
            for row, of_query in tops.items():
                scores = dict(zip(content["systems"], content["scores"][measure][:, places[row]].tolist(), strict=True))
                named = {
                    "split": split,
                    "row": row,
                    "ranking": ranking_table(of_query),
                    "lives": [],
                    "measure": measure,
                }
                named |= {"systems": [each for each in labels if each[0] in content["systems"]], "scores": scores}
                contents.append(named | {"positives": positives[row].tolist()})
        contents += self.training_queries()
        for content in contents:
            lives = chain.from_iterable(each["life"]["lines"] for each in content["lives"])
            ranked = (passage for passage, _ in content["ranking"])
            content["passages"] = list(dict.fromkeys(chain(content["positives"][:MOST_POSITIVES], ranked, lives)))
        texts = read_texts(self.reader, [content["passages"] for content in contents])
        for content in contents:
            self.query_page(content, texts)
            said = [content["row"], content["id"], content["text"]]
            full.setdefault(content["split"], []).append(said)
        splits = [*self.splits, *(["train"] if self.trained else [])]
        index = {"splits": splits, "experiments": self.listed, "states": list(STATES), "letters": LETTERS}
        if splits:
            self.site.add("list.html", "list.html", "Queries", index=index, full=full)

    def training_queries(self):
        """What the pages of training queries show, for first seeds; puts their list."""
        if not self.trained:
            return []
        values = {name: self.traces.training(seed) for name, seed in self.trained.items()}
        compared = [scores_CQ for _, scores_CQ, _ in values.values() if len(scores_CQ)]
        number = fitting(self.spec["queries"], self.reader, self.trained.values())
        groups = selected(self.traces.rows, compared, number)
        self.put_queries("train", self.traces.rows, sorted(groups))
        labels = {each["name"]: each["label"] for each in self.spec["experiments"]}
        contents = []
        for row in sorted(groups):
            lives = []
            for name, seed in self.trained.items():
                checkpoints, scores_CQ, rows = values[name]
                trace = scores_CQ[:, np.searchsorted(rows, row)].tolist() if len(scores_CQ) else ()
                life = query_life(self.reader, seed, row, self.spec["flags"])
                said = {"name": name, "label": labels[name], "life": life}
                lives.append(said | {"trace": list(zip(checkpoints, trace, strict=True))})
            content = {
                "split": "train",
                "row": row,
                "ranking": [],
                "systems": [],
                "scores": {},
                "measure": "",
                "lives": lives,
            }
            contents.append(content | {"positives": self.reader.positives()[row].tolist()})
        return contents

    def query_page(self, content, texts):
        split, row, page = content["split"], content["row"], f"{content['split']}-{content['row']}"
        number = {passage: at for at, passage in enumerate(content["passages"])}

        def name_of(passage):
            return texts[passage][0]

        for each in content["lives"]:
            address = lambda passage: f"#{page}-p{number[passage]}"  # noqa: E731
            few = len(content["lives"]) <= MOST_DRAWN
            each["figures"] = life_figures(self.reader, each["life"], row, name_of, address) if few else []
        ids, queries = (self.reader.queries(split, name) for name in ("query_id", "text"))
        content |= {"id": ids[row].as_py(), "text": queries[row].as_py()}
        seeded = any(len(names) > 1 for each in self.compared for names in each["runs"].values())
        named = {"page": page, "number": number, "name_of": name_of, "texts": texts, "seeded": seeded}
        self.site.add(f"query-{page}.html", "query.html", content["id"], **content, **named)

    def stages(self):
        """A page for each finished stage, and the list of all."""
        pages, readers = {each["name"] for each in self.spec["experiments"]}, {}
        for name, stage in self.stage_facts.items():
            for read in stage["inputs"].values():
                readers.setdefault(read, []).append(name)
        status = status_of(self.reader, self.spec)
        self.site.add("stages.html", "stages.html", "Stages", status=status, planned=len(self.spec["stages"]))
        for name, stage in self.stage_facts.items():
            path, named = f"stage-{name.replace('/', '-')}.html", {"readers": readers.get(name, ()), "pages": pages}
            self.site.add(path, "stage.html", name, name=name, stage=stage, **named)

    def published(self, root):
        """The papers' tables beside ours, where the configuration names some."""
        tables = [printed_published(each, root)[1::-1] for each in self.spec.get("published", ())]
        if tables:
            self.site.add("papers.html", "papers.html", "Beside the papers", published=tables)


def best_of(table):
    """{column: its best mean with three decimals}; a hole rate has none, and of errors the lowest is best."""
    best = {}
    for column in table["columns"]:
        means = [round(row["cells"][column]["mean"], 3) for row in table["rows"] if column in row["cells"]]
        if means and "Hole@" not in column:
            best[column] = min(means) if "Errors@" in column else max(means)
    return best


def rate_table(key, sets, ghosts):
    """{steps, rows: [(label, [rate or None])], figure} of the forgetting rates of one set of queries."""
    figure = rate_figure(sets, ghosts if key[0] == "train" else ())
    rates = {}
    for row in figure.rows:
        if not row["paper"]:
            rates.setdefault(row["label"], {})[row["step"]] = row["rate"]
    steps = sorted({step for of_label in rates.values() for step in of_label})
    return {
        "steps": steps,
        "rows": [(label, list(map(of.get, steps))) for label, of in rates.items()],
        "figure": figure,
    }


def grid(rows, stages):
    """{episodes, lines: [(link, [stages] per episode)], most: seconds of the longest} of a seed's stages."""
    links = dict.fromkeys(re.sub(r".*/", "", row["link"]) for row in rows)
    episodes = sorted({row["episode"] for row in rows})
    cells = {link: {episode: [] for episode in episodes} for link in links}
    for row in rows:
        cells[re.sub(r".*/", "", row["link"])][row["episode"]].append(row["stage"])
    most = max((stages[row["stage"]]["seconds"] or 0 for row in rows if row["stage"] in stages), default=0)
    return {"episodes": episodes, "lines": [(link, list(of.values())) for link, of in cells.items()], "most": most or 1}
