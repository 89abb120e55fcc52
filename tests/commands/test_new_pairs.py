"""`teleport new` of pairs, in every form that people have them in: one collection whatever the form, and one sentence
for what is wrong in it."""

import csv
import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collection_world import random_passages, write_dataset
from commands.new import UNSPACED_SCRIPT, new, script_of
from commands.pairs import columns, texts
from teleport.collection.equal import digest_of
from teleport.negatives.forms import FORMS as FORMS_OF_NEGATIVES
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.settings.read import load
from untouched import contents, untouched

PAIRS = 60


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """[(question, passage, negative)] with what tables break at: tabs, line breaks, quotes, commas."""
    monkeypatch.chdir(tmp_path)
    words = [" ".join(each) for each in random_passages(np.random.default_rng(5), 3 * PAIRS, 5, 12)]
    rows = list(zip(words[:PAIRS], words[PAIRS : 2 * PAIRS], words[2 * PAIRS :], strict=True))
    rows[3] = (rows[3][0], 'a "quoted", text;\nof two lines\tand a tab', rows[3][2])
    rows[4] = ("Was heißt Öl?", "Öl heißt oil — 油", rows[4][2])
    return rows


def write_jsonl(path, records):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def records_of(pairs, question="query", passage="positive"):
    return [{question: one, passage: other} for one, other, _ in pairs]


def in_jsonl(folder, pairs):
    write_jsonl(folder / "pairs.jsonl", records_of(pairs))


def in_other_keys(folder, pairs):
    rows = [{"id": i, "Question": q, "Context": p, "answers": "x"} for i, (q, p, _) in enumerate(pairs)]
    write_jsonl(folder / "pairs.jsonl", rows)


def in_keys_by_order(folder, pairs):
    write_jsonl(folder / "pairs.jsonl", records_of(pairs, "headline", "story"))


def in_a_list(folder, pairs):
    folder.mkdir()
    (folder / "pairs.json").write_text(json.dumps(records_of(pairs, "anchor", "document"), indent=1))


def in_a_list_of_windows(folder, pairs):
    folder.mkdir()
    (folder / "PAIRS.JSON").write_text(json.dumps(records_of(pairs)), encoding="utf-8-sig")


def in_csv(folder, pairs):
    folder.mkdir()
    with open(folder / "PAIRS.CSV", "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("Query", "Answer"), *(row[:2] for row in pairs)])


def in_csv_with_spaces(folder, pairs):
    folder.mkdir()
    rows = [["Query", "Answer"], *(row[:2] for row in pairs)]
    lines = [", ".join('"' + field.replace('"', '""') + '"' for field in row) for row in rows]
    (folder / "pairs.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def in_csv_of_semicolons(folder, pairs):
    folder.mkdir()
    with gzip.open(folder / "pairs.csv.gz", "wt", newline="", encoding="utf-8") as file:
        file.write("\n")
        header = ("id, as a number, of this table", "question", "text")
        csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL).writerows([header, *((1, *row[:2]) for row in pairs)])


def in_parquet(folder, pairs):
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(records_of(pairs)), folder / "pairs.parquet", row_group_size=7)


def in_parquet_of_the_hub(folder, pairs):
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("# A data set\n")
    for number, part in enumerate((pairs[:40], pairs[40:])):
        table = pa.Table.from_pylist(records_of(part, "anchor"))
        pq.write_table(table, folder / f"data/train-{number:05}-of-00002.parquet")


def in_a_dataset(folder, pairs):
    write_dataset(folder, pa.Table.from_pylist(records_of(pairs, "anchor")))


FORMS = [in_jsonl, in_other_keys, in_keys_by_order, in_a_list, in_a_list_of_windows, in_csv, in_csv_with_spaces]
FORMS += [in_csv_of_semicolons, in_parquet, in_parquet_of_the_hub, in_a_dataset]


def collection_of(name="mine"):
    """(corpus, queries, {split: {question's text: {passage's text: grade}}}) that `new` wrote."""
    home = Path(f"data/{name}-divided")
    read = lambda path: {r["_id"]: r for r in map(json.loads, path.read_text().splitlines())}  # noqa: E731
    corpus, queries = read(home / "corpus.jsonl"), read(home / "queries.jsonl")
    splits = {}
    for path in home.glob("qrels/*.tsv"):
        judged = splits[path.stem] = {}
        for line in path.read_text().splitlines()[1:]:
            question, passage, grade = line.split("\t")
            judged.setdefault(queries[question]["text"], {})[corpus[passage]["text"]] = int(grade)
    return corpus, queries, splits


@pytest.mark.parametrize("form", FORMS)
def test_every_form_becomes_the_same_collection(tmp_path, pairs, form):
    form(tmp_path / "given", pairs)
    with untouched(tmp_path / "given"):
        path, said = new("mine", tmp_path / "given")
    corpus, queries, splits = collection_of()
    assert [each["text"] for each in corpus.values()] == [row[1] for row in pairs]
    assert all(docid == f"{digest_of(each['text']):016x}" for docid, each in corpus.items())
    assert [each["text"] for each in queries.values()] == [row[0] for row in pairs]
    judged = {question: grades for split in splits.values() for question, grades in split.items()}
    assert judged == {question: {passage: 1} for question, passage, _ in pairs}
    assert sorted(splits) == ["dev", "test", "train"] and sum(map(len, splits.values())) == PAIRS
    assert said[0].startswith("60 passages, ") and f"{len(splits['train'])} queries for train" in said[0]
    (paragraph,) = [line for line in said if "is the question" in line]
    assert str(tmp_path / "given") in paragraph and "Words of a question: " in paragraph
    plan = Plan.of_files([path])
    assert any(stage.kind == "train" for stage in plan.stages.values())


def test_a_file_is_taken_alone_and_a_question_keeps_its_split_when_others_come(tmp_path, pairs):
    write_jsonl(tmp_path / "given/some.jsonl", records_of(pairs[: PAIRS // 2]))
    write_jsonl(tmp_path / "given/all.jsonl", records_of(pairs[::-1]))
    new("some", tmp_path / "given/some.jsonl")
    new("all", tmp_path / "given/all.jsonl")
    some, others = collection_of("some")[2], collection_of("all")[2]
    assert all(some[split] and some[split].keys() <= others[split].keys() for split in ("train", "dev", "test"))
    raw = yaml.safe_load(Path("config/all.yaml").read_text())
    assert raw["collection"] == {"source": "beir", "path": "data/all-divided"}


def test_equal_texts_are_joined_and_what_is_repeated_counts_once(tmp_path, pairs):
    more = [(pairs[0][0].upper(), f"  {pairs[0][1].title()} ", ""), (pairs[0][0], pairs[1][1], "")]
    write_jsonl(tmp_path / "given/a.jsonl", records_of([*pairs, *more]))
    _, said = new("mine", tmp_path / "given")
    corpus, queries, splits = collection_of()
    assert len(corpus) == len(queries) == PAIRS
    (own,) = [split[pairs[0][0]] for split in splits.values() if pairs[0][0] in split]
    assert own == {pairs[0][1]: 1, pairs[1][1]: 1}
    assert any("Pairs that are repeated, and count once: 1." in line for line in said)


def test_splits_that_are_given_stay(tmp_path, pairs):
    parts = {"train": pairs[:40], "validation": pairs[40:50], "test": pairs[50:]}
    (tmp_path / "given").mkdir()
    for split, part in parts.items():
        write_dataset(tmp_path / "given" / split, pa.Table.from_pylist(records_of(part)))
    (tmp_path / "given/dataset_dict.json").write_text(json.dumps({"splits": list(parts)}))
    for split, part in parts.items():
        write_jsonl(tmp_path / f"files/{split}-2024.jsonl", records_of(part))
    for name, given in (("mine", "given"), ("other", "files")):
        path, _ = new(name, tmp_path / given)
        splits = collection_of(name)[2]
        assert {split: list(judged) for split, judged in splits.items()} == {
            split: [row[0] for row in part] for split, part in parts.items()
        }
        raw = yaml.safe_load(path.read_text())
        assert (raw["evaluation"]["splits"], raw["training"]["dev"]["split"]) == (["test"], "validation")


def test_a_file_that_is_called_a_test_set_is_not_divided(tmp_path, pairs):
    """As in a folder of it alone: nothing is trained. A file of `train` is divided."""
    for split in ("test", "train"):
        write_jsonl(tmp_path / f"given/{split}.jsonl", records_of(pairs))
        path, _ = new(split, tmp_path / f"given/{split}.jsonl")
        splits = collection_of(split)[2]
        assert sum(map(len, splits.values())) == PAIRS
        assert list(splits) == ["test"] if split == "test" else sorted(splits) == ["dev", "test", "train"]
        assert ("training" in yaml.safe_load(path.read_text())) == (split == "train")


def test_a_description_beside_tables_makes_no_saved_dataset(tmp_path, pairs):
    for split, part in {"train": pairs[:40], "test": pairs[40:]}.items():
        write_jsonl(tmp_path / f"given/{split}.jsonl", records_of(part))
    (tmp_path / "given/dataset_info.json").write_text("{}")
    new("mine", tmp_path / "given")
    assert len(collection_of()[2]["test"]) == 20


def test_a_table_without_training_takes_one_line(tmp_path, pairs):
    """The one that docs/own-data.md names. The file says of every form of collection what it is."""
    write_jsonl(tmp_path / "given/train.jsonl", records_of(pairs))
    path, _ = new("mine", tmp_path / "given")
    text = path.read_text()
    assert sorted(collection_of()[2]) == ["dev", "test", "train"], "of a folder with train alone"
    assert "# `source` is `folder`, `beir`, or `tsv`" in text and "source: beir" in text
    path.write_text(re.sub(r"^episodes:\n(  .*\n)+", "episodes: []\n", text, flags=re.MULTILINE))
    before, after = ({stage.kind for stage in plan.stages.values()} for plan in map(planned, (text, path.read_text())))
    assert before - after >= {"train", "merge"} and {"bm25", "evaluate"} <= after


def planned(text):
    return Plan(*load(yaml.safe_load(text)))


def triplets(pairs):
    return [{"anchor": q, "positive": p, "negative": n} for q, p, n in pairs], (None, None)


def scored_triplets(pairs):
    keys = {"positive_score": 0.9, "negative_score": 0.5}
    return [{"query": q, "positive": p, "negative": n} | keys for q, p, n in pairs], (0.9, 0.5)


def numbered(pairs):
    """As sentence-transformers mines them: the scores of the positive and of the negatives in one list."""
    rows = [
        {"query": q, "positive": p, "negative_1": n, "negative_2": f"{n} too", "score": [0.9, 0.5, 0.25]}
        for q, p, n in pairs
    ]
    return rows, (0.9, 0.5)


def margins(pairs):
    """As sentence-transformers' MarginMSELoss takes them: how much more a teacher gives the positive."""
    return [{"query": q, "positive": p, "negative": n, "score": 0.25} for q, p, n in pairs], (0.0, -0.25)


def several_margins(pairs):
    keys = {"scores": [0.25, 0.5]}
    return [{"query": q, "positive": p, "negative_1": n, "negative_2": f"{n} too"} | keys for q, p, n in pairs], (
        0.0,
        -0.25,
    )


def flag(pairs):
    rows = [
        {"query": q, "pos": [p], "neg": [n, f"{n} too"], "pos_scores": [0.9], "neg_scores": [0.5, 0.25], "prompt": "x"}
        for q, p, n in pairs
    ]
    return rows, (0.9, 0.5)


def scored(pairs):
    return [{"query": q, "pos": [p], "neg": [n, f"{n} too"], "scores": [0.5, 0.25]} for q, p, n in pairs], (None, 0.5)


def tevatron(pairs):
    one = lambda i, text: {"docid": f"d{i}", "title": "T", "text": text}  # noqa: E731
    rows = [
        {"query_id": i, "query": q, "positive_passages": [one(i, p)], "negative_passages": [one(f"n{i}", n)]}
        for i, (q, p, n) in enumerate(pairs)
    ]
    return rows, (None, None)


def nemo(pairs):
    one = lambda text, **score: {"id": f"{digest_of(text)}", "text": text} | score  # noqa: E731
    return [{"question": q, "pos_doc": [one(p)], "neg_doc": [one(n)]} for q, p, n in pairs], (None, None)


def dpr(pairs):
    one = lambda text: [{"title": "", "text": text, "passage_id": f"{digest_of(text)}"}]  # noqa: E731
    rows = [
        {"question": q, "answers": ["a"], "positive_ctxs": one(p), "negative_ctxs": [], "hard_negative_ctxs": one(n)}
        for q, p, n in pairs
    ]
    return rows, (None, None)


def swift(pairs):
    return [{"query": q, "response": p, "rejected_response": [n, f"{n} too"]} for q, p, n in pairs], (None, None)


def swift_messages(pairs):
    one = lambda text: [{"role": "user", "content": text}]  # noqa: E731
    rows = [
        {"messages": one(q), "positive_messages": [one(p)], "negative_messages": [one(n), one(f"{n} too")]}
        for q, p, n in pairs
    ]
    return rows, (None, None)


FORMS_WITH_NEGATIVES = [
    swift,
    swift_messages,
    nemo,
    dpr,
    triplets,
    scored_triplets,
    numbered,
    flag,
    scored,
    tevatron,
    margins,
    several_margins,
]


@pytest.mark.parametrize("form", FORMS_WITH_NEGATIVES)
def test_negatives_join_the_passages_and_keep_their_scores(tmp_path, pairs, form):
    rows, (of_positive, of_negative) = form(pairs)
    write_jsonl(tmp_path / "given/lists.jsonl", rows)
    path, said = new("mine", tmp_path / "given")
    corpus, queries, splits = collection_of()
    assert {row[1] for row in pairs} | {row[2] for row in pairs} <= {each["text"] for each in corpus.values()}
    assert all(grades == {p: 1} for q, p, _ in pairs for grades in [{**splits["train"], **splits["dev"],
                                                                   **splits["test"]}[q]])  # fmt: skip
    lines = [json.loads(line) for line in Path("data/mine-divided/negatives.jsonl").read_text().splitlines()]
    assert {queries[line["query_id"]]["text"] for line in lines} == set(splits["train"])
    for line in lines:
        ((question, positive, negative),) = [row for row in pairs if row[0] == queries[line["query_id"]]["text"]]
        assert corpus[line["positive_passages"][0]["docid"]]["text"] == positive
        assert corpus[line["negative_passages"][0]["docid"]]["text"] == negative
        assert line["positive_passages"][0].get("score") == of_positive
        assert line["negative_passages"][0].get("score") == of_negative
    if form is tevatron:
        assert corpus["d0"]["title"] == "T"
        assert {each: queries[each]["text"] for each in queries} == {str(i): q for i, (q, *_) in enumerate(pairs)}
        assert "; id of the question: 'query_id'." in " ".join(said)
        given = {mined.query_id for mined in FORMS_OF_NEGATIVES["tevatron"].read(tmp_path / "given/lists.jsonl")}
        assert given == set(queries), "so that negatives.file takes the very file"
    assert ("MarginMSELoss" in " ".join(said)) is (form in (margins, several_margins))
    (advice,) = [line for line in said if "negatives.jsonl: to train on them" in line]
    written = yaml.safe_load(path.read_text())
    assert "to the last entry of `episodes`" in advice
    entry = written["episodes"][-1]
    entry |= yaml.safe_load(advice.split("`")[1])
    teaches = of_positive is not None
    assert ("scores: file" in advice) is teaches
    if teaches:
        entry["training"] |= yaml.safe_load(advice.split("`")[-2])
    Path("advised.yaml").write_text(yaml.safe_dump(written))
    plan = Plan.of_files(["advised.yaml"])
    assert any(stage.kind == "negatives_file" for stage in plan.stages.values())
    taught = [stage for stage in plan.stages.values() if "scores.file" in stage.inputs]
    assert {stage.kind for stage in taught} == ({"train"} if teaches else set())


@pytest.mark.parametrize(
    ("change", "teaches"),
    [
        ({}, True),
        ({"pos_scores": None}, False),
        ({"neg_scores": None}, False),
        ({"pos": "text", "pos_scores": None, "neg_scores": None, "score": [1, 2]}, True),
    ],
)
def test_scores_teach_only_if_no_pair_lacks_one(tmp_path, pairs, change, teaches):
    """Not even of one question, though the first record decides what the columns are."""
    rows = flag(pairs)[0]
    for row in rows[1:]:
        row |= change
    write_jsonl(tmp_path / "given/lists.jsonl", [row | {"score": row.get("score")} for row in rows])
    said = " ".join(new("mine", tmp_path / "given")[1])
    assert "negatives.jsonl: to train on them" in said and len(collection_of()[2]["train"]) > 1
    assert ("scores: file" in said) is teaches


def written_scores():
    """{question: ({positive: score or None}, {negative: score or None})} of negatives.jsonl, by texts."""
    corpus, queries, _ = collection_of()
    lines = [json.loads(line) for line in Path("data/mine-divided/negatives.jsonl").read_text().splitlines()]
    return {queries[line["query_id"]]["text"]: tuple(
        {corpus[passage["docid"]]["text"]: passage.get("score") for passage in line[f"{side}_passages"]}
        for side in ("positive", "negative")) for line in lines}  # fmt: skip


def with_margins(pairs, of_question):
    """Write a table of triplets with margins; returns what is said. of_question: [(positive, negative, margin)] of each
    question, by the numbers of texts of its own"""
    rows = [{"query": q, "positive": f"{p} {one}", "negative": f"{n} {other}", "score": margin}
            for q, p, n in pairs for one, other, margin in of_question]  # fmt: skip
    write_jsonl(Path("given/triplets.jsonl"), rows)
    return " ".join(new("mine", Path("given"))[1])


def test_margins_of_several_positives_are_differences_of_one_teachers_scores(pairs):
    """By every pair of passages, although the only margin that links the last positive comes last."""
    teacher = {("p", n): score for n, score in enumerate((9.5, 4.0, 7.25))}
    teacher |= {("n", n): score for n, score in enumerate((3.0, 8.0, -1.5, 0.5))}
    given = [(0, 0), (2, 3), (2, 2), (1, 0), (0, 1), (1, 2)]
    said = with_margins(pairs, [(one, other, teacher["p", one] - teacher["n", other]) for one, other in given])
    assert (written := written_scores()) and "scores: file" in said and "contradict" not in said
    for question, positive, negative in [row for row in pairs if row[0] in written]:
        scores = {name: score for side in written[question] for name, score in side.items()}
        names = {("p", n): f"{positive} {n}" for n in range(3)} | {("n", n): f"{negative} {n}" for n in range(4)}
        assert scores == {names[key]: score - teacher["p", 0] for key, score in teacher.items()}


def test_a_positive_that_no_margin_compares_with_the_first_has_no_score(pairs):
    said = with_margins(pairs, [(0, 0, 2.0), (1, 1, 5.0)])
    assert (written := written_scores()) and "scores: file" not in said
    assert f"no margin links with that positive, so without a score: {2 * len(written)}." in said
    for positives, negatives in written.values():
        assert (list(positives.values()), list(negatives.values())) == ([0.0, None], [-2.0, None])


def test_margins_that_contradict_each_other_are_counted_and_teach_nothing(pairs):
    said = with_margins(pairs, [(0, 0, 2.0), (1, 0, 1.0), (0, 1, 2.0), (1, 1, 1.0004), (0, 0, 2.5)])
    assert (written := written_scores()) and "scores: file" not in said
    assert f"contradict others of their question, and do not count: {len(written)}." in said, "a rounded one does not"


@pytest.mark.parametrize(("beside", "margins"), [({"positive_score": 0.9, "negative_score": 0.5}, False),
                                                 ({"positive_score": 0.75}, True)])  # fmt: skip
def test_margins_beside_scores_are_on_their_scale(pairs, tmp_path, beside, margins):
    rows = [{"query": q, "positive": p, "negative": n, "score": 0.25} | beside for q, p, n in pairs]
    write_jsonl(tmp_path / "given/triplets.jsonl", rows)
    said = " ".join(new("mine", tmp_path / "given")[1])
    assert "scores: file" in said and ("Margins became" in said) is ("MarginMSELoss" in said) is margins
    assert {(*p.values(), *n.values()) for p, n in written_scores().values()} == {(beside["positive_score"], 0.5)}


@pytest.mark.parametrize("labels", ["pairs", "lists"])
def test_labels_are_grades(tmp_path, pairs, labels):
    if labels == "pairs":
        rows = [{"query": q, "passage": t, "label": g} for q, p, n in pairs for t, g in ((p, 2.0), (n, 0))]
    else:
        rows = [{"query": q, "docs": [p, n], "labels": [2, 0]} for q, p, n in pairs]
    nothing = {"lists": {"docs": ["x", "y"], "labels": [0, 0]}, "pairs": {"passage": "x", "label": 0}}[labels]
    write_jsonl(tmp_path / "given/labels.jsonl", [*rows, {"query": "nothing for me"} | nothing])
    _, said = new("mine", tmp_path / "given")
    splits = collection_of()[2]
    assert {q: g for split in splits.values() for q, g in split.items()} == {q: {p: 2, n: 0} for q, p, n in pairs}
    assert "Questions without a passage of a grade above 0, which are left out: 1." in " ".join(said)


def test_texts_are_cut_into_passages_and_an_answer_says_which_of_them_counts(tmp_path, pairs):
    given = tmp_path / "given"
    given.mkdir()
    for number, (_, first, second) in enumerate(pairs):
        filler = " ".join(["word"] * (texts.WORDS - 5))
        (given / f"t{number}.{'txt' if number % 2 else 'TXT'}").write_text(f"{first}\n\n{filler}\n\n{second}\n")
    rows = [
        {"question": q, "file": f"t{i}.{'txt' if i % 2 else 'TXT'}"} | ({"answer": n.upper()} if i else {})
        for i, (q, _, n) in enumerate(pairs)
    ]
    write_jsonl(given / "questions.jsonl", rows)
    with untouched(given):
        _, said = new("mine", given)
    corpus, _, splits = collection_of()
    judged = {q: g for split in splits.values() for q, g in split.items()}
    assert all(n in " ".join(judged[q]) for q, _, n in pairs)
    assert all(len(judged[q]) == 1 for q, *_ in pairs[1:]) and len(judged[pairs[0][0]]) == 3
    assert max(len(each["text"].split()) for each in corpus.values()) <= texts.WORDS
    assert {each["title"] for each in corpus.values()} == {f"t{number}" for number in range(PAIRS)}
    assert "Texts cut into passages of at most 150 words: 60." in " ".join(said)


def test_an_accent_beside_its_letter_is_the_same_name(tmp_path, pairs):
    write_jsonl(tmp_path / "given/q.jsonl", [{"question": q, "file": "u\u0308.txt"} for q, *_ in pairs])
    (tmp_path / "given/\u00fc.txt").write_text("text of a file")
    new("mine", tmp_path / "given")
    assert [each["text"] for each in collection_of()[0].values()] == ["text of a file"]


def test_a_name_that_two_texts_have_is_refused_without_its_folder(tmp_path):
    passages = {f"{fruit}/index.md": [texts.Passage(None, fruit, f"{fruit} are red.")] for fruit in ("apples", "plums")}
    rows = [
        ("line 1", {"question": "red?", "file": "index.md"}),
        ("line 2", {"question": "?", "file": "plums/index.md"}),
    ]
    faults = []
    (example,) = texts.examples(tmp_path / "q.jsonl", rows, passages, lambda *fault: faults.append(fault))
    assert example.passages[0].title == "plums"
    ((place, said),) = faults
    assert place == "line 1" and "apples/index.md and plums/index.md have this name" in str(said)


def test_a_long_paragraph_is_cut_between_words_and_no_word_is_lost():
    text = "\r\n\r\n".join(["a b c", " ".join(map(str, range(400))), "d", "", "e f"])
    assert " ".join(texts.chunks(text)).split() == text.split()
    assert max(len(chunk.split()) for chunk in texts.chunks(text)) == texts.WORDS
    assert texts.chunks(" \n\n ") == []


def test_characters_count_as_words_where_these_have_no_spaces():
    text = "\n\n".join("图书馆在北京，猫在桌子上睡觉。" * 11 + str(number) for number in range(3))
    assert "".join(texts.chunks(text)) == text.replace("\n", "")
    assert [len(chunk) for chunk in texts.chunks(text)] == [texts.WORDS, 16] * 3
    halves = [texts.Passage(None, "", chunk) for chunk in texts.chunks(text)[:2]]
    assert texts.holding(halves, halves[0].text[-20:] + halves[1].text) == halves


def test_texts_are_looked_for_only_where_a_record_names_one(tmp_path, monkeypatch):
    """Beside pairs whose key is `document` there may be a home folder."""
    monkeypatch.setattr(texts, "texts_below", None)
    assert not texts.names_text({"question": "what?", "document": "A text that is no name."}, tmp_path)


def one(**record):
    return lambda folder, rows: write_jsonl(folder / "a.jsonl", [*rows[:4], record, *rows[4:]])


def raw(name, text):
    return lambda folder, rows: (folder.mkdir(), (folder / name).write_bytes(text))


def typed(folder, rows):
    folder.mkdir()
    pq.write_table(pa.table({"query": ["a"], "positive": [1]}), folder / "a.parquet")


def null(folder, rows):
    folder.mkdir()
    pq.write_table(pa.table({"query": ["a", "b", None], "positive": ["1", "2", "3"]}), folder / "a.parquet")


def no_utf8(write):
    """As a program writes it that does not check its texts."""
    queries = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers())
    return lambda folder, rows: write(folder, pa.table({"query": queries, "positive": ["1", "2"]}))


def with_a_late_date(write):
    """In a column that nothing reads: the year 38,503."""
    dates = pa.array([2**60] * 2, pa.timestamp("us"))
    return lambda folder, rows: write(folder, pa.table({"query": ["a", "b"], "positive": ["1", "2"], "seen": dates}))


def in_one_parquet(folder, table):
    folder.mkdir()
    pq.write_table(table, folder / "a.parquet")


def in_test_alone(folder, rows):
    write_jsonl(folder / "train.jsonl", [row | {"label": 1} for row in rows])
    write_jsonl(folder / "test.jsonl", [row | {"label": 0} for row in rows])


def torn(name):
    def write(folder, rows):
        write_dataset(folder, pa.Table.from_pylist(rows))
        (folder / name).write_bytes((folder / name).read_bytes()[:-200] if name.endswith("arrow") else b"{")

    return write


def without(name):
    def write(folder, rows):
        write_dataset(folder, pa.Table.from_pylist(rows))
        (folder / name).unlink()

    return write


def split_missing(folder, rows):
    folder.mkdir()
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')


def outside(folder, rows):
    write_dataset(folder, pa.Table.from_pylist(rows))
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../pairs.arrow"}]}')


def ids_collide(folder, rows):
    passages = [[{"docid": f"d{number % 59}", "text": row["positive"]}] for number, row in enumerate(rows)]
    write_jsonl(folder / "a.jsonl", [{"query": r["query"], "pos": p} for r, p in zip(rows, passages, strict=True)])


def texts_alone(folder, rows):
    folder.mkdir()
    (folder / "a.txt").write_text("text")


def questions(line):
    def write(folder, rows):
        write_jsonl(folder / "q.jsonl", [{"question": "what?", "file": "a.txt"}, line])
        (folder / "a.txt").write_text("text of a file")

    return write


def misspelt_first(folder, rows):
    """In the first line, by which a table is told: without texts, the answers would be the passages."""
    lines = [{"question": f"what {number}?", "file": "a.txt", "answer": "text of"} for number in range(9)]
    write_jsonl(folder / "q.jsonl", [lines[0] | {"file": "A.txt"}, *lines[1:]])
    (folder / "a.txt").write_text("text of a file")


def half_named(folder, rows):
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "more.jsonl", rows)


MANY = ["n"] * (columns.MOST_NEGATIVES + 1)
BAD = {
    "a passage without text": (one(query="q", positive="  "), ["a.jsonl, line 5", "'positive' is empty"]),
    "a question without text": (one(query="", positive="p"), ["a.jsonl, line 5", "'query' is empty"]),
    "no passage": (one(query="q", positive=[]), ["a.jsonl, line 5", "'positive'"]),
    "other keys": (one(question="q", positive="p"), ["a.jsonl, line 5", "'query' is missing", "'question'"]),
    "more keys": (one(query="q", positive="p", negative="n"), ["a.jsonl, line 5", "'negative'"]),
    "more keys after as many that are not used": (
        raw(
            "a.jsonl",
            b'{"query": "q", "positive": "p", "a": 1, "b": 2}\n{"query": "q", "positive": "p", "a": 1, "b": 2, '
            b'"c": 3, "negative": "n"}',
        ),
        ["a.jsonl, line 2", "'negative'"],
    ),
    "a number": (one(query="q", positive=3), ["a.jsonl, line 5", "'positive' is 3 (int)"]),
    "an object without text": (one(query="q", positive=[{"id": 3}]), ["line 5", "'positive' has an object", "'id'"]),
    "half of a surrogate pair": (
        raw("a.jsonl", b'{"query": "q", "positive": "\\ud800"}'),
        ["a.jsonl, line 1", "'positive'"],
    ),
    "half of a surrogate pair in an id": (
        raw("a.jsonl", b'{"query": "q", "pos": [{"docid": "\\ud800", "text": "p"}]}'),
        ["a.jsonl, line 1", "'pos'", "surrogate"],
    ),
    "no JSON": (raw("a.jsonl", b'{"query": "q", "positive": "p"}\n{"query"'), ["a.jsonl, line 2: not a JSON"]),
    "not an object": (raw("a.jsonl", b'{"query": "q", "positive": "p"}\n[1]'), ["a.jsonl, line 2: a list"]),
    "a first line that is a list": (
        raw("a.jsonl", b'["q", "p"]'),
        ["a.jsonl, line 1: a list", '{"query": ', '"passage"'],
    ),
    "no JSON list": (raw("a.json", b'[{"query": "q"'), ["a.json: not JSON"]),
    "not UTF-8": (raw("a.jsonl", b'{"query": "\xe4"}'), ["a.jsonl, line 1: byte 0xe4"]),
    "nothing": (raw("a.jsonl", b""), ["a.jsonl: no record"]),
    "unknown keys": (raw("a.jsonl", b'{"a": "q", "b": 3}'), ["a.jsonl, line 1", "'a', 'b'", "question", "passage"]),
    "an id and a text": (
        raw("queries.jsonl", b'{"_id": "q1", "text": "q"}'),
        ["queries.jsonl, line 1", "question", "'_id', 'text'", "--question"],
    ),
    "two ids": (
        raw("a.jsonl", b'{"query-id": "q1", "corpus-id": "d1"}'),
        ["a.jsonl, line 1", "'query-id', 'corpus-id'"],
    ),
    "three texts without names": (raw("a.jsonl", b'{"a": "q", "b": "p", "c": "d"}'), ["line 1", "'a', 'b', 'c'"]),
    "no known header": (raw("a.csv", b"first question,its passage\nq,p"), ["a.csv, line 1", "'first question'"]),
    "a header that is empty": (raw("a.csv", b"query,,\nq,p,p"), ["a.csv, line 1", "''"]),
    "a column too many": (raw("a.csv", b"query,passage\nq,p\nq,p,p"), ["a.csv, line 3: 3 fields"]),
    "an open quote": (raw("a.csv", b'query,passage\nq,p\nq,"p\nq,p'), ["a.csv, line 3: not CSV"]),
    "a tab inside": (raw("a.tsv", b"query\tpassage\nq\tp\nq\tp\tp"), ["a.tsv, line 3: 3 fields"]),
    "a label between": (raw("a.csv", b"query,passage,label\nq,p,1\nq,p,0.5"), ["a.csv, line 3", "'label' is \"0.5\""]),
    "labels of other length": (
        raw("a.jsonl", b'{"query": "q", "docs": ["a", "b"], "labels": [1]}'),
        ["a.jsonl, line 1", "'labels' has 1 values and 'docs' 2"],
    ),
    "scores of other length": (
        raw("a.jsonl", b'{"query": "q", "pos": ["a"], "neg": ["b", "c"], "scores": [1]}'),
        ["a.jsonl, line 1", "'scores' has 1 scores for 1 passages and 2 negatives"],
    ),
    "a score that no float holds": (
        raw("a.jsonl", b'{"query": "q", "pos": ["a"], "neg": ["b"], "neg_scores": [1' + b"0" * 400 + b"]}"),
        ["a.jsonl, line 1", "'neg_scores' is 1"],
    ),
    "a score that is none": (
        raw("a.jsonl", b'{"query": "q", "pos": ["a"], "neg": ["b"], "neg_scores": [NaN]}'),
        ["a.jsonl, line 1", "'neg_scores' is NaN"],
    ),
    "a corpus as negatives": (
        raw("a.jsonl", json.dumps({"query": "q", "pos": ["p"], "neg": MANY}).encode()),
        ["a.jsonl, line 1", "'neg' has 10001 negatives"],
    ),
    "an id of two texts": (ids_collide, ["a.jsonl", "line 60", "'d0'"]),
    "an id of two questions": (
        raw("a.jsonl", b'{"query": "q", "pos": "p", "qid": 7}\n{"query": "r", "pos": "p", "qid": "7"}'),
        ["a.jsonl, line 2", "the id '7' had another text earlier", "remove the ids"],
    ),
    "an id of a question with a space": (
        raw("a.jsonl", b'{"query": "q", "pos": "p", "qid": 7}\n{"query": "r", "pos": "p", "qid": "a b"}'),
        ["a.jsonl, line 2", "'qid' has the id 'a b'"],
    ),
    "an id with a space": (
        raw("a.jsonl", b'{"query": "q", "pos": [{"docid": "d 1", "text": "p"}]}'),
        ["a.jsonl, line 1", "'pos' has the id 'd 1'"],
    ),
    "Parquet of numbers": (typed, ["a.parquet", "row 1", "'positive' is 1 (int)"]),
    "Parquet with a null": (null, ["a.parquet", "row 3", "'query' is null"]),
    "Parquet that is not UTF-8": (no_utf8(in_one_parquet), ["a.parquet", "byte 0xff"]),
    "a dataset that is not UTF-8": (no_utf8(write_dataset), ["data-00001-of-00002.arrow", "byte 0xff"]),
    "Parquet with a late date": (with_a_late_date(in_one_parquet), ["a.parquet", "date value out of range"]),
    "a dataset with a late date": (with_a_late_date(write_dataset), ["data-00000-of-00002.arrow", "out of range"]),
    "no Parquet": (raw("a.parquet", b"PAR1 not"), ["a.parquet: not a Parquet file"]),
    "a dataset without a file": (without("data-00001-of-00002.arrow"), ["data-00001-of-00002.arrow", "state.json"]),
    "a dataset without its state": (without("state.json"), ["state.json: no such file"]),
    "a dataset cut": (torn("data-00000-of-00002.arrow"), ["data-00000-of-00002.arrow: not a file of Arrow's"]),
    "a dataset with a broken state": (torn("state.json"), ["state.json: '_data_files' cannot be read"]),
    "a dataset without a split": (split_missing, ["train: no such folder", "dataset_dict.json"]),
    "a dataset that names a file elsewhere": (outside, ["../pairs.arrow: no such file", "state.json"]),
    "texts without questions": (texts_alone, ["no table of questions", "questions.jsonl"]),
    "a text that is not there": (questions({"question": "q", "file": "b.txt"}), ["q.jsonl, line 2", "'file'", "b.txt"]),
    "a text misspelt in the first line": (misspelt_first, ["q.jsonl, line 1", "'file' is 'A.txt'", "no such file"]),
    "no grade above 0": (
        raw("a.jsonl", b'{"query": "q", "passage": "p", "label": 0}'),
        ["a.jsonl: no question has a passage of a grade above 0"],
    ),
    "no grade above 0 in a split": (in_test_alone, ["test.jsonl: no question has a passage of a grade above 0"]),
    "an answer that is nowhere": (
        questions({"question": "q", "file": "a.txt", "answer": "x y"}),
        ["q.jsonl, line 2", "'answer' is not in a.txt"],
    ),
    "an answer that is a number": (
        questions({"question": "q", "file": "a.txt", "answer": 0}),
        ["q.jsonl, line 2", "'answer' is 0 (int)"],
    ),
    "one file with a split and one without": (half_named, ["train.jsonl, a split's file, and more.jsonl"]),
    "too few": (one(query="q", positive="p"), ["has 5 judged queries, too few for train, test, dev", "dev.jsonl"]),
}


@pytest.mark.parametrize("names", [("query_id", "pid"), ("Query-ID", "Passage ID"), ("qid", "corpus-id")])
def test_questions_and_passages_keep_the_ids_of_their_columns(tmp_path, pairs, names):
    of_question, of_passage = names
    rows = [{of_question: f"q{i}", of_passage: i, "query": q, "text": p} for i, (q, p, _) in enumerate(pairs)]
    rows.append(rows[0] | {of_question: "again", of_passage: "again"})  # the first id of a text counts
    rows.append({of_question: None, of_passage: None, "query": "without an id", "text": "one without an id"})
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    _, said = new("mine", tmp_path / "given")
    corpus, queries, splits = collection_of()
    digests = [f"{digest_of(text):016x}" for text in ("without an id", "one without an id")]
    assert list(queries) == [*(f"q{i}" for i in range(PAIRS)), digests[0]]
    assert list(corpus) == [*map(str, range(PAIRS)), digests[1]]
    assert sum(map(len, splits.values())) == PAIRS + 1
    assert f"(by name); id of the question: '{of_question}'; id of the passage: '{of_passage}'." in " ".join(said)


def test_passages_of_one_document_keep_no_id_of_it(tmp_path, pairs):
    rows = [{"query": q, "positive": p, "doc_id": "the same"} for q, p, _ in pairs]
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    _, said = new("mine", tmp_path / "given")
    assert "; not used: 'doc_id'." in " ".join(said) and len(collection_of()[0]) == PAIRS


def test_a_column_without_ids_is_not_used(tmp_path, pairs):
    rows = [{"query": q, "positive": p, "qid": [1], "pid": i} for i, (q, p, _) in enumerate(pairs)]
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    _, said = new("mine", tmp_path / "given")
    assert "; id of the passage: 'pid'; not used: 'qid'." in " ".join(said)
    assert all(each == f"{digest_of(query['text']):016x}" for each, query in collection_of()[1].items())


def test_a_question_about_a_text_keeps_its_id(tmp_path, pairs):
    write_jsonl(
        tmp_path / "given/q.jsonl", [{"qid": i, "question": q, "file": "a.txt"} for i, (q, *_) in enumerate(pairs)]
    )
    (tmp_path / "given/a.txt").write_text("text of a file")
    new("mine", tmp_path / "given")
    assert list(collection_of()[1]) == [str(i) for i in range(PAIRS)]


def test_four_pairs_are_too_few_to_train_on_and_a_short_test_is_warned_of(tmp_path, monkeypatch):
    """One of these four was left to train on, and the refusal named keys that nobody had written."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(
        tmp_path / "four.jsonl",
        [{"query": f"{word} is it", "passage": f"{word} it is"} for word in ["who", "what", "when", "which"]],
    )
    with pytest.raises(Refusal, match="four.jsonl has 4 judged queries, too few for train, test, dev"):
        new("mine", tmp_path / "four.jsonl")
    for number, warned in ((20, True), (200, False)):
        rows = [{"query": f"q {n}", "passage": f"p {n}"} for n in range(number)]
        write_jsonl(tmp_path / f"{number}.jsonl", rows)
        _, said = new(f"of-{number}", tmp_path / f"{number}.jsonl")
        assert any(re.match("warning: only [0-9]+ test quer(y|ies): other .*25 are", each) for each in said) is warned


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_sentence_with_its_place_and_nothing_is_written(tmp_path, pairs, case):
    write, said = BAD[case]
    write(tmp_path / "given", records_of(pairs[:4] if case == "too few" else pairs))
    with untouched(tmp_path / "given"), pytest.raises(Refusal) as caught:
        new("mine", tmp_path / "given")
    for part in said:
        assert part in str(caught.value)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_several_faults_are_told_together(tmp_path, pairs):
    rows = records_of(pairs)
    for number in range(2, 12):
        rows[number]["positive"] = ""
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    with pytest.raises(Refusal) as caught:
        new("mine", tmp_path / "given")
    first, *lines = str(caught.value).split("\n")
    assert "a.jsonl: 10 records are wrong" in first
    assert [line.split(":")[0].strip() for line in lines] == [f"line {number}" for number in range(3, 8)]


@pytest.mark.parametrize("write", [write_jsonl, lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path)])
def test_what_has_no_text_is_left_out_where_the_user_says_so(tmp_path, pairs, caplog, write):
    rows = [*records_of(pairs), {"query": "", "positive": "p"}, {"query": "q", "positive": ""}]
    rows += [{"query": None, "positive": "p"}, {"query": "q", "positive": None}]
    (tmp_path / "given").mkdir()
    write(tmp_path / f"given/a.{'jsonl' if write is write_jsonl else 'parquet'}", rows)
    with pytest.raises(Refusal, match=r"4 records .*\(4 without text\).*--drop empty"):
        new("mine", tmp_path / "given")
    with untouched(tmp_path / "given"):
        new("mine", tmp_path / "given", drop=["empty"])
    corpus, _, splits = collection_of()
    assert sum(map(len, splits.values())) == PAIRS and "p" not in [each["text"] for each in corpus.values()]
    assert "4 records are left out: without text" in caplog.text


def test_a_split_of_which_nothing_is_left_is_refused(tmp_path, pairs):
    write_jsonl(tmp_path / "given/train.jsonl", records_of(pairs))
    write_jsonl(tmp_path / "given/test.jsonl", [{"query": "", "positive": "p"}])
    with pytest.raises(Refusal, match=r"test.jsonl: no question"):
        new("mine", tmp_path / "given", drop=["empty"])


def test_a_question_about_a_text_that_is_not_there_is_left_out_where_the_user_says_so(tmp_path, pairs):
    for name, text in (("a.txt", "one text"), ("empty.txt", " ")):
        (tmp_path / "given").mkdir(exist_ok=True)
        (tmp_path / "given" / name).write_text(text)
    rows = [{"question": q, "file": "a.txt"} for q, *_ in pairs]
    rows += [{"question": "q", "file": "b.txt"}, {"question": "q", "file": "empty.txt"}]
    write_jsonl(tmp_path / "given/q.jsonl", rows)
    with pytest.raises(Refusal, match="--drop empty,dangling"):
        new("mine", tmp_path / "given")
    new("mine", tmp_path / "given", drop=["empty", "dangling"])
    assert sum(map(len, collection_of()[2].values())) == PAIRS


@pytest.mark.parametrize(
    ("record", "given", "question", "passage"),
    [
        ({"text": "p", "summary": "q"}, (None, None), "summary", "text"),
        ({"headline": "q", "story": "p"}, (None, None), "headline", "story"),
        ({"antwort": "p", "frage": "q"}, (None, "antwort"), "frage", "antwort"),
        ({"question": "p", "short": "q"}, (None, "question"), "short", "question"),
        ({"text": "q", "label": "p"}, ("text", "label"), "text", "label"),
    ],
)
def test_what_a_column_is_by_name_or_as_the_user_says_is_nothing_else(record, given, question, passage):
    found = columns.columns_of("a", record, "line 1", given=given)
    assert (found.question, found.passage, found.grade) == (question, passage, None)


def test_a_question_is_not_its_own_passage():
    with pytest.raises(Refusal, match="'text', 'summary'"):
        columns.columns_of("a", {"text": "q", "summary": "p"}, "line 1", given=("text", None))


@pytest.mark.parametrize("given", [(None, None), ("query", None)])
def test_a_first_line_of_text_is_said_to_have_been_taken_as_the_header(tmp_path, pairs, given):
    (tmp_path / "a.tsv").write_text("".join(f"{q}\t{n}\n" for q, _, n in pairs))
    with pytest.raises(Refusal, match=f"a.tsv, line 1: the first line is taken as the header; .*{pairs[0][0][:40]}"):
        new("mine", tmp_path / "a.tsv", columns=given)


@pytest.mark.parametrize("given", [(None, None), ("query", None)])
def test_texts_in_place_of_column_names_are_cut(tmp_path, pairs, given):
    (tmp_path / "a.tsv").write_text("\t".join(f"text {n} {'x' * 99}" for n in range(20)) + "\n" + "\t" * 19 + "\n")
    with pytest.raises(Refusal, match="a.tsv, line 1: .*text 7 x.*20 in all") as caught:
        new("mine", tmp_path / "a.tsv", columns=given)
    assert "x" * 40 not in str(caught.value) and "text 8" not in str(caught.value)


def test_a_carriage_return_is_text_of_a_tsv(tmp_path, pairs):
    rows = "".join(f"{q}\t{n}\rmore\n" for q, _, n in pairs)
    (tmp_path / "a.tsv").write_bytes(f"query\tpassage\n{rows}".encode())
    new("mine", tmp_path / "a.tsv")
    assert [each["text"] for each in collection_of()[0].values()] == [f"{n}\rmore" for *_, n in pairs]


def test_a_file_of_another_kind_is_refused(tmp_path, pairs):
    (tmp_path / "pairs.xlsx").write_bytes(b"PK")
    with pytest.raises(Refusal, match=r"pairs.xlsx: .*\.parquet"):
        new("mine", tmp_path / "pairs.xlsx")
    assert contents(tmp_path) == {"pairs.xlsx": contents(tmp_path)["pairs.xlsx"]}


def test_a_passage_that_is_its_own_question_is_left_out_and_counted(tmp_path, pairs):
    """Real conversations have some: "Hello" is answered by "hello"."""
    rows = [*records_of(pairs), {"query": "Same  text", "positive": "same text"}]
    rows.append({"query": "Two texts", "positive": ["two texts", "another one"]})
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    _, said = new("mine", tmp_path / "given")
    corpus, _, splits = collection_of()
    judged = {question: list(grades) for split in splits.values() for question, grades in split.items()}
    assert judged["Two texts"] == ["another one"] and "Same  text" not in judged and len(judged) == PAIRS + 1
    assert "same text" not in [each["text"] for each in corpus.values()]
    assert "Passages with the text of their question, which are left out: 2." in " ".join(said)


@pytest.mark.parametrize(
    "script, terms, why",
    [
        ("{n}号图书馆在北京，猫在桌子上睡觉{n}", "characters", "no spaces between words"),
        ("भारत की राजधानी क्या है {n}", "characters", "vowel signs"),
        ("a cat {n} Größe, кот", "words", None),
    ],
)
def test_bm25_has_the_terms_of_the_script(tmp_path, monkeypatch, script, terms, why):
    monkeypatch.chdir(tmp_path)
    rows = [{"query": f"q {n}", "positive": script.format(n=n)} for n in range(PAIRS)]
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    path, said = new("mine", tmp_path / "given")
    config = Plan.of_files([path]).config
    assert config.bm25.terms == terms
    assert any("does not know" in each for each in said) is (why == "no spaces between words")
    assert (config.counts.passage_tokens > 18) is (why == "no spaces between words")  # a character is a token there
    for reason in ("no spaces between words", "vowel signs"):
        assert (reason in " ".join(said)) is (reason == why)


@pytest.mark.parametrize("text", ["日本の首都はどこですか", "ภาษาไทยไม่มีช่องว่าง", "ភាសាខ្មែរ", "한국의 수도는 어디입니까"])
def test_every_script_that_the_page_names_is_read_by_characters(monkeypatch, text):
    """docs/own-data.md: Japanese, Thai, Khmer, Korean; Chinese has a collection of its own above."""
    monkeypatch.setattr("commands.new.form", lambda name: SimpleNamespace(corpus=lambda source: [(text,)]))
    assert script_of(SimpleNamespace(source="tsv")) == UNSPACED_SCRIPT


def test_a_pair_with_another_negative_is_not_called_repeated(tmp_path, pairs):
    rows = [{"query": q, "positive": p, "negative": f"{n} {copy}"} for q, p, n in pairs for copy in range(3)]
    write_jsonl(tmp_path / "given/triplets.jsonl", rows)
    _, said = new("mine", tmp_path / "given")
    assert "repeated" not in " ".join(said)
    lines = [json.loads(line) for line in Path("data/mine-divided/negatives.jsonl").read_text().splitlines()]
    assert {len(line["negative_passages"]) for line in lines} == {3}


def test_columns_of_any_names_are_taken_as_the_user_says(tmp_path, pairs):
    """Parquet with German names, of which a person cannot edit one by hand."""
    given = tmp_path / "given.parquet"
    pq.write_table(pa.Table.from_pylist([{"paket": n, "frage": q, "antwort": p} for q, p, n in pairs]), given)
    with pytest.raises(Refusal, match="given.parquet, row 1: .*columns 'paket', 'frage', 'antwort'.*--question"):
        new("mine", given)
    with pytest.raises(Refusal, match="--passage Antwort: .*'paket', 'frage', 'antwort'"):
        new("mine", given, columns=("frage", "Antwort"))
    _, said = new("mine", given, columns=("frage", "antwort"))
    assert "'frage' is the question, 'antwort' its passage (as you say); not used: 'paket'" in " ".join(said)
    assert {q: {p: 1} for q, p, _ in pairs} == {q: grades for split in collection_of()[2].values()
                                                for q, grades in split.items()}  # fmt: skip


def test_other_keys_on_later_lines_are_read_past_where_the_user_says_the_columns(tmp_path, pairs):
    rows = [{"frage": q, "antwort": p} for q, p, _ in pairs]
    rows[5]["quelle"] = "x"
    write_jsonl(tmp_path / "given/a.jsonl", rows)
    _, said = new("mine", tmp_path / "given", columns=("frage", "antwort"))
    assert "(as you say)" in " ".join(said)


def test_columns_have_no_use_for_a_collection(tmp_path, pairs):
    given = tmp_path / "given"
    given.mkdir()
    (given / "corpus.tsv").write_text("d1\tone\n")
    with pytest.raises(Refusal, match="given .*--question and --passage"):
        new("mine", given, columns=("frage", None))
