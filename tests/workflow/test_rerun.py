"""The rerun table: after each change, exactly the invalidated stages run again; asserted from `snakemake -n`."""

import json
import re
import resource
import shutil
import subprocess
import sys

import pytest
import yaml
from toy import World

from teleport.running.code import LIBRARY

# What follows a new checkpoint of one episode, when another episode comes after it.
LATER = {"encode": 3, "index": 1, "retrieve": 3, "evaluate": 1}
LAST = {"encode": 3, "index": 1, "retrieve": 1, "evaluate": 1}
WRITTEN = {"tables": 1, "report_page": 1, "all": 1}
# What is written again when the configuration, as it is written down, is another one.
REPORT = {"configuration": 1, "experiments": 1} | WRITTEN


@pytest.fixture
def world(world):
    """A copy of the finished world with a report page, as the finished world has."""
    world.config["report"] = {}
    return world


def episodes(first, last=3):
    """The jobs of episodes `first` to `last`, from the merge on, with the tables."""
    counts = {"merge": last - first + 1, "train": last - first + 1}
    for kind in LAST:
        counts[kind] = LATER[kind] * (last - first) + LAST[kind]
    return counts | REPORT


def in_place(counts):
    """The same jobs where they make the same stages again: the configuration and the links to them stay."""
    return {rule: count for rule, count in counts.items() if rule not in ("configuration", "experiments")}


def edit(world, module, old, new):
    path = world.folder / "workflow_scripts" / "teleport" / module
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def add_code(world, module):
    path = world.folder / "workflow_scripts" / "teleport" / module
    path.write_text(path.read_text() + "\n\nADDED = 1\n")


def touch(world):
    for path in [*world.folder.rglob("*.py"), *world.folder.rglob("*.smk"), *(world.folder / "data").rglob("*")]:
        path.touch()


def change(section, key, value):
    def apply(world):
        world.config[section][key] = value

    return apply


def comment(world):
    edit(world, "negatives/merge.py", "\ndef ", "\n# a comment\ndef ")
    edit(world, "settings/training.py", 'description="Peak', 'description="Highest')


def edit_all_that_runs(world):
    """What runs stages computes no result: every module of that package, and the script itself."""
    scripts = world.folder / "workflow_scripts"
    modules = [*(scripts / "teleport" / "running").glob("*.py"), scripts / "run_stage.py"]
    assert len(modules) > 10
    for path in modules:
        path.write_text(path.read_text() + "\n\nADDED = 1\n")


def edit_sentences(world):
    edit(
        world, "negatives/file.py", "none of its negatives is in the collection", "it has no negative of the collection"
    )
    rules = world.folder / "rules" / "stages.smk"
    rules.write_text(rules.read_text().replace("Tokenise every text once", "Every text is tokenised once"))
    edit(world, "collection/corpus.py", "%d passages, corpus digest", "%d passages, digest")


NOTHING = {}
# All that follows from the draws of the root seed: not the collection, its check, and BM25.
DRAWN = {
    "split": 2, "check": 1, "bm25": 1, "pretrained": 1, "tokens": 3,
    "encode": 4 * 3, "index": 4, "retrieve": 10, "merge": 3, "train": 3, "evaluate": 5,
}  # fmt: skip


# What decides no result; together, because each dry run takes seconds.
NO_RESULT = {
    "12 to 12.0": change("negatives", "pool", 12.0),
    "20.0 to 20": change("encoder", "scale", 20),
    "a comment and a description": comment,
    "every module that runs stages": edit_all_that_runs,
    "sentences of rules, refusals and the log": edit_sentences,
    "what the rules say of a killed process": lambda w: edit(
        w, "running/launch.py", "If neither you nor", "Unless you or"
    ),
    "the module of a loss that is not used": lambda w: add_code(w, "training/losses/nll.py"),
    "settings that the plan resolves": lambda w: add_code(w, "settings/negatives.py"),
    "times of files": touch,
}


def test_what_decides_no_result_reruns_nothing(world):
    for apply in NO_RESULT.values():
        apply(world)
    assert world.would_run() == (NOTHING, [])


@pytest.mark.parametrize(
    ("apply", "expected", "first"),
    [
        pytest.param(change("negatives", "alpha", 0.4), episodes(2), "merge, episode 2", id="alpha"),
        pytest.param(change("negatives", "beta", 0.4), episodes(1), "merge, episode 1", id="beta"),
        pytest.param(lambda w: w.config["experiments"]["tele"].update(label="Télé"), REPORT, None, id="label"),
        pytest.param(
            lambda w: add_code(w, "negatives/merge.py"),
            in_place(episodes(1)),
            "merge, episode 1",
            id="module of merge alone",
        ),
        pytest.param(  # the links are made from the plan, which imports it, too
            lambda w: add_code(w, "seed.py"), in_place(DRAWN | REPORT) | {"experiments": 1}, None, id="module of many"
        ),
        pytest.param(
            lambda w: add_code(w, "negatives/sources/momentum.py"),
            in_place(episodes(2)),
            "merge, episode 2",
            id="module of a source",
        ),
        pytest.param(lambda w: add_code(w, "report/table.py"), WRITTEN, None, id="module of the table"),
    ],
)
def test_exactly_the_invalidated_stages_rerun(finished, world, apply, expected, first):
    apply(world)
    counts, messages = world.would_run()
    assert counts == expected
    if first:
        stages = [
            message for message in messages if not message.startswith(("configuration", "tables", "links", "report"))
        ]
        numbers = sorted(int(re.search(r"episode (\d)", message)[1]) for message in stages)
        assert any(message.startswith(first) for message in stages)
        # Before the first stage nothing of its episode runs: only what the new checkpoint itself needs.
        assert [m for m in stages if f"episode {numbers[0]}" in m and m.startswith("retrieve")] == []


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("apply", "expected"),
    [(lambda w: add_code(w, "negatives/merge.py"), episodes(1)), (lambda w: add_code(w, "report/table.py"), {})],
    ids=["module of merge", "module of the table"],
)
def test_status_and_forecast_tell_as_many_stages_made_by_other_code_as_are_made_anew(world, apply, expected):
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    apply(world)
    for command in ("status", "forecast"):
        run = [sys.executable, "workflow_scripts/manage.py", command, "toy.yaml"]
        said = subprocess.run(run, cwd=world.folder, capture_output=True, text=True, check=True).stdout
        number = sum(expected.values()) - sum(REPORT.values()) * ("tables" in expected)
        said = " ".join(said.split())  # of folded lines
        sentence = f"older code made {number} finished stages, or what they read: "
        assert (sentence in said) == bool(number) and ("older" in said) == bool(number)
        assert ("nothing is left to run" in said) == (command == "status" and not number)


def outcomes(world):
    """{kind/key: "unchanged" or "made"} of the stages whose jobs have run since the logs were removed."""
    logs = sorted((world.folder / "results/logs").glob("*/*.log"))
    texts = {f"{path.parent.name}/{path.stem}": path.read_text() for path in logs}
    made = world.manifests()
    return {name: "unchanged" if "is unchanged" in text else "made" for name, text in texts.items() if name in made}


def test_an_inert_edit_of_every_file_of_collection_makes_corpus_and_splits_alone(world):
    """What follows is planned, and taken: its code and the content of what it reads are the same."""
    shutil.rmtree(world.folder / "results/logs")
    before = world.digests()
    files = sorted((LIBRARY / "collection").rglob("*.py"))
    assert len(files) > 10
    for path in files:
        add_code(world, path.relative_to(LIBRARY))
    world.snakemake("results/experiments/tele/episode-1/merge/manifest.json")
    seen = outcomes(world)
    assert {name.partition("/")[0] for name in seen} > {"tokens", "encode", "retrieve", "merge"}
    assert [name for name in seen if seen[name] == "made"] == [
        name for name in seen if name.startswith(("corpus/", "split/"))
    ]
    assert world.digests() == before


def test_a_taken_stage_costs_under_a_second_of_processor_time(world):
    """Its process loads no torch. Processor time, because other tests may run meanwhile."""
    spent = {}
    for name, manifest in world.manifests().items():
        if (kind := manifest["kind"]) in {"corpus", "encode", "merge", "train", "evaluate"} - set(spent):
            folder, code = world.folder / "results/stages" / name, manifest["provenance"]["code"]
            (folder / "manifest.json").unlink()  # as Snakemake does before a job
            command = [world.folder / "workflow_scripts/run_stage.py", folder / "stage.json", "--code", code]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            log = subprocess.run([sys.executable, *command], cwd=world.folder, capture_output=True, text=True).stderr
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert "is unchanged" in log, log
            spent[kind] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert len(spent) == 5 and max(spent.values()) < 1.0, spent


def test_more_passages_rerun_what_reads_the_corpus(world):
    """All but the pretrained checkpoint: a search may find a new passage, so pools and trainings are others."""
    with open(world.folder / "data/toy/corpus.tsv", "a") as file:
        file.write("new\ttitle\tword1 word2\n")
    counts, _ = world.would_run()
    assert counts["train"] == counts["merge"] == 3 and counts["corpus"] == 1 and counts["split"] == 2
    assert "pretrained" not in counts


def test_a_corpus_and_a_checkpoint_under_another_path_rerun_nothing(world, tmp_path):
    shutil.move(world.folder / "data", tmp_path / "elsewhere")
    world.config["collection"]["path"] = str(tmp_path / "elsewhere/toy")
    world.config["encoder"]["checkpoint"]["folder"] = str(tmp_path / "elsewhere/bert")
    assert not {rule for rule in world.would_run()[0] if rule not in REPORT}


@pytest.mark.slow
def test_stages_of_a_colleague_are_taken_and_what_is_forced_is_made(world, tmp_path):
    """In another clone with its own records of Snakemake, its own paths, and copies with new times in any order."""
    other = World.create(tmp_path / "other")
    other.config = json.loads(json.dumps(world.config))
    shutil.copytree(world.folder / "results/stages", other.folder / "results/stages", copy_function=shutil.copyfile)
    for path in sorted(other.folder.glob("results/stages/*/*/manifest.json"), reverse=True):
        path.touch()
    other.snakemake()
    assert outcomes(other) == {} and other.manifests(), "whatever times the copies have, no stage runs"
    assert other.digests() == world.digests()
    shutil.rmtree(other.folder / "results/logs", ignore_errors=True)
    (first,) = (name for name in other.manifests() if name.startswith("lexical_index/"))
    other.snakemake("--forcerun", f"results/stages/{first}/manifest.json")
    seen = outcomes(other)
    assert [name for name in seen if seen[name] == "made"] == [first] and len(seen) > 1


@pytest.mark.ci(0)
def test_the_number_of_shards_reruns_nothing(finished):
    assert finished.would_run(arguments=["--set-scatter", "encode=5"])[0] == NOTHING


@pytest.mark.slow
def test_what_is_encoded_anew_is_encoded_in_shards(world):
    """After an edit each stage follows the number of shards in force, also where only an upstream stage was edited."""
    add_code(world, "training/train.py")
    counts = world.would_run(arguments=["--set-scatter", "encode=3"])[0]
    assert (counts["encode_shard"], counts["encode"]) == (3 * 3, 3 * 3)  # not the pretrained model's
    add_code(world, "encoder/encode.py")
    counts = world.would_run(arguments=["--set-scatter", "encode=3"])[0]
    assert (counts["encode_shard"], counts["encode"]) == (3 * 4, 4 * 3)
    assert "encode_shard" not in world.would_run()[0]


@pytest.mark.slow
def test_alpha_there_and_back(world):
    """A changed alpha really runs from Episode 2's merge on; back at the old value nothing runs."""
    before = world.digests()
    world.config["episodes"] = world.config["episodes"][:2]  # of which nothing runs either
    world.config["negatives"]["alpha"] = 0.25
    world.snakemake()
    assert world.would_run()[0] == NOTHING
    after = world.digests()
    assert {name: after[name] for name in before} == before
    kinds = {name.split("/")[0] for name in set(after) - set(before)}
    assert kinds == {"merge", "train", "encode", "index", "retrieve", "evaluate"}
    world.config["negatives"]["alpha"] = 0.5
    counts, messages = world.would_run()
    assert counts == REPORT, "only the tables, the report page and the links name other stages again"
    assert len(messages) == 4


@pytest.mark.ci(0)
def test_a_new_experiment_runs_only_what_it_does_not_share(world):
    world.config["experiments"]["beta-0.3"] = {"negatives": {"beta": 0.3}}
    assert world.would_run()[0] == episodes(1)
    del world.config["experiments"]["beta-0.3"]
    world.config["experiments"]["q-neg"] = {"negatives": {"sources": ["query"]}}
    only_queries = episodes(1) | {"retrieve": 2 * 2 + 1}
    assert world.would_run()[0] == only_queries
    world.config["experiments"]["twin"] = {}
    assert world.would_run()[0] == only_queries


def test_a_fourth_episode_adds_only_itself(world):
    world.config["episodes"].append({})
    counts, messages = world.would_run()
    mining = {"retrieve": 1 + 2}  # Episode 3's checkpoint is now mined as well
    assert counts == episodes(4, 4) | mining
    assert not [message for message in messages if "episode 1" in message or "episode 2" in message]


def test_an_ablation_file_ablates_the_configuration(world):
    """The rows of Table 3 share Episode 1's mining, and the row that equals the configuration shares everything."""
    counts, messages = world.would_run(["config/ablations/negatives.yaml"])
    # Q-Neg: 3 episodes; Q-Neg w/ Mom-Neg: Episodes 2, 3; Q-Neg w/ LA-Neg: Episodes 2, 3.
    assert counts["train"] == counts["merge"] == counts["encode"] / 3 == 7
    assert not [m for m in messages if m.startswith("retrieve") and "episode 1" in m]
    assert counts["tables"] == counts["experiments"] == 1


@pytest.mark.ci(0)
def test_the_embedded_default_is_not_below_a_configfile(world):
    """`--configfile` alone decides: neither values nor experiments of config/config.yaml are inherited."""
    default = (world.folder / "config/config.yaml").read_text()
    assert "ance-tele" in default
    text = world.snakemake("-n", "--forceall")
    assert "ance-tele" not in text.replace("ANCE-Tele", "") and "tele" in text
