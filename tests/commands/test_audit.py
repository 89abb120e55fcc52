"""`teleport audit`: figures of literal negatives, equal in every form, and of planted false ones."""

import json
import math
import sys

import numpy as np
import pytest

import manage
from commands.audit import audit, eci, form_of, printed
from encoder_world import source_folder
from teleport.negatives.forms import FORMS, Mined, whole
from teleport.refusal import Refusal

# Scores of the first query: s+ is the lowest positive, 1.0; 0.96 is within 5 % of it, 1.5 above it, 0.5 below.
FIRST = Mined(
    "a",
    "who?",
    [{"docid": "p1", "title": "T", "text": "one", "score": 1.0}, {"docid": "p2", "text": "two", "score": 2.0}],
    [
        {"docid": "n1", "text": "n one", "score": 1.5, "source": "query", "rank": 1, "episode": 1},
        {"docid": "n2", "text": "n two", "score": 0.96, "source": "query", "rank": 2, "episode": 1},
        {"docid": "n1", "text": "n one", "score": 1.5, "source": "query", "rank": 1, "episode": 1},
        {"docid": "n3", "text": "T  one", "score": 0.5, "source": "random", "rank": 0, "episode": 1},
    ],
)
SECOND = Mined(
    "b",
    "what?",
    [{"docid": "p3", "text": "three", "score": -1.0}],
    [{"docid": "n1", "text": "n one", "score": -1.04, "source": "query", "rank": 3, "episode": 1}],
)


def write(path, form, scores=True, records=(FIRST, SECOND)):
    rows = [row for mined in records for row in FORMS[form].write(mined, scores)]
    rows = ["\t".join(row) if isinstance(row, tuple) else json.dumps(row) for row in rows]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_figures_are_those_of_a_count_by_hand(tmp_path):
    found = audit(write(tmp_path / "in", "tevatron"))
    assert found["queries"] == 2 and list(found["sources"]) == ["query", "random", "all"]
    query, random, both = found["sources"].values()
    # n1 three times and n2 once; n1 twice in one query
    assert (query["negatives"], query["passages"], query["repeats"], query["scored"]) == (4, 2, 0.25, 1.0)
    assert query["hardness"] == pytest.approx((0.5 - 0.04 + 0.5 - 0.04) / 4)
    assert query["above_positive"] == 0.5, "the scores 1.5; -1.04 is below -1"
    assert query["suspected_by_score"] == 1.0, "0.96 > 0.95, and -1.04 > -1.05"
    assert query["entropy_bits"] == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))
    assert query["queries_per_passage"] == 1.5 and query["equal_text"] == 0
    assert (random["equal_text"], random["suspected_by_score"], random["entropy_bits"]) == (1.0, 0.0, 0.0)
    assert both["negatives"] == 5 and both["equal_text"] == 0.2 and both["passages"] == 3


def test_eci_weighs_hardness_against_the_margin_of_the_positive():
    # mean .5 and margin .9 - .6 = .3, of two negatives: log 3 * 2 * .5 * .3 / .8
    assert eci(0.9, [0.6, 0.4]) == pytest.approx(math.log(3) * 0.375)
    assert eci(0.9, [0.6] * 8) > eci(0.9, [0.6, 0.6]), "more of the same hardness and safety inform more"
    assert eci(0.9, [0.6, 0.4]) > eci(0.9, [0.1, 0.0]), "easy ones inform less"
    assert eci(0.9, [0.95, 0.4]) == 0.0, "one above the positive is not safe"
    assert eci(0.9, [-0.6, -0.4]) == 0.0 == eci(0.0, [0.0])


def test_eci_is_a_mean_over_queries_whose_negatives_all_have_a_score(tmp_path):
    """A passage that repeats counts once; with several positives the lowest decides."""

    def mined(query, scores, positives=(0.9, 1.0)):
        negatives = [{"docid": f"{query}{n}", "text": f"{query} {n}", "score": s} for n, s in scores]
        return Mined(query, "?", [{"docid": f"p{s}", "text": f"p {s}", "score": s} for s in positives], negatives)

    one, two = mined("a", [(1, 0.6), (2, 0.4), (1, 0.6)]), mined("b", [(1, 0.8), (2, 0.2)])
    unknown = [mined("c", [(1, 0.5), (2, None)]), mined("d", [(1, 0.5)], positives=[None])]
    found = audit(write(tmp_path / "in", "tevatron", records=[one, two, *unknown]))["sources"]["all"]
    expected = [math.log(3) * 0.375, math.log(3) * 2 * 0.5 * 0.1 / 0.6]
    assert found["eci"] == pytest.approx(sum(expected) / 2)
    assert audit(write(tmp_path / "in", "tevatron", records=unknown))["sources"]["all"]["eci"] is None


def test_the_origin_beside_exported_negatives_has_all_but_texts(tmp_path):
    """A line per row, of which one query may have several."""
    path, whole = tmp_path / "in.origin.jsonl", audit(write(tmp_path / "in", "tevatron"))["sources"]
    rows = [(FIRST, FIRST.negatives[:1]), (FIRST, FIRST.negatives[1:]), (SECOND, SECOND.negatives)]
    ids = lambda passages: [{k: v for k, v in p.items() if k not in ("title", "text")} for p in passages]  # noqa: E731
    lines = [{"query_id": m.query_id, "positives": ids(m.positives), "negatives": ids(own)} for m, own in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert form_of(path) == "origin"
    found = audit(path)["sources"]
    assert list(found) == list(whole) and found["all"]["equal_text"] is None
    for source, figures in whole.items():
        assert found[source] == figures | {key: found[source][key] for key in ("equal_text", "like_positive")}


@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if form.write and name != "n-tuple"])
def test_every_form_is_read_alike(tmp_path, form):
    """By its first line; a form with one positive alone knows that one, and triples know ids alone."""
    whole = audit(write(tmp_path / "in", "tevatron"))["sources"]
    path = write(tmp_path / form, form, scores=form != "triples")
    assert form_of(path) == form
    (found,) = list(audit(path)["sources"].values())[-1:]
    for key in ("negatives", "passages", "repeats", "entropy_bits", "queries_per_passage"):
        assert found[key] == whole["all"][key], key
    if form == "triples":
        assert found["hardness"] is found["equal_text"] is None and found["scored"] == 0
    else:
        assert found["hardness"] == pytest.approx(whole["all"]["hardness"]) and found["equal_text"] == 0.2


def test_columns_of_equal_width_are_read_too(tmp_path):
    path = write(tmp_path / "in", "n-tuple", records=[FIRST])
    assert form_of(path) == "n-tuple" and audit(path)["sources"]["all"]["negatives"] == 4


def test_planted_copies_of_positives_are_counted(tmp_path):
    """5 % of 2,000 negatives are copies of a positive under another id."""
    rng = np.random.default_rng(3)
    planted, records = rng.random((200, 10)) < 0.05, []
    for q in range(200):
        texts = [f"positive {q}" if planted[q, n] else f"text {q} {n}" for n in range(10)]
        negatives = [{"docid": f"{q}-{n}", "text": text} for n, text in enumerate(texts)]
        records.append(Mined(f"{q}", "?", [{"docid": f"p{q}", "text": f"positive {q}"}], negatives))
    found = audit(write(tmp_path / "in", "tevatron", records=records))["sources"]["all"]
    assert found["equal_text"] * 2000 == planted.sum() > 50
    assert found["hardness"] is None and found["entropy_bits"] == pytest.approx(math.log2(2000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"query": "a"}\n', "in, line 1: .*query"),
        ("a b\n", "in, line 1: .*neither JSON"),
        ("", "in, line 1: .*neither JSON"),
        ('{"query_id": "a", "negative_passages": []}\n', "no negatives"),
        ("{" * 5000, "in, line 1: .*neither JSON"),
        ('{"query_id": "a", "negative_passages": ["n"]}\n', "in, line 1: passages"),
        ('{"query_id": "a", "negative_passages": [], "positive_passages": 5}\n', "in, line 1: passages"),
        ('{"query_id": "a", "negative_passages": [{"docid": []}]}\n', "in, line 1: 'docid'"),
        ('{"query_id": "a", "negative_passages": [{"text": null}]}\n', "in, line 1: 'text'"),
        ('{"query_id": "a", "negative_passages": [{"text": "b", "score": true}]}\n', "in, line 1: 'score'"),
        ('{"query_id": "a", "negative_passages": [{"text": "b", "score": NaN}]}\n', "in, line 1: the score nan"),
    ],
)
def test_what_has_no_form_is_refused(tmp_path, text, message):
    (tmp_path / "in").write_text(text)
    with pytest.raises(Refusal, match=message):
        audit(tmp_path / "in")


def test_the_command_prints_a_table_or_json(tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "in", "tevatron")
    for arguments in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["teleport", "audit", str(path), *arguments])
        with pytest.raises(SystemExit) as ended:
            manage.main()
        assert not ended.value.code
    table, _, found = capsys.readouterr().out.partition("{")
    assert json.loads("{" + found) == audit(path) and table.strip() == printed(audit(path))
    assert printed(audit(write(tmp_path / "one", "tevatron", records=[FIRST]))).startswith("1 query\n")
    assert "| negatives | 4 | 1 | 5 |" in table and "| hardness | 0.230 | -0.500 | 0.084 |" in table


def test_a_stage_is_audited_as_its_export(world_of_pool, tmp_path):
    from commands.export import export

    folder = world_of_pool
    export(folder, tmp_path / "out", scores=True)
    assert audit(folder) == audit(tmp_path / "out")


def saved_checkpoint(folder):
    """A miniature with mean pooling and prompts, as sentence-transformers saves it."""
    source_folder(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}')
    kinds = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    modules = [{"idx": int(i), "name": i, "path": p, "type": f"sentence_transformers.models.{t}"} for i, p, t in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    prompts = {"prompts": {"query": "q: ", "passage": "p: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def test_another_checkpoint_scores_as_sentence_transformers_does(tmp_path, monkeypatch):
    """Its scores take the place of the file's own, over several blocks of queries, whose vectors are forgotten."""
    from sentence_transformers import SentenceTransformer

    from commands import audit as module

    monkeypatch.setattr(module, "BLOCK_QUERIES", 1)
    monkeypatch.setattr(module, "MOST_VECTORS", 3)
    checkpoint = saved_checkpoint(tmp_path / "model")
    path = write(tmp_path / "in", "tevatron")
    model, by_hand = SentenceTransformer(str(checkpoint), device="cpu"), []
    for mined in (FIRST, SECOND):
        query = model.encode(mined.query, prompt_name="query").astype(float)
        positives, negatives = (
            model.encode([whole(passage) for passage in passages], prompt_name="passage").astype(float)
            for passages in (mined.positives, mined.negatives)
        )
        for negative in negatives:
            cosines = [negative @ each / math.sqrt((negative @ negative) * (each @ each)) for each in positives]
            by_hand.append((negative @ query, min(positives @ query), max(cosines)))
    scores, lowest, likenesses = np.array(by_hand).T
    found = audit(path, by=checkpoint)["sources"]["all"]
    hardness = np.mean(scores - lowest)
    assert found["hardness"] == pytest.approx(hardness, abs=1e-4) and abs(hardness - 0.084) > 0.02, "not the file's own"
    assert found["above_positive"] == np.mean(scores > lowest) and found["scored"] == 1
    for margin, like in ((0.0, likenesses.min() - 1e-4), (0.3, np.median(likenesses) - 1e-4), (1.0, 1.1)):
        shares = audit(path, by=checkpoint, margin=margin, like=like)["sources"]["all"]
        assert shares["suspected_by_score"] == np.mean(scores > lowest - margin * abs(lowest))
        assert shares["like_positive"] == np.mean(likenesses > like)
    assert audit(path)["sources"]["all"]["like_positive"] is None
    with pytest.raises(Refusal, match=r"^--like 0\.5: .*--by"):
        audit(path, like=0.5)
    with pytest.raises(Refusal, match="in, line 1: ids without texts"):
        audit(write(tmp_path / "in", "triples", scores=False), by=checkpoint)


@pytest.fixture
def world_of_pool(stages):
    """The folder of a merge stage of two queries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from teleport.negatives.pool import Items, PoolWriter

    corpus = stages.make("collection")
    pq.write_table(
        pa.table({name: [f"{name}{n}" for n in range(4)] for name in ("doc_id", "title", "text")}),
        corpus.output("corpus.parquet"),
    )
    pq.write_table(pa.table({"query_id": ["a", "b"], "text": ["A", "B"]}), corpus.output("queries.train.parquet"))
    qrels = {
        name: np.array(values, np.int32) for name, values in (("query", [0, 1]), ("passage", [0, 1]), ("grade", [1, 1]))
    }
    pq.write_table(pa.table(qrels), corpus.output("qrels.train.parquet"))
    stages.finish(corpus, {"positive_grade": 1, "num_passages": 4})
    pool = stages.make("merge", inputs={"collection": corpus})
    writer, ones = PoolWriter(pool.output, ["query"]), np.ones(3, np.int32)
    writer.append(np.array([2, 1]), Items(np.array([2, 3, 2]), ones, ones, ones, np.array([0.5, 0.25, np.nan])))
    writer.close()
    stages.finish(pool)
    return pool.folder
