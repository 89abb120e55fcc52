"""The pages as files: safe whatever a passage holds, of bounded size, in a folder and as one file."""

import json
import re
import shutil
import subprocess

import jinja2
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_colours import GROUNDS, contrast, over

from teleport.refusal import Refusal
from teleport.report.charts import SOURCE_COLOURS, STATE_COLOURS, TEN
from teleport.report.page.curves import MOST_POINTS, column_points, read_curve
from teleport.report.page.site import ASSETS, MOST_CHARACTERS, Site, bold, longest_that_fit, read_texts, script_json
from teleport.report.render import Printed
from teleport.report.stages import Reader

KEPT = []
TEXTS = ["</script><script>alert(1)</script>", "\"quotes\" and 'others' \\", "שלום עולם \u202e", "x" * 50_000, "\u2028"]


def test_no_text_can_end_a_script():
    text = script_json(TEXTS)
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == TEXTS
    with pytest.raises(ValueError):
        script_json(float("nan"))


def reader_of(stages, texts, row_group_size=None):
    """A `Reader` of a collection of passages with these texts, without titles."""
    job = stages.make("collection")
    columns = {"doc_id": [f"d{n}" for n in range(len(texts))], "title": [None] * len(texts), "text": texts}
    table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    pq.write_table(table, job.output("corpus.parquet"), row_group_size=row_group_size, use_dictionary=False)
    return Reader(stages.root, {"corpus": f"collection/{stages.finish(job).key}", "splits": {}})


def test_a_page_has_the_passages_that_it_shows_and_those_that_no_collection_has(stages):
    found = read_texts(reader_of(stages, TEXTS), [[3, 1], [3, "elsewhere"]])
    assert found == {3: ["d3", "", TEXTS[3], 0], 1: ["d1", "", TEXTS[1], 0], "elsewhere": ["elsewhere", "", "", 0]}


def test_the_longest_passages_are_cut_where_all_are_too_long(stages):
    """A passage counts on each page that shows it."""
    texts = ["z" * n for n in (10, 3_000_000, 300_000)]
    found = read_texts(reader_of(stages, texts), [[0, 1], [2, 0], [2]])
    limit = MOST_CHARACTERS - 20 - 600_000
    assert [(len(row[2]), row[3]) for row in found.values()] == [(10, 0), (limit, 3_000_000 - limit), (300_000, 0)]


def test_only_the_passages_that_are_shown_are_in_memory(stages):
    """A corpus of 64 MB, of which two passages are shown: all texts in one array would end at 2 GiB."""
    reader = reader_of(stages, [str(n) * 2**20 for n in range(10)] * 6, row_group_size=4)
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    KEPT.append(pool)  # it must outlive whatever it has given memory to
    pa.set_memory_pool(pool)
    try:
        found = read_texts(reader, [[57, 2]])
    finally:
        pa.set_memory_pool(before)
    assert found[57][2].startswith("777") and 0 < pool.max_memory() < 24 * 2**20


@pytest.fixture
def site():
    site = Site(
        "A <b>title</b>", "A footer.", [("index.html", "First"), ("list.html", "Second"), ("none.html", "Third")]
    )
    template = '<a href="list.html#x/y">{{ text }}</a> <a href="none.html">n</a>'
    site.templates.loader = jinja2.ChoiceLoader([jinja2.DictLoader({"a": template}), site.templates.loader])
    site.add("index.html", "a", "First", text=TEXTS[0])
    site.add("list.html", "a", "Second", text=TEXTS[1])
    site.put("numbers", [1, 2])
    return site


def test_pages_link_to_each_other_and_name_only_what_is_there(site, tmp_path):
    size = site.write(tmp_path)
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "_page").iterdir()}
    assert set(files) == {"index.html", "list.html", "numbers.js", "page.css", "page.js", "vega.js"}
    assert size == sum(path.stat().st_size for path in (tmp_path / "_page").iterdir())
    first = files["index.html"]
    assert "<script>alert" not in first and "A <b>" not in first
    assert 'href="list.html">Second' in first and "Third" not in first
    assert 'url=_page/index.html"' in (tmp_path / "index.html").read_text()
    assert files["numbers.js"] == 'page.put("numbers",[1,2]);\n'


def test_no_page_is_begun_where_a_file_of_it_cannot_be_replaced(site, tmp_path):
    (tmp_path / "_page/vega.js").mkdir(parents=True)
    with pytest.raises(Refusal, match="_page/vega.js is a folder"):
        site.write(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["_page", "vega.js"]


def test_one_file_has_all_pages_and_needs_no_other(site, tmp_path):
    site.write_one_file(tmp_path / "all.html")
    text = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert '<article id="index.html"><a href="#list.html/x/y">' in text and 'href="none.html"' in text
    assert '<article id="list.html" hidden>' in text and 'page.put("numbers",[1,2]);' in text
    assert "<script src" not in text and "<link" not in text and text.count("</script>") == 3


def test_in_one_file_a_section_of_an_experiment_is_its_own(site, tmp_path):
    """A link leads to the first element of a name, also on the page of another experiment."""
    sections = [("training", "Training", [("Every seed", (), None)])]
    for name in ("one", "two"):
        experiment = {"name": name, "label": name, "method": "one training"}
        site.add(f"experiment-{name}.html", "experiment.html", name, experiment=experiment, sections=sections)
    site.write_one_file(tmp_path / "all.html")
    articles = (tmp_path / "all.html").read_text(encoding="utf-8").split("<article")[-2:]
    ids = [re.findall('<section[^>]* id="([^"]+)"', article) for article in articles]
    assert ids == [re.findall('<a href="#([^"]+)">Training', article) for article in articles]
    assert ids[0] and ids[0] != ids[1]


def test_texts_and_marks_have_contrast_in_both_themes():
    """WCAG 2: 4.5:1 for text, 3:1 for marks."""
    css = (ASSETS / "page.css").read_text()
    both = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(both) == 11
    for colours in ({name: light for name, light, _ in both}, {name: dark for name, _, dark in both}):
        for ground in ("paper", "panel"):
            for text in ("ink", "soft", "accent", "good", "bad"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
            assert min(contrast(mark, colours[ground]) for mark in TEN) >= 3
        assert contrast(colours["accent"], colours["tint"]) >= 4.5
        assert min(contrast(colours[text], colours["warm"]) for text in ("ink", "soft", "accent", "bad")) >= 4.5
        for way in ("good", "bad"):
            (share,) = re.findall(rf"var\(--{way}\) (\d+)%, var\(--paper\)", css)
            ground = over(colours[way], int(share) / 100, colours["paper"])
            assert min(contrast(colours[text], ground) for text in ("ink", "soft", "accent")) >= 4.5
        ((least, more),) = re.findall(r"var\(--accent\) calc\((\d+)% \+ (\d+)% \* var\(--heat\)\)", css)
        darkest = over(colours["accent"], (int(least) + int(more)) / 100, colours["paper"])
        assert contrast(colours["ink"], darkest) >= 4.5 and ".heat .shared { color: inherit; }" in css
        assert colours["paper"] == GROUNDS["dark" if colours["paper"] < "#8" else "light"]
    assert len(set(TEN)) == 10 and {*SOURCE_COLOURS.values(), *STATE_COLOURS.values()} <= set(TEN)


def test_the_script_is_short_and_so_are_all_lines():
    assert len((ASSETS / "page.js").read_bytes()) <= 20_000
    for path in ASSETS.iterdir():
        assert max(map(len, path.read_text().splitlines())) <= 120, path.name


def test_cells_are_text_but_for_what_is_bold():
    assert bold("**0.5** ± 0.1†") == "<b>0.5</b> ± 0.1†"
    assert bold("<i>**<b>**") == "&lt;i&gt;<b>&lt;b&gt;</b>"


def test_a_label_is_not_bold_whatever_it_holds(site):
    table = Printed("main", "Title", pd.DataFrame({"System": ["**A**"], "RR@10": ["**0.5**"]}), [])
    text = site.templates.get_template("macros.html").module.printed(table)
    assert ">**A**</th>" in text and "<b>0.5</b>" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here, which runs the script's arithmetic")
def test_the_script_rounds_a_half_as_tables_do():
    (line,) = re.findall(r"const fixed = .*?;", (ASSETS / "page.js").read_text())
    values = [*(n / 16 for n in range(40)), 0.0005, 0.4005, 0.593]
    code = f"{line} console.log({json.dumps(values)}.map(fixed).join(' '))"
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{value:.3f}" for value in values]


def test_what_fits():
    assert longest_that_fit([1, 2, 3], 6, 1) is None
    assert longest_that_fit([1, 5, 5], 7, 1) == 3
    assert longest_that_fit([1, 5, 5], 7, 4) == 4


def test_a_curve_has_every_column_that_a_training_left(tmp_path):
    path = tmp_path / "losses.tsv"
    path.write_text("step\tloss\tlayer_3\tnote\n1\t0.123456789\t\tx\n2\tinf\t2\ty\n")
    curve = read_curve(path)
    assert curve.columns.tolist() == ["step", "loss", "layer_3", "lines"] and curve["lines"].tolist() == [2, 2]
    of_seed = curve.assign(episode=1, seed=7)
    named = {"episode": 1, "seed": 7}
    assert column_points(of_seed, "loss") == [named | {"step": 1, "value": 0.123457}]
    assert column_points(of_seed, "layer_3") == [named | {"step": 2, "value": 2.0}]
    assert column_points(of_seed, "none") == []
    path.write_text("query\tvalue\n1\t2\n")
    assert read_curve(path).empty
    path.write_text("step\tloss\n")
    assert read_curve(path).empty


def test_long_curves_are_thinned_with_their_ends(tmp_path):
    path = tmp_path / "losses.tsv"
    path.write_text("step\tloss\n" + "".join(f"{n}\t0.5\n" for n in range(1_000_001, 1_005_001)))
    curve = read_curve(path)
    assert (curve["lines"].iloc[0], len(curve)) == (5000, MOST_POINTS)
    assert curve["step"].iloc[[0, -1]].tolist() == [1_000_001, 1_005_000]


def test_a_page_of_what_was_never_run_says_to_run_it(tmp_path):
    with pytest.raises(Refusal, match="results/stages/corpus/0123456789ab .*Run"):
        Reader(tmp_path, {"corpus": "corpus/0123456789ab", "splits": {}})
