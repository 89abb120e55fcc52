"""Stages asked for by the name of their experiment, and its links, which are there before its stages."""

import re
import shutil

import pytest

HOME = "results/experiments/tele"


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("episode-2/encode-passages", {"encode": 1}),
        ("episode-2/encode-queries.test/manifest.json", {"encode": 1}),
        ("./results/experiments/tele/episode-3/merge/", {"merge": 1}),
        ("episode-3", {"merge": 1, "train": 1, "encode": 3, "index": 1, "retrieve": 3, "evaluate": 1}),
    ],
)
def test_a_link_means_its_stages(world, name, stages):
    """What is not upstream of them is not asked for. The copy has no page, so its configuration is another one, and the
    links are made from that."""
    path = name if name.startswith("./") else f"{HOME}/{name}"
    folder = world.folder / HOME / name.removesuffix("/manifest.json").split("tele/")[-1]
    for link in [folder] if folder.is_symlink() else folder.iterdir():
        (link / "manifest.json").unlink()
    counts = world.would_run(arguments=[path])[0]
    written = {path, "configuration", "experiments"}
    assert {rule: number for rule, number in counts.items() if rule not in written} == stages


@pytest.mark.ci(0)
def test_to_force_a_stage_its_file_is_named(finished):
    """A link that is forced would run nothing: the rule with its name has no command."""
    link = f"{HOME}/episode-2/encode-passages"
    for arguments in (("-n", link, "--forcerun", link), ("-nf", link)):
        text = finished.snakemake(*arguments, check=False)
        named = re.search(
            r"cannot be forced. Name a rule, or its file: (results/stages/encode/\w+)/manifest.json", text
        )
        assert named, (arguments, text)
    text = finished.snakemake("-n", "-p", link, "--forcerun", f"./{named[1]}/manifest.json")
    (command,) = (line for line in text.splitlines() if f"run_stage.py {named[1]}/stage.json" in line)
    assert "--anew" in command, "a job that is forced takes no earlier result"


@pytest.mark.ci(0)
def test_a_stage_is_made_by_its_link_and_the_links_too(world):
    """Of an experiment of which nothing is there: no later stage, no table."""
    for name in ("experiments", "tables", "report"):
        shutil.rmtree(world.folder / "results" / name)
    world.config["seeds"] = [7]
    log = world.snakemake(f"{HOME}/episode-1/merge")
    assert "links of the experiments" in log and "merge, episode 1" in log
    assert (world.folder / HOME / "episode-1/merge/manifest.json").is_file()
    link = world.folder / HOME / "episode-1/train"
    assert link.is_symlink() and not link.exists() and (world.folder / HOME / "plan.tsv").is_file()
    assert not (world.folder / "results/tables").exists()
    assert not list((world.folder / HOME / "episode-1/merge/").glob(".snakemake*"))


@pytest.mark.slow
def test_an_experiment_is_asked_for_as_a_whole(finished):
    for path in (HOME, f"{HOME}/plan.tsv"):
        assert finished.would_run(arguments=[path])[0] == {}
    counts = finished.would_run(arguments=[HOME, "--forcerun", "corpus"])[0]
    assert counts["encode"] == 12 and "tables" not in counts


@pytest.mark.ci(0)
def test_a_name_that_is_no_stage_is_refused_with_what_there_is(finished):
    wrong = f"{HOME}/episode-9/encode-passages"
    text = finished.snakemake("-n", wrong, check=False)
    assert f"{wrong} is not a stage of this configuration. {HOME} has check, corpus, encode-passages, " in text
    assert "episode-3" in text and "Traceback" not in text
