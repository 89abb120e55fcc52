"""The report page: pages that a browser opens from the disk, made from what finished stages have left behind."""

from itertools import chain

import numpy as np

from teleport.report.charts import drawn, shown
from teleport.report.curves import MOST_POINTS, training_curves
from teleport.report.page.drawings import (
    episode_figures,
    kind_figure,
    negatives_figures,
    rate_figure,
    river_figure,
    share_figure,
    swing_figure,
    system_figures,
    trace_figure,
    training_figures,
)
from teleport.report.page.forgetting import LETTERS, STATES, Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.overview import costs_table, page_table, stage_content, status_of
from teleport.report.page.queries import compared_rows, fitting, selected, split_content, tops_of, with_pools
from teleport.report.page.query_pages import MOST_DRAWN, life_figures, light, mined_lists, query_life, ranking_table
from teleport.report.page.site import Site, read_texts
from teleport.report.page.tables import pools_table, rate_table, stages_table, state_address, states_table
from teleport.report.published_table import printed_published, published_measures
from teleport.report.reader import Reader
from teleport.report.render import NONE
from teleport.report.verdicts import better, labels_of, p_text

NAVIGATION = {"index": "Verdicts", "diff": "Compare", "list": "Queries", "experiments": "Experiments"}
NAVIGATION |= {"stages": "Stages", "papers": "Beside the papers"}
MOST_LISTED = 120  # characters of a query in a list; in a long one fewer
LONG_LIST = 2000
MOST_NAMED = 3  # systems in a title
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
    if tables := [printed_published(each, root)[1::-1] for each in spec.get("published", ())]:
        page.site.add("papers.html", "papers.html", "Beside the papers", published=tables)
    return page.site.write_one_file(share) if share else page.site.write(output_folder)


class Page:
    """The pages of one specification, section by section."""

    def __init__(self, spec, root):
        self.spec, self.reader = spec, Reader(root, spec["collection"])
        finished = [name for name in spec["stages"] if self.reader.finished(name)]
        self.stage_facts = {name: stage_content(self.reader.artefact(name), spec["stages"][name]) for name in finished}
        folder = root / "results/tables" / spec["name"]
        self.tables = [page_table(self.reader, spec, table, folder) for table in spec["tables"]]
        self.traces, self.compared = Traces(self.reader), compared_rows(self.reader, spec)
        self.splits = {split: split_content(self.reader, spec, split, self.compared) for split in spec["splits"]}
        self.splits = {split: content for split, content in self.splits.items() if content}
        self.trained, self.labels = with_pools(self.reader, spec), {e["name"]: e["label"] for e in spec["experiments"]}
        self.numbers = {row["label"]: number for number, row in enumerate(self.compared)}
        last = max(self.stage_facts.values(), key=lambda each: each["started"] or "", default={})
        self.written, self.commit = (last.get("started") or "")[:16].replace("T", " "), last.get("commit") or "unknown"
        systems = list(self.labels.values()) or [row["label"] for row in self.compared]
        more = f" and {len(systems) - MOST_NAMED} more" if len(systems) > MOST_NAMED else ""
        title = spec["name"] or ", ".join(systems[:MOST_NAMED]) + more or "Results"
        made = f"Made from {', '.join(spec['configuration'])} at commit {self.commit[:12]}"
        navigation = [(f"{name}.html", text) for name, text in NAVIGATION.items()]
        self.site = Site(title, f"{made}; last stage begun {self.written}.", navigation)
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
        """Verdicts, methods, tables, every pair of systems, and costs."""
        spec, stages, facts = self.spec, self.stage_facts, self.reader.facts(self.spec["collection"])
        machines = ", ".join(sorted({each["machine"] for each in stages.values() if each["machine"]})) or NONE
        queries = ", ".join(f"{each['queries']:,} {split}" for split, each in facts.get("splits", {}).items())
        about = {"Configuration": " ".join(spec["configuration"]), "Passages": f"{facts['num_passages']:,}"}
        about |= {"Queries": queries or NONE, "Evaluated on": ", ".join(spec["splits"]), "Commit": self.commit[:12]}
        about |= {"Last stage": self.written, "Machine": machines}
        about["Stages"] = f"{len(stages):,} of {len(spec['stages']):,}"
        published = published_measures(spec.get("published", ()), self.reader.root)
        for table in self.tables:
            table |= {"figures": shown(*system_figures(table, published)), "by_episode": shown(*episode_figures(table))}
        note = f"Means over seeds, as if each system ran alone, one stage after another, on {machines}. All stages of "
        note += f"this configuration took {self.spent(stages) / 3600:.2f} hours, each counted once."
        content = {"about": about.items(), "tables": self.tables, "evaluated": bool(self.compared), "spent": self.spent}
        content |= {"methods": [(e["label"], e["method"]) for e in spec["experiments"]], "behind": self.behind}
        content |= {"costs": costs_table(self.reader, spec, note), "kinds": shown(kind_figure(stages))}
        self.site.add("index.html", "index.html", "Verdicts", diff_of=self.diff_of, better=better, **content)

    def diff_of(self, column, a, b):
        """The address of two rows (labels), query by query; column: of a table."""
        split = next((split for split in self.splits if column.startswith(f"{split} ")), next(iter(self.splits), ""))
        return f"diff.html#{split}/{self.numbers.get(a, 0)}/{self.numbers.get(b, 0)}"

    def comparison(self):
        """The page that compares two systems, and the scores and queries that it loads."""
        for split, content in self.splits.items():
            rounded = {name: np.round(values, 4).tolist() for name, values in content["scores"].items()}
            said = {"systems": content["systems"], "measures": content["measures"], "scores": rounded}
            said["fewer"] = [name for name in content["measures"] if better(name) < 0]
            self.site.put(f"scores-{split}", said)
            self.put_queries(split, content["rows"], content["full"].tolist())
        if len(self.compared) > 1:
            labels = [row["label"] for row in self.compared]
            index = {"splits": list(self.splits), "labels": labels, "pairs": self.pairs()}
            self.site.add("diff.html", "diff.html", "Compare", index=index, scatter=drawn("scatter", []))

    def pairs(self):
        """{split: {"a b": p as text}} of all pairs of numbers of systems that a table has tested."""
        pairs = {}
        for table, spec in zip(self.tables, self.spec["tables"], strict=True):
            labels = labels_of(spec["rows"])
            for split, content in self.splits.items():
                column = f"{split} " * (len(self.spec["splits"]) > 1) + content["measures"][0]
                for b, line in table["matrices"].get(column, {}).items():
                    for a, pair in line.items():
                        both = self.numbers.get(labels[a]), self.numbers.get(labels[b])
                        if None not in both and both[0] < both[1]:
                            pairs.setdefault(split, {})[f"{both[0]} {both[1]}"] = p_text(pair["p"])
        return pairs

    def put_queries(self, split, rows, full):
        """The list of the queries of a split."""
        ids, texts = (self.reader.queries(split, name).take(rows).to_pylist() for name in ("query_id", "text"))
        limit = MOST_LISTED if len(rows) < LONG_LIST else MOST_LISTED // 2
        short = [text[:limit] for text in texts]
        self.site.put(f"queries-{split}", {"rows": rows.tolist(), "ids": ids, "texts": short, "full": full})

    def experiments(self):
        """A page for each experiment, and one for all of them."""
        first, rates, self.listed = {}, {}, []
        for experiment in self.spec["experiments"]:
            label, seeds = experiment["label"], experiment["seeds"]
            pools = [said for seed in seeds if (said := negatives_of(self.reader, seed, self.spec["flags"]))]
            first |= {label: pools[0]} if pools else {}
            sets = [forgetting_of(self.traces, seed, self.spec["splits"], self.spec["measures"]) for seed in seeds]
            for said in chain(*sets):
                rates.setdefault((said["split"], said["measure"]), {}).setdefault(label, []).append(said)
            self.experiment_page(experiment, pools, sets)
        if self.labels:
            ghosts = self.spec.get("ghosts", ())
            figures = [rate_figure(sets, ghosts if key[0] == "train" else ()) for key, sets in rates.items()]
            tables = [(rate_table(*key, figure), figure) for key, figure in zip(rates, figures, strict=True)]
            all_ = shown(share_figure({label: said["pools"][-1] for label, said in first.items()}), swing_figure(first))
            content = {"links": self.labels, "all": all_, "rates": tables}
            self.site.add("experiments.html", "experiments.html", "Experiments", **content)

    def experiment_page(self, experiment, pools, sets):
        """What one experiment's negatives, queries, trainings and stages were, of every seed."""
        name, seeds = experiment["name"], experiment["seeds"]
        curves = training_curves(self.reader, seeds)
        lists = {said["split"]: self.aligned(said) for said in (sets[0] if sets else ())}
        if lists:
            self.site.put(f"paths-{name}", lists)
            self.listed.append({"name": name, "label": experiment["label"], "splits": list(lists)})
        negatives, learned = [], []
        for said in pools:
            summary = f"Seed {said['seed']}, counted over {said['queries']:,} training queries"
            negatives.append((summary, negatives_figures(said), pools_table(said)))
        for said in chain(*sets):
            listed = said["split"] in lists and said["seed"] == seeds[0]["seed"]
            summary = f"{said['queries']:,} {said['split']} queries, {said['measure']}, seed {said['seed']}"
            figures = shown(river_figure(said, state_address(name, said)), trace_figure(said))
            learned.append((summary, figures, states_table(name, said, listed)))
        thinned = f"Curves of more than {MOST_POINTS:,} steps are thinned evenly." * any(curves["lines"] > MOST_POINTS)
        training = [(None, training_figures(curves), None)] if len(curves) else []
        ran = [(f"Seed {seed['seed']}", (), stages_table(seed["rows"], self.stage_facts)) for seed in seeds]
        sections = [("negatives", "Negatives", negatives, ""), ("forgetting", "Learned and forgotten", learned, "")]
        sections += [("training", "Training", training, thinned), ("stages", "The stages as they ran", ran, "")]
        content = {"label": experiment["label"], "method": experiment["method"]}
        content["sections"] = [section for section in sections if section[2]]
        self.site.add(f"experiment-{name}.html", "experiment.html", experiment["label"], **content)

    def aligned(self, said):
        """The paths of a set of queries in the order of the list of their split."""
        rows = self.traces.rows if said["split"] == "train" else self.splits[said["split"]]["rows"]
        of = {key: dict(zip(said["rows"], said[key], strict=True)) for key in ("paths", "ways")}
        lists = {key: [given.get(row, "") for row in rows.tolist()] for key, given in of.items()}
        return {"checkpoints": said["checkpoints"], "measure": said["measure"]} | lists

    def queries(self):
        """A page for each query that is shown in full, the list of all, and what opens the others."""
        contents, full, links = [], {}, {"splits": [*self.splits, *["train"] * bool(self.trained)]}
        for split, content in self.splits.items():
            contents += self.evaluated_queries(split, content)
        contents += self.training_queries() if self.trained else []
        for content in contents:
            lives = chain.from_iterable(each["life"]["lines"] for each in content["lives"])
            ranked = (passage for passage, _ in content["ranking"])
            content["passages"] = list(dict.fromkeys(chain(content["positives"][:MOST_POSITIVES], ranked, lives)))
        texts = read_texts(self.reader, [content["passages"] for content in contents])
        for content in contents:
            self.query_page(content, texts)
            full.setdefault(content["split"], []).append([content["row"], content["id"], content["text"]])
        if links["splits"]:
            links |= {"experiments": self.listed, "states": list(STATES), "letters": LETTERS}
            self.site.add("list.html", "list.html", "Queries", index=links, full=full)
            self.site.add("query.html", "light.html", "Query", index=links | {"scored": list(self.splits)})

    def evaluated_queries(self, split, content):
        """What the pages of some queries of a split show; puts what opens the others."""
        rows, full, measure = content["rows"].tolist(), content["full"].tolist(), content["measures"][0]
        tops, positives = tops_of(self.reader, self.compared, split, rows), self.reader.positives(split=split)
        lists = {self.compared[n]["label"]: {row: tops[row].get(n, []) for row in rows} for n in content["systems"]}
        self.site.put(f"light-{split}", light(self.reader, rows, full, positives, lists))
        systems = [(number, self.compared[number]["label"]) for number in content["systems"]]
        columns = dict(zip(rows, content["scores"][measure].T.tolist(), strict=True))
        said = {"split": split, "measure": measure, "systems": systems, "lives": []}
        return [
            said
            | {"row": row, "ranking": ranking_table(tops[row]), "positives": positives[row].tolist()}
            | {"scores": dict(zip(content["systems"], columns[row], strict=True))}
            for row in full
        ]

    def training_queries(self):
        """What the pages of training queries show, for first seeds; puts their list, and what opens the others."""
        values = {name: self.traces.training(seed) for name, seed in self.trained.items()}
        compared = [scores_EQ for _, scores_EQ, _ in values.values() if len(scores_EQ)]
        number = fitting(self.spec["queries"], self.reader, self.trained.values())
        rows, positives = self.traces.rows, self.reader.positives()
        chosen = selected(rows, compared, number)
        self.put_queries("train", rows, chosen)
        lists = mined_lists(self.reader, {self.labels[n]: seed for n, seed in self.trained.items()}, rows.tolist())
        self.site.put("light-train", light(self.reader, rows.tolist(), chosen, positives, lists))
        contents = []
        for row in chosen:
            lives = []
            for name, seed in self.trained.items():
                checkpoints, scores_EQ, of = values[name]
                trace = scores_EQ[:, np.searchsorted(of, row)].tolist() if len(scores_EQ) else ()
                life = query_life(self.reader, seed, row, self.spec["flags"])
                said = {"name": name, "label": self.labels[name], "life": life}
                lives.append(said | {"trace": list(zip(checkpoints, trace, strict=True))})
            content = {"split": "train", "row": row, "lives": lives, "positives": positives[row].tolist()}
            contents.append(content | {"ranking": [], "systems": [], "scores": {}, "measure": ""})
        return contents

    def query_page(self, content, texts):
        """Write the page of one query. texts: {passage row: [id, title, text]}"""
        split, row, page = content["split"], content["row"], f"{content['split']}-{content['row']}"
        number = {passage: at for at, passage in enumerate(content["passages"])}
        for each in content["lives"]:
            address, name_of = lambda passage: f"#{page}-p{number[passage]}", lambda passage: texts[passage][0]
            few = len(content["lives"]) <= MOST_DRAWN
            each["figures"] = life_figures(self.reader, each["life"], row, name_of, address) if few else []
        ids, queries = (self.reader.queries(split, name) for name in ("query_id", "text"))
        content |= {"id": ids[row].as_py(), "text": queries[row].as_py()}
        seeded = any(len(names) > 1 for each in self.compared for names in each["runs"].values())
        named = {"page": page, "number": number, "texts": texts, "seeded": seeded}
        self.site.add(f"query-{page}.html", "query.html", content["id"], **content, **named)

    def stages(self):
        """A page for each finished stage, and the list of all."""
        readers = {}
        for name, stage in self.stage_facts.items():
            for read in stage["inputs"].values():
                readers.setdefault(read, []).append(name)
        status, kinds = status_of(self.reader, self.spec)
        counted = {"kinds": kinds, "planned": len(self.spec["stages"])}
        self.site.add("stages.html", "stages.html", "Stages", status=status, **counted)
        for name in self.stage_facts:
            named = {"name": name, "readers": readers.get(name, ()), "pages": self.labels}
            self.site.add(f"stage-{name.replace('/', '-')}.html", "stage.html", name, **named)
