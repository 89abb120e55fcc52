"""The forms of a collection, by the name that `collection.source` gives. A new form is one module and one line here."""

import importlib
from typing import Annotated, Union

from pydantic import Field

FORMS = {
    "apidocs": "teleport.collection.forms.apidocs",
    "cloud": "teleport.collection.forms.cloud",
    "folder": "teleport.collection.forms.folder",
    "beir": "teleport.collection.forms.beir",
    "tsv": "teleport.collection.forms.tsv",
    "judgments": "teleport.collection.forms.judgments",
    "ir_datasets": "teleport.collection.forms.ir_datasets",
    "downloads": "teleport.collection.forms.downloads",
}


def form(name):
    """The module of a form."""
    return importlib.import_module(FORMS[name])


CollectionSource = Annotated[
    Union[tuple(form(name).Settings for name in FORMS)],  # noqa: UP007
    Field(discriminator="source"),
]
