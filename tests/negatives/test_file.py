"""Files of negatives in their three forms, and what is said about wrong ones."""

import gzip
import json
import re

import numpy as np
import pytest

from teleport.arrays import Run, save_array
from teleport.negatives import file
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file, write_json

CORPUS = {
    "doc_id": ["d0", "d1", "d2", "d3", "17"],
    "title": ["", "Ü", "T2", "T2", "T2"],
    "text": ["zero", "one", "two", "three", "two"],
}
TEVATRON = [
    {"query_id": "b", "query": "?", "negative_passages": [{"docid": "d3", "text": "ignored"}, {"docid": 17}]},
    {"query_id": "elsewhere", "negative_passages": [{"docid": "not looked at"}]},
    {
        "query_id": "a",
        "negative_passages": [
            {"title": "Ü", "text": "one"},
            {"docid": "d3"},
            {"text": "zero"},
            {"title": "T2", "text": "two"},
            {"title": "Ü", "text": "One"},
        ],
    },
]
DPR = [
    {"question": "who?", "hard_negative_ctxs": [{"passage_id": "17"}, {"psg_id": "d1", "title": "x"}]},
    {"question": "elsewhere", "hard_negative_ctxs": [{"passage_id": "99"}]},
    {"question": "what?", "hard_negative_ctxs": []},
]
SEP = 102


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class Files:
    """The stage on a file of literal text, over a collection of three queries, two of which have one text."""

    def __init__(self, world, folder):
        self.stages, self.folder = world.stages, folder
        self.collection = world.collection(["a", "b", "c"], [], queries=["who?", "what?", "who?"], **CORPUS)

    def tokens(self, queries, passages):
        job = self.stages.make("tokens")
        for name, texts in {"queries.train": queries, "passages": passages}.items():
            save_array(job.output(f"{name}.ids.npy"), np.array([t for text in texts for t in text], np.uint16))
            save_array(job.output(f"{name}.offsets.npy"), np.cumsum([0, *map(len, texts)]))
        write_json(job.output("special.json"), {"sep": SEP})
        return self.stages.finish(job)

    def run(self, form, text, tokens=None, name="negatives.json", sha256=None):
        path = self.folder / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        settings = {"path": str(path), "form": form, "sha256": sha256 or sha256_file(path)}
        inputs = {"collection": self.collection} | ({"tokens": tokens} if tokens else {})
        job = self.stages.run(file.run, "negatives_file", settings, inputs)
        found = Run.read(self.stages.make("merge", inputs={"file": job}), "file")
        assert (found.ids.dtype, found.scores.dtype, found.rows.dtype) == (np.int32, np.float32, np.int32)
        assert found.scores.shape == found.ids.shape and not found.scores.any()
        return dict(zip(found.rows.tolist(), found.ids.tolist(), strict=True)), Artefact(job.folder).facts


@pytest.fixture
def files(world, tmp_path):
    return Files(world, tmp_path)


@pytest.mark.parametrize("name", ["negatives.jsonl", "negatives.jsonl.gz"])
def test_tevatron_s_lines_name_passages_by_id_or_by_text(files, name, caplog):
    """The text of a passage without an id is matched to the character; of equal passages the first is meant. What is
    left out is said, with its first place."""
    lists, facts = files.run("tevatron", json_lines(TEVATRON), name=name)
    assert lists == {1: [3, 4, -1, -1], 0: [1, 3, 0, 2]}
    assert facts == {"lines": 3, "other_queries": 1, "unmatched": 1, "queries": 2, "negatives": 6, "scored": 0}
    negatives, queries = sorted(record.message for record in caplog.records)
    assert re.match(rf"queries that are not .*, left out: 1, the first at \S+{name}, line 2\. Give", queries)
    assert re.match(rf"negatives that are not .*, left out: 1, the first at \S+{name}, line 3\. Give", negatives)


def test_dpr_s_records_name_queries_by_text(files):
    """Both queries of one text get the negatives; contexts are named passage_id (NQ) or psg_id (TriviaQA)."""
    lists, facts = files.run("dpr", json.dumps(DPR))
    assert lists == {0: [4, 1], 2: [4, 1], 1: [-1, -1]}
    assert facts == {"lines": 3, "other_queries": 1, "unmatched": 0, "queries": 3, "negatives": 4, "scored": 0}


PASSAGES = [[5, 6], [7, SEP, 1, 2, 3, 4], [7, SEP, 1, 2, 3, 9], [5, 6, 8, 9, 10, 11], [7, SEP, 1, 2, 3]]


def test_ance_tele_s_lines_are_matched_by_token_ids(files):
    """Cut at 5 ids: passages 1, 2 and 4 begin with the same ids, and the one that ends there is meant. Passages without
    a title begin with [SEP] in the file alone."""
    tokens = files.tokens([[1, 2, 3, 4], [1, 2], [9]], PASSAGES)
    lines = [
        {"query": [1, 2, 3], "positives": [[1]], "negatives": [[7, SEP, 1, 2, 3], [SEP, 5, 6], [SEP, 5, 6, 8, 9]]},
        {"query": [1, 2], "positives": [], "negatives": [[5, 6], [7, SEP, 1]]},
        {"query": [4, 4], "positives": [], "negatives": [[5, 6]]},
    ]
    lists, facts = files.run("token-ids", json_lines(lines), tokens)
    assert lists == {0: [4, 0, 3], 1: [0, -1, -1]}
    assert facts == {"lines": 3, "other_queries": 1, "unmatched": 1, "queries": 2, "negatives": 4, "scored": 0}
    shorter = files.tokens([[1, 2, 3, 4], [1, 2], [9]], PASSAGES[:4])
    assert files.run("token-ids", json_lines(lines), shorter)[0][0] == [1, 0, 3], "the first of the equal ones"
    exact = files.tokens([[1, 2, 3, 4], [1, 2], [1, 2, 3]], PASSAGES)
    assert list(files.run("token-ids", json_lines(lines), exact)[0]) == [2, 1], "the query that ends there is meant"


@pytest.mark.parametrize("score", ["NaN", "-Infinity", "1e39", "1" + 400 * "0", "true", '"high"'])
def test_a_score_that_is_no_finite_float32_is_refused(files, score):
    line = json.dumps(TEVATRON[0] | {"negative_passages": [{"docid": "d3", "score": "SCORE"}]})
    with pytest.raises(Refusal, match="line 1: the score"):
        files.run("tevatron", line.replace('"SCORE"', score) + "\n")


def test_a_merge_draws_from_a_file(files, world):
    path = files.folder / "negatives.jsonl"
    path.write_text(json_lines(TEVATRON))
    settings = {"path": str(path), "form": "tevatron", "sha256": sha256_file(path)}
    job = files.stages.run(file.run, "negatives_file", settings, {"collection": files.collection})
    merged = world.merge(files.collection, {"file": 3}, {"file": job})
    assert [len(pool) for pool in merged.pools] == [3, 2, 0]
    assert {item[1] for pool in merged.pools for item in pool} == {"file"} and merged.passages[1] == [3, 4]
    ranges = world.merge(files.collection, {"file": 3}, {"file": job}, ranks={"file": [[2, 3]]})
    assert ranges.passages == [[3, 0], [4], []]


def test_a_rank_far_down_a_long_file_is_kept(files, world):
    """The only candidate of the query stands at rank 40,000 of its line."""
    ids = np.full((1, 40_000), -1, np.int32)
    ids[0, -1] = 3
    merged = world.merge(files.collection, {"file": 1}, {"file": world.retrieval(ids)})
    assert [item[3] for item in merged.pools[0]] == [40_000]


WRONG = [
    ("tevatron", "{", r"negatives.json, line 1: not a JSON object"),
    ("tevatron", '{"query_id": "a"}', r"line 1: 'negative_passages' is missing and must be a list. Corr"),
    (
        "tevatron",
        '{"query_id": true, "negative_passages": []}',
        "line 1: 'query_id' is true and must be a text or a whol",
    ),
    (
        "tevatron",
        json_lines([TEVATRON[0], {"query_id": "a", "negative_passages": [{"docid": "d1"}, {"docid": "d9"}]}]),
        r"negatives.json, line 2: passage 'd9'",
    ),
    ("tevatron", '{"query_id": "a", "negative_passages": [{"title": "T"}]}', r"line 1: a negative passage"),
    ("tevatron", '{"query_id": "a", "negative_passages": ["d1"]}', r"line 1: a negative passage"),
    ("tevatron", '{"query_id": "x", "negative_passages": []}', r"none of its 1 queries .*`query_id`s"),
    ("tevatron", '{"query_id": "a", "negative_passages": [{"text": "other"}]}', r"none of its negatives"),
    ("dpr", "{}", r"not a JSON array"),
    ("dpr", '[{"question": "who?"}]', r"record 1: DPR's records have question \(text\) and hard_neg.*Correct the"),
    ("dpr", '[{"question": "who?", "hard_negative_ctxs": [{"id": 1}]}]', r"record 1: .*passage_id or psg_id"),
    ("dpr", '[{"question": "who?", "hard_negative_ctxs": [{"passage_id": 5}]}]', r"record 1: passage '5'"),
    ("dpr", '[{"question": ["who?"], "hard_negative_ctxs": []}]', r"record 1: DPR's records have question \(text\)"),
    ("dpr", '[{"question": {"a": 1}, "hard_negative_ctxs": []}]', r"record 1: DPR's records have question \(text\)"),
    ("dpr", '[{"question": "?", "hard_negative_ctxs": []}]', r"none of its 1 queries"),
    ("dpr", '[{"question": "who?", "hard_negative_ctxs": []}]', "all 1 hard_negative_ctxs of its questions are empty"),
    ("tevatron", '{"query_id": "a", "negative_passages": []}', "all 1 lists"),
    ("token-ids", '{"query": ["text"], "negatives": []}', r"line 1: query and negatives"),
    ("token-ids", '{"query": [1], "negatives": [[-1]]}', r"line 1: query and negatives"),
    ("token-ids", '{"query": [8], "negatives": [[1]]}', r"none of its 1 queries is .*tokenizer.*encoder.title: sep"),
    ("token-ids", '{"query": [9], "negatives": [[1]]}', r"none of its negatives is .*tokenizer.*encoder.title: sep"),
]


@pytest.mark.parametrize(("form", "text", "message"), WRONG)
def test_what_is_wrong_is_said_with_its_place_and_the_remedy(files, form, text, message):
    tokens = files.tokens([[1, 2], [3], [9]], PASSAGES) if form == "token-ids" else None
    with pytest.raises(ValueError, match=message):
        files.run(form, text, tokens)


def test_a_file_that_changed_after_planning_is_refused(files):
    with pytest.raises(ValueError, match="negatives.json has changed"):
        files.run("tevatron", json_lines(TEVATRON), sha256="0" * 64)
