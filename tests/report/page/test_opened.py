"""A page with five queries in full, in Chromium without a network: every other query opens too, in both themes."""

import json
from itertools import chain, pairwise
from pathlib import Path

import pytest
import yaml
from browser import Browser, require_chromium
from page_colours import GROUNDS
from page_numbers import data_of
from toy import finished  # noqa: F401

from teleport.plan.plan import Plan
from teleport.report.page.write import write_page
from teleport.report.page_specs import page_spec
from teleport.settings.read import load_files

TEXT = "document.querySelector('%s').textContent"


@pytest.fixture
def opened(finished, tmp_path, monkeypatch):  # noqa: F811
    """(folder of the pages, browser)."""
    require_chromium()
    monkeypatch.chdir(finished.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(finished.config))
    spec = json.loads(page_spec(Plan(*load_files(["toy.yaml"])), ["toy.yaml"], 5)[1].text)
    write_page(spec, Path("."), tmp_path / "page")
    browser = Browser(tmp_path / "profile")
    yield tmp_path / "page/_page", browser
    browser.close()


def test_training_queries_are_listed_where_no_episode_has_a_pool(opened, tmp_path, monkeypatch):
    """As with negatives of the batch alone: what the river of the training queries opens must be there."""
    spec = json.loads(page_spec(Plan(*load_files(["toy.yaml"])), ["toy.yaml"], 5)[1].text)
    monkeypatch.setattr("teleport.report.page.write.finished_pools", lambda *_: {})
    write_page(spec, Path("."), tmp_path / "without")
    folder = tmp_path / "without/_page"
    assert "train" in data_of(folder, "index")["splits"] and len(data_of(folder, "queries-train")["rows"]) == 80
    _, browser = opened
    browser.open(folder / "list.html", "#train")
    assert browser.evaluate("document.querySelectorAll('.queries a').length") == 80


def test_every_listed_query_opens(opened):
    folder, browser = opened
    for split, number in (("train", 80), ("test", 20)):
        browser.open(folder / "list.html", f"#{split}")
        links = browser.evaluate(
            "[...document.querySelectorAll('.queries a')].map((each) => each.getAttribute('href'))"
        )
        light = [link.partition("#")[2] for link in links if link.startswith("query.html#")]
        assert len(links) == number and 0 < len(light) < number
        in_full = [link.partition("#")[0] for link in links if not link.startswith("query.html#")]
        assert all((folder / link).exists() for link in in_full)
        queries = data_of(folder, f"queries-{split}")
        for place in light[:: len(light) // 3]:
            browser.open(folder / "query.html", f"#{place}")
            row = place.split("/")[1]
            at = queries["rows"].index(int(row))
            assert browser.evaluate(TEXT % ".question") == queries["texts"][at]
            said = browser.evaluate(TEXT % "table.light")
            assert light_text(folder, split, row) in said and "ANCE-Tele, checkpoints 0 →" in said
    browser.open(folder / "query.html", f"#{light[0]}/0-1")  # from a comparison: these two systems alone
    lines = "[...document.querySelectorAll('table.light th')].map((each) => each.textContent)"
    assert browser.evaluate(lines)[:3] == ["Positives", "BM25", "Zero-shot"] and len(browser.evaluate(lines)) == 4
    assert browser.errors == []


def light_text(folder, split, row):
    """The first list of a query's light page: ids of passages, behind the names of their sources if they have some."""
    light, names = data_of(folder, f"light-{split}"), data_of(folder, "index")["sources"]
    ids = light["queries"][row][1].split()
    digits = light["sources"][row][1] if split == "train" else " " * len(ids)
    named = [(names[int(d)] if d.strip() and d != before else "") for before, d in pairwise(f" {digits}")]
    assert split != "train" or len({*digits}) > 1
    return " ".join(chain.from_iterable(zip(named, ids, strict=True))).replace("  ", " ").strip()


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_in_both_themes(opened, tmp_path, dark):
    folder, browser = opened
    browser.open(folder / "index.html")
    browser.screenshot(tmp_path / "picture.png", 1400, dark=dark)
    ground = GROUNDS["dark" if dark else "light"]
    rgb = f"rgb({', '.join(str(int(ground[at : at + 2], 16)) for at in (1, 3, 5))})"
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == rgb
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG") and browser.errors == []
    ink = browser.evaluate("getComputedStyle(document.body).color")
    labels = "[...document.querySelectorAll('.chart svg text')].map((each) => getComputedStyle(each).fill)"
    assert set(browser.evaluate(labels)) == {ink}
