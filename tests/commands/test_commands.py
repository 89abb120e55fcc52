"""The commands: beside the library, which does without them; one sentence for a mistake, a traceback for a defect."""

import gzip
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manage as script
from commands.compare import compare
from commands.export import export, push
from paths import REPOSITORY
from teleport.evaluation.significance import Scores, crossed_p_value
from teleport.refusal import Refusal
from teleport.report.verdicts import p_text
from teleport.running.artefact import MANIFEST, Artefact, signed
from teleport.running.code import LIBRARY
from teleport.running.files import write_json


def test_no_module_of_the_library_imports_a_command():
    importing = re.compile(r"^\s*(from|import) commands\b", re.MULTILINE)
    files = list(LIBRARY.rglob("*.py"))
    assert files and not [path for path in files if importing.search(path.read_text(encoding="utf-8"))]


def test_files_of_a_finished_stage_are_read_through_their_check():
    """But for config.json, of which the forecast takes sizes alone."""
    beside = re.compile(r"\b(stage|artefact|upstream|collection)\.folder /")
    sources = [*LIBRARY.rglob("*.py"), *(LIBRARY.parent / "commands").rglob("*.py")]
    assert len(sources) > 100
    assert {path.name for path in sources if beside.search(path.read_text(encoding="utf-8"))} == {"counts.py"}


def manage(folder, *arguments, before="pass"):
    """A command in a folder; before: Python that runs before it."""
    code = f"import sys, manage; {before}; sys.argv[0] = 'manage.py'; manage.main()"
    environment = {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_what_shows_results_says_alike_that_there_are_none(tmp_path):
    config = REPOSITORY / "config/config.yaml"
    (said,) = {manage(tmp_path, name, config).stderr for name in ("report", "figures", "tables")}
    assert re.fullmatch(r"error: results/stages/corpus/\w+ is not finished yet\. Run the workflow first: .*\n", said)


def test_a_page_is_not_written_into_a_folder_of_others(tmp_path):
    """It may be written into an empty folder, or over an earlier page."""
    config, docs = REPOSITORY / "config/config.yaml", tmp_path / "docs"
    docs.mkdir()
    write = lambda: manage(tmp_path, "report", config, "--output", "docs").stderr  # noqa: E731
    assert "is not finished yet" in write()
    (docs / "mine.md").write_text("mine")
    assert write() == "error: docs exists already. Remove it, or give another path.\n"
    (docs / "_page").mkdir()
    assert "is not finished yet" in write()


def test_a_defect_keeps_its_traceback(tmp_path):
    defect = "import commands.disk; commands.disk.check_stages = lambda: int('bug')"
    done = manage(tmp_path, "verify", before=defect)
    assert done.returncode == 1 and "Traceback (most recent call last)" in done.stderr
    assert "ValueError: invalid literal for int() with base 10: 'bug'" in done.stderr


def test_too_little_memory_is_one_sentence(tmp_path):
    lacking = "import commands.disk; commands.disk.check_stages = lambda: (_ for _ in ()).throw(MemoryError())"
    done = manage(tmp_path, "verify", before=lacking)
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.startswith("error: ")


def test_a_warning_of_a_stage_is_called_one_on_the_terminal(tmp_path):
    """Such as `new` runs them. Commands that keep a log show it with its time instead."""
    said = (
        "from teleport.running.log import log; import commands.export, commands.disk; commands.{} = lambda *_, **__: "
    )
    said += "log.warning('%d copies', 3) or ([], 0)"
    assert manage(tmp_path, "export", "stage", "out", before=said.format("export.export")).stderr == (
        "warning: 3 copies\n"
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d 3 copies\n", manage(tmp_path, "verify", before=said.format("disk.check_stages")).stderr
    )


def test_a_reader_that_has_enough_is_no_defect(tmp_path):
    """As `head`, which closes the pipe after its lines."""
    command = [sys.executable, REPOSITORY / "workflow_scripts/manage.py", "verify"]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.stdout.close()
    assert (started.stderr.read(), started.wait()) == ("", 1)
    started.stderr.close()


@pytest.mark.ci(0)
def test_table_1_of_three_configurations_by_one_command(tmp_path):
    """A file with a name begins the next configuration; an ablation belongs to the one before it."""
    names = ("marco", "ablations/bm25", "nq", "triviaqa")
    files = [REPOSITORY / f"config/{name}.yaml" for name in names]
    done = manage(tmp_path, "joint", "ance-tele-table-1", *files)
    assert (done.returncode, done.stderr) == (0, "")
    written = tmp_path / "results/published/marco+nq+triviaqa/ance-tele-table-1.md"
    assert done.stdout.startswith(written.read_text()) and "0 of 34 figures were run." in done.stdout
    lines = [line for line in done.stdout.splitlines() if "| not run |" in line]
    assert [line.count("cocondenser") for line in lines].count(1) == 8 and len(lines) == 34
    wrong = manage(tmp_path, "joint", "trec-dl", *files[2:])
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: the configuration 'nq' fills no cell of the table")


@pytest.mark.parametrize(("name", "said"), [("marco", None), ("config", "no table: .*`published`")])
def test_the_tables_that_are_written_are_named(tmp_path, name, said):
    done = manage(tmp_path, "tables", "--published", REPOSITORY / f"config/{name}.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("results/published/*/*.md"))
    assert re.fullmatch(said, done.stdout.strip()) if said else sorted(done.stdout.split()) == written != []


@pytest.mark.parametrize("script", ["manage.py", "run_stage.py"])
def test_a_command_finds_its_modules_also_in_the_safe_path_mode(tmp_path, script):
    path = REPOSITORY / "workflow_scripts" / script
    environment = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(REPOSITORY / "workflow_scripts")}  # as if installed
    done = subprocess.run(
        [sys.executable, path, "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "usage:" in done.stdout


@pytest.mark.ci(0)
def test_ctrl_c_is_no_traceback_whenever_it_comes(tmp_path):
    """Some while importing, some while working."""
    path, ended = REPOSITORY / "workflow_scripts/manage.py", set()
    for delay in np.linspace(0.01, 0.6, 6):
        started = subprocess.Popen([sys.executable, path, "status", REPOSITORY / "config/marco.yaml"], cwd=tmp_path,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
        time.sleep(delay)
        started.send_signal(signal.SIGINT)
        said = started.communicate()[1]
        assert "/commands/" not in said and "/teleport/" not in said, "nor is one of Python's own start ours"
        ended.add(started.returncode)
    assert ended & {-signal.SIGINT, 1}


def test_ctrl_c_that_a_library_turns_into_an_error_of_its_own_is_ctrl_c(monkeypatch):
    """Pydantic makes a SchemaError of one that comes while it builds a model."""

    def status():
        """What runs."""
        try:
            signal.raise_signal(signal.SIGINT)
        except SystemExit as interrupt:
            raise RuntimeError("SchemaError: SystemExit:") from interrupt

    for name, value in {"INTERRUPTS": [], "COMMANDS": [(status, ())]}.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr("sys.argv", ["manage.py", "status"])
    before = signal.signal(signal.SIGINT, script.interrupt)
    try:
        with pytest.raises(SystemExit, match="^interrupted: "):
            script.main()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "results/a", "results/b"], "error: results/a is neither a finished stage"),
        (["compare", "a", "b", "--most=-3"], "'-3' is not a whole number"),
        (
            ["compare", "repo2/a", "repo2/a"],
            "error: repo2/a is neither a finished stage nor a link to one. Give one such as ",
        ),
        (["export", "file", "out"], "error: file is neither a finished stage nor a link to one. Give one such as "),
        (["push", "nowhere", "me/model"], "error: nowhere is not a checkpoint: give a folder that"),
        (["audit", "nowhere.jsonl"], "argument FILE|STAGE: nowhere.jsonl does not exist"),
        (["audit", "file", "--like", "3"], "argument --like: '3' is not a number from -1 to 1"),
        (["audit", "file", "--margin", "nan"], "argument --margin: 'nan' is not a number from -1 to 1"),
        (["search", "mine", "--file", "nowhere.txt"], "argument --file: nowhere.txt does not exist"),
        (["status", "nowhere.json"], "error: nowhere.json does not exist"),
        (["status", "repo2/a/manifest.json"], "error: repo2/a/manifest.json does not exist"),
        (["status", "a.json", "b.yaml"], "error: a.json is a whole configuration, so b.yaml has no effect."),
        (["export", "x" * 300, "out"], "error: a name is too long"),
        (["new", "mine", "x" * 5000], "xxxx); give a shorter one."),
        (["report", "toy.yaml", "--output", "file/page"], "argument --output: file is not a folder"),
        (["figures", "toy.yaml", "--output", "/proc/figures"], "argument --output: /proc/figures/"),
    ],
)
def test_a_wrong_path_is_one_sentence(tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("")
    (tmp_path / "repo2/a").mkdir(parents=True)
    (tmp_path / "repo2/a/manifest.json").write_text("{}")  # of something else
    done = manage(tmp_path, *arguments)
    assert done.returncode in (1, 2) and sentence in done.stderr and "Traceback" not in done.stderr
    assert "--forcerun" not in done.stderr and len(done.stderr) < 1500


NOWHERE = ["--configfile", "nowhere.yaml"], "nowhere.yaml: the file does not exist"


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("profile", "words", "said"),
    [
        ("default", *NOWHERE),
        ("slurm", *NOWHERE),
        ("default", ["--configfile", "config/config.yaml", "config"], "error: --configfile: config: this is a folder"),
        (
            "default",
            ["--configfile=FOLDER/torn.yaml"],
            "torn.yaml, line 2: not YAML in UTF-8 (expected ',' or ']', but",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_sentence(tmp_path, profile, words, said):
    (tmp_path / "torn.yaml").write_text("a: [1\nb: 2\n")
    words = [word.replace("FOLDER", str(tmp_path)) for word in words]
    command = [sys.executable, "-m", "snakemake", "-n", "--workflow-profile", f"profiles/{profile}", *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Using workflow specific profile")]
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert lines[0].startswith("error: --configfile: ") and said in lines[0]


@pytest.fixture
def checkpoint(stages, monkeypatch):
    """A train stage with a checkpoint of an encoder that has a pooler in other libraries, and was never trained."""
    from safetensors.numpy import save_file

    from commands import export_check

    monkeypatch.setattr(export_check, "require_trained", lambda stage: "")
    monkeypatch.setattr(export_check, "require_vectors", lambda checkpoint, stage: "Checked")
    start = stages.finish(stages.make("pretrained", {"checkpoint": {"folder": "start"}}))
    job = stages.make("train", inputs={"pretrained": start})
    folder = job.output("checkpoint")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 4}))
    (folder / "README.md").write_text("# A model\n\n## Settings\n")
    monkeypatch.setattr("commands.export.name_cosine", lambda folder: None)
    save_file({"weight": np.ones((4, 4), np.float32)}, folder / "model.safetensors")
    return stages.finish(job).folder


def test_a_checkpoint_is_exported_whole(checkpoint, tmp_path):
    from safetensors.numpy import load_file

    export(checkpoint, tmp_path / "out/model")
    weights = load_file(tmp_path / "out/model/model.safetensors")
    assert set(weights) == {"weight", "pooler.dense.weight", "pooler.dense.bias"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]
    with pytest.raises(Refusal, match="model exists already"):
        export(checkpoint, tmp_path / "out/model")
    with pytest.raises(Refusal, match="README.md/x cannot be written"):
        export(checkpoint, tmp_path / "out/model/README.md/x")


@pytest.mark.parametrize("damage", ["truncated", "edited"])
def test_a_damaged_weight_file_is_refused_and_nothing_is_left(checkpoint, tmp_path, monkeypatch, damage):
    """Also one that is larger than what every reader hashes."""
    monkeypatch.setattr("teleport.running.artefact.ALWAYS_HASHED_BYTES", 0)
    path = checkpoint / "checkpoint/model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-8] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Refusal, match=r"model.safetensors (has .* bytes|.*SHA-256)"):
        export(checkpoint, tmp_path / "out/model")
    assert list((tmp_path / "out").iterdir()) == []


def evaluation(stages, collection, values, seed=None, found="", measure="RR@10", **settings):
    """An evaluate stage of the first of two queries; seed: of the training behind it; found: the lines of its run."""
    inputs = {"collection": collection}
    if seed is not None:
        checkpoint = stages.finish(stages.make("train", {"seed": seed}))
        queries = stages.finish(stages.make("encode", {}, {"checkpoint": checkpoint}))
        inputs["run"] = stages.finish(stages.make("retrieve", {}, {"queries": queries}))
    job = stages.make("evaluate", {"split": "test", "measures": [measure]} | settings, inputs)
    table = {"query_id": ["q0", "q1"][: len(values)], "measure": [measure] * len(values), "value": values}
    job.output("test.run.gz").write_bytes(gzip.compress(found.encode()))
    pq.write_table(pa.table(table), job.output("per_query.parquet"))
    return stages.finish(job, {"means": {measure: float(np.mean(values))}}).folder


def two_queries(stages):
    """A collection."""
    collection = stages.make("collection")
    queries = {"query_id": ["q0", "q1"], "text": ["one", "two"]}
    pq.write_table(pa.table(queries), collection.output("queries.test.parquet"))
    passages = {"doc_id": ["D7#0", "D7#1"], "title": ["", ""], "text": ["first", "second"]}
    pq.write_table(pa.table(passages), collection.output("corpus.parquet"))
    judged = {"query_id": ["q0", "q0"], "doc_id": ["D7#0", "D7#1"], "grade": [1, 3]}
    pq.write_table(pa.table(judged), collection.output("qrels.test.parquet"))
    return stages.finish(collection)


def test_systems_of_several_seeds_are_tested_over_queries_and_seeds(stages, tmp_path):
    """By the path without the folders of the seeds; a single seed's p speaks of its checkpoint."""
    collection, home = two_queries(stages), tmp_path / "results/experiments"
    values = {"one": np.array([[0.1, 0.2, 0.15], [0.3, 0.5, 0.4]]), "two": np.array([[0.8, 0.9, 0.7], [0.9, 1.0, 0.8]])}
    for name, values_QR in values.items():
        for seed in (1, 2, 3):
            link = home / name / f"seed-{seed}/episode-1/evaluate-test"
            link.parent.mkdir(parents=True)
            link.symlink_to(evaluation(stages, collection, values_QR[:, seed - 1].tolist(), seed))
    paths = [home / name / "episode-1/evaluate-test" for name in values]
    said = compare(*paths, None, None, 10).splitlines()
    ours, theirs = (Scores(values[name], (1, 2, 3)) for name in ("two", "one"))
    assert said[0].endswith(f"B - A +0.5750, p {p_text(crossed_p_value(ours, theirs))}")
    assert said[2] == "p: two-sided, over queries and seeds (3 of A, 3 of B), both random"
    assert said[3].startswith("+0.650  0.150 -> 0.800  q0")
    shown = compare(*paths, None, "q0", 10)  # one list each, which is no mean
    assert "A (one of 3 seeds): RR@10 0.100" in shown and "B (one of 3 seeds): RR@10 0.800" in shown
    seed_one = home / "one/seed-1/episode-1/evaluate-test"
    assert compare(seed_one, paths[1], None, None, 0).endswith("another seed may differ")
    with pytest.raises(Refusal, match="neither a finished stage"):
        compare(home / "one/episode-2/evaluate-test", paths[1], None, None, 0)
    (folder := tmp_path / "results/stages/evaluate/0123456789ab").mkdir(parents=True)
    (running := home / "one-evaluate").symlink_to(folder)
    with pytest.raises(Refusal, match="one-evaluate: .* is not finished"):
        compare(running, paths[1], None, None, 0)


def test_two_evaluations_side_by_side(stages):
    collections = [two_queries(stages), two_queries(stages)]
    one, two = (evaluation(stages, collections[0], values) for values in ([0.5, 1.0], [1.0, 1.0]))
    assert compare(one, two, None, None, 10).splitlines() == [
        "RR@10 of 2 queries: A 0.7500, B 1.0000, B - A +0.2500, p 1",
        "B wins 1, loses 0, ties 1",
        "p: two-sided, over queries, permutation test with 9,999 resamples",
        "+0.500  0.500 -> 1.000  q0  one",
    ]
    single = [evaluation(stages, collections[0], [value]) for value in (0.5, 1.0)]
    assert compare(*single, None, None, 0).startswith("RR@10 of 1 query: A 0.5000, B 1.0000, ")
    with pytest.raises(Refusal, match="measure 'R@5' .*RR@10"):
        compare(one, two, "R@5", None, 10)
    with pytest.raises(Refusal, match="no query 'q9'"):
        compare(one, two, None, "q9", 10)
    with pytest.raises(Refusal, match="two collections"):
        compare(one, evaluation(stages, collections[1], [0.0, 0.0]), None, None, 10)


def test_a_query_without_a_score_has_none_and_a_rounding_is_no_difference(stages):
    """A question without judgments has answer coverage alone: it does not score 0."""
    collection = two_queries(stages)
    one = evaluation(stages, collection, [0.3])
    assert "A: RR@10 –" in compare(one, one, None, "q1", 10) and "A: RR@10 0.300" in compare(one, one, None, "q0", 10)
    same, rounded = (evaluation(stages, collection, values) for values in ([0.3, 1.0], [0.1 + 0.2, 1.0]))
    assert compare(same, rounded, None, None, 10).splitlines()[1:] == [
        "B wins 0, loses 0, ties 2",
        "p: two-sided, over queries, permutation test with 9,999 resamples",
    ]


def test_of_two_evaluations_the_one_with_fewer_errors_wins(stages):
    collection = two_queries(stages)
    one, two = (evaluation(stages, collection, values, measure="Errors@5") for values in ([3.0, 1.0], [2.0, 1.0]))
    assert compare(one, two, None, None, 0).splitlines()[1] == "B wins 1, loses 0, ties 1"


def test_documents_are_compared_with_documents(stages):
    collection, documents = two_queries(stages), {"collapse": "maxp", "separator": "#"}
    of_documents, others = (
        evaluation(stages, collection, values, found="q0 Q0 D7 1 0.5 x\n", **documents)
        for values in ([0.5, 1.0], [1.0, 1.0])
    )
    first = evaluation(stages, collection, [0.25, 0.5], collapse="firstp", separator="#")
    assert compare(of_documents, first, None, None, 0).startswith("RR@10 of 2 queries")
    passages = evaluation(stages, collection, [0.25, 1.0], found="q1 Q0 D7#0 1 0.5 x\n")
    with pytest.raises(Refusal, match="evaluation.separator"):
        compare(of_documents, passages, None, None, 10)
    without_own = evaluation(stages, collection, [0.25, 1.0], ignore_own_text=True)
    with pytest.raises(Refusal, match="evaluation.ignore_own_text"):
        compare(passages, without_own, None, None, 10)
    said = compare(of_documents, others, None, "q0", 10).splitlines()
    assert [line.split() for line in said if "D7" in line] == [["1", "3", "D7"]] * 2  # its highest grade
    said = compare(passages, passages, None, "q0", 10)
    assert said.count("nothing found") == 2
    assert compare(passages, passages, None, "q1", 10).count("D7#0  first") == 2


def test_what_the_hub_refuses_is_one_sentence(checkpoint, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refusal, match="not/a/name .*hub"):
        push(checkpoint / "checkpoint", "not/a/name", send=True)


def test_what_a_link_leads_to_is_not_published(checkpoint):
    (checkpoint / "checkpoint/notes").symlink_to("/etc/hostname")
    with pytest.raises(Refusal, match="checkpoint/notes is a link"):
        push(checkpoint / "checkpoint", "me/model", send=False)


def test_a_file_that_is_missing_again_after_its_stage_was_made_again_is_noticed(checkpoint):
    stage = Artefact(checkpoint)
    stage.delete_files()
    Artefact(checkpoint).verify()
    made_again = stage.manifest | {"provenance": {"attempt": 2}}
    write_json(checkpoint / MANIFEST, signed(made_again))
    with pytest.raises(Refusal, match="is missing"):
        Artefact(checkpoint).verify()


@pytest.mark.parametrize("make", [lambda path: path.write_text(""), lambda path: path.symlink_to("nowhere")])
def test_results_that_are_no_folder_are_refused_by_every_command(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "results")
    for arguments in (["verify"], ["link", "some.yaml"], ["prune", "some.yaml"]):
        monkeypatch.setattr(script.sys, "argv", ["teleport", *arguments])
        with pytest.raises(SystemExit, match="results is not"):
            script.main()


def test_a_name_that_is_no_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script.sys, "argv", ["teleport", "new", "mine", "given\udcff"])
    with pytest.raises(SystemExit, match="error: b'given.xff' is not UTF-8"):
        script.main()


def test_a_command_whose_output_is_closed_ends_as_it_would(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script.sys, "argv", ["teleport", "verify"])
    monkeypatch.setattr(script.sys, "stdout", None)
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code == 0
