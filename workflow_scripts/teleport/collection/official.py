"""Official files as collections: MS MARCO's and TREC's, DPR's, Tevatron's, in exactly their published forms."""

from pathlib import Path

from teleport.collection.questions import dpr_passages, dpr_questions, qa_questions, tevatron_questions
from teleport.collection.records import (
    Rows,
    Source,
    Split,
    distinct,
    document_rows,
    judgment_rows,
    lines,
    passage_rows,
    query_rows,
)
from teleport.runtime.log import log

PASSAGES = {"tsv": passage_rows, "dpr": dpr_passages, "msmarco-docs": document_rows}
QUESTIONS = {"dpr": dpr_questions, "qa": qa_questions, "tevatron": tevatron_questions}


def downloads(settings, files):
    """The Source of `settings` (settings.Downloads); `files` are the facts of the download stage ({name: {path, …}}).

    Raises ValueError when a file has changed since it was verified, or is not in its form.
    """
    passages = corpus = Rows(located(settings.corpus.file, files), PASSAGES[settings.corpus.form])
    if settings.corpus.titles:
        titles = located(settings.corpus.titles, files)
        corpus = Rows(passages.place, lambda _: with_titles(passages, titles))
    return Source(corpus, {name: split(form, files) for name, form in settings.splits.items()})


def located(name, files):
    """The path of a file, or PATH!MEMBER. Raises ValueError when it is not as the download stage left it."""
    archive, mark, member = name.partition("!")
    path, expected = Path(files[archive]["path"]), files[archive]["bytes"]
    if not path.is_file() or path.stat().st_size != expected:
        remedy = "Put it back, or verify anew with `snakemake --forcerun download`."
        raise ValueError(f"{path} is missing or has not the {expected} bytes that were verified. {remedy}")
    return f"{path}{mark}{member}" if member else path


def split(form, files):
    """The Split of one settings.OfficialSplit."""
    path = located(form.queries, files)
    if form.form == "tsv":
        qrels = Rows(located(form.qrels, files), lambda path: distinct(path, judgment_rows(path)))
        return Split(Rows(path, query_rows), qrels)
    questions = list(QUESTIONS[form.form](path))
    if form.all_questions:
        questions += lacking(questions, qa_questions(located(form.all_questions, files)))
    answered = any(question.answers for question in questions)
    return Split(
        Rows(path, lambda _: ((q.line, q.query_id, q.text) for q in questions)),
        Rows(path, lambda _: ((q.line, q.query_id, d, "1") for q in questions for d in dict.fromkeys(q.positives))),
        Rows(path, lambda _: ((q.line, q.query_id, q.answers) for q in questions if q.answers)) if answered else None,
    )


def lacking(questions, more):
    """Those of the Questions `more` whose text is not among `questions`, with ids that continue theirs; logs counts."""
    texts = {question.text for question in questions}
    added = [question for question in more if question.text not in texts]
    log.info("%d questions with contexts, %d without", len(questions), len(added))
    return [q._replace(line=row + 1, query_id=str(row)) for row, q in enumerate(added, len(questions))]


def with_titles(passages, path):
    """`passages` with the titles of a file of id TAB title, or empty ones; ValueError when not one is of a passage."""
    titles = dict(line.partition("\t")[::2] for _, line in lines(path))
    untitled = count = 0
    for number, doc_id, _, text in passages:
        title = titles.get(doc_id, "")
        count, untitled = count + 1, untitled + (not title)
        yield number, doc_id, title, text
    if count and untitled == count:
        raise ValueError(f"{path}: no line gives a passage a title. Give a file of passage id, tab, title.")
    log.info("%s: %d of %d passages have no title", path, untitled, count)
