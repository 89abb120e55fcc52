"""The data files: safe in a script whatever a passage holds, and of bounded size."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teleport.report.page.overview import MOST_POINTS, read_curve
from teleport.report.page.reader import Reader
from teleport.report.page.write import Data, Texts, longest_that_fit, script_json

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
    return Reader(stages.root, f"collection/{stages.finish(job).key}")


def written(stages, tmp_path, texts, order):
    """The passages of all blocks, and what `Texts.write` says."""
    shown, data = Texts(), Data(tmp_path)
    assert [shown.number(passage) for passage in order] == [sorted(set(order), key=order.index).index(p) for p in order]
    said = shown.write(data, reader_of(stages, texts))
    rows = []
    for number, start in enumerate(said["starts"]):
        assert start == len(rows)
        text = (tmp_path / f"p/{number}.js").read_text(encoding="utf-8")
        rows += json.loads(text.removeprefix(f'page.put("p/{number}",').removesuffix(");\n"))
    assert data.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.js"))
    return rows, said


def test_passages_are_written_once_in_the_order_of_their_use(stages, tmp_path):
    rows, said = written(stages, tmp_path, TEXTS, [3, 1, 3, 0])
    assert rows == [["d3", "", TEXTS[3], 0], ["d1", "", TEXTS[1], 0], ["d0", "", TEXTS[0], 0]]
    assert said == {"starts": [0], "cut": None}


def test_many_passages_lie_in_blocks(stages, tmp_path):
    texts = ["y" * 50_000] * 20
    rows, said = written(stages, tmp_path, texts, list(range(20)))
    assert [row[2] for row in rows] == texts and len(said["starts"]) > 3


def test_the_longest_passages_are_cut_where_all_are_too_long(stages, tmp_path):
    texts = ["z" * n for n in (10, 6_000_000, 2_000_000)]
    rows, said = written(stages, tmp_path, texts, [0, 1, 2])
    assert said["cut"] == (5_000_000 - 10 - 2_000_000)
    assert [(len(row[2]), row[3]) for row in rows] == [(10, 0), (2_999_990, 3_000_010), (2_000_000, 0)]


def test_only_the_passages_that_are_shown_are_in_memory(stages, tmp_path):
    """A corpus of 64 MB, of which two passages are shown: all texts in one array would end at 2 GiB."""
    reader = reader_of(stages, [str(n) * 2**20 for n in range(10)] * 6, row_group_size=4)
    shown, before, pool = Texts(), pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    shown.number(57), shown.number(2)
    pa.set_memory_pool(pool)
    try:
        shown.write(Data(tmp_path), reader)
    finally:
        pa.set_memory_pool(before)
    assert '["d57","","777' in (tmp_path / "p/0.js").read_text() and 0 < pool.max_memory() < 24 * 2**20


def test_what_fits():
    assert longest_that_fit([1, 2, 3], 6, 1) is None
    assert longest_that_fit([1, 5, 5], 7, 1) == 3
    assert longest_that_fit([1, 5, 5], 7, 4) == 4


def test_a_curve_has_every_column_that_a_training_left(tmp_path):
    path = tmp_path / "losses.tsv"
    path.write_text("step\tloss\tlayer_3\tnote\n1\t0.123456789\t\tx\n2\tinf\t2\ty\n")
    columns = {"loss": [0.123457, None], "layer_3": [None, 2.0]}
    assert read_curve(path) == {"points": 2, "steps": [1, 2], "columns": columns}
    path.write_text("query\tvalue\n1\t2\n")
    assert read_curve(path) is None


def test_long_curves_are_thinned_with_their_ends(tmp_path):
    path = tmp_path / "losses.tsv"
    path.write_text("step\tloss\n" + "".join(f"{n}\t0.5\n" for n in range(1_000_001, 1_005_001)))
    curve = read_curve(path)
    assert (curve["points"], len(curve["steps"])) == (5000, MOST_POINTS)
    assert (curve["steps"][0], curve["steps"][-1]) == (1_000_001, 1_005_000)
