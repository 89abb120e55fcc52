"""A pool that is exported in every form, and read back as the source `file`."""

import json
import shutil

import numpy as np
import pytest

from commands.export import export, origin_file
from stages import roles_of
from teleport.arrays import Run
from teleport.negatives import file, forms
from teleport.negatives.export import Wanted, export_pool
from teleport.negatives.scores import PairTable
from teleport.refusal import Refusal
from teleport.running.artefact import MANIFEST, Artefact
from teleport.running.files import sha256_file, write_json
from teleport.settings.pool import WITHOUT_SCORES

TITLES = ["", "Ü", "T2", "", "T4", "T5", "", "T7"]
CORPUS = {"doc_id": [f"d{n}" for n in range(8)], "title": TITLES, "text": [f"text {n}" for n in range(8)]}
POSITIVES = {0: [0, 1], 1: [2], 2: [3]}
# Neighbours of each query, of which its positives are no negatives: four of each remain, ranks 1 to 6.
LISTS = [[0, 4, 5, 1, 6, 7], [4, 2, 0, 3, 7, 7], [7, 6, 5, 3, 1, 7]]
SCORES = np.round(np.random.default_rng(7).normal(size=(3, 6)), 6).astype(np.float32)
FORMS = [name for name, form in forms.FORMS.items() if form.write]
DIM = 4


@pytest.fixture
def pool(world):
    """(collection, merge job, vectors) of a pool of four negatives a query, all scored by the checkpoint that mined."""
    judgments = [(q, p, 1) for q, positives in POSITIVES.items() for p in positives]
    queries = ["who?", "what?", 'why\t"so"?']
    collection = world.collection(["a", "b", "c"], judgments, queries=queries, **CORPUS)
    rng = np.random.default_rng(1)
    vectors = world.vectors(queries=rng.normal(size=(3, DIM)), passages=rng.normal(size=(8, DIM)))
    retrieval = world.retrieval(LISTS, scores=SCORES)
    named(retrieval, {"queries": vectors, "passages": vectors})
    merged = world.merge(collection, {"query": 4}, {"query": retrieval})
    named(merged, {"collection": collection, "query": retrieval})
    return collection, merged, vectors


def named(job, inputs):
    """Name in a job's manifest what it read, as the runner does."""
    path = job.folder / MANIFEST
    inputs = {role: f"{read.kind}/{read.key}" for role, read in roles_of(inputs).items()}
    write_json(path, json.loads(path.read_text()) | {"inputs": inputs})


def written(pool, path, **wanted):
    path.unlink(missing_ok=True)  # export replaces none
    export(pool[1].folder, path, **wanted)
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def read_back(world, pool, form, path):
    settings = {"path": str(path), "form": form, "sha256": sha256_file(path)}
    job = world.stages.run(file.run, "negatives_file", settings, {"collection": pool[0]})
    return Run.read(world.stages.make("merge", inputs={"file": job}), "file"), Artefact(job.folder).facts, job


@pytest.mark.parametrize("form", FORMS)
def test_what_is_exported_is_read_back_without_loss(world, pool, tmp_path, form):
    """Passages in their order, repeated ones too, and scores to the last bit where the form has them."""
    has_scores = form != "triples"
    written(pool, tmp_path / "out", form=form, scores=has_scores)
    run, facts, job = read_back(world, pool, form, tmp_path / "out")
    pools = [[(item[0], item[4]) for item in each] for each in pool[1].pools]
    assert len({len(each) for each in pools}) == 1 and any(len({p for p, _ in each}) < 4 for each in pools)
    assert run.rows.tolist() == [0, 1, 2] and run.ids.tolist() == [[p for p, _ in each] for each in pools]
    expected = np.array([[score if has_scores else 0 for _, score in each] for each in pools], np.float32)
    assert np.array_equal(run.scores, expected)
    assert facts["unmatched"] == 0 and facts["scored"] == (12 if has_scores else 0)
    assert world.merge(pool[0], {"file": 4}, {"file": job}).passages == pool[1].passages


COLUMNS = "passage", "source", "episode", "rank", "score"
ORIGINS = {"source", "episode", "rank", "score"}
CARRIED = dict.fromkeys(("tevatron", "nemo", "labeled-pair", "labeled-list", "origin"), ORIGINS)


@pytest.mark.parametrize("origin", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_pool_read_back_has_the_origins_and_scores_of_the_file(world, pool, tmp_path, form, origin):
    """Of a second episode with several sources. What a form has no room for is that of the new pool, but the file
    beside it has everything."""
    lists = {"query": world.retrieval(LISTS, scores=SCORES), "bm25": world.retrieval([[5, 6], [3, 0], [1, 2]])}
    lists |= {"momentum": pool[1]}
    mined = world.merge(pool[0], {"query": 2, "momentum": 2, "bm25": 1, "random": 1}, lists, episode=2)
    named(mined, {"collection": pool[0]})
    path = tmp_path / "out"
    export(mined.folder, path, form=form, scores=form != "triples", origin=origin)
    form, path = ("origin", origin_file(path)) if origin else (form, path)
    job = read_back(world, pool, form, path)[2]
    again = world.merge(pool[0], {"file": 6, "bm25": 1}, {"file": job, "bm25": lists["bm25"]}, episode=3)
    carried = CARRIED.get(form, {"score"} if form == "pos-neg" else set())
    seen = set()
    for before, after in zip(mined.pools, again.pools, strict=True):
        *read, (*_, source, episode, _, _) = after
        assert (source, episode) == ("bm25", 3)
        for place, (old, new) in enumerate(zip(before, read, strict=True), 1):
            old, new = (dict(zip(COLUMNS, item, strict=True)) for item in (old, new))
            old |= {key: {"source": "file", "episode": 3, "rank": place}.get(key) for key in ORIGINS - carried}
            old["score"] = np.nan if old["score"] is None else old["score"]
            assert set(new["source"].split("+")) == set(old["source"].split("+"))
            assert np.array_equal(new.pop("score"), old.pop("score"), equal_nan=True)
            assert {**new, "source": 0} == {**old, "source": 0}
            seen.add((old["source"], old["episode"], old["rank"] == place))
    sources = {source for source, _, _ in seen}
    assert sources == ({"query", "query+momentum", "bm25", "random"} if "source" in carried else {"file"})
    assert {episode for _, episode, _ in seen} == ({1, 2} if "episode" in carried else {3})
    assert again.merge_facts["first_episodes"].get("1", 0) == (6 if "episode" in carried else 0)


@pytest.mark.parametrize("form", [*FORMS, "origin"])
def test_the_scores_of_a_file_are_those_of_a_teacher(world, pool, tmp_path, form):
    """Of the negatives as drawn, and of the positives that the form has; a pair without a score is refused by its ids.
    A form is refused in the plan exactly if it has none."""
    from teleport.search.pairs import PairScorer

    path, as_row = tmp_path / "out.jsonl", {"form": "triplet" if form == "origin" else form, "origin": True}
    export(pool[1].folder, path, scores=form != "triples", **as_row)
    job = read_back(world, pool, form, origin_file(path) if form == "origin" else path)[2]
    reading = world.stages.make("merge", inputs={"scores.file": job, "collection": pool[0]})
    table = PairTable.open(reading, "scores.file")
    if form in WITHOUT_SCORES:
        with pytest.raises(Refusal, match=r"^file \(negatives_file/.*'a' \(row 0\) .*'d0' \(row 0\)"):
            table.score(0, np.array([0]))
        return
    for query, items in enumerate(pool[1].pools):
        highest = {}
        for passage, *_, score in items:
            highest[passage] = max(score, highest.get(passage, score))
        assert table.score(query, np.array(list(highest))).tolist() == list(highest.values())
    vectors = [np.load(pool[2].folder / name) for name in ("queries.train.npy", "passages.npy")]
    expected, given = (each.score(0, np.array([0])) for each in (PairScorer(*vectors, None), table))
    assert np.array_equal(given, expected)
    has_all = np.isfinite(table.score(0, np.array([1]), partial=True))[0]
    assert has_all == (form not in ("n-tuple", "triplet", "origin"))
    assert len(table.scores) == sum(len({p for p, *_ in items}) for items in pool[1].pools) + 3 + has_all


def test_a_pair_with_two_scores_has_the_higher_one_and_one_without_any_has_none(world, pool, tmp_path):
    lines = [("T4 text 4", 0.25), ("text 6", None), ("unknown", 3), ("T4 text 4", 0.5), ("T4 text 4", None)]
    texts, scores = zip(*lines, strict=True)
    record = {"query": "who?", "pos": ["text 0"], "neg": texts, "pos_scores": [2], "neg_scores": scores}
    second = {"query": "who?", "pos": ["text 0", "nowhere"], "neg": ["T4 text 4"], "pos_scores": [-1, 9]}
    (tmp_path / "in").write_text("".join(f"{json.dumps(each)}\n" for each in (record, second)))
    job = read_back(world, pool, "pos-neg", tmp_path / "in")[2]
    table = PairTable.open(world.stages.make("merge", inputs={"scores.file": job}), "scores.file")
    assert table.offsets.tolist() == [0, 2, 2, 2]
    assert dict(zip(table.passages.tolist(), table.scores.tolist(), strict=True)) == {0: 2, 4: 0.5}


def test_a_filter_drops_what_the_file_scores_near_the_positive(world, pool, tmp_path, caplog):
    """s+ is of the positives that the file scores. It drops none where there is none, and a query may be missing."""
    record = {"query": "who?", "pos": ["text 0", "Ü text 1"], "neg": ["T4 text 4", "T5 text 5", "text 6"]}
    records = [record | {"pos_scores": [8, None], "neg_scores": [7.8, 8.5, 2]}]
    records.append({"query": "what?", "pos": ["T2 text 2"], "neg": ["T4 text 4", "text 6"], "neg_scores": [9, 1]})

    def merged(draw="uniform"):
        (tmp_path / "in").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        job = read_back(world, pool, "pos-neg", tmp_path / "in")[2]
        filters = {"percentage": 0.95, "scores": "file"} if draw == "uniform" else {}
        given = {"file": job, "scores.file": job}
        return world.merge(pool[0], {"file": 3 if filters else 1}, given, filters=filters, draw=draw).passages

    assert merged() == [[6], [4, 6], []]
    assert "scores no positive of 2 of 3 training queries" in caplog.text
    around = {"kind": "around", "scores": "file", "a": 1e9}
    near, alike, none = merged(around)
    assert near == [4] and alike[0] in (4, 6) and none == []
    del records[0]["pos_scores"]
    with pytest.raises(Refusal, match=r"^file \(negatives_file/\w+\) scores no positive of the 3 "):
        merged()


def test_scores_of_a_file_are_no_scores_of_a_checkpoint_that_mines_beside_it(world, pool, tmp_path):
    written(pool, tmp_path / "out", scores=True)
    job = read_back(world, pool, "tevatron", tmp_path / "out")[2]
    lists = {"query": world.retrieval(LISTS, scores=SCORES), "file": job}
    both = world.merge(pool[0], {"query": 1, "file": 1}, lists)
    assert [[np.isnan(score) for *_, score in own] for own in both.pools] == [[False, True]] * 3


@pytest.mark.parametrize("form", FORMS)
def test_rows_have_the_columns_that_others_read(pool, tmp_path, form):
    rows = written(pool, tmp_path / "plain", form=form)
    ids = [[f"d{p}" for p in each] for each in pool[1].passages]
    text = [f"{title} text {n}".strip() for n, title in enumerate(TITLES)]
    mined = [[text[p] for p in each] for each in pool[1].passages]
    if form == "triples":
        assert rows == [f"{q}\t{p}\t{n}" for q, p, own in zip("abc", ["d0", "d2", "d3"], ids, strict=True) for n in own]
        return
    rows = [json.loads(row) for row in rows]
    first, (who, what, why) = rows[0], ("who?", "what?", 'why\t"so"?')
    if form == "tevatron":
        assert list(first) == ["query_id", "query", "positive_passages", "negative_passages"]
        assert first["positive_passages"][1] == {"docid": "d1", "title": "Ü", "text": "text 1"}
        assert [[p["docid"] for p in row["negative_passages"]] for row in rows] == ids
    elif form == "pos-neg":
        assert rows == [
            {"query": q, "pos": [text[p] for p in POSITIVES[n]], "neg": mined[n]}
            for n, q in enumerate((who, what, why))
        ]
    elif form == "nemo":
        assert first["question_id"] == "a" and first["pos_doc"][1] == {"id": "d1", "text": "Ü text 1"}
        assert [[p["text"] for p in row["neg_doc"]] for row in rows] == mined
    elif form == "n-tuple":
        # sentence-transformers takes the columns in their order: anchor, positive, negatives, all of them texts
        assert [list(row) for row in rows] == [["query", "positive", *(f"negative_{n}" for n in range(1, 5))]] * 3
        assert [list(row.values()) for row in rows] == [
            [q, text[POSITIVES[n][0]], *mined[n]] for n, q in enumerate((who, what, why))
        ]
    elif form == "triplet":
        assert [list(row.values()) for row in rows[:4]] == [[who, text[0], negative] for negative in mined[0]]
        assert list(first) == ["query", "positive", "negative"] and len(rows) == 12
    elif form == "labeled-pair":
        assert [(row["passage"], row["label"]) for row in rows[:6]] == [
            (text[0], 1), (text[1], 1), *((negative, 0) for negative in mined[0])
        ]  # fmt: skip
    else:
        assert first == {"query": who, "passages": [text[0], text[1], *mined[0]], "labels": [1, 1, 0, 0, 0, 0]}


def test_scores_are_those_of_the_checkpoint_that_mined(pool, tmp_path):
    """The list has those of the negatives; those of the positives are products of the vectors."""
    from teleport.search.pairs import PairScorer

    (row, *_) = (json.loads(line) for line in written(pool, tmp_path / "out", scores=True))
    vectors = [np.load(pool[2].folder / name) for name in ("queries.train.npy", "passages.npy")]
    expected = PairScorer(*vectors, None).score(0, np.array([0, 1]))
    assert np.array_equal([np.float32(p["score"]) for p in row["positive_passages"]], expected)
    negatives = [(p["score"], p["rank"], p["source"], p["episode"]) for p in row["negative_passages"]]
    drawn = [(score, rank, source, episode) for _, source, episode, rank, score in pool[1].pools[0]]
    assert [(np.float32(score), *rest) for score, *rest in negatives] == [
        (np.float32(score), *rest) for score, *rest in drawn
    ]
    assert len({rank for _, rank, _, _ in negatives}) == 4


def test_the_hardest_come_first_and_no_more_than_wanted(pool, tmp_path):
    rows = [json.loads(line) for line in written(pool, tmp_path / "out", form="pos-neg", scores=True)]
    hard = [json.loads(line) for line in written(pool, tmp_path / "hard", form="pos-neg", scores=True, hardest=True)]
    assert [row["neg_scores"] for row in hard] == [sorted(row["neg_scores"], reverse=True) for row in rows]
    assert any(row["neg_scores"] != one["neg_scores"] for row, one in zip(rows, hard, strict=True))
    two = [json.loads(line) for line in written(pool, tmp_path / "two", form="n-tuple", hardest=True, most=2)]
    assert [[row["negative_1"], row["negative_2"]] for row in two] == [row["neg"][:2] for row in hard]
    assert all("negative_3" not in row for row in two)
    whole = shutil.copytree(pool[2].folder, tmp_path / "whole")
    Artefact(pool[2].folder).delete_files()
    assert "no checkpoint" not in export(pool[1].folder, tmp_path / "lists", hardest=True), "the lists have the scores"
    assert "3 of them with passages that no" in export(pool[1].folder, tmp_path / "both", hardest=True, scores=True)
    shutil.copytree(whole, pool[2].folder, dirs_exist_ok=True)  # as `teleport fetch` brings them back
    assert "no checkpoint" not in export(pool[1].folder, tmp_path / "again", hardest=True, scores=True)


def test_the_most_of_a_pool_as_drawn_are_a_random_choice_in_its_order(pool, world, tmp_path):
    wide = world.merge(pool[0], {"random": 4, "query": 4}, {"query": world.retrieval(LISTS, scores=SCORES)})
    named(wide, {"collection": pool[0]})
    chosen = []
    for most in (None, 2, 2, 8):
        lines = written((None, wide), tmp_path / "out", form="tevatron", scores=True, most=most)
        rows = (json.loads(line)["negative_passages"] for line in lines)
        chosen.append([[(p["docid"], p["source"], p["rank"]) for p in row] for row in rows])
    of_all, two, again, eight = chosen
    assert two == again and eight == of_all
    places = [[all_.index(passage) for passage in own] for all_, own in zip(of_all, two, strict=True)]
    assert all(first < second for first, second in places) and places != [[0, 1]] * 3
    assert {source for own in two for _, source, _ in own} > {"random"}, "not the first of the first source"


def test_without_vectors_negatives_that_nobody_scored_have_no_score(pool, world, tmp_path):
    merged = world.merge(pool[0], {"random": 2}, {})
    named(merged, {"collection": pool[0]})
    said = export(merged.folder, tmp_path / "out", form="pos-neg", scores=True)
    assert said.startswith("3 queries, 3 of them with passages that no checkpoint scored in ")
    assert "scored" not in export(merged.folder, tmp_path / "plain", form="pos-neg")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert {score for row in rows for score in row["neg_scores"] + row["pos_scores"]} == {None}
    export(merged.folder, tmp_path / "tuples", form="n-tuple", scores=True)
    tuples = [json.loads(line) for line in (tmp_path / "tuples").read_text().splitlines()]
    assert len(tuples) == len(rows) and not any("score" in row for row in tuples), "a loss takes all scores or none"
    with pytest.raises(Refusal, match=f"{merged.folder}.*scores.*--order"):
        export(merged.folder, tmp_path / "hard", hardest=True)
    assert not (tmp_path / "hard").exists()


def test_queries_with_fewer_negatives_have_no_row_of_equal_width(pool, world, tmp_path):
    short = world.retrieval([[4, 5], [4, -1], [6, 7]])
    merged = world.merge(pool[0], {"query": 2}, {"query": short})
    named(merged, {"collection": pool[0]})
    said = export(merged.folder, tmp_path / "out", form="n-tuple")
    without = "without 1 that have fewer than 2 negatives and 1 positives that are not the first of their query"
    assert said == f"2 queries, {without} in {tmp_path / 'out'}"
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [row["query"] for row in rows] == ["who?", 'why\t"so"?']


@pytest.mark.parametrize("form", FORMS)
def test_positives_that_a_form_has_no_room_for_are_counted(pool, tmp_path, form):
    said = export(pool[1].folder, tmp_path / "out", form=form)
    left_out = ", without 1 positives that are not the first of their query"
    assert said == f"3 queries{left_out if form in ('n-tuple', 'triplet', 'triples') else ''} in {tmp_path / 'out'}"


@pytest.mark.parametrize("form", FORMS)
def test_a_line_of_the_origin_has_the_passages_of_its_row(pool, tmp_path, form):
    path = tmp_path / "out.jsonl"
    rows, origins = written(pool, path, form=form, origin=True, hardest=True), origin_file(path).read_text()
    assert origin_file(path) == tmp_path / "out.origin.jsonl"
    texts = dict(zip(CORPUS["doc_id"], map(" ".join, zip(TITLES, CORPUS["text"], strict=True)), strict=True))
    export(pool[1].folder, tmp_path / "whole", scores=True)
    known = {row["query_id"]: row for row in map(json.loads, (tmp_path / "whole").read_text().splitlines())}
    for row, origin in zip(rows, map(json.loads, origins.splitlines()), strict=True):
        said = []
        for side in ("positive", "negative"):
            passages = known[origin["query_id"]][f"{side}_passages"]
            plain = [{key: value for key, value in p.items() if key not in ("title", "text")} for p in passages]
            assert all(passage in plain and "score" in passage for passage in origin[f"{side}s"])
            ids = [passage["docid"] for passage in origin[f"{side}s"]]
            said += ids if form in ("tevatron", "triples") else [texts[each].strip() for each in ids]
        if form == "triples":
            assert row.split("\t") == [origin["query_id"], *said]
        elif form == "tevatron":
            assert [
                p["docid"] for p in json.loads(row)["positive_passages"] + json.loads(row)["negative_passages"]
            ] == said
        else:
            assert texts_of(json.loads(row))[1:] == said
    assert not any(tmp_path.glob("whole*.origin.jsonl")), "only where it is wanted"


def texts_of(row):
    """The texts in a row: of its query, then of its passages."""
    listed = [each for value in row.values() for each in (value if isinstance(value, list) else [value])]
    listed = [each["text"] if isinstance(each, dict) else each for each in listed]
    return [each for each in listed if isinstance(each, str)][("question_id" in row) :]


def test_sentence_transformers_collates_the_rows_of_its_forms(pool, tmp_path):
    """labeled-list is for its CrossEncoderTrainer."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.cross_encoder.data_collator import CrossEncoderDataCollator
    from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

    def collated(form, collator, **wanted):
        return collator([json.loads(row) for row in written(pool, tmp_path / form, form=form, **wanted)])

    def texts(texts, **options):
        assert all(isinstance(text, str) for text in texts)
        return {"texts": texts}

    encoder, width = SentenceTransformerDataCollator(texts), [f"negative_{n}_texts" for n in range(1, 5)]
    expected = {"triplet": ["label"], "labeled-pair": ["label"], "n-tuple": ["label"]}
    columns = {"triplet": ["positive_texts", "negative_texts"], "labeled-pair": ["passage_texts"]}
    columns |= {"n-tuple": ["positive_texts", *width]}
    for form, label in expected.items():
        batch = collated(form, encoder, scores=form != "labeled-pair")  # as `teleport mine` asks
        assert list(batch) == [*label, "query_texts", *columns[form]]
    assert [len(collated(form, encoder, scores=True)["label"][0]) for form in ("n-tuple", "triplet")] == [5, 2]
    batch = collated("labeled-list", CrossEncoderDataCollator(texts))
    assert [len(each) for each in batch["label"]] == [len(each) for each in batch["passages"]] == [6, 5, 5]
    with pytest.raises((AssertionError, ValueError)):
        collated("labeled-list", encoder)


def test_options_of_negatives_are_refused_for_another_stage(pool, tmp_path):
    with pytest.raises(Refusal, match="is a stage of kind"):
        export(pool[0].folder, tmp_path / "out", form="n-tuple")
    with pytest.raises(Refusal, match="triples .*only ids"):
        export(pool[1].folder, tmp_path / "out", form="triples", scores=True)
    assert not (tmp_path / "out").exists()


def test_an_export_without_any_query_is_refused(pool, world, tmp_path):
    merged = world.merge(pool[0], {"query": 1}, {"query": world.retrieval([[0], [2], [3]])})
    named(merged, {"collection": pool[0]})
    with pytest.raises(Refusal, match="no query"):
        collection = Artefact(pool[0].folder)
        export_pool(Artefact(merged.folder), collection, collection, tmp_path, Wanted())


WRONG = [
    ("pos-neg", '{"query": "who?", "pos": ["x"]}', "line 1: 'neg' is missing"),
    ("pos-neg", '{"query": "who?", "pos": [], "neg": ["a"], "neg_scores": []}', "line 1: 1 passages"),
    ("pos-neg", '{"query": "who?", "pos": [], "neg": ["text 3"], "neg_scores": ["high"]}', "line 1: the score 'high'"),
    ("n-tuple", '{"query": "who?", "positive": "x"}', "line 1: columns are query, positive,"),
    ("n-tuple", '{"query": "who?", "positive": "x", "negative_1": 5}', "line 1: a passage is not a text"),
    ("triplet", '{"query": "who?", "positive": "x"}', "line 1: columns are query, positive,"),
    ("triplet", '{"anchor": "who?", "negative": "text 4", "positive": "x"}', "line 1: columns are anchor, negative"),
    ("triplet", '{"positive": "x", "query": "who?", "negative": "text 4"}', "line 1: columns are positive, query"),
    ("n-tuple", '{"negative_1": "text 4", "positive": "x", "query": "who?"}', "line 1: columns are negative_1"),
    ("labeled-pair", '{"label": 0, "passage": "text 4", "query": "who?"}', "line 1: columns are label, passage, query"),
    ("labeled-list", '{"query": "who?", "passages": ["x", "y"], "labels": [1, 0.2]}', "line 1: the label 0.2 is not"),
    ("labeled-list", '{"query": "who?", "passages": ["x", "y"], "labels": [1, "0"]}', "line 1: the label '0' is not"),
    ("labeled-pair", '{"query": "who?", "passage": "x", "label": 3}', "line 1: columns are"),
    ("labeled-list", '{"query": "who?", "passages": ["x"], "labels": [1, 0]}', "line 1: the first columns"),
    ("labeled-list", '{"query": "?", "passages": ["x"], "labels": [1], "ranks": 3}', "line 1: 1 passages.*ranks"),
    ("labeled-list", '{"query": "?", "passages": ["x"], "labels": [1], "sources": []}', "line 1: 1 passages.*sources"),
    ("nemo", '{"question_id": "a", "question": "?", "pos_doc": [], "neg_doc": [{}]}', "line 1: a passage has neither"),
    ("nemo", '{"question_id": ["a"], "question": "?", "pos_doc": [], "neg_doc": ["x"]}', r"line 1: .*\['a'\]"),
    ("nemo", '{"question_id": true, "question": "?", "pos_doc": [], "neg_doc": ["x"]}', "line 1: .*'True'"),
    ("tevatron", '{"query_id": "a", "negative_passages": [{"whole": 5}]}', "line 1: a negative passage"),
    ("origin", '{"query_id": "a", "positives": []}', "line 1: 'negatives' is missing"),
    ("origin", '{"query_id": "a", "positives": [], "negatives": [{"docid": "d99"}]}', "line 1: passage 'd99'"),
    ("triples", "a\td1\n", "line 1: column count 2"),
    ("triples", "a\td1\td99\n", "line 1: passage 'd99'"),
    ("triplet", '{"query": "nobody asks", "positive": "x", "negative": "y"}', "none of its 1 queries"),
    ("triplet", '{"query": "who?", "positive": "x", "negative": "y"}', "none of its negatives"),
    ("pos-neg", '{"query": "who?", "pos": ["x"], "neg": ["x"], "pos_scores": ["high"]}', "line 1: the score 'high'"),
]  # fmt: skip


WRONG_ORIGINS = [
    ({"rank": -1}, "line 1: the rank -1 .*remove"),
    ({"rank": 2**31}, "line 1: the rank 2147483648 .*remove"),
    ({"episode": 256}, "line 1: the episode 256 .*remove"),
    ({"episode": True}, "line 1: the episode True .*remove"),
    ({"source": 5}, "line 1: the source 5 .*remove"),
]
WRONG += [
    ("tevatron", json.dumps({"query_id": "a", "negative_passages": [{"docid": "d4"} | origin]}), message)
    for origin, message in WRONG_ORIGINS
]


@pytest.mark.parametrize(("form", "text", "message"), WRONG)
def test_a_wrong_line_is_named(world, pool, tmp_path, form, text, message):
    (tmp_path / "in.jsonl").write_text(text.rstrip("\n") + "\n")
    with pytest.raises(Refusal, match=message) as caught:
        read_back(world, pool, form, tmp_path / "in.jsonl")
    assert "in.jsonl" in str(caught.value)


def test_an_id_that_is_a_number_is_its_text(world, tmp_path):
    """0, too."""
    assert [forms.nemo_id("in, line 1", given) for given in (7, "7", None)] == ["7", "7", None]
    collection = world.collection(["0"], [(0, 1, 1)], doc_id=["0", "1", "2"], title=[""] * 3, text=["x", "y", "z"])
    passages = [
        {"id": 0},
        {"id": 0, "text": "as another tool cut it"},
        {"id": "", "text": "z"},
        {"id": None, "text": "z"},
    ]
    record = {"question_id": 0, "question": "?", "pos_doc": [{"id": 1}], "neg_doc": passages}
    (tmp_path / "in").write_text(json.dumps(record) + "\n")
    assert read_back(world, [collection], "nemo", tmp_path / "in")[0].ids.tolist() == [[0, 0, 2, 2]]
    lists = {"positives": [], "negatives": [{"docid": 2}], "negative_passages": [{"docid": 2}]}
    for form in ("tevatron", "origin"):
        (tmp_path / form).write_text(json.dumps({"query_id": 0} | lists) + "\n")
        assert read_back(world, [collection], form, tmp_path / form)[0].ids.tolist() == [[2]]


def test_more_sources_than_a_pool_has_are_none_of_it(world, pool, tmp_path, caplog):
    """Such as an address for each passage, which another tool has written under this key."""
    lines = [{"query_id": "a", "negative_passages": [{"docid": "d4", "source": "+".join("ABCDEFGHIJKLMNOP")}]}] * 2
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read_back(world, pool, "tevatron", tmp_path / "in.jsonl")
    assert "names more than 15 sources" in caplog.text


def test_rows_of_one_query_are_one_list_and_several_positives_make_several(world, pool, tmp_path):
    """Triplets of sentence-transformers repeat the negatives for each positive."""
    rows = [("who?", "text 0", "text 6"), ("who?", "text 0", "T4 text 4"), ("who?", "Ü text 1", "text 6")]
    lines = [json.dumps(dict(zip(("anchor", "answer", "negative"), row, strict=True))) for row in rows]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    run, facts, _ = read_back(world, pool, "triplet", tmp_path / "in")
    assert run.rows.tolist() == [0, 0] and run.ids.tolist() == [[6, 4], [6, -1]] and facts["lines"] == 2
