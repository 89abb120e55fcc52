"""`manage.py new`: a configuration that runs as it is, from a folder in any of the forms."""

import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import manage
from collection_world import random_passages
from commands.arguments import FAULTS
from commands.forecast.hardware import read_hardware
from commands.forecast.printed import print_forecast
from commands.methods import cost_sentences
from commands.new import new
from commands.splits import Roles, drawn
from paths import REPOSITORY
from teleport import records
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.settings.read import load_files
from untouched import contents, untouched

PASSAGES, QUERIES = 300, 60


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [" ".join(words) for words in random_passages(np.random.default_rng(3), PASSAGES, 5, 12)]


def lines(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def in_tables(folder, texts, queries="queries.tsv", qrels="qrels.tsv"):
    folder.mkdir()
    (folder / "corpus.tsv").write_text(lines(*((f"d{i}", text) for i, text in enumerate(texts))))
    (folder / queries).write_text(lines(*((f"q{i}", texts[i][:20]) for i in range(QUERIES))))
    (folder / qrels).write_text(lines(*((f"q{i}", f"d{i}", 1) for i in range(QUERIES))))


def in_beir(folder, texts):
    (folder / "qrels").mkdir(parents=True)
    rows = ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = ({"_id": f"q{i}", "text": texts[i][:20]} for i in range(QUERIES))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = lines(("query-id", "corpus-id", "score"), *((f"q{i}", f"d{i}", 1) for i in range(QUERIES)))
    (folder / "qrels/train.tsv").write_text(judged)


def in_pairs(folder, texts):
    folder.mkdir()
    rows = ({"query": texts[i][:20], "passage": texts[i]} for i in range(QUERIES))
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def queries_of(folder, source, split):
    """The judged queries of a split of the collection `source` that was written below `folder` (set of ids)."""
    file = source["splits"][split]["qrels"] if source["source"] == "tsv" else f"{source['path']}/qrels/{split}.tsv"
    lines = (folder / file).read_text().splitlines()
    return {line.split()[0] for line in lines} - {"query-id"}


@pytest.mark.parametrize("form", [in_tables, in_beir])
def test_undivided_judgments_become_train_dev_and_test(tmp_path, texts, form):
    form(tmp_path / "given", texts)
    path, said = new("mine", tmp_path / "given")
    raw = yaml.safe_load(path.read_text())
    train, dev, test = (queries_of(tmp_path, raw["collection"], split) for split in ("train", "dev", "test"))
    assert train | dev | test == {f"q{i}" for i in range(QUERIES)}
    assert len(train) + len(dev) + len(test) == QUERIES and 10 <= len(test) <= 30 and 4 <= len(dev) < len(train)
    numbers = f"{len(train)} queries for train, {len(test)} queries for test, {len(dev)} queries for dev"
    assert said[0] == f"300 passages, {numbers}."
    assert "warning: the collection has fewer than 1000 passages, so evaluation ranks all of them." in said
    assert raw["evaluation"] == {"splits": ["test"], "measures": ["nDCG@10", "RR@10", "R@100"]}
    training = raw["training"]
    assert 50 <= training["dev"]["passages"] <= 60 and training["dev"]["random"] <= 6, "ranking dev costs little"
    assert (training["steps"], training["evaluate_every"], training["batch_queries"]) == (10, 5, len(train))
    assert (training["select"], training["dev"]["split"], raw["name"]) == ("dev", "dev", "mine")
    made = Plan.of_files([path])
    (check,) = [stage.settings for stage in made.stages.values() if stage.kind == "check"]
    assert (check.evaluation_depth, check.mining_depth, check.batch_queries) == (0, 0, len(train))


def test_a_third_becomes_test_and_a_fifth_of_the_others_dev():
    splits, _ = drawn({f"q{i}" for i in range(2000)}, "here", Roles(["test"], "dev", "train", ""), (), "")
    test, dev, train = (len(splits[split]) for split in ("test", "dev", "train"))
    assert test + dev + train == 2000
    assert test / 2000 == pytest.approx(1 / 3, abs=0.03) and dev / (dev + train) == pytest.approx(1 / 5, abs=0.03)


def alone_for_training(folder, texts):
    in_tables(folder, texts, "queries.train.tsv", "qrels.train.tsv")


@pytest.mark.parametrize("form", [in_tables, alone_for_training, in_beir])
@pytest.mark.parametrize("place", ["data/mine", "data/mine-divided", "data", "given", "link"])
def test_a_collection_is_never_written_to_wherever_it_lies(tmp_path, texts, form, place):
    """Also in the folder, or behind the link, that has the name of what is drawn."""
    folder = tmp_path / (place if place != "link" else "elsewhere")
    folder.parent.mkdir(exist_ok=True)
    if place == "data":
        folder.mkdir()
        folder = folder / "mine"
    form(folder, texts)
    if place == "link":
        (tmp_path / "data").mkdir()
        (tmp_path / "data/mine-divided").symlink_to(folder)
    before = contents(tmp_path)
    with untouched(folder):
        if place in ("link", "data/mine-divided"):
            with pytest.raises(Refusal, match="data/mine-divided (exists already|is a link)"):
                new("mine", folder)
            assert contents(tmp_path) == before
        else:
            path, _ = new("mine", folder)
            raw = yaml.safe_load(path.read_text())
            sizes = [len(queries_of(tmp_path, raw["collection"], split)) for split in ("train", "dev", "test")]
            assert sum(sizes) == QUERIES and min(sizes) > 3


@pytest.mark.parametrize("hidden", ["._train.tsv", "._test.tsv.zip"])
def test_hidden_files_are_no_splits(tmp_path, texts, hidden):
    """macOS leaves ._NAME beside NAME."""
    in_beir(tmp_path / "given", texts)
    (tmp_path / "given/qrels" / hidden).write_bytes(b"\0\5\26\7")
    path, _ = new("mine", tmp_path / "given")
    assert yaml.safe_load(path.read_text())["counts"]["queries"].keys() == {"train", "dev", "test"}


@pytest.mark.parametrize("form", ["tables", "beir"])
@pytest.mark.parametrize("named", ["test", "dev"])
def test_a_test_set_is_not_divided_and_nothing_is_trained_without_a_set_for_it(tmp_path, texts, form, named):
    given = tmp_path / "given"
    if form == "beir":
        in_beir(given, texts)
        (given / "qrels/train.tsv").rename(given / f"qrels/{named}.tsv")
    else:
        in_tables(given, texts, f"queries.{named}.tsv", f"qrels.{named}.tsv")
    for test in ((), [named]):
        with untouched(given):
            path, said = new("mine", given, test)
        raw = yaml.safe_load(path.read_text())
        assert raw["evaluation"]["splits"] == [named] and raw["counts"]["queries"] == {named: QUERIES}
        plan = Plan.of_files([path])
        kinds = {stage.kind for stage in plan.stages.values()}
        assert "evaluate" in kinds and "train" not in kinds and "training" not in raw
        assert any("nothing is trained" in sentence for sentence in said) and not Path("data").exists()
        path.unlink()
    with pytest.raises(Refusal, match=f"--dev {named}"):
        new("mine", given, (), named)


def test_first_lines_with_the_names_of_columns_are_no_records(tmp_path, texts):
    given = tmp_path / "given"
    with_splits(given, texts, "dev", "test")
    _, without = new("without", given)
    for path in given.iterdir():
        role = path.name.split(".")[0]
        names = {"corpus": "id\ttext", "queries": "query_id\tquery", "qrels": "query_id\tdoc_id\tscore"}[role]
        path.write_text(f"{names}\n{path.read_text()}")
    with untouched(given):
        path, said = new("mine", given)
    assert said == without
    assert yaml.safe_load(path.read_text())["counts"]["passages"] == PASSAGES


@pytest.mark.parametrize("below", [True, False])
@pytest.mark.parametrize("splits", [["test"], ["train", "dev", "test"]])
def test_splits_may_share_one_file_of_queries(tmp_path, texts, splits, below):
    """CoSQA's form, as tables: queries.tsv, and judgments of each split, in a folder as in BEIR's form or beside it."""
    given, name = tmp_path / "given", "qrels/{}.tsv" if below else "qrels.{}.tsv"
    in_tables(given, texts)
    judgments = (given / "qrels.tsv").read_text().splitlines(keepends=True)
    (given / "qrels.tsv").unlink()
    (given / "qrels").mkdir()
    for place, split in enumerate(splits):
        (given / name.format(split)).write_text("".join(judgments[place :: len(splits)]))
    with untouched(given):
        path, said = new("mine", given)
    raw = yaml.safe_load(path.read_text())
    assert raw["evaluation"]["splits"] == ["test"] and not Path("data").exists()
    assert raw["counts"]["queries"] == dict.fromkeys(splits, QUERIES // len(splits))
    assert ("train" in {stage.kind for stage in Plan.of_files([path]).stages.values()}) is (len(splits) > 1)
    if len(splits) == 1:
        assert "has the split test, and none is called train, so nothing is trained" in " ".join(said)
        assert f"To train, add {name.format('train')}." in " ".join(said)


def rows_of_beir(folder):
    """{part: records} of a folder in BEIR's form."""
    parts = {name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
             for name in ("corpus", "queries")}  # fmt: skip
    judged = [line.split("\t") for line in (folder / "qrels/train.tsv").read_text().splitlines()[1:]]
    return parts | {"qrels": [{"query-id": q, "corpus-id": d, "score": float(grade)} for q, d, grade in judged]}


def with_jsonl_judgments(given, parts, split):
    """As MTEB's repositories have ArguAna: BEIR's files, and judgments as JSON lines."""
    for name, rows in parts.items():
        path = given / (f"{name}.jsonl" if name != "qrels" else f"qrels/{split}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def with_parquet(given, parts, split):
    """As CoIR's have CoSQA: a folder of Parquet for each, with columns of other use."""
    for name, rows in parts.items():
        path = given / ("data" if name == "qrels" else name) / f"{split if name == 'qrels' else name}-0-of-1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([row | {"partition": "x"} for row in rows]), path)


@pytest.mark.parametrize("split", ["test", "train"])
@pytest.mark.parametrize("form", [with_jsonl_judgments, with_parquet])
def test_a_collection_in_tables_of_the_hub_is_that_of_beirs_files(tmp_path, texts, form, split):
    in_beir(tmp_path / "beir", texts)
    form(tmp_path / "given", parts := rows_of_beir(tmp_path / "beir"), split)
    if split == "test":
        (tmp_path / "beir/qrels/train.tsv").rename(tmp_path / "beir/qrels/test.tsv")
    expected = yaml.safe_load(new("beir", tmp_path / "beir")[0].read_text())
    with untouched(tmp_path / "given"):
        path, said = new("mine", tmp_path / "given")
    raw = yaml.safe_load(path.read_text())
    assert {key: raw[key] for key in ("counts", "evaluation")} == {
        key: expected[key] for key in ("counts", "evaluation")
    }
    assert ("training" in raw) is (split == "train")
    corpus = Path("data/mine-divided/corpus.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in corpus] == parts["corpus"]
    for each in raw["counts"]["queries"]:
        assert queries_of(tmp_path, raw["collection"], each) == queries_of(tmp_path, expected["collection"], each)
    assert "queries.jsonl queries," in " ".join(said) or "queries-0-of-1.parquet queries," in " ".join(said)


def test_judgments_of_a_split_of_any_name_are_read(tmp_path, texts):
    in_beir(tmp_path / "beir", texts)
    parts = rows_of_beir(tmp_path / "beir")
    for split, rows in (("train", slice(20, None)), ("heldout", slice(20))):
        with_jsonl_judgments(tmp_path / "given", parts | {"qrels": parts["qrels"][rows]}, split)
    raw = yaml.safe_load(new("mine", tmp_path / "given")[0].read_text())
    assert raw["evaluation"]["splits"] == ["heldout"] and raw["counts"]["queries"]["heldout"] == 20


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("corpus", {"text": None}, "corpus-0-of-1.parquet, row 3: the text of 'd2' is empty"),
        ("corpus", {"_id": "d1"}, "corpus-0-of-1.parquet, row 3: .*'d1'"),
        ("queries", {"_id": "a b"}, "queries-0-of-1.parquet, row 3: '_id' .*'a b'"),
        ("qrels", {"score": 0.5}, "test-0-of-1.parquet, row 3: 'score' is 0.5"),
        ("qrels", {"corpus-id": "none"}, "test-0-of-1.parquet, row 3: .*passage 'none'"),
        ("qrels", {"query-id": "none"}, "test-0-of-1.parquet, row 3: .*query 'none'"),
        ("qrels", {"query-id": "q1", "corpus-id": "d1", "score": 2.0}, "row 3: query 'q1' and passage 'd1'"),
    ],
)
def test_what_is_wrong_in_tables_of_the_hub_is_refused(tmp_path, texts, part, change, said):
    in_beir(tmp_path / "beir", texts)
    parts = rows_of_beir(tmp_path / "beir")
    parts[part][2] |= change
    with_parquet(tmp_path / "given", parts, "test")
    with untouched(tmp_path / "given"), pytest.raises(Refusal, match=said):
        new("mine", tmp_path / "given")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beir", "given"]


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("corpus", {"title": 0}, "corpus.jsonl, line 3: 'title' is 0"),
        ("corpus", {"text": []}, "corpus.jsonl, line 3: 'text' is "),
        ("qrels", {"score": "x"}, "test.jsonl, line 3: 'score' is \"x\""),
        ("qrels", {"score": None}, "test.jsonl, line 3: 'score' is null"),
        ("qrels", {}, "test.jsonl, line 3: "),
    ],
)
def test_a_value_that_is_no_text_or_grade_in_lines_of_the_hub_is_refused(tmp_path, texts, part, change, said):
    in_beir(tmp_path / "beir", texts)
    parts = rows_of_beir(tmp_path / "beir")
    if not change:
        del parts["qrels"][2]["score"]
    parts[part][2] |= change
    with_jsonl_judgments(tmp_path / "given", parts, "test")
    with untouched(tmp_path / "given"), pytest.raises(Refusal, match=re.escape(said)):
        new("mine", tmp_path / "given")


def test_a_grade_below_zero_is_no_positive_in_tables_of_the_hub(tmp_path, texts):
    in_beir(tmp_path / "beir", texts)
    parts = rows_of_beir(tmp_path / "beir")
    parts["qrels"].append({"query-id": "q1", "corpus-id": "d2", "score": -2})
    with_jsonl_judgments(tmp_path / "given", parts, "test")
    raw = yaml.safe_load(new("mine", tmp_path / "given")[0].read_text())
    assert raw["counts"]["positives"] == {"test": QUERIES}
    assert Path("data/mine-divided/qrels/test.tsv").read_text().endswith("q1\td2\t-2\n")


def in_tables_of_beir(given, parts, split):
    """Our own tables, with records as BEIR has them."""
    given.mkdir()
    for name, keys in (("corpus", ("_id", "text")), ("queries", ("_id", "text"))):
        (given / f"{name}.tsv").write_text(lines(*([row[key] for key in keys] for row in parts[name])))
    rows = ([row["query-id"], row["corpus-id"], int(row["score"])] for row in parts["qrels"])
    (given / f"qrels.{split}.tsv").write_text(lines(*rows))


def in_files_of_beir(given, parts, split):
    with_jsonl_judgments(given, {name: parts[name] for name in ("corpus", "queries")}, split)
    rows = ([row["query-id"], row["corpus-id"], int(row["score"])] for row in parts["qrels"])
    (given / "qrels").mkdir()
    (given / f"qrels/{split}.tsv").write_text(lines(("query-id", "corpus-id", "score"), *rows))


def with_faults(parts):
    """The records of a collection with every fault that published ones have."""
    corpus, queries, judged = (list(parts[name]) for name in ("corpus", "queries", "qrels"))
    corpus[2] = corpus[2] | {"text": " "}
    corpus += [corpus[4] | {"text": "another"}, corpus[5] | {"text": ""}]
    queries += [queries[1], {"_id": "blank", "text": ""}]
    unknown = (("q3", "none"), ("none", "d3"), ("blank", "d4"))
    judged += [{"query-id": query, "corpus-id": passage, "score": 1.0} for query, passage in unknown]
    judged += [judged[6], judged[7] | {"score": 3.0}, {"query-id": "q3", "corpus-id": "none", "score": 2.0}]
    return {"corpus": corpus, "queries": queries, "qrels": judged}


@pytest.mark.parametrize("split", ["test", "train"])
@pytest.mark.parametrize("form", [in_tables_of_beir, in_files_of_beir, with_jsonl_judgments, with_parquet])
def test_the_remedy_of_a_published_collection_leaves_its_faults_out(tmp_path, texts, form, split, monkeypatch, caplog):
    """Whatever form it has: followed as printed, file by file, until it is taken; nothing else is left out."""
    in_beir(tmp_path / "beir", texts)
    form(tmp_path / "given", with_faults(rows_of_beir(tmp_path / "beir")), split)
    words, refusals = [], []
    while len(refusals) < 4:
        monkeypatch.setattr("sys.argv", ["teleport", "new", "mine", "given", *words])
        with untouched(tmp_path / "given"), pytest.raises(SystemExit) as ended:
            manage.main()
        if ended.value.code in (None, 0):
            break
        refusals.append(ended.value.code)
        words = re.search(r"`teleport new (--drop [a-z,]+)`", ended.value.code)[1].split()
        assert "collection.drop: [" in ended.value.code and not Path("config").exists() and not Path("data").exists()
    assert "given/corpus" in refusals[0] and "(1 without text, 2 repeated)" in refusals[0]
    raw = yaml.safe_load(Path("config/mine.yaml").read_text())
    assert raw["collection"]["drop"] == ["empty", "repeated", "dangling"]
    counts = raw["counts"]
    assert counts["passages"] == PASSAGES - 1 and sum(counts["positives"].values()) == QUERIES - 1
    # A query whose only positive has no text stays where nothing is trained on it.
    assert sum(counts["queries"].values()) in {QUERIES, QUERIES - (split == "train")}
    assert {"without text", "repeated", "of a query or passage that is not there"} == set(
        re.findall(r"lines are left out: (.*)", caplog.text)
    )


def test_the_kinds_of_faults_of_the_command_are_those_of_the_library(monkeypatch, capsys):
    assert tuple(records.LEFT_OUT) == FAULTS
    monkeypatch.setattr("sys.argv", ["teleport", "new", "mine", "given", "--drop", "empty,doubled"])
    with pytest.raises(SystemExit):
        manage.main()
    assert "--drop: 'doubled' is not one of empty, repeated, dangling" in capsys.readouterr().err


def test_training_judgments_beside_shared_queries_are_divided(tmp_path, texts):
    given = tmp_path / "given"
    in_tables(given, texts, qrels="qrels.train.tsv")
    with untouched(given):
        path, _ = new("mine", given)
    raw = yaml.safe_load(path.read_text())
    assert sum(raw["counts"]["queries"].values()) == QUERIES and set(raw["counts"]["queries"]) == {
        "train",
        "dev",
        "test",
    }


def test_judgments_in_two_forms_are_refused(tmp_path, texts):
    in_tables(tmp_path / "given", texts)
    (tmp_path / "given/qrels").mkdir()
    (tmp_path / "given/qrels/test.tsv").write_text("q1\td1\t1\n")
    with pytest.raises(Refusal, match="given .*qrels.tsv .*qrels/test.tsv"):
        new("mine", tmp_path / "given")
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (alone_for_training, "queries.test.tsv.xz"),
        (in_beir, "qrels/test.tsv.bz2"),
        (in_pairs, "test.jsonl.zst"),
        (in_pairs, "data/test.csv.zip"),
    ],
)
def test_a_test_set_that_is_compressed_otherwise_is_not_drawn_instead(tmp_path, texts, form, name):
    form(tmp_path / "given", texts)
    refused_for_a_file(tmp_path, name, b"packed", "gzip")


def refused_for_a_file(tmp_path, name, content, remedy):
    """`new` refuses the folder `given` for a further file in it, and writes nothing."""
    (tmp_path / "given" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "given" / name).write_bytes(content)
    with untouched(tmp_path / "given"), pytest.raises(Refusal, match=f"given/{re.escape(name)}: .*{remedy}"):
        new("mine", tmp_path / "given")
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


UNREAD = [(in_pairs, f"test{end}") for end in (".txt", ".trec", ".qrel", ".qrels", ".xlsx", ".arrow", ".feather")]
UNREAD += [(in_pairs, "data/dev-2024.TXT"), (in_beir, "qrels/test.txt"), (in_beir, "qrels/dl19.qrels.gz")]
UNREAD += [(alone_for_training, "qrels.test.txt"), (alone_for_training, "queries.test.xlsx")]


@pytest.mark.parametrize(("form", "name"), UNREAD)
def test_a_test_set_with_another_ending_is_not_drawn_instead(tmp_path, texts, form, name):
    form(tmp_path / "given", texts)
    refused_for_a_file(tmp_path, name, b"q0 0 d0 1\n", r"\.tsv")


@pytest.mark.parametrize(
    ("form", "name"), [(in_beir, "qrels/{}.txt"), (in_tables, "qrels.{}.txt"), (in_tables, "qrels/{}.txt")]
)
def test_judgments_in_trecs_files_are_read_under_the_name_that_the_refusal_gives(tmp_path, texts, form, name):
    given = tmp_path / "given"
    form(given, texts)
    judged = given / ("qrels.tsv" if form is in_tables else "qrels/train.tsv")
    rows = [line.split() for line in judged.read_text().splitlines() if not line.startswith("query-id")]
    judged.unlink()
    for split, part in (("train", rows[20:]), ("test", rows[:20])):
        path = given / name.format(split)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{query} 0 {passage} {grade}\n" for query, passage, grade in part))
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            new("mine", given)
        path, target = re.search(r"^(.*?): .* Rename it to (\S+) ", str(caught.value)).groups()
        Path(path).rename(Path(path).with_name(target))
    raw = yaml.safe_load(new("mine", given)[0].read_text())
    assert raw["counts"]["queries"]["test"] == 20 and sum(raw["counts"]["queries"].values()) == QUERIES


@pytest.mark.parametrize("form", [in_pairs, in_beir, alone_for_training])
def test_files_of_other_use_beside_a_collection_are_left_alone(tmp_path, texts, form):
    form(tmp_path / "given", texts)
    names = [
        "train.log",
        "test.py",
        "README",
        "README.txt",
        "LICENSE.txt",
        "train.txt" if form is in_pairs else "a.xlsx",
    ]
    for name in names + ([] if form is in_pairs else ["test.txt"]) + (["qrels/README.txt"] if form is in_beir else []):
        (tmp_path / "given" / name).write_text("other")
    assert new("mine", tmp_path / "given")


def test_a_text_that_a_table_without_splits_is_about_may_be_called_test(tmp_path, texts):
    (tmp_path / "given").mkdir()
    for name in ("a.txt", "test.txt"):
        (tmp_path / "given" / name).write_text("\n\n".join(texts))
    rows = ({"question": texts[i][:20], "file": "test.txt", "answer": texts[i]} for i in range(QUERIES))
    (tmp_path / "given/questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert new("mine", tmp_path / "given")


@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_the_official_names_of_ms_marco_are_read(tmp_path, texts, zipped):
    """The passages have neither titles nor a header, and the name of a split has a dot."""
    given = tmp_path / "given"
    in_tables(given, texts, "queries.train.tsv", "qrels.train.tsv")
    for old, new_name, rows in (("queries.train", "queries.dev.small", 20), ("qrels.train", "qrels.dev.small", 20)):
        lines_of = (given / f"{old}.tsv").read_text().splitlines(keepends=True)
        (given / f"{new_name}.tsv").write_text("".join(lines_of[:rows]))
        (given / f"{old}.tsv").write_text("".join(lines_of[rows:]))
    content = (given / "corpus.tsv").read_bytes()
    (given / "corpus.tsv").unlink()
    (given / f"collection.tsv{zipped}").write_bytes(gzip.compress(content) if zipped else content)
    path, _ = new("mine", given)
    raw = yaml.safe_load(path.read_text())
    assert raw["evaluation"]["splits"] == ["dev.small"] and raw["counts"]["queries"]["dev.small"] == 20
    assert raw["counts"]["passages"] == PASSAGES and Plan.of_files([path]).stages


def test_queries_without_judgments_are_to_be_added_or_moved(tmp_path, texts):
    """MS MARCO's eval queries have none that are public."""
    in_tables(tmp_path / "given", texts, "queries.train.tsv", "qrels.train.tsv")
    (tmp_path / "given/queries.eval.small.tsv").write_text("q\ttext\n")
    with pytest.raises(Refusal, match="qrels.eval.small.tsv: .*move the other file of eval.small elsewhere"):
        new("mine", tmp_path / "given")


def test_pairs_may_be_called_a_collection(tmp_path, texts):
    (tmp_path / "given").mkdir()
    (tmp_path / "given/collection.tsv").write_text(lines(("query", "passage"), *((t[:20], t) for t in texts)))
    assert new("mine", tmp_path / "given")


@pytest.mark.parametrize(
    ("names", "has"),
    [
        (["train.jsonl"], "train.jsonl"),
        (["queries.jsonl", "qrels.tsv"], "qrels.tsv, queries.jsonl"),
        (["qrels/test.tsv"], "qrels"),
        ([], "nothing else"),
        ([f"{n}.jsonl" for n in range(9)], "0.jsonl, 1.jsonl, 2.jsonl, 3.jsonl, 4.jsonl, …"),
    ],
)
def test_a_passage_file_that_makes_a_folder_beirs_is_named_with_what_else_is_there(tmp_path, texts, names, has):
    (tmp_path / "given/qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", *names):
        (tmp_path / "given" / name).write_text("{}\n")
    if "qrels/test.tsv" not in names:
        (tmp_path / "given/qrels").rmdir()
    with pytest.raises(Refusal, match=r"given has corpus.jsonl.* queries.jsonl .*qrels/SPLIT.tsv") as caught:
        new("mine", tmp_path / "given")
    assert f"it has {has}." in str(caught.value)


def test_a_compressed_copy_of_a_table_is_no_other_one(tmp_path, texts):
    in_pairs(tmp_path / "given", texts)
    for name in ("train.jsonl.zst", "given.zip"):
        (tmp_path / "given" / name).write_bytes(b"packed")
    _, said = new("mine", tmp_path / "given")
    assert f"{QUERIES} judged queries" in said[1]


def test_folders_of_several_sets_are_named(tmp_path, texts):
    """As BEIR's CQADupStack has them."""
    for name in ("android", "english"):
        in_beir(tmp_path / "given" / name, texts)
    with pytest.raises(Refusal, match="android, english .*FROM.*given/android"):
        new("mine", tmp_path / "given")


@pytest.mark.parametrize("what", ["a file", "a dangling link"])
@pytest.mark.parametrize("place", ["data", "data/mine-divided", "config/mine.yaml"])
def test_what_stands_in_the_way_is_a_sentence(tmp_path, texts, what, place):
    in_tables(tmp_path / "given", texts)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("mine") if what == "a file" else (tmp_path / place).symlink_to("nowhere")
    before = contents(tmp_path)
    with pytest.raises(Refusal, match=place):
        new("mine", tmp_path / "given")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("form", [in_tables, in_beir])
def test_the_files_of_a_killed_attempt_are_taken_but_no_other_ones(tmp_path, texts, form):
    """A kill after the judgments are divided leaves them without a configuration."""
    form(tmp_path / "given", texts)
    path, _ = new("mine", tmp_path / "given")
    text, before = path.read_text(), contents(tmp_path)
    path.unlink()
    new("mine", tmp_path / "given")
    assert path.read_text() == text and contents(tmp_path) == before
    path.unlink()
    changed = next(each for each in sorted(Path("data/mine-divided").rglob("*test*")) if each.is_file())
    changed.write_text(changed.read_text() + "mine")
    before = contents(tmp_path)
    with pytest.raises(Refusal, match="data/mine-divided exists already"):
        new("mine", tmp_path / "given")
    assert contents(tmp_path) == before


def test_its_cost_can_be_forecast_before_anything_is_built(tmp_path, texts, capsys):
    in_tables(tmp_path / "given", texts)
    path, _ = new("mine", tmp_path / "given")
    print_forecast(Plan.of_files([path]), "cpu-2-cores")
    said = capsys.readouterr().out
    assert "collection: 300 passages; queries: 35 train, 16 test, 9 dev (from `counts` of the configuration)" in said
    assert "wall clock: " in said


def test_what_is_divided_stays_so(tmp_path, texts):
    in_tables(tmp_path / "given", texts, "queries.train.tsv", "qrels.train.tsv")
    for split in ("test", "valid"):
        for role in ("queries", "qrels"):
            given = (tmp_path / f"given/{role}.train.tsv").read_text()
            (tmp_path / f"given/{role}.{split}.tsv").write_text(given)
    path, said = new("mine", tmp_path / "given")
    raw = yaml.safe_load(path.read_text())
    assert (raw["evaluation"]["splits"], raw["training"]["dev"]["split"]) == (["test"], "valid")
    assert said[1] == "The table reports test (by its name); valid (by its name) chooses the checkpoint."
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("form", ["tables", "beir"])
@pytest.mark.parametrize(("there", "drawn"), [("test", "dev"), ("dev", "dev-of-train")])
def test_training_queries_are_divided_where_there_is_no_dev_set(tmp_path, texts, form, there, drawn):
    """The split that is there is reported, and not read for anything else."""
    given = tmp_path / "given"
    if form == "beir":
        in_beir(given, texts)
        (given / f"qrels/{there}.tsv").write_text((given / "qrels/train.tsv").read_text())
    else:
        in_tables(given, texts, "queries.train.tsv", "qrels.train.tsv")
        for role in ("queries", "qrels"):
            (given / f"{role}.{there}.tsv").write_text((given / f"{role}.train.tsv").read_text())
    path, _ = new("mine", given)
    raw = yaml.safe_load(path.read_text())
    assert (raw["evaluation"]["splits"], raw["training"]["dev"]["split"]) == ([there], drawn)
    reported, train, dev = (queries_of(tmp_path, raw["collection"], split) for split in (there, "train", drawn))
    assert len(reported) == QUERIES and not train & dev and train | dev == reported and 4 <= len(dev) <= 20
    Plan.of_files([path])


def test_the_template_is_the_recipe():
    """What `teleport new` writes for a person's collection is what config/variants/recipe.yaml was measured with."""
    own, recipe = (
        yaml.safe_load((REPOSITORY / f"config/{name}.yaml").read_text()) for name in ("own-data", "variants/recipe")
    )
    recipe = recipe["experiments"]["recipe"]
    assert own["episodes"] == recipe["episodes"]
    assert own["training"].items() <= recipe["training"].items()
    shared, experiments = load_files([REPOSITORY / "config/own-data.yaml"])
    assert experiments["tuned"].training.model_dump() == shared.training.model_validate(recipe["training"]).model_dump()


def test_the_second_episode_of_the_recipe_is_the_one_that_was_tried():
    """But for its steps, which are those of the first episode: `teleport new` fits them to the collection."""
    own = yaml.safe_load((REPOSITORY / "config/own-data.yaml").read_text())
    tried = yaml.safe_load((REPOSITORY / "config/ablations/recipes.yaml").read_text())
    tried = tried["ablations"]["recipes"]["experiments"]["easy-then-hard"]
    assert own["episodes"][1]["training"] | {"steps": 50} == tried["episodes"][1]["training"]
    shared, experiments = load_files([REPOSITORY / "config/own-data.yaml"])
    by_text = tried["negatives"] | {"same_text": True}  # the default's passages have no copies
    assert experiments["tuned"].negatives == shared.negatives.model_validate(by_text)


def test_dev_chooses_between_the_start_and_both_episodes(tmp_path, texts):
    """Both rank one pool, and the second begins with what the first has chosen."""
    in_tables(tmp_path / "given", texts)
    path, _ = new("mine", tmp_path / "given")
    (trajectory,) = Plan.of_files([path]).trajectories["tuned"]
    first, second = trajectory.trains
    assert second.inputs["checkpoint"].name == first.name
    assert first.inputs["dev"].name == second.inputs["dev"].name and first.settings.dev == second.settings.dev
    assert {train.settings.training.select for train in (first, second)} == {"dev"}
    assert "negatives" not in first.inputs and second.inputs["negatives"].inputs.keys() >= {"query", "lookahead"}


def written_plan(name):
    """(the configuration, its plan) that `new` writes with a method."""
    path, _ = new(name, Path("given"), method=name)
    return yaml.safe_load(path.read_text()), Plan.of_files([path])


# How often each one mines; of STAR and ADORE, the methods that they start from are rows, too.
@pytest.mark.parametrize(
    ("method", "mined"), {"in-batch": 0, "dpr": 0, "ance": 3, "ance-tele": 3, "star": 1, "adore": 0}.items()
)
def test_a_method_is_sized_for_the_collection(tmp_path, texts, monkeypatch, method, mined):
    """Trainings as long as the embedded default's have the recipe's steps, and the plan says what it costs."""
    in_tables(tmp_path / "given", texts)
    config, plan = written_plan(method)
    (trajectory,), written = plan.trajectories[method], config["training"]
    published = yaml.safe_load((REPOSITORY / f"config/methods/{method}.yaml").read_text())["experiments"][method]
    assert config["experiments"][method]["about"] == published["about"] and plan.warnings == []
    assert written["steps"] == 10
    for train in trajectory.trains:
        training = train.settings.training
        passages = training.batch_queries * (1 + training.negatives_per_query)
        assert training.batch_queries == 8 if 8 * (1 + training.negatives_per_query) > 64 else passages >= 24
        assert training.steps in (10, 5) and training.stop_after_steps in (None, 2, 3)
        assert training.select == ("last" if training.continues else "dev")
    assert mined == sum(any(each.kind == "retrieve" for each in pool.inputs.values()) for pool in trajectory.pools)
    (sentence,) = cost_sentences(plan, "config/mine.yaml")
    assert sentence.startswith("Training takes about ") and ("nothing is mined" in sentence) == (method == "in-batch")
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0"])
    (sentence,) = cost_sentences(plan, "config/mine.yaml")
    assert "nobody has measured the GPU" in sentence and "python bench/calibrate.py" in sentence
    (command,) = re.findall("`.venv/bin/teleport (forecast .*?)`", sentence)
    assert command == "forecast config/mine.yaml --hardware h100" and read_hardware("h100")[1].device_memory


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_every_published_method_can_be_written(tmp_path, texts, every):
    in_tables(tmp_path / "given", texts)
    names, needs = sorted(path.stem for path in (REPOSITORY / "config/methods").glob("*.yaml")), {}
    for name in names[::every]:
        try:
            _, plan = written_plan(name)
            assert plan.trajectories[name]
        except Refusal as refusal:
            needs[name] = str(refusal)
        shutil.rmtree("data", ignore_errors=True)  # else each name has a folder of its own
    assert len(names) > 40 and needs == {}


def test_an_unknown_method_names_the_closest(tmp_path, texts):
    in_tables(tmp_path / "given", texts)
    for folder in ("given", "nowhere"):  # said before the collection is looked at
        with pytest.raises(Refusal, match="--method ance-tle: .* ance-tele"):
            new("mine", tmp_path / folder, method="ance-tle")
    assert not Path("config/mine.yaml").exists() and not Path("data").exists()


def test_a_method_without_queries_to_train_on_is_refused(tmp_path, texts):
    in_tables(tmp_path / "given", texts, "queries.test.tsv", "qrels.test.tsv")
    with pytest.raises(Refusal, match="--method ance: nothing"):
        new("mine", tmp_path / "given", method="ance")
    assert not Path("config/mine.yaml").exists()


def test_what_cannot_be_is_refused(tmp_path, texts):
    in_tables(tmp_path / "given", texts)
    with pytest.raises(ValueError, match="NAME a/b: "):
        new("a/b", tmp_path / "given")
    new("mine", tmp_path / "given")
    with pytest.raises(ValueError, match="config/mine.yaml exists already"):
        new("mine", tmp_path / "given")
    with pytest.raises(ValueError, match="nowhere does not exist"):
        new("other", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no corpus.tsv .*\.jsonl, .*\.csv"):
        new("other", tmp_path / "empty")
    (tmp_path / "given/qrels.tsv").write_text("q1\td1\t1\n")
    with pytest.raises(ValueError, match="qrels.tsv has 1.*train, test, dev"):
        new("other", tmp_path / "given")


def test_how_texts_are_encoded_and_how_many_are_cut_is_said(tmp_path, texts):
    in_tables(tmp_path / "given", [*texts[:-3], *(["word " * 400] * 3)])
    _, said = new("mine", tmp_path / "given")
    (line,) = [line for line in said if line.startswith("The encoder has")]
    assert line.startswith(
        "The encoder has mean pooling, vectors normalised to length 1, queries of at most 256 tokens, "
        "passages of at most 256;"
    )
    assert line.endswith("are cut: encoder.chunks reads more of them, or give shorter passages.")
    assert "; 1% of the first 300 passages" in line


def with_splits(folder, texts, *splits):
    in_tables(folder, texts, "queries.train.tsv", "qrels.train.tsv")
    for split in splits:
        for role in ("queries", "qrels"):
            (folder / f"{role}.{split}.tsv").write_text((folder / f"{role}.train.tsv").read_text())


def test_one_file_of_queries_beside_splits_is_refused(tmp_path, texts):
    with_splits(tmp_path / "given", texts, "test")
    for role in ("queries", "qrels"):
        (tmp_path / f"given/{role}.tsv").write_text((tmp_path / f"given/{role}.test.tsv").read_text())
    with pytest.raises(Refusal, match="given .*queries.tsv .*queries.test.tsv"):
        new("mine", tmp_path / "given")
    assert not Path("config").exists() and not Path("data").exists()


def test_queries_of_a_split_that_are_trained_on_too_are_said(tmp_path, texts):
    """By id and text: dev and test use the ids of train for other queries, but for three of test."""
    with_splits(tmp_path / "given", texts, "dev", "test")
    for split, same in (("dev", 0), ("test", 3)):
        file = tmp_path / f"given/queries.{split}.tsv"
        file.write_text(lines(*((f"q{i}", texts[i][:20] if i < same else f"{split} {i}") for i in range(QUERIES))))
    (tmp_path / "given/answers.test.jsonl").write_text(json.dumps({"id": "q1", "answers": ["x"]}) + "\n")
    _, said = new("mine", tmp_path / "given")
    trained = [line for line in said if "training reads" in line]
    assert trained == ["warning: training reads 3 of the test queries, too."]
    assert "answers.test.jsonl: not read here; `source: folder` of config/README.md reads answers." in said


@pytest.mark.parametrize("form", [in_tables, in_beir])
def test_queries_with_judgments_but_no_positive_are_said(tmp_path, texts, form):
    """Of every split but train, which leaves them out."""
    form(tmp_path / "given", texts)
    _, said = new("sound", tmp_path / "given")
    assert not any("without a passage of grade" in line for line in said)
    qrels = next((tmp_path / "given").glob("**/*r*.tsv*" if form is in_beir else "qrels.tsv"))
    text, zeros = qrels.read_text(), [f"q{number}\td{number}\t" for number in range(QUERIES // 2)]
    for start in zeros:
        text = text.replace(f"{start}1\n", f"{start}0\n")
    qrels.write_text(text)
    path, said = new("mine", tmp_path / "given")
    source = yaml.safe_load(path.read_text())["collection"]
    unjudged = {start.split("\t")[0] for start in zeros}
    lacking = {split: len(queries_of(tmp_path, source, split) & unjudged) for split in ("dev", "test")}
    assert all(lacking.values())
    for split, count in lacking.items():
        start = f"warning: queries of {split} without a passage of grade 1 or more: {count}. They score 0"
        assert [line for line in said if line.startswith(start)]
    assert not any("of train without" in line for line in said)


@pytest.mark.parametrize(
    ("splits", "given", "reported", "dev", "why"),
    [
        (["dev", "dl19"], {}, ["dl19"], "dev", "reports dl19 (the only one left); dev (by its name) chooses"),
        (["dev", "dl19", "dl20"], {"test": ["dl19", "dl20"]}, ["dl19", "dl20"], "dev", "dl20 (as you say); dev (by"),
        (["dev", "test"], {"test": ["dev"], "dev": "test"}, ["dev"], "test", "dev (as you say); test (as you say)"),
        (["dl19", "dl20"], {"test": ["dl20"], "dev": "train"}, ["dl20"], "dev", "dev (drawn from train) chooses"),
        (["test", "2019"], {"dev": "2019"}, ["test"], "2019", "test (by its name); 2019 (as you say) chooses"),
        (["no", "yes"], {"test": ["no"], "dev": "yes"}, ["no"], "yes", "no (as you say)"),
    ],
)
def test_which_split_is_for_what_is_told(tmp_path, texts, splits, given, reported, dev, why):
    with_splits(tmp_path / "given", texts, *splits)
    path, said = new("mine", tmp_path / "given", **given)
    raw = yaml.safe_load(path.read_text())
    assert (raw["evaluation"]["splits"], raw["training"]["dev"]["split"]) == (reported, dev)
    assert why in " ".join(said) and set(raw["counts"]["queries"]) >= {"train", dev, *reported}
    Plan.of_files([path])


@pytest.mark.parametrize(
    ("splits", "given", "said"),
    [
        (["test", "dl19"], {}, "--dev SPLIT"),
        (["dl19", "dl20"], {}, "--test SPLIT"),
        (["dev", "dl19", "dl20"], {}, "--test SPLIT"),
        (["dev", "test"], {"test": ["tset"]}, "no tset. Correct --test or --dev"),
        (["train", "dev", "test"], {"dev": ""}, "no ''. Correct --test or --dev"),
        (["dev", "test"], {"test": ["dev"], "dev": "dev"}, "--test dev --dev dev: "),
        (["dev"], {"test": ["train"]}, "--test train: a split that"),
        (["dev", "x: y"], {}, "has a file of the split 'x: y', and the name of a split must match"),
        (["dev", "#x"], {}, "of the split '#x'"),
        (["dev", "a, b"], {}, "of the split 'a, b'"),
        (["dev", "a\\1"], {}, "of the split"),
        (["dev", "a" * 200], {}, "of the split 'aaaa"),
    ],
)
def test_splits_whose_roles_are_not_clear_are_refused_and_nothing_is_written(tmp_path, texts, splits, given, said):
    with_splits(tmp_path / "given", texts, *splits)
    with pytest.raises(Refusal) as caught:
        new("mine", tmp_path / "given", **given)
    assert said in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("qrels.train.tsv", "", "training query .*grade 1"),
        ("qrels.test.tsv", "", "the split test has"),
        ("qrels.test.tsv", "q1\td1\t0\n", "the split test has"),
        ("corpus.tsv", "", "no passages"),
        ("corpus.tsv", "d0\tone\nd0\ttwo\n", "duplicate id 'd0'"),
        ("qrels.test.tsv", "q1\tnone\t1\n", "passage 'none' "),
    ],
)
def test_the_collection_is_checked_before_anything_is_written(tmp_path, texts, file, text, said):
    with_splits(tmp_path / "given", texts, "test", *(["dev"] if "train" in file else []))
    (tmp_path / "given" / file).write_text(text)
    with pytest.raises(Refusal, match=said):
        new("mine", tmp_path / "given")
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("query-id\tcorpus-id\tscore", "given/qrels.tsv, line 61: query 'query-id' is not among"),
        ("q1\tnone\t1", "given/qrels.tsv, line 61: .*'none' "),
        ("q1\td2\t0.5", "given/qrels.tsv, line 61: grade '0.5'"),
    ],
)
def test_what_is_wrong_with_judgments_is_said_of_the_file_that_was_given(tmp_path, texts, line, said):
    """Not of those that they are divided into, which are gone then."""
    in_tables(tmp_path / "given", texts)
    with open(tmp_path / "given/qrels.tsv", "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(Refusal, match=said):
        new("mine", tmp_path / "given")
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_the_only_split_is_not_taken_for_the_one_that_chooses_the_step(tmp_path, texts):
    with_splits(tmp_path / "given", texts, "test")
    for path in (tmp_path / "given").glob("*.train.tsv"):
        path.unlink()
    with pytest.raises(Refusal, match="test, .* train"):
        new("mine", tmp_path / "given", dev="test")


def test_a_split_that_is_not_there_is_refused_also_where_queries_are_not_divided(tmp_path, texts):
    in_tables(tmp_path / "given", texts)
    with pytest.raises(Refusal, match="given .*queries.*--test or --dev"):
        new("mine", tmp_path / "given", dev="nonsense")
    assert new("mine", tmp_path / "given", dev="dev")


@pytest.mark.parametrize(
    ("passages", "queries", "report"), [(1101, 300, 300), (1000, 200, None), (1001, 201, 201), (1101, 1001, None)]
)
def test_a_search_is_one_deeper_for_an_own_text_and_the_page_shows_a_whole_test_set(
    tmp_path, monkeypatch, passages, queries, report
):
    """R@1000 counts 1,000 passages besides the query's own text, as BEIR's evaluation does."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir()
    texts = [f"argument {n} of many" for n in range(passages)]
    (tmp_path / "given/corpus.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(texts)))
    lines = [f"q{n}\t{texts[n % passages]}\n" for n in range(queries)]
    (tmp_path / "given/queries.test.tsv").write_text("".join(lines))
    judged = "".join(f"q{n}\td{(n + 1) % passages}\t1\n" for n in range(queries))
    (tmp_path / "given/qrels.test.tsv").write_text(judged)
    written = yaml.safe_load(new("mine", tmp_path / "given")[0].read_text())
    assert written["evaluation"]["ignore_own_text"] is True and "depth" not in written["evaluation"]
    assert written.get("report") == (report and {"queries": report})
    plan = Plan.of_files([Path("config/mine.yaml")])
    depths = {stage.settings.depth for stage in plan.stages.values() if stage.kind in ("retrieve", "bm25")}
    assert plan.config.evaluation.depth == 1000 and 1001 in depths and 1000 not in depths


def test_where_many_queries_are_passages_too_their_own_text_is_ignored(tmp_path, monkeypatch):
    """ArguAna's form: each query is a passage under another id, and its answer is another passage. What is said of the
    queries agrees with the setting."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "given"
    (folder / "qrels").mkdir(parents=True)
    texts = [f"argument {n} of many" for n in range(40)]
    lines = [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number, ignored in ((20, True), (1, None), (0, None)):
        lines = [{"_id": f"q{n}", "text": text if n < number else f"what {n}"} for n, text in enumerate(texts)]
        (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        judged = "".join(f"q{n}\td{(n + 1) % 40}\t1\n" for n in range(40))
        (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
        path, said = new(f"mine{number}", folder)
        assert yaml.safe_load(path.read_text())["evaluation"].get("ignore_own_text") is ignored
        own = [line for line in said if "with the text of a passage" in line]
        assert [
            ("returns it first" in line, f"Queries of test with the text of a passage: {number}." in line)
            for line in own
        ] == ([(not ignored, True)] if number else [])
        assert Plan.of_files([path]).config.evaluation.ignore_own_text is bool(ignored)
