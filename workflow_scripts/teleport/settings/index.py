"""The index over passage vectors that is searched, as a configuration names it."""

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import Section

NUMBER = r"[1-9]\d{0,7}"
FORMS = {
    "flat": "Flat",
    "ivf": rf"IVF{NUMBER},Flat",
    "pq": rf"PQ{NUMBER}(x([1-9]|1[0-2]))?(np)?",
    "hnsw": rf"HNSW{NUMBER}(,Flat)?",
}  # the tested texts of index_factory
# The index for the name of a kind alone.
BARE = {"flat": "Flat", "ivf": "IVF4096,Flat", "pq": "PQ48", "hnsw": "HNSW32"}
HNSW = r"(efConstruction|efSearch)=\d+"
# The parameters that each takes.
PARAMETERS = {"flat": "", "ivf": r"nprobe=\d+", "pq": "", "hnsw": rf"{HNSW}(,{HNSW})*"}
EXAMPLES = {"ivf": "parameters such as nprobe=64", "hnsw": "parameters such as efConstruction=200,efSearch=400"}


def also_text(schema):
    """Let the JSON Schema of an object accept text instead."""
    schema["type"] = [schema["type"], "string"]


class Index(Section):
    """The index that is searched: a text for faiss's `index_factory`, and after a space the parameters of its searches,
    such as "Flat", "IVF4096,Flat nprobe=64", "PQ48" or "HNSW32 efConstruction=200,efSearch=400".

    "Flat" is exact search, in which faiss has no part. The name of a kind alone, flat, ivf, pq or hnsw, is one of BARE.
    """

    model_config = ConfigDict(json_schema_extra=also_text)
    factory: str = Field("Flat", description="Flat, IVF4096,Flat, PQ48, PQ48x4, HNSW32; or flat, ivf, pq, hnsw alone.")
    parameters: str = Field("", description="nprobe=64 (IVF); efConstruction=200,efSearch=400 (HNSW).")

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, value):
        if not isinstance(value, str):
            return value
        factory, *parameters = value.split() or [""]
        return {"factory": BARE.get(factory.lower(), factory), "parameters": ",".join(parameters)}

    @model_validator(mode="after")
    def is_known(self):
        if not any(re.fullmatch(form, self.factory) for form in FORMS.values()):
            known = "Flat, IVF4096,Flat, PQ48, PQ48x4 or HNSW32"
            raise Refusal(f"{self.factory!r} is not a known index: write one such as {known}")
        if self.parameters and not re.fullmatch(PARAMETERS[self.kind], self.parameters):
            takes = f"the index {self.factory} takes {EXAMPLES.get(self.kind, 'no parameters')}"
            raise Refusal(f"{takes}, not {self.parameters!r}: leave them out, or name another index")
        return self

    @property
    def kind(self):
        """ "flat", "ivf", "pq" or "hnsw"."""
        return next(kind for kind, form in FORMS.items() if re.fullmatch(form, self.factory))

    @property
    def numbers(self):
        """The numbers in the factory's text: clusters; parts, and bits if given; or neighbours."""
        return [int(number) for number in re.findall(r"\d+", self.factory)]

    @property
    def centroids(self):
        """How many centroids its k-means computes at a time; it needs at least as many vectors. 0 without k-means."""
        return {"ivf": self.numbers[0], "pq": 2**self.bits}[self.kind] if self.kind in ("ivf", "pq") else 0

    @property
    def bits(self):
        """The bits per part of a vector in a pq index."""
        return (*self.numbers, 8)[1]

    @property
    def built(self):
        """The index without the parameters of its searches, which do not decide what is built."""
        return self.model_copy(update={"parameters": self.parameters_of(building=True)})

    def parameters_of(self, building):
        """The parameters of its building, or else those of its searches (text)."""
        return ",".join(each for each in self.parameters.split(",") if each.startswith("efConstruction") == building)

    @property
    def keys(self):
        """The keys of the configuration that can name an index of this kind (text)."""
        return "mining.index" + (", search_index or negatives.live.index" if self.kind == "pq" else "")

    def __str__(self):
        return f"{self.factory} {self.parameters}".strip()


def searches_itself(index):
    """Refuse an index that cannot replace the vectors, with its own scores, in evaluation and ADORE."""
    if index.kind not in ("flat", "pq"):
        raise Refusal(
            f"{index.factory} cannot replace the vectors: write Flat, or PQ with a number of parts, such as PQ48"
        )
    return index


FrozenIndex = Annotated[Index, AfterValidator(searches_itself)]
