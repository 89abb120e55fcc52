"""Every file of config/methods plans what its paper says, all of them in one dry run."""

import resource
import subprocess
import sys

import pytest

from commands import methods
from paths import REPOSITORY
from planned_episodes import planned_episodes
from teleport.plan.plan import Plan
from teleport.report.page.contents import episode_content
from teleport.report.rows import measured_tables
from teleport.settings.read import load_files

# Read against the papers and their code: of each episode the negatives of each source, ranks, draws, filters, who
# mines, the loss, own negatives of a row, masks and the start.
CLAIMS = {
    "adore-pq": ["live 200 PQ48, lambda (metric_cut 200), query alone, from star"],
    "adore": ["live 200, lambda (metric_cut 200), query alone, from star"],
    "ance-restarts": [
        "bm25 100 of ranks 1-100, nll, 1 own, the first positive",
        "2 × query 20, mined by checkpoint 1, nll, 20 own, the first positive, 5 steps, triples, "
        "continues moments, from previous",
        "query 20, mined by checkpoint 2, nll, 20 own, the first positive, 5 steps, triples, continues moments, "
        "from previous",
    ],
    "ance-tele-equal-counts": [
        "query 30 + lookahead 30, mined by checkpoint 0, softmax, 15 own, 6 steps",
        "query 30 + lookahead 30 + momentum 60, mined by checkpoint 1, softmax, 31 own, 6 steps",
        "query 30 + lookahead 30 + momentum 120, mined by checkpoint 2, softmax, 31 own",
    ],
    "ance-tele": [
        "query 30 + lookahead 30, mined by checkpoint 0, softmax, 31 own, 6 steps",
        "query 15 + lookahead 15 + momentum 30, mined by checkpoint 1, softmax, 31 own, 6 steps",
        "query 15 + lookahead 15 + momentum 30, mined by checkpoint 2, softmax, 31 own",
    ],
    "ance": [
        "bm25 100 of ranks 1-100, nll, 1 own, the first positive",
        "2 × query 20, mined by checkpoint 1, nll, 20 own, the first positive, 5 steps, triples, continues true, "
        "from previous",
        "query 20, mined by checkpoint 2, nll, 20 own, the first positive, 5 steps, triples, continues true, "
        "from previous",
    ],
    "arctic-embed": ["query 10 top, percentage 0.95, s+ lowest, mined by checkpoint 0, own-softmax, 10 own"],
    "arhn": ["query 15, relabelled by arhn (positive_score lowest), mined by checkpoint 0, softmax, 7 own"],
    "bge": ["query 15 of ranks 3-200, ranks after nothing, same text removed, mined by checkpoint 0, softmax, 7 own"],
    "bm25-and-random": ["bm25 50 + random 50, nll, 1 own"],
    "bm25-negatives": ["bm25 100, nll, 1 own"],
    "cocondenser": ["bm25 30, softmax, 7 own", "query 30 + bm25 30, mined by checkpoint 1, softmax, 7 own"],
    "conan": [
        "query 7 top, mined by checkpoint 0, softmax, 7 own, 5 steps, continues true, from previous",
        "query 7 top, mined by checkpoint 1, softmax, 7 own, 5 steps, continues true, from previous",
        "query 7 top, mined by checkpoint 2, softmax, 7 own, 5 steps, continues true, from previous",
        "query 7 top, mined by checkpoint 3, softmax, 7 own, 5 steps, continues true, from previous",
    ],
    "dpr-adversarial": [
        "bm25 30 of ranks 1-30, softmax, 1 own, the first positive",
        "query 30 + bm25 30 of ranks 1-30, mined by checkpoint 1, softmax, 1 own, the first positive",
    ],
    "dpr": ["bm25 30 of ranks 1-30, softmax, 1 own, the first positive"],
    "enterprise": ["query 1 top, nearer_to_positive True, mined by checkpoint 0, softmax, 1 own"],
    "facebook-search": ["query 1 of ranks 101-500 + random 100, mined by checkpoint 0, nll, 31 own"],
    "in-batch": ["softmax"],
    "lm-cocktail": [
        "query 15 of ranks 3-200, ranks after nothing, same text removed, mined by checkpoint 0, softmax, 7 own, "
        "averaged 0.5"
    ],
    "matryoshka": ["query 15, mined by checkpoint 0, softmax, 1 own, widths 64, 128, 256, 384"],
    "mochi": ["query 15, mined by checkpoint 0, softmax, 7 own, 8 mixed"],
    "nce": ["hardest"],
    "nemotron-abs": ["query 4 top, absolute_margin 0.05, s+ lowest, mined by checkpoint 0, own-softmax, 4 own"],
    "nemotron": ["query 4 top, percentage 0.95, s+ lowest, mined by checkpoint 0, own-softmax, 4 own"],
    "no-duplicates": ["softmax, distinct_positives"],
    "nv-embed": [
        "query 7 top, percentage 0.95, s+ first, mined by checkpoint 0, softmax, 7 own, the first positive",
        "query 7 top, percentage 0.95, s+ first, mined by checkpoint 0, own-softmax, 7 own, the first positive, "
        "from previous",
    ],
    "nv-top-k-abs": ["query 4 top, max_score 0.7, mined by checkpoint 0, softmax, 4 own"],
    "nv-top-k-margin": [
        "query 4 top, absolute_margin 0.05, s+ first, mined by checkpoint 0, softmax, 4 own, the first positive"
    ],
    "nv-top-k-percentage": [
        "query 4 top, percentage 0.95, s+ first, mined by checkpoint 0, softmax, 4 own, the first positive"
    ],
    "nv-top-k-shifted": ["query 4 top, skip_ranks 10, mined by checkpoint 0, softmax, 4 own"],
    "nv-top-k": ["query 4 top, mined by checkpoint 0, softmax, 4 own"],
    "q-neg-lookahead": [
        "query 30 + lookahead 30, mined by checkpoint 0, softmax, 31 own, 6 steps",
        "query 30 + lookahead 30, mined by checkpoint 1, softmax, 31 own, 6 steps",
        "query 30 + lookahead 30, mined by checkpoint 2, softmax, 31 own",
    ],
    "q-neg-momentum": [
        "query 60, mined by checkpoint 0, softmax, 31 own, 6 steps",
        "query 30 + momentum 30, mined by checkpoint 1, softmax, 31 own, 6 steps",
        "query 30 + momentum 30, mined by checkpoint 2, softmax, 31 own",
    ],
    "q-neg": [
        "query 60, mined by checkpoint 0, softmax, 31 own, 6 steps",
        "query 60, mined by checkpoint 1, softmax, 31 own, 6 steps",
        "query 60, mined by checkpoint 2, softmax, 31 own",
    ],
    "random-negatives": ["random 100, nll, 1 own"],
    "ranks-1-20": ["query 20 of ranks 1-20, mined by checkpoint 0, nll, 20 own, the first positive, triples"],
    "ranks-181-200": ["query 20 of ranks 181-200, mined by checkpoint 0, nll, 20 own, the first positive, triples"],
    "ranks-both": ["query 20 of ranks 1-20, 181-200, mined by checkpoint 0, nll, 20 own, the first positive, triples"],
    "rlhn": [
        "query 15, relabelled by rlhn (positive_score lowest, become positive, most 8), mined by checkpoint 0, "
        "softmax, 7 own"
    ],
    "rlhn-dropped": [
        "query 15, relabelled by rlhn (positive_score lowest, become dropped, most 8), mined by checkpoint 0, "
        "softmax, 7 own"
    ],
    "rocketqa": [
        "random 4, softmax, 1 own",
        "query 4 top, max_score 0.1, by a cross-encoder trained on 4 own, binary, mined by checkpoint 1, "
        "softmax, 1 own",
    ],
    "sfr": ["query 7 of ranks 30-100, mined by checkpoint 0, softmax, 7 own"],
    "simlm": [
        "bm25 200, joint, 15 own, first is bge",
        "query 200, mined by checkpoint 1, kl (scores first, teacher_scale 20.0, temperature 1.0) + 0.2 joint, "
        "23 own, first is bge",
    ],
    "simans": ["query 15 around (a 200.0), s+ lowest, mined by checkpoint 0, softmax, 15 own"],
    "st-random": [
        "query 5 of ranks 11-50, relative_margin 0.05, max_score 0.8, s+ lowest, ranks after filters, "
        "same text removed, "
        "mined by checkpoint 0, softmax, 5 own"
    ],
    "st-top": [
        "query 5 top, relative_margin 0.05, s+ lowest, same text removed, mined by checkpoint 0, softmax, 5 own"
    ],
    "star-alpha": [
        "query 200 of ranks 1-200, mined by checkpoint 0, ranknet (star_alpha 0.1), 1 own, known_positives, "
        "from bm25-negatives"
    ],
    "star": ["query 200 of ranks 1-200, mined by checkpoint 0, ranknet, 1 own, known_positives, from bm25-negatives"],
    "stratified": [
        "query 8 stratified (scores first, strata 8), mined by checkpoint 0, kl (scores first, teacher_scale 20.0, "
        "temperature 1.0), 8 own, first is bge"
    ],
    "tas-balanced": [
        "query 20 stratified (scores first, strata 10, by_range True), mined by checkpoint 0, margin-mse "
        "(scores first, teacher_scale 20.0) + 0.75 margin-mse-batch (scores first, teacher_scale 20.0), 1 own, "
        "batches of 20 clusters by first, first is bge"
    ],
    "contaccum": ["bm25 30 of ranks 1-30, softmax, 1 own, memory of 2048 with queries, known_positives"],
    "xbm": ["softmax, memory of 1024, known_positives"],
    "trisampler": ["query 15 triangle (among 100), s+ first, mined by checkpoint 0, softmax, 15 own"],
    "adr-mse": ["query 15, mined by checkpoint 0, adr-mse (scores first, alpha 1.0), 15 own, first is bge"],
    "bixse": ["query 15, mined by checkpoint 0, bixse (bias -10.0, clip True), 1 own"],
    "cde": ["softmax, guide (scores first, margin -1e-05), batches of 20 clusters by first, first is bge"],
    "cl-drd": [
        "query 29 stratified (scores first, strata 29), mined by checkpoint 0, cl-drd (scores first, ranked 5), "
        "29 own, first is bge",
        "query 29 stratified (scores first, strata 29), mined by checkpoint 0, cl-drd (scores first, ranked 10), "
        "29 own, from previous, first is bge",
        "query 29 top (scores first), mined by checkpoint 0, cl-drd (scores first, ranked 30), 29 own, from previous, "
        "first is bge",
    ],
    "embed-distill": ["query 15, mined by checkpoint 0, distill (scores first) + softmax, 7 own, first is bge"],
    "embedding-gemma": [
        "query 15, mined by checkpoint 0, hardness (alpha 5.0, of own), 1 own, known_positives, other_negatives"
    ],
    "flagembedding-kl": [
        "query 15 of ranks 3-200, ranks after nothing, same text removed, mined by checkpoint 0, "
        "kl (scores first, teacher_scale 20.0, "
        "temperature 1.0) + softmax, 7 own, first is bge"
    ],
    "flagembedding-m3": [
        "query 15 of ranks 3-200, ranks after nothing, same text removed, mined by checkpoint 0, "
        "m3-kd (scores first, teacher_scale "
        "20.0), 7 own, first is bge"
    ],
    "gist-embed": ["query 15, mined by checkpoint 0, softmax, 1 own, guide (scores first), first is bge"],
    "gte": ["query 15, mined by checkpoint 0, joint, 15 own"],
    "jina-v2": ["bidirectional"],
    "kalm": [
        "query 7 of ranks 51-100, ranks after nothing, same text removed, mined by checkpoint 0, "
        "focal (gamma 0.5), 7 own"
    ],
    "listmle": ["query 15, mined by checkpoint 0, listmle (scores first), 15 own, first is bge"],
    "llave": ["hardness (alpha 9.0, of batch)"],
    "margin-mse": [
        "query 15, mined by checkpoint 0, margin-mse (scores first, teacher_scale 20.0), 7 own, first is bge"
    ],
    "ms-swift": ["query 15, mined by checkpoint 0, softmax, 7 own, above_positive (margin 0.1)"],
    "qwen3-embedding": ["query 15, mined by checkpoint 0, qwen3 (margin 0.1), 7 own, known_positives"],
}


def used(who):
    """Seconds of the processor, the system's too."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def planned():
    """(the plan of all methods in one, processor seconds that it took)"""
    before = used(resource.RUSAGE_SELF)
    plan = methods.methods_plan()
    return plan, used(resource.RUSAGE_SELF) - before


@pytest.fixture(scope="module")
def plan(planned):
    return planned[0]


def test_every_file_is_a_method_with_its_source(plan):
    names = [path.stem for path in methods.method_files()]
    assert set(names) == set(CLAIMS) and f"[{len(names)} published" in (REPOSITORY / "README.md").read_text()
    for name in names:
        about = plan.experiments[name].about
        assert about.paper and about.rule, name
    labels = [plan.experiments[name].label for name in names]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_method_is_planned_as_it_claims(plan, name):
    assert planned_episodes(plan.trajectories[name][0]) == CLAIMS[name]


def test_all_are_planned_in_eight_seconds(planned):
    plan, seconds = planned
    assert len(plan.stages) > 300
    assert not [warning for warning in plan.warnings if "scale" in warning or "tokens" in warning]
    assert seconds < 8, f"{seconds:.1f} seconds"


@pytest.mark.slow
def test_one_dry_run_of_all_takes_at_most_eight_seconds():
    """Of the processor: Snakemake, the plan and its forecast."""
    files = [REPOSITORY / "config/config.yaml", *methods.method_files()]
    before = used(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "snakemake", "-n", "--configfile", *map(str, files)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "forecast: about" in done.stdout + done.stderr
    seconds = used(resource.RUSAGE_CHILDREN) - before
    assert seconds < 8, f"{seconds:.1f} seconds"


# A schedule in epochs and other masks; a choice by dev, as `teleport new` writes it; negatives by counts; answers.
BASES = {"marco": 8, "own-data": 64, "arms": 16, "nq": 128}  # {configuration: its queries per step}


@pytest.mark.ci(8)
@pytest.mark.parametrize("path", methods.method_files(), ids=lambda path: path.stem)
@pytest.mark.parametrize("base", BASES)
def test_a_method_alone_comes_after_any_configuration(path, base):
    _, experiments = load_files([REPOSITORY / f"config/{base}.yaml", path])
    method = experiments[path.stem].method
    assert method and method[-1].training.batch_queries == BASES[base]


def test_the_page_is_made_from_the_files():
    text = (REPOSITORY / "docs/methods.md").read_text()
    assert methods.with_methods(text) == text, "docs/methods.md is stale: run `teleport schema`"
    assert text.count("config/methods/") >= len(CLAIMS)


def test_a_table_of_methods_has_one_row_for_each_and_its_episodes_on_demand(tmp_path):
    """The row is the last episode's. Only the table changes: every checkpoint is evaluated, as the page shows."""
    demo, ance, later = REPOSITORY / "config/config.yaml", REPOSITORY / "config/methods/ance.yaml", tmp_path / "e.yaml"
    later.write_text("evaluation: {every_episode: true}\n")
    plans = [Plan.of_files(files) for files in ([demo], [demo, ance], [demo, ance, later])]
    mains = [measured_tables(plan)["main"]["rows"] for plan in plans]
    episodes = [[(row["system"], row["episode"]) for row in rows] for rows in mains]
    first = [("BM25", 0), ("Zero-shot", 0), ("In-batch", 1)]
    ance_tele, of_ance = [("ANCE-Tele", n) for n in (1, 2)], [("ANCE", n) for n in (1, 2, 3, 4)]
    assert episodes[0] == [*first, *ance_tele]
    assert episodes[1] == [*first, ance_tele[-1], of_ance[-1]]
    assert episodes[2] == [*first, *ance_tele, *of_ance]
    assert plans[1].stages.keys() == plans[2].stages.keys()
    (trajectory,) = plans[1].trajectories["ance"]
    evaluated = [episode.runs["test"].name for episode in trajectory.episodes[1:]]
    assert len(set(evaluated)) == 4 and plans[1].stages.keys() >= set(evaluated)
    assert mains[1][-1]["runs"] == {"test": evaluated[-1:]}
    assert [row["runs"]["test"] for row in mains[2][-4:]] == [[name] for name in evaluated]


def test_an_experiment_without_negatives_of_its_own_shares_its_stages(plan):
    """STAR is under ADORE and after BM25 negatives: one training of each, whichever file asks for it."""
    (star,), (adore,), (warm,) = (plan.trajectories[name] for name in ("star", "adore", "bm25-negatives"))
    assert adore.episodes[0].checkpoint == star.episodes[-1].checkpoint
    assert star.episodes[0].checkpoint == warm.episodes[-1].checkpoint


def test_the_table_and_the_page_know_what_was_relabelled(plan):
    """A row, and an episode of the page, name the stage that judged the pool, where one has."""
    rows = {row["system"]: row for row in measured_tables(plan)["main"]["rows"]}
    (trajectory,) = plan.trajectories["rlhn"]
    stage = trajectory.trains[-1].inputs["negatives"]
    assert stage.kind == "relabel" and rows["RLHN"]["relabelled"] == [stage.name]
    assert "relabelled" not in rows["SimANS"]
    assert episode_content(*trajectory.episodes)["relabelled"] is stage
    (other,) = plan.trajectories["simans"]
    assert episode_content(*other.episodes)["relabelled"] is None
