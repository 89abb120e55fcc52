"""Where passages, queries and judgments come from."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import (
    NAME,
    Integer,
    LocalPath,
    Natural,
    NumberOrNull,
    Section,
    Text,
    by_content,
    is_none,
)


class TrainQueries(Section):
    """So many training queries, drawn by their ids: more of them have those of fewer among them."""

    count: Natural = Field(description="Training queries that are kept; all where there are fewer.")
    seed: Integer = Field(0, description="Of the draw; seeds of experiments share the queries.")


class Judged(Section):
    """What every source has."""

    positive_grade: Natural = Field(1, lt=2**31, description="Lowest grade trained on; see negatives.relevant_grade.")
    positives: Literal["given", "answers"] = Field(
        "given", description="Of training queries: those judged; or else the best passage found with an answer (QA)."
    )
    train_queries: TrainQueries | None = Field(None, exclude_if=is_none, description="Only some of them; null: all.")


class ApiDocs(Judged):
    """The embedded collection: API documentation of installed packages, read from their sources with `ast`."""

    source: Literal["apidocs"]
    packages: list[Text] = Field(min_length=1, description="Installed packages to harvest; versions enter the key.")
    min_words: Natural = Field(20, description="Docstring bodies with fewer words are left out.")


class Folder(Judged):
    """A folder: corpus.tsv[.gz] (id, title, text), queries.SPLIT.tsv, qrels.SPLIT.tsv, maybe answers.SPLIT.jsonl."""

    source: Literal["folder"]
    path: LocalPath = Field(description="The folder of corpus.tsv[.gz].")
    queries: LocalPath | None = Field(None, description="The folder of queries and judgments, when it is another one.")


class Beir(Judged):
    """A BEIR folder: corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv."""

    source: Literal["beir"]
    path: LocalPath = Field(description="The BEIR folder.")


SplitName = Annotated[str, Field(pattern=NAME)]


class Split(Section):
    """The two files of a split."""

    queries: LocalPath = Field(description="Tab-separated: query id, text.")
    qrels: LocalPath = Field(description="TREC judgments: query, iteration (may be absent), passage, grade.")


class Tsv(Judged):
    """MS MARCO-style files: a corpus of two or three tab-separated columns, and two files per split."""

    source: Literal["tsv"]
    corpus: LocalPath = Field(description="Tab-separated, .gz or plain: id, text; or id, title, text.")
    splits: dict[SplitName, Split] = Field(min_length=1, description="Files of train, dev, test and others.")


class Expected(Section):
    """What is known of a file before it is fetched."""

    bytes: Natural | None = Field(None, description="Expected size.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected SHA-256.")
    md5: str | None = Field(None, pattern="^[0-9a-f]{32}$", description="Expected MD5, where only that is published.")


class Download(Expected):
    """An official file. Without a digest, the one of the first download is recorded and holds from then on."""

    mirrors: list[Annotated[str, Field(pattern="^https?://")]] = Field([], description="URLs, tried in this order.")


class Fetched(Judged):
    """What may be fetched: official files, from mirrors to data/downloads, or lying in a local folder."""

    local: str | None = Field(None, description="A folder with all of `files`, instead of any download.")
    licences: dict[Annotated[str, Field(pattern=NAME)], str] = Field(
        {}, description="Set → terms of use that whoever runs this accepts; shown once, noted in data/licences."
    )
    files: dict[Annotated[str, Field(pattern=NAME)], Download] = Field({}, description="File name → origin.")


class JudgmentFile(Section):
    """The file of a split that has nothing else."""

    qrels: LocalPath = Field(
        description="A path or a name of `files`; TREC judgments: query, iteration (may be absent), passage, grade."
    )


class JudgmentsAlone(Fetched):
    """Judgments alone, to score runs from elsewhere (`external`): without texts nothing can be encoded or searched."""

    source: Literal["judgments"]
    splits: dict[SplitName, JudgmentFile] = Field(min_length=1, description="File of each split.")


class IrDatasets(Judged):
    """Sets of ir_datasets, which fetches, verifies and parses them below data/ir_datasets."""

    source: Literal["ir_datasets"]
    corpus: str = Field(description="The id whose documents are the passages, for example `msmarco-passage`.")
    splits: dict[SplitName, str] = Field(min_length=1, description="Split → its id, as `msmarco-passage/dev/small`.")


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
    queries: str = Field(description="A name of `files`, or FILE!MEMBER: the queries, for dpr and tevatron all.")
    qrels: str | None = Field(None, description="tsv: the file of TREC judgments.")
    all_questions: str | None = Field(None, description="dpr: a file of form qa; further questions have no contexts.")

    @model_validator(mode="after")
    def files_of_the_form(self):
        if (self.form == "tsv") != (self.qrels is not None):
            raise Refusal("qrels goes with form tsv, and only with it")
        if self.all_questions and self.form != "dpr":
            raise Refusal("all_questions goes with form dpr only")
        return self


class Downloads(Fetched):
    """A collection of official files."""

    source: Literal["downloads"]
    files: dict[Annotated[str, Field(pattern=NAME)], Download] = Field(min_length=1, description="File name → origin.")
    corpus: PassageFile = Field(description="The passages.")
    splits: dict[SplitName, OfficialSplit] = Field(min_length=1, description="Files of train, dev, test and others.")

    @model_validator(mode="after")
    def files_are_listed(self):
        used = [self.corpus.file, self.corpus.titles]
        used += [name for split in self.splits.values() for name in (split.queries, split.qrels, split.all_questions)]
        if missing := sorted({name.split("!")[0] for name in used if name} - set(self.files)):
            raise Refusal(f"files lacks {', '.join(missing)}, which corpus or splits name")
        return self


CollectionSource = Annotated[
    ApiDocs | Folder | Beir | Tsv | JudgmentsAlone | IrDatasets | Downloads, Field(discriminator="source")
]


class CollectionSettings(Section):
    """Of the stage `collection`: the source, and what pins its content."""

    source: CollectionSource
    versions: dict[str, str] = {}
    files: dict[str, str] = {}

    def identity(self):
        """Files by their content, wherever they lie."""
        return {"source": by_content(self.source.model_dump(), self.files), "versions": self.versions}


class DownloadSettings(Section):
    """Of the stage `download`: the files, by their names."""

    files: dict[str, Expected]


class Counts(Section):
    """How large the collection will be, for the forecast of a collection that is not built; in no key."""

    passages: Natural = Field(description="Passages of the corpus.")
    queries: dict[str, Integer] = Field(description="Queries of each split.")
    positives: dict[str, Integer] = Field({}, description="Positives of each split; one per query where not given.")
    passage_tokens: NumberOrNull = Field(None, gt=0, description="Mean tokens per passage, cut, special ones too.")
    query_tokens: NumberOrNull = Field(None, gt=0, description="The same of queries.")
    download_bytes: Natural | None = Field(None, description="Bytes of collection.files, if sizes are not published.")
