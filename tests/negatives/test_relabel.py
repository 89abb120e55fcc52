"""What becomes of judged negatives: each rule against a loop over queries, what is counted, listed and refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands.audit import audit
from commands.export import export
from teleport.arrays import Ragged
from teleport.negatives import file, relabel, scores_file
from teleport.negatives.budget import FIELDS
from teleport.negatives.pool import read_pool
from teleport.reader import positives_of
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file
from teleport.settings.negatives import Negatives
from teleport.settings.pool import RelabelSettings
from teleport.settings.registry import RELABELLINGS
from teleport.settings.training import Training
from teleport.training.data import TrainingSet

QUERIES, PASSAGES = 12, 40


class Judging:
    """A merged pool of 12 queries, the last of which has no positive, with duplicates, and a judge's score per pair."""

    def __init__(self, world, tmp_path):
        self.world, self.path, rng = world, tmp_path / "judge.tsv", np.random.default_rng(7)
        judgments = [(q, q, 1) for q in range(QUERIES - 1)] + [(2, 30, 1), (5, 31, 1)]
        words = [f"w{n % 3}" for n in range(PASSAGES)]
        self.collection = world.collection(
            [f"q{n}" for n in range(QUERIES)], judgments, num_passages=PASSAGES,
            text=words, doc_id=[f"p{n}" for n in range(PASSAGES)], title=[""] * PASSAGES,
            answers=[["w0"]] * QUERIES,
        )  # fmt: skip
        ids = np.array([rng.permutation(PASSAGES)[:20] for _ in range(QUERIES)])
        lists = {"query": world.retrieval(ids), "bm25": world.retrieval(ids[:, ::2])}
        self.pool = world.merge(self.collection, {"query": 12, "bm25": 6}, lists)
        self.positives = {q: [p for row, p, _ in judgments if row == q] for q in range(QUERIES)}
        self.scores = rng.integers(0, 8, (QUERIES, PASSAGES)) / 8
        for q in range(QUERIES):
            self.scores[q, self.positives[q]] = [0.625, 0.25][: len(self.positives[q])]

    def judge(self, scores, path=None):
        """The stage that reads a judge's scores [Q, P] of all pairs but those with NaN."""
        path, lines = path or self.path, np.ndenumerate(scores)
        path.write_text("".join(f"q{q}\tp{p}\t{score}\n" for (q, p), score in lines if not np.isnan(score)))
        settings = {"path": str(path), "sha256": sha256_file(path)}
        return self.world.stages.run(scores_file.run, "scores_file", settings, {"collection": self.collection})

    def negatives(self, scores):
        """The stage that reads the negatives of a file with scores [Q, P], in which a pair with NaN has none."""
        scores = np.where(np.isnan(scores), None, scores)
        lines = ([{"docid": f"p{p}", "score": score} for p, score in enumerate(of)] for of in scores)
        lines = [json.dumps({"query_id": f"q{q}", "negative_passages": of}) for q, of in enumerate(lines)]
        self.path.write_text("\n".join(lines) + "\n")
        settings = {"path": str(self.path), "form": "tevatron", "sha256": sha256_file(self.path)}
        return self.world.stages.run(file.run, "negatives_file", settings, {"collection": self.collection})

    def relabel(self, given, judges=(), pool=None):
        """The finished stage of a relabelling as it is written, with what it has made as attributes."""
        chosen = Negatives(relabel=given).relabel
        inputs = {"collection": self.collection, "negatives": pool or self.pool}
        inputs |= {f"scores.{name}": job for name, job in dict(judges).items()}
        loads = {"relabel": RELABELLINGS[chosen.kind].module}
        job = self.world.stages.run(relabel.run, "relabel", RelabelSettings(relabel=chosen), inputs, loads=loads)
        made, artefact = read_pool(lambda name: job.folder / name), Artefact(job.folder)
        job.pools = [made.items.passages[a:b].tolist() for a, b in zip(made.offsets, made.offsets[1:], strict=False)]
        job.positives = positives_of(None, artefact, "train")
        job.made, job.facts_made = made, artefact.facts
        job.listed = pq.read_table(job.folder / "relabelled.parquet").to_pylist()
        return job


@pytest.fixture
def judging(world, tmp_path):
    return Judging(world, tmp_path)


def expected(judging, is_false, become="positive", most=8):
    """(pools, positives, {label: pairs}, dropped queries) by a loop. is_false: function of (query, passage)"""
    pools, positives, pairs, dropped = [], [], {"positive": set(), "dropped": set(), "query dropped": set()}, 0
    for q, passages in enumerate(judging.pool.passages):
        false = {p for p in passages if is_false(q, p)}
        if len(false) > (0 if become == "query_dropped" else most):
            dropped += 1
            pools.append([])
            positives.append(judging.positives[q])
            pairs["query dropped"] |= {(q, p) for p in passages}
            continue
        pools.append([p for p in passages if p not in false])
        new = [p for p in dict.fromkeys(passages) if p in false] if become == "positive" else []
        positives.append(judging.positives[q] + new)
        pairs["positive" if become == "positive" else "dropped"] |= {(q, p) for p in false}
    return pools, positives, pairs, dropped


def agrees(judging, job, expected):
    pools, positives, pairs, dropped = expected
    assert job.pools == pools and [job.positives[q].tolist() for q in range(QUERIES)] == positives
    listed = {(int(line["query_id"][1:]), int(line["doc_id"][1:])): line["label"] for line in job.listed}
    assert listed == {pair: label for label, of in pairs.items() for pair in of} and len(listed) == len(job.listed)
    facts = job.facts_made
    assert facts["relabelled"] == {label: len(of) for label, of in pairs.items()}
    assert facts["dropped_queries"] == dropped and facts["negatives"] == sum(map(len, pools))
    assert facts["empty_queries"] == sum(not pool for pool in pools) - dropped and facts["queries"] == QUERIES


@pytest.mark.parametrize("become", ["positive", "dropped", "query_dropped"])
@pytest.mark.parametrize("block", [2**18, 30])
def test_false_ones_by_a_verdict(judging, become, block, monkeypatch):
    """However many queries are judged at once. Without a positive a query has none but those that it gets."""
    monkeypatch.setattr(relabel, "BLOCK_NEGATIVES", block)
    from_score = 0.875 if become == "query_dropped" else 0.5
    given = {"kind": "rlhn", "scores": "judge", "from_score": from_score, "become": become, "most": 5}
    job = judging.relabel(given, {"judge": judging.judge(judging.scores)})
    by_loop = expected(judging, lambda q, p: judging.scores[q, p] >= from_score, become, 5)
    assert 2 < by_loop[3] < QUERIES and any(len(set(pool)) < len(pool) for pool in by_loop[0]), "not vacuous"
    agrees(judging, job, by_loop)
    line = job.listed[0]
    assert line["score.judge"] == np.float32(judging.scores[int(line["query_id"][1:]), int(line["doc_id"][1:])])


@pytest.mark.parametrize("rule", ["lowest", "mean", "first"])
def test_false_ones_by_the_positive_s_score(judging, rule):
    given = {"kind": "rlhn", "scores": "judge", "positive_score": rule, "most": 99}
    job = judging.relabel(given, {"judge": judging.judge(judging.scores)})
    of_rule = {"lowest": min, "mean": lambda s: sum(s) / len(s), "first": lambda s: s[0]}[rule]

    def is_false(q, p):
        own = [judging.scores[q, positive] for positive in judging.positives[q]]
        return bool(own) and judging.scores[q, p] > of_rule(own)

    by_loop = expected(judging, is_false, most=99)
    assert len(by_loop[2]["positive"]) > 20 and by_loop[0][-1], "not vacuous; without a positive nothing is above it"
    agrees(judging, job, by_loop)


@pytest.mark.parametrize("by_file", [True, False])
def test_arhn_takes_what_is_ranked_above_and_leaves_out_what_answers_below(judging, by_file, tmp_path):
    verdicts = np.random.default_rng(3).integers(0, 2, (QUERIES, PASSAGES))
    if not by_file:
        verdicts[:] = np.arange(PASSAGES) % 3 == 0  # the text of these is the answer w0
    judges = {"judge": judging.judge(judging.scores)}
    judges |= {"snippets": judging.judge(verdicts, tmp_path / "snippets.tsv")} if by_file else {}
    given = {"kind": "arhn", "scores": "judge", "positive_score": "first", "answers": "snippets" if by_file else None}
    job = judging.relabel(given, judges)
    pools, positives, number = [], [], {"positive": 0, "dropped": 0, "query dropped": 0}
    for q, passages in enumerate(judging.pool.passages):
        own = judging.positives[q]
        above = [p for p in passages if own and judging.scores[q, p] > judging.scores[q, own[0]]]
        below = {p for p in passages if p not in above and verdicts[q, p]}
        pools.append([p for p in passages if p not in above and p not in below])
        positives.append(own + list(dict.fromkeys(above)))
        number["positive"] += len(set(above))
        number["dropped"] += len(below)
    assert job.pools == pools and [job.positives[q].tolist() for q in range(QUERIES)] == positives
    assert job.facts_made["relabelled"] == number and min(number["positive"], number["dropped"]) > 10


def test_what_has_an_answer_is_a_positive(judging):
    agrees(judging, judging.relabel("answers"), expected(judging, lambda q, p: p % 3 == 0, most=99))


def test_what_is_left_of_a_pool_keeps_all_that_it_had(judging):
    """Sources, episodes, ranks, scores: those of the lines that are kept, to the bit."""
    given = {"kind": "rlhn", "scores": "judge", "from_score": 0.5, "become": "dropped", "most": 99}
    job = judging.relabel(given, {"judge": judging.judge(judging.scores)})
    before = read_pool(lambda name: judging.pool.folder / name)
    rows = np.repeat(np.arange(QUERIES), np.diff(before.offsets))
    kept = judging.scores[rows, before.items.passages] < 0.5
    assert 20 < kept.sum() < len(kept) - 20 and job.made.names == before.names
    for name in FIELDS:
        made, own = (getattr(items, name) for items in (job.made.items, before.items))
        np.testing.assert_array_equal(made, own[kept])
        assert made.dtype == FIELDS[name]


def test_a_judge_that_finds_nothing_false_changes_no_bit(judging):
    job = judging.relabel(
        {"kind": "rlhn", "scores": "judge", "from_score": 9}, {"judge": judging.judge(judging.scores)}
    )
    for name in ("offsets", *FIELDS):
        assert (job.folder / f"{name}.npy").read_bytes() == (judging.pool.folder / f"{name}.npy").read_bytes()
    assert job.listed == [] and [job.positives[q].tolist() for q in range(QUERIES)] == list(judging.positives.values())


def test_training_reads_the_new_positives_and_leaves_dropped_queries_out(judging):
    given = {"kind": "rlhn", "scores": "judge", "from_score": 0.5, "most": 5}
    job = judging.relabel(given, {"judge": judging.judge(judging.scores)})
    pools = Ragged(job.made.offsets, job.made.items.passages)
    training = Training(loss={"kind": "softmax"}, batch_queries=1, negatives_per_query=2, epochs=1)
    data = TrainingSet([f"q{n}" for n in range(QUERIES)], job.positives, pools, training, seed=1)
    assert data.rows.tolist() == [q for q in range(QUERIES) if job.pools[q] and len(job.positives[q])]
    for q in data.rows.tolist():
        seen = {data.drawn_positives(q, epoch)[0] for epoch in range(20)}
        assert seen == set(job.positives[q].tolist())
    assert any(len(job.positives[q]) > len(judging.positives[q]) for q in data.rows.tolist())


def test_what_is_relabelled_is_exported_and_audited_as_a_pool(judging, tmp_path):
    given = {"kind": "rlhn", "scores": "judge", "from_score": 0.5, "most": 99}
    job = judging.relabel(given, {"judge": judging.judge(judging.scores)})
    export(job.folder, tmp_path / "out.tsv", form="triples")
    lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    trained = [q for q in range(QUERIES) if job.pools[q] and len(job.positives[q])]
    assert lines == [[f"q{q}", f"p{job.positives[q][0]}", f"p{p}"] for q in trained for p in job.pools[q]]
    export(job.folder, tmp_path / "out.jsonl")
    records = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    positives = {record["query_id"]: [p["docid"] for p in record["positive_passages"]] for record in records}
    assert positives == {f"q{q}": [f"p{p}" for p in job.positives[q]] for q in trained}
    assert max(map(len, positives.values())) > 2 and audit(job.folder)["queries"] == len(trained)


@pytest.mark.parametrize("of_file", ["judge", "negatives"])
@pytest.mark.parametrize("by_positive", [False, True])
def test_a_pair_without_a_verdict_keeps_its_label(judging, by_positive, of_file):
    """Verdicts of the first 30 passages alone; s+ is of the positives that have one."""
    judge = getattr(judging, of_file)(np.where(np.arange(PASSAGES) < 30, judging.scores, np.nan))
    given = {"kind": "rlhn", "scores": "judge", "most": 99} | ({} if by_positive else {"from_score": 0.5})
    job = judging.relabel(given, {"judge": judge})

    def is_false(q, p):
        own = [judging.scores[q, positive] for positive in judging.positives[q] if positive < 30]
        above = min(own, default=9) if by_positive else np.nextafter(np.float32(0.5), np.float32(0))
        return p < 30 and judging.scores[q, p] > above

    by_loop = expected(judging, is_false, most=99)
    assert len(by_loop[2]["positive"]) > 10, "not vacuous"
    agrees(judging, job, by_loop)
    pairs = {(q, p) for q, pool in enumerate(judging.pool.passages) for p in pool}
    unknown = sum(p >= 30 for _, p in pairs)
    assert 0 < unknown < len(pairs)
    assert (job.facts_made["pairs"], job.facts_made["without_verdict"]) == (len(pairs), {"judge": unknown})


@pytest.mark.parametrize("kind", ["rlhn", "arhn"])
def test_a_judge_of_negatives_alone_is_refused_where_s_plus_is_compared(judging, tmp_path, caplog, kind):
    """Not where nothing compares with s+: `answers` of arhn, and rlhn with from_score."""
    alone = judging.scores.copy()
    for q, own in judging.positives.items():
        alone[q, own] = np.nan
    judge = judging.judge(alone, tmp_path / "alone.tsv")
    for compared in (judge, judging.negatives(alone)):
        where = rf"^judge \({compared.kind}/{compared.key}\) .* {QUERIES - 1} queries.*negatives.relabel {kind}"
        with pytest.raises(Refusal, match=where):
            judging.relabel({"kind": kind, "scores": "judge"}, {"judge": compared})
    whole = {"judge": judge, "whole": judging.judge(judging.scores)}
    given = {"answers": "judge", "scores": "whole"} if kind == "arhn" else {"from_score": 0.5, "scores": "judge"}
    relabelled = judging.relabel({"kind": kind} | given, whole).facts_made["relabelled"]
    assert min(relabelled["positive"], relabelled["dropped"] or kind == "rlhn") > 0 and "s+" not in caplog.text
    alone[0, 0] = 0.25
    judging.relabel({"kind": kind, "scores": "judge"}, {"judge": judging.judge(alone)})
    assert f"scores no positive of {QUERIES - 2} of {QUERIES - 1} queries" in caplog.text


def test_a_file_may_have_the_false_negatives_alone(judging):
    """All of its verdicts are true. With s+ such a file compares nothing, and is refused."""
    verdicts = np.where(judging.scores >= 0.5, 1.0, np.nan)
    given = {"kind": "rlhn", "scores": "judge", "most": 99}
    job = judging.relabel(given | {"from_score": 0.5}, {"judge": judging.judge(verdicts)})
    agrees(judging, job, expected(judging, lambda q, p: judging.scores[q, p] >= 0.5, most=99))
    assert job.facts_made["relabelled"]["positive"] > 20 < job.facts_made["without_verdict"]["judge"]
    for q, own in judging.positives.items():
        verdicts[q, own] = 1.0
    judge, number = judging.judge(verdicts), np.count_nonzero(verdicts == 1)
    with pytest.raises(Refusal, match=rf"^judge \(scores_file/{judge.key}\): all {number} scores are 1"):
        judging.relabel(given, {"judge": judge})


def test_what_is_wrong_is_refused_with_pair_or_rule(judging):
    others = judging.scores.copy()
    for q, pool in enumerate(judging.pool.passages):
        others[q, pool] = np.nan
    with pytest.raises(Refusal, match=r"^judge \(scores_file/\w+\).* \d+ pairs"):
        judging.relabel({"kind": "rlhn", "scores": "judge", "from_score": 0.5}, {"judge": judging.judge(others)})
    with pytest.raises(Refusal, match="negatives.relabel rlhn"):
        judging.relabel({"kind": "rlhn", "scores": "all", "from_score": -1}, {"all": judging.judge(judging.scores)})
    judging.collection = judging.world.collection(["q0"], [(0, 0, 1)])
    with pytest.raises(Refusal, match="the split 'train' has no answers"):
        judging.relabel("answers")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("llm", "rlhn, arhn, answers"),
        ({"kind": "rlhn", "become": "negative"}, "relabel.rlhn.become"),
        ({"kind": "rlhn", "most": 0}, "relabel.rlhn.most"),
        ({"kind": "answers", "scores": "miner"}, "relabel.answers.scores"),
    ],
)
def test_settings_that_nothing_reads_are_refused(given, where):
    with pytest.raises(ValueError, match=where):
        Negatives(relabel=given)
