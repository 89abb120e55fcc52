"""Whole collections with faults, in every form: each fault is refused or, where the configuration says so, left out and
counted. How many there are of each kind is counted here once more, by the rules of docs/own-data.md alone.
"""

import csv
import gzip
import io
import json
import re
import tarfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_inputs import each_case, put_shape, slow_but

from commands.pairs.judged import convert_judged, judged_tables
from teleport.collection.forms import ir_datasets
from teleport.plan.identity import identify_corpus, identify_split
from teleport.running.artefact import file_entry
from teleport.settings.registry import form as form_named

pytestmark = pytest.mark.faults
DROP = ["empty", "repeated", "dangling"]
JUDGED = 8  # of the passages; those behind them nobody asks about
SPLITS = {"train": range(5), "test": range(5, 8)}
BLANK = ["", " ", "\u00a0", "\u2003 "]
ODD_TEXTS = [
    "\0",
    "\x7f\x1b[2J",
    "é" * 70_000,
    "\u2028",
    "\u202e",
    "<b>",
    "'",
    "=1+1",
    "None",
    "a\u0301",
    "🙂",
    "\ufffd",
]
GRADES = ["x", "1.5", "", "1e3", "9" * 30, "٣", "--1", "0x1"]
SOUND_GRADES = ["-1", "0", "+2", "007", "2.0", str(2**31 - 1)]


class Made:
    """A collection: passages [[id, title, text]], {split: queries [[id, text]]}, {split: qrels [[query, passage,
    grade]]}."""

    def __init__(self, case):
        self.draw = case.draw
        self.passages = [[f"d{n}", f"Title {n}", f"text of the {n}th passage"] for n in range(16)]
        self.queries = {split: [[f"q{n}", f"what is {n}"] for n in numbers] for split, numbers in SPLITS.items()}
        self.qrels = {split: [[f"q{n}", f"d{n}", "1"] for n in numbers] for split, numbers in SPLITS.items()}
        if case.draw.random() < 0.5:
            for passage in self.passages:
                passage[1] = ""
        for _ in case.damages():
            case.draw.choice(FAULTS)(self)

    def any_of(self, rows):
        return self.draw.choice(rows)

    @property
    def split(self):
        return self.draw.choice(sorted(SPLITS))


def blank_passage(made):
    made.any_of(made.passages)[2] = made.any_of(BLANK)


def blank_title_and_text(made):
    made.any_of(made.passages)[1:] = ["", made.any_of(BLANK)]


def odd_text(made):
    made.any_of(made.passages)[2] = f"x{made.any_of(ODD_TEXTS)}"


def blank_query(made):
    made.any_of(made.queries[made.split])[1] = made.any_of(BLANK)


def passage_twice(made):
    passage = made.any_of(made.passages)
    made.passages.append([passage[0], *made.any_of(made.passages)[1:]])


def query_twice(made):
    split = made.split
    made.queries[split].append(list(made.any_of(made.queries[split])))


def same_text(made):
    made.passages.append([f"copy{len(made.passages)}", *made.any_of(made.passages)[1:]])


def lost_passage(made):
    made.passages.remove(made.any_of(made.passages[1:]))


def lost_query(made):
    split = made.split
    if len(made.queries[split]) > 1:
        made.queries[split].remove(made.any_of(made.queries[split]))


def foreign_passage(made):
    split = made.split
    made.qrels[split].append([made.any_of(made.qrels[split])[0], "unknown", "1"])


def foreign_query(made):
    made.qrels[made.split].append(["unknown", "d1", "1"])


def judged_twice(made):
    split = made.split
    query, passage, grade = made.any_of(made.qrels[split])
    made.qrels[split].append([query, passage, made.any_of([grade, "2"])])


def wrong_grade(made):
    made.any_of(made.qrels[made.split])[2] = made.any_of(GRADES)


def odd_grade(made):
    made.any_of(made.qrels[made.split])[2] = made.any_of(SOUND_GRADES)


def white_id(made):
    made.any_of(made.passages[JUDGED:])[0] = made.any_of(["a b", " d", "d\u00a0e", ""])


FAULTS = [
    blank_passage,
    blank_title_and_text,
    odd_text,
    blank_query,
    passage_twice,
    query_twice,
    same_text,
    lost_passage,
]
FAULTS += [lost_query, foreign_passage, foreign_query, judged_twice, wrong_grade, odd_grade, white_id]


def counted(rows):
    """(ids that stay, Counter of the faults) of passages or queries; None counts what is never left out."""
    ids, faults = set(), Counter()
    for name, *texts in rows:
        if name in ids:
            faults["repeated"] += 1
        elif name.split() != [name]:
            faults[None] += 1
        elif not "".join(texts).strip():
            faults["empty"] += 1
        else:
            ids.add(name)
    return ids, faults


def integer(grade):
    """The number of a grade of judgments in lines; None for what is none."""
    with suppress(ValueError):
        number = int(grade.removesuffix(".0")) if grade.isascii() else 2**31
        return number if -(2**31) <= number < 2**31 else None


def whole_number(grade):
    """The same of one in a table, whose numbers may be written as 1e3 or 1.0."""
    with suppress(ValueError):
        number = float(grade) if grade.isascii() else 0.5
        return int(number) if number == int(number) and -(2**31) <= number < 2**31 else None


def expected(made, form):
    """[Counter of the faults of the corpus, of both splits, of judgments that repeat another one], and whether a
    training query is left with a positive."""
    beir, read = form in ("beir", *HUB), whole_number if form in HUB else integer  # beir: unjudged queries are unread
    passages, of_corpus = counted(made.passages)
    faults, trains = {"corpus": of_corpus}, False
    for split in SPLITS:
        named = {row[0] for row in made.qrels[split]}
        queries, faults[split] = counted([row for row in made.queries[split] if not beir or row[0] in named])
        first = {}
        for query, passage, grade in made.qrels[split]:
            number, said = read(grade), grade.removesuffix(".0") if form not in HUB else read(grade) or grade
            if query not in queries:
                faults[split]["dangling"] += 1
            elif (query, passage) in first:
                faults[split]["same" if first[query, passage] == said else "repeated"] += 1
            else:
                first[query, passage] = said
                if number is None:
                    faults[split][None] += 1
                elif passage not in passages:
                    faults[split]["dangling"] += 1
                else:
                    trains = trains or (split == "train" and number >= 1)
    return faults, trains


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def trec(rows):
    return "".join(f"{query} 0 {passage} {grade}\n" for query, passage, grade in rows).encode()


def json_rows(rows, *keys):
    return "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows).encode()


def in_folder(made):
    files = {"corpus.tsv": tsv(made.passages)}
    files |= {f"queries.{split}.tsv": tsv(rows) for split, rows in made.queries.items()}
    files |= {f"qrels.{split}.tsv": trec(rows) for split, rows in made.qrels.items()}
    return {"source": "folder", "path": "given"}, files


def in_tsv(made):
    files = in_folder(made)[1]
    splits = {s: {"queries": f"given/queries.{s}.tsv", "qrels": f"given/qrels.{s}.tsv"} for s in SPLITS}
    return {"source": "tsv", "corpus": "given/corpus.tsv", "splits": splits}, files


def in_beir(made):
    queries = [row for split in SPLITS for row in made.queries[split]]
    files = {"corpus.jsonl": json_rows(made.passages, "_id", "title", "text")}
    files["queries.jsonl"] = json_rows(queries, "_id", "text")
    header = ["query-id", "corpus-id", "score"]
    files |= {f"qrels/{split}.tsv": tsv([header, *rows]) for split, rows in made.qrels.items()}
    return {"source": "beir", "path": "given"}, files


def in_downloads(made):
    files, splits = in_folder(made)[1], {}
    for split in SPLITS:
        splits[split] = {"queries": f"queries.{split}.tsv", "qrels": f"qrels.{split}.tsv"}
    return {"source": "downloads", "corpus": {"file": "corpus.tsv"}, "splits": splits}, files


def in_an_archive(made):
    source, files = in_downloads(made)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"set/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    inside = {s: {role: f"all.tar.gz!set/{name}" for role, name in f.items()} for s, f in source["splits"].items()}
    source |= {"corpus": {"file": "all.tar.gz!set/corpus.tsv"}, "splits": inside}
    return source, {"all.tar.gz": content.getvalue()}


def in_documents(made):
    source, files = in_downloads(made)
    files["corpus.tsv"] = tsv([[name, "http://x", title, text] for name, title, text in made.passages])
    return source | {"corpus": {"file": "corpus.tsv", "form": "msmarco-docs"}}, files


def in_dpr_passages(made):
    source, files = in_downloads(made)
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerows([["id", "text", "title"], *([name, text, title] for name, title, text in made.passages)])
    files["corpus.tsv"] = text.getvalue().encode()
    return source | {"corpus": {"file": "corpus.tsv", "form": "dpr"}}, files


def as_number(grade):
    """A grade as a hub's tables have it: a number, where its text is that of one."""
    return int(grade) if re.fullmatch("[+-]?[0-9]{1,9}", grade) else grade


def in_hub_tables(made, name_of, bytes_of):
    """As MTEB and CoIR have collections: a table of passages, one of queries, and one of judgments for each split."""
    files = {name_of("corpus"): [dict(zip(("_id", "title", "text"), row, strict=True)) for row in made.passages]}
    queries = [row for split in SPLITS for row in made.queries[split]]
    files[name_of("queries")] = [{"_id": name, "text": text} for name, text in queries]
    for split, rows in made.qrels.items():
        files[name_of(split)] = [{"query-id": q, "corpus-id": d, "score": as_number(g)} for q, d, g in rows]
    return {"source": "beir", "path": "made"}, {name: bytes_of(rows) for name, rows in files.items()}


def in_hub_lines(made):
    places = {split: f"qrels/{split}.jsonl" for split in SPLITS}
    return in_hub_tables(
        made,
        lambda name: places.get(name, f"{name}.jsonl"),
        lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode(),
    )


def in_hub_parquet(made):
    def parquet(rows):
        if "score" in rows[0] and any(isinstance(row["score"], str) for row in rows):  # a column has one type
            rows = [row | {"score": str(row["score"])} for row in rows]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        return sink.getvalue()

    places = {split: f"data/{split}-00000-of-00001.parquet" for split in SPLITS}
    return in_hub_tables(made, lambda name: places.get(name, f"{name}/{name}-00000-of-00001.parquet"), parquet)


HUB = {"a hub's JSON lines": in_hub_lines, "a hub's Parquet": in_hub_parquet}
FORMS = {"folder": in_folder, "tsv": in_tsv, "beir": in_beir, "downloads": in_downloads, "archive": in_an_archive}
FORMS |= {"documents": in_documents, "DPR's passages": in_dpr_passages, "ir_datasets": None}
FORMS |= HUB


def record_set(made, split=None):
    """What ir_datasets has of a set."""
    records = {
        "docs_iter": [SimpleNamespace(doc_id=d, title=title, text=text) for d, title, text in made.passages],
        "queries_iter": [SimpleNamespace(query_id=q, text=text) for q, text in made.queries.get(split, ())],
        "qrels_iter": [SimpleNamespace(query_id=q, doc_id=d, relevance=g) for q, d, g in made.qrels.get(split, ())],
    }
    methods = {name: lambda rows=rows: iter(rows) for name, rows in records.items()}
    return SimpleNamespace(**methods, queries_cls=lambda: SimpleNamespace(_fields=("query_id", "text")))


def collection(stages, source, drop, files):
    """The stages of a collection, of whose files the plan has read the content; `teleport new` converts a hub's."""
    if source.get("path") == "made":
        convert_judged(judged_tables(Path("given")), drop or (), Path("made"), lambda ids: {"train": ids})
    source = source | ({"drop": drop} if drop else {})
    if source["source"] == "downloads":
        paths = {name: {"path": f"given/{name}"} | file_entry(Path("given", name)) for name in files}
        download = stages.finish(stages.make("download"), {"files": paths})
        return stages.collection(source | {"files": dict.fromkeys(paths, {})}, {"download": download})
    if files:
        settings = form_named(source["source"]).Settings.model_validate(source)
        identify_corpus(settings)
        for name in settings.split_names():
            identify_split(settings, name)
    return stages.collection(source)


def left_out(made):
    """{part: Counter of what was left out} of a finished collection."""
    return {"corpus": Counter(made.facts.get("left_out", {}))} | {
        split: Counter(made.split(split).facts.get("left_out", {})) for split in made.names
    }


@pytest.mark.parametrize("form", slow_but(["folder", "beir", "archive", "ir_datasets", *HUB], FORMS))
def test_a_whole_collection_with_faults(stages, tmp_path, monkeypatch, campaign, form):
    def one(case):
        monkeypatch.chdir(case.folder)
        made = Made(case)
        if form == "documents":  # whose title is URL, tab, title: never empty
            for passage in made.passages:
                passage[2] = passage[2] if passage[2].strip() else "x"
        if form == "ir_datasets":
            monkeypatch.setattr(ir_datasets, "set_with", lambda entity, name, key: record_set(made, name))
            source, files = {"source": form, "corpus": "c", "splits": {split: split for split in SPLITS}}, {}
        else:
            source, files = FORMS[form](made)
        for name, content in files.items():
            path = Path("given", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        faults, trains = expected(made, form)
        kinds = {kind for each in faults.values() for kind, number in each.items() if number} - {"same"}
        drop = case.draw.choice([None, DROP, case.draw.sample(DROP, 2)])
        refused = bool(kinds - set(drop or ())) or not trains

        def misread(found):
            if refused:
                return f"taken with {drop}: {faults}"
            wanted = {part: {kind: number for kind, number in each.items() if number} for part, each in faults.items()}
            for each in wanted.values():
                each["repeated"] = each.get("repeated", 0) + each.pop("same", 0)
            wanted = {part: Counter({k: n for k, n in each.items() if n}) for part, each in wanted.items()}
            return left_out(found) != wanted and f"{left_out(found)}, not {wanted}"

        case.read(lambda: collection(stages, source, drop, files), misread)
        if not case.sound and not case.taken and not refused:
            campaign.note(
                "what is sound, or left out as told, is taken", f"collection, {form}", f"{drop} {faults}", case.number
            )
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"whole collection, {form}", one, few=3)


SHAPES = [
    "a folder",
    "a pipe",
    "a dangling link",
    "a device",
    "nothing",
    "compressed",
    "both",
    "a link to it",
    "nested",
]
# `tsv` names its files, so that no other name is looked at.
TAKEN = dict.fromkeys(("folder", "beir"), {"compressed", "a link to it"}) | {"tsv": {"both", "a link to it"}}


@pytest.mark.parametrize("form", slow_but(["beir"], ["folder", "tsv", "beir"]))
def test_what_stands_in_the_place_of_a_file(stages, tmp_path, monkeypatch, campaign, form):
    def one(case):
        monkeypatch.chdir(case.folder)
        made = Made(SimpleNamespace(draw=case.draw, damages=lambda: ()))
        source, files = FORMS[form](made)
        for name, content in files.items():
            Path("given", name).parent.mkdir(parents=True, exist_ok=True)
            Path("given", name).write_bytes(content)
        shape, path = case.draw.choice(SHAPES), Path("given", case.draw.choice(sorted(files)))
        if not case.sound:
            content, other = path.read_bytes(), path.with_name(f"{path.name}.gz")
            if shape != "both":
                path.unlink()
            put_shape(path, shape, content)
            if shape in ("compressed", "both"):
                other.write_bytes(gzip.compress(content))
            elif shape == "nested":
                path.mkdir()
                (path / path.name).write_bytes(content)
        taken = case.sound or shape in TAKEN[form]
        taken = taken or (form == "beir" and shape == "nothing" and path.parent.name == "qrels")  # no such split
        case.read(lambda: collection(stages, source, None, files), lambda _: not taken and f"{shape} as {path}")
        if taken and not case.taken and not case.sound:
            campaign.note("what is sound is taken", f"file, {form}", f"{shape} {path}", case.number)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"what stands for a file, {form}", one, few=3)
