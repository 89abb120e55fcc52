"""The settings of an experiment, with their meaning, bounds and sources; `config/schema.json` is made from here."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

NAME = "^[A-Za-z0-9][A-Za-z0-9._-]*$"  # of configurations, experiments and ablations: they become folders


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# --- collection -----------------------------------------------------------------------------------------------------


# For sources with answers. Left out of the stage's settings at its default, so that only its use makes new stages.
Positives = Literal["given", "answers"]
POSITIVES = Field(
    "given",
    exclude_if=lambda value: value == "given",
    description="Positives of training queries: those judged; or, for a question without one, the best retrieved "
    "passage of the episode with an answer (released, NQ and TriviaQA).",
)


class ApiDocs(Section):
    """The embedded collection: API documentation of installed packages, read from their sources with `ast`."""

    source: Literal["apidocs"]
    packages: list[str] = Field(
        min_length=1, description="Installed packages to harvest; their versions enter the key."
    )
    min_words: int = Field(20, ge=1, description="Docstring bodies with fewer words are left out.")
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")


class Folder(Section):
    """A folder: corpus.tsv[.gz] (id, title, text), queries.SPLIT.tsv, qrels.SPLIT.tsv, maybe answers.SPLIT.jsonl."""

    source: Literal["folder"]
    path: str = Field(description="The folder of corpus.tsv[.gz].")
    queries: str | None = Field(None, description="The folder of queries and judgments, when it is another one.")
    positives: Positives = POSITIVES
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")


class Beir(Section):
    """A BEIR folder: corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv."""

    source: Literal["beir"]
    path: str = Field(description="The BEIR folder.")
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")


class Split(Section):
    """The two files of a split."""

    queries: str = Field(description="Tab-separated: query id, text.")
    qrels: str = Field(
        description="TREC judgments (query, iteration, passage, grade) or three columns without iteration."
    )


class Tsv(Section):
    """MS MARCO-style files: a corpus of two or three tab-separated columns, and two files per split."""

    source: Literal["tsv"]
    corpus: str = Field(description="Tab-separated, .gz or plain: id, text; or id, title, text.")
    splits: dict[str, Split] = Field(min_length=1, description="Files of train, dev, test and others.")
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")


class IrDatasets(Section):
    """Sets of ir_datasets, which fetches, verifies and parses them below data/ir_datasets."""

    source: Literal["ir_datasets"]
    corpus: str = Field(description="The id whose documents are the passages, for example `msmarco-passage`.")
    splits: dict[str, str] = Field(
        min_length=1, description="Split → the id of its queries and judgments, such as `msmarco-passage/dev/small`."
    )
    positives: Positives = POSITIVES
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")


class Download(Section):
    """An official file. Without a digest, the one of the first download is recorded and holds from then on."""

    mirrors: list[Annotated[str, Field(pattern="^https?://")]] = Field([], description="URLs, tried in this order.")
    bytes: int | None = Field(None, ge=1, description="Expected size.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected SHA-256.")
    md5: str | None = Field(None, pattern="^[0-9a-f]{32}$", description="Expected MD5, where only that is published.")


class PassageFile(Section):
    """The file of the passages, and that of their titles when they are apart."""

    file: str = Field(description="A name of `files`; FILE!MEMBER is a member of a tar archive.")
    form: Literal["tsv", "dpr"] = Field(
        "tsv", description="tsv: id, text or id, title, text (MS MARCO). dpr: CSV of id, text, title with a header."
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
    all_questions: str | None = Field(
        None, description="dpr: a file of the form qa; those of its questions that `queries` lacks have no contexts."
    )

    @model_validator(mode="after")
    def files_of_the_form(self):
        if (self.form == "tsv") != (self.qrels is not None):
            raise ValueError("qrels goes with form tsv, and only with it")
        if self.all_questions and self.form != "dpr":
            raise ValueError("all_questions goes with form dpr only")
        return self


class Downloads(Section):
    """Official files, fetched from mirrors to data/downloads, or lying in a local folder."""

    source: Literal["downloads"]
    local: str | None = Field(None, description="A folder with all of `files`, instead of any download.")
    licences: dict[Annotated[str, Field(pattern=NAME)], str] = Field(
        {}, description="Set → terms of use that whoever runs this accepts; shown once, noted in data/licences."
    )
    files: dict[Annotated[str, Field(pattern=NAME)], Download] = Field(min_length=1, description="File name → origin.")
    corpus: PassageFile = Field(description="The passages.")
    splits: dict[str, OfficialSplit] = Field(min_length=1, description="Files of train, dev, test and others.")
    positives: Positives = POSITIVES
    positive_grade: int = Field(1, ge=1, description="Judgments of at least this grade are positives.")

    @model_validator(mode="after")
    def files_are_listed(self):
        used = [self.corpus.file, self.corpus.titles]
        used += [name for split in self.splits.values() for name in (split.queries, split.qrels, split.all_questions)]
        missing = sorted({name.split("!")[0] for name in used if name} - set(self.files))
        if missing:
            raise ValueError(f"files lacks {', '.join(missing)}, which corpus or splits name")
        return self


CollectionSource = Annotated[ApiDocs | Folder | Beir | Tsv | IrDatasets | Downloads, Field(discriminator="source")]


class Counts(Section):
    """How large the collection will be, for the forecast of a collection that is not built; in no key."""

    passages: int = Field(ge=1, description="Passages of the corpus.")
    queries: dict[str, int] = Field(description="Queries of each split.")
    positives: dict[str, int] = Field({}, description="Positives of each split; one per query where not given.")
    passage_tokens: float | None = Field(
        None, gt=0, description="Mean tokens per passage as encoded: special tokens included, cut at the maximum."
    )
    query_tokens: float | None = Field(None, gt=0, description="The same of queries.")


# --- encoder --------------------------------------------------------------------------------------------------------


class CheckpointSource(Section):
    """Where the pretrained checkpoint comes from: exactly one of hub, folder, package."""

    hub: str | None = Field(None, description="A model id on the Hugging Face hub; needs `revision`.")
    revision: str | None = Field(None, description="The commit of the hub repository.")
    folder: str | None = Field(None, description="A local folder in transformers' form.")
    package: str | None = Field(None, description="An installed Python package that carries the checkpoint.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected digest of the weights file.")

    @model_validator(mode="after")
    def one_place(self):
        if sum(place is not None for place in (self.hub, self.folder, self.package)) != 1:
            raise ValueError("give exactly one of hub, folder, package")
        if (self.hub is None) != (self.revision is None):
            raise ValueError("hub and revision go together: name the commit, so that the weights cannot change")
        return self


class Encoder(Section):
    """The dual encoder: vectors of queries and passages, compared by inner product."""

    checkpoint: CheckpointSource = Field(description="The pretrained checkpoint that episodes start from.")
    pooling: Literal["cls", "mean"] = Field(
        "cls", description="Vector of a text from its token vectors (ANCE-Tele: cls)."
    )
    projection: int | None = Field(
        None, gt=0, description="Width of a linear + LayerNorm head (ANCE: 768); null: none."
    )
    normalize: bool = Field(False, description="Scale vectors to length 1 (ANCE-Tele: no).")
    scale: float = Field(
        1.0, gt=0, description="Factor on inner products in the loss (ANCE-Tele: 1; cosine: about 20)."
    )
    tied: bool = Field(True, description="One encoder for both sides (ANCE-Tele on MS MARCO), or two (NQ, TriviaQA).")
    title: Literal["sep", "space", "none"] = Field(
        "sep", description="Title and text joined by [SEP], a space, or no title."
    )
    lower_case: bool | None = Field(None, description="Lower-case before tokenising; null: as the tokenizer does.")
    max_query_tokens: int = Field(32, ge=3, description="With special tokens (ANCE-Tele Table 5: 32).")
    max_passage_tokens: int = Field(
        128, ge=3, description="With special tokens (ANCE-Tele Table 5: 128 MARCO, 156 QA)."
    )
    query_checkpoint: CheckpointSource | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="The queries' own checkpoint, where two were published; `checkpoint` is then that of passages.",
    )

    @model_validator(mode="after")
    def two_checkpoints_make_two_encoders(self):
        if self.query_checkpoint and self.tied:
            raise ValueError("query_checkpoint goes with tied: false only")
        return self


# --- negatives ------------------------------------------------------------------------------------------------------


class FlatIndex(Section):
    """Exact search: every passage is compared."""

    kind: Literal["flat"] = "flat"


class IvfIndex(Section):
    """faiss's inverted lists: only the passages of the nearest clusters are compared."""

    kind: Literal["ivf"]
    nlist: int = Field(
        1024, ge=1, description="Clusters, by k-means; faiss advises 4 to 16 times the root of passages."
    )
    nprobe: int = Field(64, ge=1, description="Clusters searched per anchor.")

    @model_validator(mode="after")
    def probes_are_lists(self):
        if self.nprobe > self.nlist:
            raise ValueError(f"nprobe {self.nprobe} is more than nlist {self.nlist}: lower it")
        return self


class PqIndex(Section):
    """faiss's product quantisation: m x bits bits per passage."""

    kind: Literal["pq"]
    m: int = Field(48, ge=1, description="Parts of a vector; they divide its dimensions (JPQ and RepCONC: 48 of 768).")
    bits: int = Field(8, ge=1, le=12, description="Bits per part.")


class HnswIndex(Section):
    """faiss's graph of neighbours; slow to build, which one thread does so that it is reproducible."""

    kind: Literal["hnsw"]
    M: int = Field(32, ge=2, le=64, description="Neighbours per passage (faiss: 32).")
    efConstruction: int = Field(200, ge=1, description="Candidates while building.")
    efSearch: int = Field(400, ge=1, description="Candidates while searching; less than the depth counts as the depth.")


Index = Annotated[FlatIndex | IvfIndex | PqIndex | HnswIndex, Field(discriminator="kind")]


class Mining(Section):
    """Retrieval of negative candidates with the newest checkpoint."""

    depth: int = Field(200, ge=1, description="Neighbours retrieved per anchor (ANCE-Tele Table 5: 200).")
    anchor: Literal["first", "all"] = Field(
        "first", description="Lookahead anchors: the first positive (released), or all."
    )
    index: Index = Field(FlatIndex(), description="What is searched for negatives; evaluation always searches exactly.")


class Negatives(Section):
    """The pool of training negatives of an episode."""

    sources: list[Literal["query", "positive", "momentum"]] = Field(
        ["query", "positive", "momentum"],
        min_length=1,
        description="Neighbours of the query, of its positive (lookahead), and the last episode's pool (momentum).",
    )
    mode: Literal["mixture", "released"] = Field(
        "mixture",
        description="Shares by alpha and beta (paper, Appendix C), or equal counts concatenated (released code).",
    )
    alpha: float = Field(0.5, ge=0, le=1, description="mixture: share of momentum negatives (ANCE-Tele Table 5: 0.5).")
    beta: float = Field(0.5, ge=0, le=1, description="mixture: share of lookahead among the new ones (Table 5: 0.5).")
    pool: int = Field(60, ge=1, description="mixture: negatives per query (released Episode 1: 30 + 30).")
    per_source: int = Field(30, ge=1, description="released: negatives per source and episode (30 MARCO, 80 QA).")
    keep_duplicates: bool = Field(
        True, description="Keep a passage as often as it was drawn (Table 8: dropping costs 0.9)."
    )
    remove: Literal["judged", "answers"] = Field(
        "judged",
        description="What is no negative: known positives; or every passage whose text has an answer, and nothing else "
        "(released, NQ and TriviaQA).",
    )

    @model_validator(mode="after")
    def something_is_mined(self):
        if "query" not in self.sources and "positive" not in self.sources:
            raise ValueError("sources needs query or positive: momentum alone has nothing to start from")
        return self


# --- training -------------------------------------------------------------------------------------------------------


class Training(Section):
    """One episode's training."""

    negatives_per_query: int = Field(
        31, ge=1, description="N per positive (ANCE-Tele Table 5: 31; released Episode 1: 15)."
    )
    batch_queries: int = Field(8, ge=1, description="Queries per step (Table 5: 8 MARCO, 128 QA).")
    learning_rate: float = Field(5e-6, gt=0, description="Peak rate (Table 5: 5e-6).")
    warmup_ratio: float = Field(0.1, ge=0, lt=1, description="Share of the schedule that warms up (Table 5: 0.1).")
    weight_decay: float = Field(0.0, ge=0, description="Decay of AdamW or LAMB (released: 0).")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient norm is clipped to this (released: 1).")
    epochs: int | None = Field(
        None, ge=1, description="Length of the schedule in passes over the queries (Table 5: 3)."
    )
    steps: int | None = Field(None, ge=1, description="Length of the schedule in steps, instead of epochs.")
    stop_after_steps: int | None = Field(
        None, ge=1, description="Stop early; the schedule keeps its full length (§4.3)."
    )
    start_from: Literal["pretrained", "previous"] = Field(
        "pretrained", description="ANCE-Tele: pretrained, every episode."
    )
    positive: Literal["rotate", "first"] = Field(
        "rotate", description="Which positive an epoch uses (QA: always the first)."
    )
    mask_false_negatives: bool = Field(False, description="Leave known positives out of a query's in-batch negatives.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bf16 where the hardware computes in it."
    )
    # Left out of a stage's settings at their defaults, so that only their use makes new stages.
    optimizer: Literal["adamw", "lamb"] = Field(
        "adamw",
        exclude_if=lambda value: value == "adamw",
        description="adamw (ANCE-Tele, released), or lamb without bias correction, as ANCE's released code has it.",
    )
    gradient_caching: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Encode the batch twice, so that its memory is that of one chunk (GradCache); same gradients.",
    )
    accumulate: int = Field(
        1,
        ge=1,
        exclude_if=lambda value: value == 1,
        description="Micro-batches that a step's queries are split into; in-batch negatives come from the micro-batch "
        "alone.",
    )

    @model_validator(mode="after")
    def equal_micro_batches(self):
        if self.batch_queries % self.accumulate:
            raise ValueError(
                f"batch_queries {self.batch_queries} cannot be split into {self.accumulate} equal micro-batches: "
                "make batch_queries a multiple of accumulate"
            )
        return self

    @model_validator(mode="after")
    def one_length(self):
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "give exactly one of epochs and steps (to override one by the other, set the first to null)"
            )
        return self


class EpisodeOverride(Section):
    """What one episode does differently: any setting of `training`."""

    training: dict = Field({}, description="Settings of `training` for this episode.")


# --- evaluation -----------------------------------------------------------------------------------------------------


class Significance(Section):
    """Paired test of every row against one baseline row."""

    baseline: str = Field(
        "Zero-shot", description="Row label to compare with: `Zero-shot`, `BM25`, or an experiment's label."
    )
    test: Literal["permutation", "t-test"] = Field(
        "permutation", description="permutation (ANCE-Tele), or a two-sided paired t-test (STAR and ADORE)."
    )
    resamples: int = Field(9999, ge=99, description="Random sign flips (ANCE-Tele: permutation test).")
    level: float = Field(0.05, gt=0, lt=1, description="Marked as significant below this Holm-corrected p.")


class Evaluation(Section):
    """How checkpoints and runs are scored."""

    splits: list[str] = Field(["test"], min_length=1, description="Query sets that are searched after every episode.")
    depth: int = Field(1000, ge=1, description="Length of a run per query.")
    measures: list[str] | dict[str, list[str]] = Field(
        ["RR@10", "nDCG@10", "R@100", "R@1000"],
        min_length=1,
        description="ir-measures names, and Cov@k; or split → names.",
    )
    significance: Significance = Field(Significance(), description="The test that marks cells.")
    collapse: Literal["maxp", "firstp"] | None = Field(
        None,
        description="Score documents by their best passage (maxp) or their first one (firstp); null: score passages.",
    )
    separator: str = Field(
        "#", min_length=1, description="collapse: a passage's document is its id before the last of these."
    )
    forgetting: bool = Field(
        False,
        description="Search the training queries with the last checkpoint too, which no episode mines: the forgetting "
        "rate of the last episode (ANCE-Tele Table 9) needs it.",
    )

    @model_validator(mode="after")
    def measures_of_every_split(self):
        if isinstance(self.measures, dict):
            missing = [split for split in self.splits if not self.measures.get(split)]
            if missing:
                raise ValueError(f"measures by split must name every split; it lacks {', '.join(missing)}")
        return self

    def measures_of(self, split):
        """The names of the measures of one split."""
        return list(self.measures[split] if isinstance(self.measures, dict) else self.measures)


class Bm25(Section):
    """The lexical baseline (bm25s, Lucene's formula)."""

    k1: float = Field(0.9, ge=0, description="Term saturation (Anserini's default 0.9; MS MARCO tuned 0.82).")
    b: float = Field(0.4, ge=0, le=1, description="Length normalisation (Anserini's default 0.4; MS MARCO tuned 0.68).")
    stemmer: str | None = Field("english", description="Snowball stemmer; null: none.")
    stopwords: str | None = Field("english", description="Stop word list of bm25s; null: none.")


class External(Section):
    """A system from elsewhere, scored but not trained here: runs in TREC's format, or a checkpoint."""

    label: str | None = Field(None, description="Name of the row in tables; the entry's name when absent.")
    runs: dict[str, str] | None = Field(
        None, min_length=1, description="Split → run file of six columns, plain or .gz; ties go as in trec_eval."
    )
    unknown_queries: Literal["error", "drop"] = Field(
        "error", description="runs: what happens to lines of queries that the split does not have."
    )
    encoder: dict | None = Field(None, description="Settings of `encoder` that differ: its checkpoint, pooling, …")

    @model_validator(mode="after")
    def one_form(self):
        if (self.runs is None) == (self.encoder is None):
            raise ValueError("give exactly one of runs and encoder")
        return self


# --- the whole ------------------------------------------------------------------------------------------------------


def distinct(values):
    if len(set(values)) < len(values):
        raise ValueError("values must differ from each other")
    return values


Seeds = Annotated[list[int], Field(min_length=1), AfterValidator(distinct)]


class Experiment(Section):
    """One system: everything that may differ between the rows of a table."""

    label: str | None = Field(None, description="Name of the row in tables; the experiment's name when absent.")
    encoder: Encoder
    mining: Mining = Mining()
    negatives: Negatives = Negatives()
    training: Training
    episodes: list[EpisodeOverride] = Field(description="One entry per episode; an empty list is the zero-shot system.")
    seeds: Seeds = Field([42], description="Root seeds; tables give mean and standard deviation.")

    def training_of(self, episode):
        """The training settings of episode 1, 2, …: the experiment's, with the episode's overrides on top."""
        return Training(**(self.training.model_dump() | self.episodes[episode - 1].training))


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: str = Field(description="Caption of the table.")
    baseline: str | None = Field(None, description="Row label that the others are tested against; null: no test.")
    experiments: dict[str, dict] = Field(min_length=1, description="Name → overrides, one row each.")


class Config(Section):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables and results/experiments.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `make forecast` alone.")
    encoder: Encoder = Field(description="The dual encoder of every experiment.")
    mining: Mining = Field(Mining(), description="How candidates are retrieved.")
    negatives: Negatives = Field(Negatives(), description="How the pool of an episode is made.")
    training: Training = Field(description="How an episode trains.")
    episodes: list[EpisodeOverride] = Field(description="One entry per episode.")
    seeds: Seeds = Field([42], description="Root seeds of every experiment.")
    experiments: dict[str, dict] = Field({}, description="Name → overrides of the settings above.")
    ablations: dict[str, Ablation] = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: dict[str, External] = Field({}, description="Name → a run or a checkpoint from elsewhere, one row each.")
    published: list[str] = Field(
        [], description="Tables of published figures to set beside ours: names in config/published, or paths."
    )
