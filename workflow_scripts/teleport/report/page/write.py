"""The report page: pages that a browser opens from the disk, made from finished stages."""

from itertools import chain

import numpy as np
import pandas as pd

from teleport.report.charts import drawn, shown
from teleport.report.page import drawings, overview, queries
from teleport.report.page.curves import MOST_POINTS, training_curves
from teleport.report.page.forgetting import STATES, Traces, forgetting_of, way_text
from teleport.report.page.negatives import finished_pools, negatives_of
from teleport.report.page.site import Site, read_texts
from teleport.report.published_table import printed_published, published_measures
from teleport.report.render import NONE
from teleport.report.stages import Reader, machines
from teleport.report.verdicts import p_text
from teleport.running.provenance import not_in_commit
from teleport.settings.measures import better

NAVIGATION = {"index.html": "Verdicts", "diff.html": "Compare", "list.html": "Queries"}
NAVIGATION |= {"experiments.html": "Experiments", "stages.html": "Stages", "papers.html": "Beside the papers"}
MOST_LISTED = 1_000_000  # characters of all queries in a list; each query has at least
LEAST_LISTED = 60
MOST_NAMED = 3  # systems in a title
SCORE_DIGITS = 6  # of the scores that Diff compares, so that it counts won and lost as the tests do
MOST_POSITIVES = 5  # of a query, besides those that some system finds
CONFIGURED = ".venv/bin/snakemake --cores all{files} -- {targets}"


def write_page(contents, root, output_folder, share=None):
    """Write the page of `contents` (see contents.py) to a folder; returns its size in bytes.

    share: a file for the whole page, instead of the folder. `root` (a Path) is the folder that holds results/. Raises
    Refusal for a torn or edited artefact and for a collection that is not built yet.
    """
    page = Page(contents, root)
    page.first_page()
    page.comparison()
    page.experiments()
    page.queries()
    page.stages()
    if tables := [printed_published(each, root)[1::-1] for each in contents["published"]]:
        page.site.add("papers.html", "papers.html", "Beside the papers", published=tables)
    return page.site.write_one_file(share) if share else page.site.write(output_folder)


class Page:
    """The pages of one configuration, section by section."""

    def __init__(self, contents, root):
        self.contents, self.reader = contents, Reader(root, contents["collection"])
        self.finished = overview.finished_stages(self.reader, contents)
        self.tables = [overview.page_table(self.reader, contents, table) for table in contents["tables"]]
        self.traces, self.compared = Traces(self.reader), queries.compared_rows(self.tables)
        self.splits = queries.split_contents(self.reader, contents, self.compared)
        first_seeds = {each["label"]: each["seeds"][0] for each in contents["experiments"]}
        self.trained = {label: seed for label, seed in first_seeds.items() if finished_pools(self.reader, seed)}
        self.labels = {each["name"]: each["label"] for each in contents["experiments"]}
        last = max(self.finished.values(), key=lambda stage: stage["started"])
        self.written, self.commit = last["started"][:16].replace("T", " "), (last["git_commit"] or "unknown")[:12]
        systems = list(self.labels.values()) or [row["label"] for row in self.compared]
        more = f" and {len(systems) - MOST_NAMED} more" if len(systems) > MOST_NAMED else ""
        title = contents["name"] or ", ".join(systems[:MOST_NAMED]) + more or "Results"
        files = ", ".join(contents["configuration"])
        made = f"Made from {files} at commit {self.commit}; last stage begun {self.written}."
        self.site = Site(title, made, list(NAVIGATION.items()))
        seeded = any(len(names) > 1 for row in self.compared for names in row["runs"].values())
        self.site.templates.globals |= {"stages": self.finished, "seeded": seeded, "better": better}
        self.site.templates.globals |= {"reproduce": self.reproduce, "behind": self.reader.behind, "spent": self.spent}
        self.site.templates.globals["papers"] = bool(contents["published"])  # else papers' figures are not named

    def reproduce(self, names):
        """The command that makes stages in a fresh clone, at the commit that made them."""
        commit, changed, _ = (self.finished[names[0]]["git_commit"] or "COMMIT").partition("+changes")
        files = "".join(f" {file}" for file in self.contents["configuration"])
        targets = " ".join(f"results/stages/{name}/manifest.json" for name in names)
        command = CONFIGURED.format(files=f" --configfile{files}" if files else "", targets=targets)
        note = "  # computed with uncommitted changes" if changed else ""
        if missing := not_in_commit(commit, tuple(self.contents["configuration"])):
            note += f"  # first copy {', '.join(missing)}, which that commit does not have"
        return f"git checkout {commit} && make .venv/installed && {command}{note}"

    def spent(self, names):
        return sum(self.finished[name]["seconds"] for name in names)

    def first_page(self):
        """Verdicts, methods, tables, every pair of systems, and costs."""
        contents, stages, facts = self.contents, self.finished, self.reader.facts(self.reader.corpus)
        where = machines(map(self.reader.artefact, stages)) or NONE
        counts = self.reader.query_counts(self.reader.splits)
        numbers = ", ".join(f"{count:,} {split}" for split, count in counts.items())
        about = {"Configuration": " ".join(contents["configuration"]), "Passages": f"{facts['num_passages']:,}"}
        about |= {"Queries": numbers or NONE, "Evaluated on": ", ".join(contents["splits"]), "Commit": self.commit}
        about |= {"Last stage": self.written, "Machine": where}
        about["Stages"] = f"{len(stages):,} of {len(contents['stages']):,}"
        published = published_measures(contents["published"], self.reader.root)
        for table in self.tables:
            table["figures"] = shown(*drawings.system_figures(table, published))
            table["by_episode"] = shown(*drawings.episode_figures(table))
        note = f"Means over seeds, as if each system ran alone, one stage after another, on {where}. All stages of "
        note += f"this configuration took {self.spent(stages) / 3600:.2f} hours, each counted once."
        content = {"about": about, "tables": self.tables, "methods": contents["experiments"]}
        content |= {"costs": overview.costs_table(self.reader, contents, note), "kinds": drawings.kind_figure(stages)}
        self.site.add("index.html", "index.html", "Verdicts", evaluated=self.compared, **content)

    def comparison(self):
        """The page that compares two systems, and the scores that it loads."""
        for split, content in self.splits.items():
            rounded = {
                name: np.where(np.isnan(values), None, np.round(values, SCORE_DIGITS)).tolist()
                for name, values in content["scores"].items()
            }
            fewer = [name for name in rounded if better(name) < 0]
            self.site.put(f"scores-{split}", {"systems": content["systems"], "scores": rounded, "fewer": fewer})
        if len(self.compared) > 1:
            self.site.add("diff.html", "diff.html", "Compare", scatter=drawn("scatter", []))

    def pairs(self):
        """{"split measure": {"a b": p as text}} of all pairs of numbers of systems that a table has tested."""
        pairs = {}
        for table in self.tables:
            numbers = {row["at"]: row["number"] for row in table["rows"]}
            for pair in chain.from_iterable(lines.values() for lines in table["matrices"].values()):
                if numbers.keys() >= {pair["a"], pair["b"]}:  # both rows still have their stages
                    of = pairs.setdefault(f"{pair['split']} {pair['measure']}", {})
                    of[f"{numbers[pair['a']]} {numbers[pair['b']]}"] = p_text(pair["p"])
        return pairs

    def put_queries(self, split, rows, full):
        """The list of the queries of a split; rows: all of them, full: those that have a page (lists of rows)."""
        ids, texts = (self.reader.queries(split, name).take(rows).to_pylist() for name in ("query_id", "text"))
        limit = max(LEAST_LISTED, MOST_LISTED // max(1, len(rows)))
        content = {"rows": rows, "ids": ids, "texts": [text[:limit] for text in texts], "full": full}
        self.site.put(f"queries-{split}", content | {"cut": limit if max(map(len, texts), default=0) > limit else 0})

    def experiments(self):
        """A page for each experiment, and one for all of them."""
        first, rates, self.listed = {}, {}, []
        for experiment in self.contents["experiments"]:
            label, seeds = experiment["label"], experiment["seeds"]
            pools = list(filter(None, (negatives_of(self.reader, seed) for seed in seeds)))
            first |= {label: pools[0]} if pools else {}
            sets = [
                forgetting_of(self.traces, seed, self.contents["splits"], self.contents["measures"]) for seed in seeds
            ]
            for forgetting in chain(*sets):
                by_label = rates.setdefault((forgetting["split"], forgetting["measure"]), {})
                by_label.setdefault(label, []).append(forgetting)
            self.experiment_page(experiment, pools, sets)
        if self.labels:
            drawn_rates = []
            for (split, measure), by_label in sorted(rates.items(), key=lambda each: each[0][0] == "train"):
                ghosts = self.contents["ghosts"] if split == "train" else ()
                figure = drawings.rate_figure(by_label, measure, ghosts)
                if figure.rows:
                    drawn_rates.append((overview.rate_table(split, measure, figure), figure))
            content = {"methods": self.contents["experiments"], "rates": drawn_rates}
            content["all"] = shown(drawings.share_figure(first), drawings.swing_figure(first))
            self.site.add("experiments.html", "experiments.html", "Experiments", **content)

    def experiment_page(self, experiment, pools, sets):
        """Write the page of one experiment: its negatives, queries, trainings and stages, for every seed."""
        name, seeds, curves = experiment["name"], experiment["seeds"], training_curves(self.reader, experiment["seeds"])
        lists = {forgetting["split"]: self.aligned(forgetting) for forgetting in sets[0]}
        if lists:
            self.site.put(f"paths-{name}", lists)
            self.listed.append({"name": name, "label": experiment["label"], "splits": list(lists)})
        rows, total = len(self.traces.rows), self.traces.total
        drawn_of, negatives, learned = f", drawn of {total:,}" * (rows < total), [], []
        for of_seed in pools:
            summary = f"Seed {of_seed['seed']}, counted over {of_seed['queries']:,} training queries{drawn_of}"
            negatives.append((summary, drawings.negatives_figures(of_seed), overview.pools_table(of_seed)))
        for forgetting in chain(*sets):
            seed, split, number = forgetting["seed"], forgetting["split"], forgetting["queries"]
            listed, sampled = seed == seeds[0]["seed"], drawn_of * (split == "train")
            summary = f"{number:,} {split} queries{sampled}, {forgetting['measure']}, seed {seed}"
            figures = shown(drawings.river_figure(forgetting, name, listed), drawings.trace_figure(forgetting))
            learned.append((summary, figures, overview.states_table(forgetting, name, listed)))
        summary = f"Every seed; a curve of more than {MOST_POINTS:,} steps is thinned evenly"
        training = [(summary, drawings.training_figures(curves), None)] if len(curves) else []
        ran = [(f"Seed {seed['seed']}", (), overview.stages_table(seed["rows"], self.finished)) for seed in seeds]
        sections = [("training", "Training", training), ("negatives", "Negatives", negatives)]
        sections += [("forgetting", "Learned and forgotten", learned), ("stages", "The stages as they ran", ran)]
        content = {"experiment": experiment, "sections": [section for section in sections if section[2]]}
        self.site.add(f"experiment-{name}.html", "experiment.html", experiment["label"], **content)

    def aligned(self, forgetting):
        """The paths of a set of queries in the order of the list of their split."""
        split = forgetting["split"]
        rows = self.splits[split]["rows"] if split in self.splits else self.traces.rows.tolist()
        paths = pd.DataFrame({key: forgetting[key] for key in ("paths", "ways")}, forgetting["rows"])
        paths = paths.reindex(rows, fill_value="").to_dict("list")
        return {"checkpoints": forgetting["checkpoints"], "measure": forgetting["measure"]} | paths

    def queries(self):
        """A page for each query that is shown in full, and the lists of all."""
        contents = list(chain.from_iterable(self.evaluated_queries(split, of) for split, of in self.splits.items()))
        trained = self.trained or any("train" in each["splits"] for each in self.listed)
        contents += self.training_queries() if trained and "train" not in self.splits else []
        self.add_lives({content["row"]: content for content in contents if content["split"] == "train"})
        for content in contents:
            judged = self.reader.positives(split=content["split"])[content["row"]].tolist()
            mapped = list(chain.from_iterable(queries.mapped_positives(each["life"]) for each in content["lives"]))
            content["positives"] = list(dict.fromkeys([*mapped, *judged]))
            lives = chain.from_iterable(each["life"]["lines"] for each in content["lives"])
            ranked = (passage for passage, _ in content["ranking"])
            shown_passages = dict.fromkeys(chain(mapped, content["positives"][:MOST_POSITIVES], ranked, lives))
            content["number"] = {passage: at for at, passage in enumerate(shown_passages)}
        texts = read_texts(self.reader, [content["number"] for content in contents])
        for content in contents:
            self.query_page(content, texts)
        splits = list(dict.fromkeys([*self.splits, *["train"] * bool(trained)]))
        index = {"splits": splits, "scored": list(self.splits), "labels": [row["label"] for row in self.compared]}
        index |= {"pairs": self.pairs(), "experiments": self.listed, "states": STATES}
        self.site.put("index", index)
        if splits:
            self.site.add("list.html", "list.html", "Queries", full=contents)

    def evaluated_queries(self, split, content):
        """Return the content of the pages of a split's queries, and write the list of all."""
        rows, systems, measure = content["rows"], content["systems"], next(iter(content["scores"]))
        labels = [self.compared[n]["label"] for n in systems]
        full = content["full"]
        tops = {n: queries.tops_of(self.reader, self.compared[n]["runs"][split][0], full) for n in systems}
        self.put_queries(split, rows, full)
        scores, contents = dict(zip(rows, content["scores"][measure].T.tolist(), strict=True)), []
        for row in full:
            ranking = queries.ranking_table({n: of[row] for n, of in tops.items()})
            page = {"split": split, "row": row, "ranking": ranking, "lives": [], "measure": measure}
            contents.append(page | {"systems": list(zip(systems, labels, scores[row], strict=True))})
        return contents

    def training_queries(self):
        """Return the content of the pages of training queries, for first seeds, and write the list of all."""
        compared = [self.traces.training(seed)[1] for seed in self.trained.values()]
        number = queries.fitting(self.contents["queries"], self.reader, self.trained.values())
        rows, chosen = self.traces.rows.tolist(), queries.selected(self.traces.rows, compared, number)
        pools = [
            self.reader.pool(stages["pool"])
            for seed in self.trained.values()
            for stages in finished_pools(self.reader, seed).values()
        ]
        chosen = [row for row in chosen if any(pool.offsets[row + 1] > pool.offsets[row] for pool in pools)]
        self.put_queries("train", rows, chosen)
        return [{"split": "train", "row": row, "ranking": [], "lives": []} for row in chosen]

    def add_lives(self, contents):
        """Add the `query_life` of each experiment to the training queries that have a page; contents: {row: the content
        of its page}."""
        rows = np.intersect1d(self.traces.rows, list(contents))
        for label, seed in self.trained.items():
            checkpoints, scores_EQ, _ = self.traces.training(seed)
            for row, at in zip(rows.tolist(), np.searchsorted(self.traces.rows, rows), strict=True):
                way = way_text(scores_EQ[:, at].tolist(), "RR")
                life = queries.query_life(self.reader, seed, row)
                contents[row]["lives"].append({"label": label, "checkpoints": checkpoints, "way": way, "life": life})

    def query_page(self, content, texts):
        """Write the page of one query. texts: {passage row: [id, title, text]}"""
        row, page = content["row"], f"{content['split']}-{content['row']}"
        named = {passage: (texts[passage][0], f"#{page}-p{at}") for passage, at in content["number"].items()}
        few = len(content["lives"]) <= queries.MOST_DRAWN
        for each in content["lives"]:
            each["figures"] = queries.life_figures(self.reader, each["life"], row, named) if few else []
        ids, texts_of_queries = (self.reader.queries(content["split"], column) for column in ("query_id", "text"))
        content["known"] = [passage for passage in content["number"] if any(texts[passage][1:3])]  # else only ids
        content |= {"page": page, "id": ids[row].as_py(), "text": texts_of_queries[row].as_py()}
        self.site.add(f"query-{page}.html", "query.html", content["id"], texts=texts, **content)

    def stages(self):
        """Write the page of finished work: how much is finished, and the time of every finished stage."""
        tables = [overview.seeds_table(self.reader, self.contents), overview.every_stage(self.finished)]
        self.site.add("stages.html", "stages.html", "Stages", tables=tables, planned=len(self.contents["stages"]))
