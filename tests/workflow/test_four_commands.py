"""From a file of pairs to a table and a search in four commands, as docs/own-data.md has them, in five forms."""

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from test_lesson import run
from toy import World, make_checkpoint

from collection_world import WORDS, random_passages, write_dataset
from paths import REPOSITORY

PAGE = (REPOSITORY / "docs/own-data.md").read_text()
COMMANDS = re.search(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)[1].splitlines()
NUM_PAIRS = 90


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_csv(path, records):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, records[0])
        writer.writeheader()
        writer.writerows(records)


def write_triplets(path, records):
    """The negative of a question is the passage of the one before; the score is a margin."""
    passages = [record["passage"] for record in records]
    triplets = zip(records, passages[-1:] + passages, strict=False)
    write_lines(path, [record | {"negative": negative, "score": 0.5} for record, negative in triplets])


FORMS = {
    "pairs.jsonl": write_lines,
    "pairs.parquet": lambda path, records: pq.write_table(pa.Table.from_pylist(records), path),
    "pairs.csv": write_csv,
    "triplets.jsonl": write_triplets,
    "saved": lambda path, records: write_dataset(path, pa.Table.from_pylist(records)),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A copy of the repository with a miniature encoder that knows the words of the pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    World.copy_repository(folder)
    make_checkpoint(folder / "data/bert", WORDS)
    small = {"checkpoint": {"package": None, "folder": "data/bert"}, "pooling": "mean", "normalize": True}
    (folder / "small.yaml").write_text(yaml.safe_dump({"encoder": small | {"max_passage_tokens": 32}}))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_four_commands_lead_from_pairs_to_a_search(world, form):
    """No file is edited between them. Only the encoder is another one than the template's, so that it takes seconds."""
    rng, name = np.random.default_rng(1), re.sub(r"\W", "-", form)
    texts = [" ".join(words) for words in random_passages(rng, NUM_PAIRS, 8, 30)]
    records = [{"question": " ".join(rng.choice(text.split(), 4)), "passage": text} for text in texts]
    FORMS[form](world / form, records)
    new, plan, go, search = (
        line.replace("pairs.jsonl", form).replace("mine", name).replace(".yaml", ".yaml small.yaml")
        for line in COMMANDS
    )
    search = re.sub('".*"', texts[0].split()[0], search)  # `run` knows no quotes
    said = run(new.replace(" small.yaml", ""), world)
    assert f"config/{name}.yaml is written" in said and f" of {NUM_PAIRS} records: 'question' is the question" in said
    assert "finished already: " in run(plan, world)
    run(go, world)
    with open(world / f"results/tables/{name}/main.csv", newline="") as file:
        rows = [(row["system"], row["episode"]) for row in csv.DictReader(file)]
    assert rows == [("BM25", "0"), ("Zero-shot", "0"), ("Tuned", "1"), ("Tuned", "2")]
    assert (world / f"results/report/{name}/index.html").is_file()
    hits = re.findall(r"^ +\d +-?[\d.]+ +[0-9a-f]{16} +(\S.*)", run(search, world), re.M)
    assert len(hits) == 2 and all(any(text.startswith(hit[:20]) for text in texts) for hit in hits)


def test_the_page_has_four_commands():
    assert [line.split()[0] for line in COMMANDS] == [
        *(f".venv/bin/{program}" for program in ("teleport", "snakemake", "snakemake", "teleport"))
    ]
