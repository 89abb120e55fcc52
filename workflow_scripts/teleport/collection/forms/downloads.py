"""Official files as collections: those of MS MARCO, TREC, DPR and Tevatron, as published."""

import ast
import csv
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from teleport import dpr, records
from teleport.locate import fetched, located
from teleport.records import REFETCH, Rows, Split, json_rows, lines, refuse, wrong_row
from teleport.refusal import Refusal, Remedy
from teleport.running.log import log
from teleport.settings.collection import Download, Fetched, SplitName
from teleport.settings.section import NAME, Section

DPR_HEADER = ["id", "text", "title"]


class PassageFile(Section):
    """The file of the passages, and that of their titles when they are apart."""

    file: str = Field(description="A name of `files`; FILE!MEMBER is a member of a tar archive.")
    form: Literal["tsv", "dpr", "msmarco-docs"] = Field(
        "tsv",
        description="tsv: id, text or id, title, text (MS MARCO). dpr: CSV of id, text, title with a header. "
        "msmarco-docs: id, URL, title, body; URL and title become one title with a tab between them.",
    )
    titles: str | None = Field(None, description="A file of id, title (RocketQA's para.title.txt), joined by id.")


class OfficialSplit(Section):
    """The files of a split, in one of the published forms."""

    form: Literal["tsv", "dpr", "qa", "tevatron"] = Field(
        "tsv",
        description="tsv: queries and judgments. dpr: DPR's JSON of questions with contexts. qa: DPR's question and "
        "answers, no judgments. tevatron: JSONL of queries with positive_passages.",
    )
    queries: str = Field(
        description="A name of `files`, or FILE!MEMBER: the queries; for dpr and tevatron the whole split."
    )
    qrels: str | None = Field(None, description="tsv: the file of TREC judgments.")
    all_questions: str | None = Field(
        None, description="dpr: a file of form qa with all questions; those that are not in `queries` have no contexts."
    )

    @model_validator(mode="after")
    def files_of_the_form(self):
        if (self.form == "tsv") != (self.qrels is not None):
            raise Refusal("qrels must be given with form tsv, and only then")
        if self.all_questions and self.form != "dpr":
            raise Refusal("all_questions works only with form dpr")
        return self


class Downloads(Fetched):
    """A collection of official files."""

    source: Literal["downloads"]
    files: dict[Annotated[str, Field(pattern=NAME)], Download] = Field(min_length=1, description="File name → origin.")
    corpus: PassageFile = Field(description="The passages.")
    splits: dict[SplitName, OfficialSplit] = Field(description="Files of train, dev, test and others.")

    @model_validator(mode="after")
    def files_are_listed(self):
        used = [self.corpus.file, self.corpus.titles]
        used += [name for split in self.splits.values() for name in (split.queries, split.qrels, split.all_questions)]
        if missing := sorted({name.split("!")[0] for name in used if name} - set(self.files)):
            raise Refusal(f"files lacks {', '.join(missing)}, which corpus or splits name")
        return self

    def of_corpus(self):
        return super().of_corpus().model_copy(update={"files": self.files_of(self.corpus)})

    def is_behind_passages(self, name):
        archive, _, member = self.corpus.file.partition("!")
        return bool(member) and self.splits[name].queries.startswith(f"{archive}!")

    def of_split(self, name):
        """Return the settings of a split. Its files include those of the corpus, whose rows the judgments name."""
        used = self.files_of(self.corpus, self.splits[name])
        return super().of_split(name).model_copy(update={"files": used})


Settings = Downloads


def corpus(settings, job):
    """The passages of a `Downloads`; the stages `download` give the paths."""
    files = fetched(job)
    passages = Rows(located(settings.corpus.file, files), PASSAGES[settings.corpus.form])
    if not settings.corpus.titles:
        return passages
    titles = located(settings.corpus.titles, files)
    return Rows(passages.place, lambda place, wrong: with_titles(passages.read(place, wrong=wrong), titles))


def split(settings, name, job):
    """A split of a `Downloads`."""
    form, files = settings.splits[name], fetched(job)
    path = located(form.queries, files)
    if form.form == "tsv":
        return Split(Rows(path, records.query_rows), Rows(located(form.qrels, files), records.judgment_rows))
    unit, names = "record" if form.form == "dpr" else "line", records.LEFT_OUT | {"empty": "without a positive"}
    faults = records.Faults(path, settings.drop or (), unit, names)
    questions = QUESTIONS[form.form](path, wrong=faults.wrong)
    if form.form == "dpr":
        by_answers = name != "train" or settings.positives == "answers" or form.all_questions
        questions = with_positives(questions, by_answers, faults)
    questions = list(questions)
    faults.refuse()
    if form.all_questions:  # add those whose text is new, with ids after the others'
        texts, place = {question.text for question in questions}, located(form.all_questions, files)
        added, others = [], records.Faults(place)
        for question in qa_questions(place, wrong=others.wrong):
            if question.text not in texts:
                added.append(question)
                if not question.text.strip():
                    others.note(None, question.line, Remedy("the question is empty. Remove the line."))
        others.refuse()
        log.info("%d questions with contexts, %d without", len(questions), len(added))
        first = int(questions[-1].query_id) + 1 if questions else 0
        questions += [question._replace(query_id=str(row)) for row, question in enumerate(added, first)]
    judged = [(q.line, q.query_id, passage, "1") for q in questions for passage in dict.fromkeys(q.positives)]
    answered = [(q.line, q.query_id, q.answers) for q in questions if q.answers]
    return Split(
        Rows(path, lambda path, wrong: ((q.line, q.query_id, q.text) for q in questions)),
        Rows(path, lambda path, wrong: iter(judged)),
        Rows(path, lambda path, wrong: iter(answered)) if answered else None,
        (faults,),
    )


def with_positives(questions, by_answers, faults):
    """The `Question`s that count. One without positives goes to `faults`, unless `by_answers` and it has answers."""
    for question in questions:
        if question.positives or (by_answers and question.answers):
            yield question
        else:
            remedy = "Add the positives to the record, or remove it."
            faults.note("empty", question.line, Remedy(f"positive_ctxs is empty. {remedy}"))


def with_titles(passages, path):
    """`passages` with the titles of a file of id TAB title, or empty ones. Raises Refusal if no passage gets a title.
    If both files have the same order, as MS MARCO's have, no title is kept in memory."""
    titles, early = (line.partition("\t")[::2] for _, line in lines(path)), {}
    untitled = count = 0
    for number, doc_id, _, text in passages:
        while doc_id not in early and (line := next(titles, None)):
            early[line[0]] = line[1]
        title = early.pop(doc_id, "")
        count, untitled = count + 1, untitled + (not title)
        yield number, doc_id, title, text
    early.update(titles)  # read the rest, so that a damaged end is refused
    if count and untitled == count:
        raise Refusal(f"{path}: no line gives a passage a title. Give a file of passage id, tab, title.")
    log.info("%s: %d of %d passages have no title", path, untitled, count)


class Question(NamedTuple):
    """One query with the rest of its record: ids of its positives, best first, and answers."""

    line: int
    query_id: str
    text: str
    positives: list
    answers: list


def csv_rows(path):
    """(line number, fields) of tab-separated CSV: quotes around a field are removed, doubled ones become single."""
    csv.field_size_limit(records.MOST_LINE_BYTES)
    reader = csv.reader((line + "\n" for _, line in lines(path)), delimiter="\t", strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise wrong_row(path, reader.line_num, f"wrong quoting ({error}). {REFETCH}") from None


def dpr_passages(path, wrong=refuse):
    """(line number, id, title, text) of DPR's psgs_w100.tsv: a header, then id, text in CSV's quotes, title."""
    for number, fields in csv_rows(path):
        if number == 1:
            if fields != DPR_HEADER:
                raise wrong_row(path, 1, f"{fields} is not the header {DPR_HEADER}. Give DPR's passage file.")
        elif len(fields) != 3:
            wrong(path, number, f"{len(fields)} columns, expected id, text, title. Correct it.")
        else:
            yield number, fields[0], fields[2], fields[1]


def qa_questions(path, wrong=refuse):
    """The Questions of DPR's *.qa.csv: question, and a list of answers as Python writes it; ids count from 0."""
    for row, (number, fields) in enumerate(csv_rows(path)):
        try:
            question, answers = fields
            answers = ast.literal_eval(answers)
            "".join(answers).encode()  # fails on half a surrogate pair, which no file can hold
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            answers = None
        if not isinstance(answers, list):
            wrong(path, number, "not a question, a tab and a list of answers. Correct the line.")
            continue
        yield Question(number, str(row), question, [], answers)


def dpr_questions(path, wrong=dpr.refuse):
    """The Questions of DPR's training JSON; `line` is the record's number from 1, ids count from 0."""
    for number, question, positives, answers in dpr.dpr_records(path, "positive_ctxs", "answers", wrong=wrong):
        yield Question(number, str(number - 1), question, positives, answers)


def tevatron_questions(path, wrong=refuse):
    """The Questions of Tevatron's JSON lines: query_id, query, positive_passages with docid; maybe answers."""
    types = {"query_id": str, "query": str, "positive_passages": list, "answers": list}
    for number, query_id, text, passages, answers in json_rows(path, types, {"answers": []}, wrong):
        try:
            positives = [str(passage["docid"]) for passage in passages]
        except (KeyError, TypeError):
            wrong(path, number, "a positive passage has no docid. Add it.")
            continue
        yield Question(number, query_id, text, positives, answers)


PASSAGES = {"tsv": records.passage_rows, "dpr": dpr_passages, "msmarco-docs": records.document_rows}
QUESTIONS = {"dpr": dpr_questions, "qa": qa_questions, "tevatron": tevatron_questions}
