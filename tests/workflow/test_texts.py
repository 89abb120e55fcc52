"""Texts of a configuration with what shells, Snakemake, Python, LaTeX and HTML take for theirs."""

import csv

import pytest

ODD = r"""{hard} {} {{x}} {LABEL:train} $HOME $(echo x) `id` "two" 'one' 100% %s %(x)s \n \\ & _ # ~ ^ <b>bold</b>"""
FOLDER = """data/o'dd 100% "two" \\n & {hard} $HOME"""


@pytest.mark.slow
def test_every_text_of_a_configuration_may_have_any_visible_character(world):
    config = world.config
    (world.folder / "data/toy").rename(world.folder / FOLDER)
    config["collection"]["path"] = FOLDER
    config["encoder"] |= {"query_prefix": f"Instruct: {ODD}\nQuery: ", "passage_prefix": f"{ODD}\t"}
    config["episodes"] = [{"training": {"steps": 2, "stop_after_steps": None}}]
    zero_shot = {"label": f"Start {ODD}", "episodes": []}
    config["experiments"] = {"tele": {"label": f"Tele {ODD}"}, "start": zero_shot}
    config["evaluation"]["significance"]["baseline"] = {"§": f"Tele {ODD}"}
    config["ablations"] = {"both": {"title": f"Both {ODD}", "baseline": None, "experiments": {"again": zero_shot}}}
    run = world.folder / "data/run 'of' {mine} 100%.txt"
    run.write_text("".join(f"q{i} Q0 d{i} 1 1.0 x\n" for i in range(100, 120)))
    config["external"] = {"mine": {"label": f"Mine {ODD}", "runs": {"test": str(run.relative_to(world.folder))}}}
    text = world.snakemake()
    assert "Traceback" not in text
    with open(world.folder / "results/tables/main.csv", newline="", encoding="utf-8") as file:
        systems = {row["system"] for row in csv.DictReader(file)}
    assert systems == {"BM25", "Zero-shot", f"Tele {ODD}", f"Mine {ODD}"}
    with open(world.folder / "results/tables/both.csv", newline="", encoding="utf-8") as file:
        assert [row["system"] for row in csv.DictReader(file)] == [f"Start {ODD}"]
    assert (world.folder / "results/report/index.html").is_file()
    assert not world.would_run()[0], "nor does any of them rerun a thing"
