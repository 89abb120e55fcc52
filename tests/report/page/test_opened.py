"""A page with five queries in full, in Chromium without a network: others have no link; both themes."""

from pathlib import Path

import pytest
import yaml
from browser import Browser, require_chromium
from page_colours import GROUNDS
from page_numbers import data_of
from toy import finished  # noqa: F401

from teleport.plan.plan import Plan
from teleport.report.page.contents import page_contents
from teleport.report.page.write import write_page

TEXT = "document.querySelector('%s').textContent"


@pytest.fixture
def opened(finished, tmp_path, monkeypatch):  # noqa: F811
    """(folder of the pages, browser)."""
    require_chromium()
    monkeypatch.chdir(finished.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(finished.config))
    spec = page_contents(Plan.of_files(["toy.yaml"]), ["toy.yaml"], 5)
    write_page(spec, Path("."), tmp_path / "page")
    browser = Browser(tmp_path / "profile")
    yield tmp_path / "page/_page", browser
    browser.close()


@pytest.mark.ci(0)
def test_training_queries_are_listed_where_no_episode_has_a_pool(opened, tmp_path, monkeypatch):
    """As with negatives of the batch alone: what the river of the training queries opens must be there."""
    spec = page_contents(Plan.of_files(["toy.yaml"]), ["toy.yaml"], 5)
    monkeypatch.setattr("teleport.report.page.write.finished_pools", lambda *_: {})
    write_page(spec, Path("."), tmp_path / "without")
    folder = tmp_path / "without/_page"
    assert "train" in data_of(folder, "index")["splits"] and len(data_of(folder, "queries-train")["rows"]) == 80
    _, browser = opened
    browser.open(folder / "list.html", "#train")
    assert browser.evaluate("document.querySelectorAll('.queries li').length") == 80


@pytest.mark.ci(0)
def test_a_listed_query_has_a_link_where_it_has_a_page(opened):
    folder, browser = opened
    for split, number in (("train", 80), ("test", 20)):
        browser.open(folder / "list.html", f"#{split}")
        links = browser.evaluate(
            "[...document.querySelectorAll('.queries a')].map((each) => each.getAttribute('href'))"
        )
        assert browser.evaluate("document.querySelectorAll('.queries li').length") == number
        assert 0 < len(links) < number and len(links) == len(data_of(folder, f"queries-{split}")["full"])
        assert all((folder / link.partition("#")[0]).exists() for link in links)
    assert not list(folder.glob("stage-*")) and not (folder / "query.html").exists() and browser.errors == []


@pytest.mark.ci(1)
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
