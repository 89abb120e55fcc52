"""The whole configuration, the checks across its sections, and its JSON Schema."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator
from pydantic.json_schema import GenerateJsonSchema

from teleport.settings.collection import Counts
from teleport.settings.encoder import Encoder
from teleport.settings.evaluation import Ablation, Evaluation, External, Figure, Report
from teleport.settings.experiment import Defaults, Override, WrittenExperiment
from teleport.settings.measures import measure_cutoffs
from teleport.settings.registry import CollectionSource
from teleport.settings.search import Bm25
from teleport.settings.section import (
    ALSO_TABLE,
    ANALYSES_TABLE,
    MAIN_TABLE,
    NAME,
    TABLE_NAME,
    LocalPath,
    Unique,
    entries,
)

OWN_TABLES = (ANALYSES_TABLE, ALSO_TABLE)  # the beginnings of names that ablations do not have
REQUIRED = ("encoder", "training", "episodes")  # unless every experiment gives them itself


class Config(Defaults):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables, /experiments and /report.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `teleport forecast` alone.")
    encoder: Encoder | None = Field(None, description="The dual encoder; needed for experiments.")
    episodes: list[Override] | None = Field(None, description="One entry per episode; needed for experiments.")
    experiments: entries(dict) = Field({}, description="Name → overrides of the settings above.")
    ablations: entries(Ablation) = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: Annotated[  # null drops the entries of earlier files instead of merging them
        entries(External) | None, AfterValidator(lambda given: given or {})
    ] = Field(
        {},
        description="Name → a run or a checkpoint from elsewhere, one row each; null removes the entries of earlier "
        "files.",
    )
    published: list[str] = Field([], description="Published tables beside ours: names in config/published, or paths.")
    figures: entries(Figure, TABLE_NAME) = Field(
        {}, description="Name → a paper's figure, which `teleport figures` draws beside those of the report page."
    )
    keep_vectors: Literal["all", "last", "none"] = Field(
        "all",
        description="Which vectors stay after every planned stage has read them: all, those of each experiment's "
        "last checkpoint, or none. `--forcerun` of their `encode` restores them.",
    )
    artefacts: Unique[LocalPath] = Field(
        [],
        description="Folders and archives of `teleport share`, hub:OWNER/NAME@COMMIT, or other folders `results`. A "
        "stage that one of them has is copied from there, not computed. They decide no result.",
    )
    report: Report | None = Field(Report(), description="The report page; null: made only on request.")
    _files: tuple = ()

    @property
    def files(self):
        """The paths of the files that it was read from."""
        return self._files

    @property
    def expected(self):
        """`counts` (`Counts` or None) with the training queries that are kept."""
        return self.counts and self.counts.of_drawn(self.collection.train_queries)

    @field_validator("collection", mode="before")
    @classmethod
    def null_removes_a_key(cls, collection):
        """Lets a file replace the source of an earlier file, although the keys of both are merged."""
        if isinstance(collection, dict):
            return {key: value for key, value in collection.items() if value is not None}
        return collection


def mistakes(config):
    """Yield (place in the configuration, sentence) for every mistake."""
    yield from unfit_names(config)
    yield from missing_keys(config)
    yield from missing_texts(config)
    yield from measures_beyond_the_depth(config)
    yield from unevaluated_splits(config)


def unevaluated_splits(config):
    """Yield splits of runs, tests and levels that are not evaluated."""
    evaluated = config.evaluation.splits
    listed = f"evaluation.splits has {', '.join(evaluated)}."
    for name, ablation in config.ablations.items():
        for key, value in (("test", ablation.test), ("level", ablation.level)):
            for split in set(value if isinstance(value, dict) else ()) - set(evaluated):
                yield (("ablations", name, key, split), f"{listed} Name one of these.")
    for name, external in config.external.items():
        for split in set(external.runs or ()) - set(evaluated):
            yield (("external", name, "runs", split), f"{listed} Add {split!r} there.")


def named_experiments(config):
    """Yield (place in the configuration, name, overrides) of every experiment, those of ablations included."""
    for name, overrides in config.experiments.items():
        yield ("experiments", name), name, overrides
    for table, ablation in config.ablations.items():
        for name, overrides in ablation.experiments.items():
            yield ("ablations", table, "experiments", name), name, overrides


def unfit_names(config):
    """Yield experiments, external systems and ablations whose name cannot be a folder or a table, or is taken."""
    patterns = {place: NAME for place, _, _ in named_experiments(config)}
    patterns |= {("external", name): NAME for name in config.external}
    patterns |= {("ablations", name): TABLE_NAME for name in config.ablations}
    experiments = {name for _, name, _ in named_experiments(config)}
    for place, pattern in patterns.items():
        name = place[-1]
        if not re.fullmatch(pattern, name):
            yield place, f"the name must match {pattern}, as it becomes a folder or a file. Rename it."
        elif place[0] == "external" and name in experiments:
            yield place, "an experiment has this name. Rename one of them."
        elif place == ("ablations", name) and (name == MAIN_TABLE or name.split("-")[0] in OWN_TABLES):
            taken = f"the table of every system and episode is {MAIN_TABLE}, those of analyses begin with"
            yield place, f"{taken} {ANALYSES_TABLE}, those of other collections with {ALSO_TABLE}. Rename the ablation."


def missing_keys(config):
    """Yield keys that some experiment needs and neither it nor the configuration has."""
    needed = set()
    for _, _, overrides in named_experiments(config):  # without episodes nothing is trained
        trains = overrides.get("episodes", config.episodes) != []
        needed |= set(REQUIRED) - {*overrides, None if trains else "training"}
    for key in REQUIRED:
        if key in needed and getattr(config, key) is None:
            yield (key,), "this key is required; add it."


def missing_texts(config):
    """Yield (place, sentence) of each setting that needs texts, if the collection has judgments alone."""
    if config.collection.has_texts:
        return
    evaluation, rule = config.evaluation, "the collection has judgments alone, no texts"
    places = [place for place, _, _ in named_experiments(config)]
    places += [("external", name) for name, external in config.external.items() if external.encoder is not None]
    places += [("evaluation", "rerank", split) for split in evaluation.rerank]
    places += [("evaluation", "out_of_domain")] if evaluation.out_of_domain else []
    remedies = dict.fromkeys(places, "to encode. Leave it out")
    if config.bm25 and "bm25" in config.model_fields_set:
        remedies["bm25",] = "to search. Leave the key out"
    for split in evaluation.splits:
        for measure in evaluation.measures_of(split):
            if measure.startswith("Cov@"):
                remedies["evaluation", "measures"] = f"in which {measure} could find answers. Leave it out"
    if evaluation.contrast_split and evaluation.analyses.against.run == "BM25":
        remedies["evaluation", "analyses", "against", "run"] = "to search by BM25. Name an entry of external"
    for place, remedy in remedies.items():
        yield place, f"{rule} {remedy}, or give another collection."
    if evaluation.collapse == "firstp":
        order = "judgments do not tell which passage of a document is the first"
        yield ("evaluation", "collapse"), f"{order}. Take maxp, or give another collection."


def measures_beyond_the_depth(config):
    """Yield measures that use more passages than a search for them returns."""
    evaluation = config.evaluation
    measures = [(("evaluation", "measures"), evaluation.measures_of(split)) for split in evaluation.splits]
    if evaluation.contrast_split:
        measures.append((("evaluation", "analyses", "against", "measure"), [evaluation.contrast_measure]))
    for place, names in measures if config.collection.has_texts else ():
        for name, cutoff in measure_cutoffs(names).items():
            if cutoff > evaluation.depth:
                problem = f"{name!r} looks at {cutoff} passages, and evaluation.depth is {evaluation.depth}"
                yield place, f"{problem}. Set the depth to at least {cutoff}, or leave the measure out."


class WithExponents(GenerateJsonSchema):
    """A number may be text such as 1e-5."""

    def float_schema(self, schema):
        return {"anyOf": [super().float_schema(schema), {"type": "string", "pattern": r"^[0-9.]+[eE][-+]?[0-9]+$"}]}


def json_schema():
    """The JSON Schema of a configuration (dict); an experiment's overrides are its settings with nothing required."""
    schema = Config.model_json_schema(schema_generator=WithExponents)
    override = WrittenExperiment.model_json_schema(
        ref_template="#/$defs/{model}Override", schema_generator=WithExponents
    )
    for name, value in ({"Experiment": override} | override.pop("$defs")).items():
        value.pop("required", None)
        schema["$defs"][f"{name}Override"] = value
    bases = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    schema["properties"]["extends"] = bases | {"description": "Files that this one is merged over; relative to it."}
    for owner in (schema, schema["$defs"]["Ablation"]):
        owner["properties"]["experiments"]["additionalProperties"] = {"$ref": "#/$defs/ExperimentOverride"}
    schema.pop("required")  # an editor checks an ablation file alone, without the file that it ablates
    return schema
