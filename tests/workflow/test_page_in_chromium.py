"""The report page in a Chromium without a network: questions, mouse, keyboard, clipboard, print, no JavaScript."""

import base64
import json
import re
from itertools import pairwise

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from browser import Browser, require_chromium
from page_world import MARKUP, episode, pools, record, report
from runs_world import runs_world

pytestmark = pytest.mark.ci(0)
MOST_CLICKS = 3  # from the first page to an answer


@pytest.fixture(scope="module")
def marked(finished, tmp_path_factory):
    """A world whose passages and first query hold markup, with every query in full, as a folder and as one file."""
    world = finished.copy(tmp_path_factory.mktemp("page") / "world")
    marked = {"corpus/corpus.parquet": MARKUP, "split-train/queries.train.parquet": {0: MARKUP[0]}}
    for path, texts in marked.items():
        link, name = path.split("/")
        folder = (world.folder / "results/experiments/tele" / link).resolve()
        table = pq.read_table(folder / name)
        column = [texts.get(row, text) for row, text in enumerate(table["text"].to_pylist())]
        table = table.set_column(table.schema.get_field_index("text"), "text", pa.array(column, pa.string()))
        pq.write_table(table, folder / name)
        record(folder, name)
    report(world, "--queries", "all")
    report(world, "--queries", "all", "--share", "all.html")
    return world


@pytest.fixture(scope="module", params=["folder", pytest.param("one file", marks=pytest.mark.slow)])
def opened(marked, tmp_path_factory, request):
    """(how an address of the page is opened, browser); of the first page where no other is named."""
    require_chromium()
    browser = Browser(tmp_path_factory.mktemp("profile"))

    def go(page="index.html", place=""):
        if request.param == "folder":
            browser.open(marked.folder / "page/_page" / page, f"#{place}" if place else "")
        else:
            browser.open(marked.folder / "all.html", f"#{page}/{place}" if place else f"#{page}")

    yield go, browser
    browser.close()


SEEN = "[...document.querySelectorAll(%s)].find((each) => each.checkVisibility() && (%s))"


def element(selector, text=None):
    """JavaScript for the first element of a selector that is to be seen (and has a text)."""
    return SEEN % (json.dumps(selector), "true" if text is None else f"each.textContent.trim() === {json.dumps(text)}")


def follow(browser, selector, text=None, to="body"):
    """Press the mouse on an element, and wait until `to` (a selector) of what it opens is to be seen and all drawn."""
    browser.wait(element(selector, text))
    browser.press_mouse(element(selector, text))
    browser.wait(element(to))
    browser.wait("document.documentElement?.dataset.ready")


def choose(browser, name, value):
    """Choose a value of the drop-down list that is called `name`; it counts as a click."""
    browser.clicks += 1
    label = f"[...document.querySelectorAll('label.choice')].find((each) => each.textContent.startsWith('{name}'))"
    browser.wait(label)
    change = "dispatchEvent(new Event('change', {bubbles: true}))"
    browser.evaluate(
        f"(({{firstChild, control}}) => {{ control.value = {json.dumps(value)}; control.{change}; }})({label})"
    )


def shown(browser, selector):
    """The text of the first element of a selector, once it is to be seen."""
    browser.wait(element(selector))
    return browser.evaluate(f"{element(selector)}.textContent.replace(/\\s+/g, ' ').trim()")


def figure(title):
    """JavaScript for the figure whose caption has a title."""
    return f"[...document.querySelectorAll('figure')].find((each) => each.textContent.includes({json.dumps(title)}))"


@pytest.mark.ci(1)
def test_is_b_better_than_a_and_where(opened, marked):
    """From the matrix to the two systems, and to a query with both top tens."""
    go, browser = opened
    go()
    assert browser.evaluate("document.title").endswith("· ANCE-Tele")
    pairs = pd.read_csv(marked.folder / "results/tables/main.pairs.csv")
    pair = pairs[(pairs["a"] == 1) & (pairs["b"] == 4)].iloc[0]
    assert "ANCE-Tele" in shown(browser, ".verdicts") and "BM25" in shown(browser, ".verdicts")
    title = f"ANCE-Tele, episode 3 less Zero-shot: won {pair.won}, lost {pair.lost} queries"
    cell = json.dumps(f'.matrix td:has(a[title="{title}"])')
    assert browser.evaluate(f"document.querySelector({cell}).innerText").endswith(f", {pair.won} : {pair.lost}")
    follow(browser, f'.matrix a[title="{title}"]', to=".queries li a")
    said = shown(browser, ".said")
    assert f"won {pair.won}, lost {pair.lost}, the same on {20 - pair.won - pair.lost} queries" in said
    assert re.search(r", p [.\w ]+ of this pair alone \(", said)
    assert browser.evaluate(f"{element('.queries')}.querySelectorAll('li').length") == 20
    follow(browser, ".queries li a", to=".tops")
    heads = "[...document.querySelectorAll('.tops thead tr:first-child th')].filter((each) => each.checkVisibility())"
    assert browser.evaluate(f"{heads}.length") == 3
    assert browser.clicks <= MOST_CLICKS and browser.errors == []


def test_which_negatives_had_a_query_in_an_episode_and_from_where(opened, marked):
    go, browser = opened
    go()
    follow(browser, "nav a", "Queries", to="[data-app=list] .queries li")
    choose(browser, "Split", "train")
    follow(browser, '.queries a[data-row="5"]', to=".negatives")
    lines = f"[...{element('.negatives')}.querySelectorAll('tbody tr')]"
    for number in (1, 2, 3):
        texts = browser.evaluate(f"{lines}.map((each) => each.children[{number}].textContent.trim())")
        filled = [text for text in texts if text]
        assert len(filled) == len(set(pools(marked)[number - 1][5]))
        assert all(text.split()[0] in ("query", "lookahead", "momentum") for text in filled)
    assert browser.clicks <= MOST_CLICKS and browser.errors == []


def test_which_queries_were_forgotten_in_an_episode(opened, marked):
    go, browser = opened
    go()
    follow(browser, "nav a", "Experiments", to='main a[href*="experiment-tele"]')
    follow(browser, 'main a[href*="experiment-tele"]', to=".states tbody a")
    forgotten = f"[...{element('.states')}.querySelectorAll('tbody tr')].map((each) => each.children[4])"
    counts = browser.evaluate(f"{forgotten}.map((each) => Number(each.textContent))")
    step = next(at for at, number in enumerate(counts) if number)
    browser.press_mouse(f"{forgotten}[{step}].querySelector('a')")
    browser.wait(element(".queries li"))
    assert shown(browser, "[data-app=list] .note").startswith(f"{counts[step]} queries, {counts[step]} with a page")
    assert browser.clicks <= MOST_CLICKS
    follow(browser, ".queries a", to=".trace")
    assert "Rank after checkpoints 0 → 1" in shown(browser, ".trace") and browser.errors == []


def test_what_did_a_system_cost_and_how_is_a_cell_reproduced(opened, marked):
    go, browser = opened
    go()
    cost = shown(browser, '.costs tr[data-system="ANCE-Tele"]')
    assert re.fullmatch(r"ANCE-Tele( ?[\d,]+ s){3}", cost) and browser.clicks == 0
    follow(browser, '.cell[data-system="ANCE-Tele"][data-episode="3"][data-column="RR@10"]', to=".behind .command code")
    key = episode(marked, 3, "evaluate-test").resolve().name
    command = shown(browser, ".behind .command code")
    assert command.startswith("git checkout ") and "make .venv/installed" in command
    assert f"--configfile toy.yaml -- results/stages/evaluate/{key}/manifest.json" in command
    follow(browser, ".behind .copy")
    browser.wait(element(".behind .copy", "copied"))
    assert browser.evaluate("navigator.clipboard.readText()") == command
    assert browser.clicks <= MOST_CLICKS
    assert f"results/stages/evaluate/{key}" in shown(browser, ".behind code.stage") and browser.errors == []


def test_charts_of_negatives_are_drawn_whole(opened):
    """The dashed line of the score gaps; the last ten ranks, which end at 20; the passages of a query at 1,400 px."""
    go, browser = opened
    go("experiment-tele.html")
    browser.wait(f"{figure('Score gaps.')}?.querySelector('svg')")
    dashed = f"{figure('Score gaps.')}.querySelector('svg [stroke-dasharray]:not([stroke-dasharray=\"\"])')"
    assert browser.evaluate(f"{dashed}.getBoundingClientRect().height") > 50
    rows = f"JSON.parse({figure('Ranks.')}.querySelector('script').textContent).datasets.values"
    assert browser.evaluate(f"Math.max(...{rows}.map((each) => each.rank))") == 21
    ticks = f"[...{figure('Ranks.')}.querySelectorAll('.role-axis-label text')].map((each) => Number(each.textContent))"
    assert max(browser.evaluate(ticks)[:20]) >= 18
    go("query-train-5.html")
    left, right = browser.evaluate(
        f"(({{left, right}}) => [left, right])({element('.negatives tbody th')}.getBoundingClientRect())"
    )
    assert left >= 0 and right - left > 100 and right <= 1400
    assert browser.evaluate(f"{element('.negatives tbody th')}.textContent.trim()") and browser.errors == []


def test_the_map_of_a_query_is_stepped_through_the_episodes(opened):
    go, browser = opened
    go("query-train-5.html")
    browser.wait(element("input[type=range]"))
    points = (
        "JSON.stringify([...document.querySelectorAll('.mark-symbol path')]"
        ".filter((each) => each.checkVisibility()).map((each) => each.getAttribute('transform')))"
    )
    slider = element("input[type=range]")
    browser.evaluate(f"{slider}.focus()")
    for key, episode_shown in (("Home", 1), ("ArrowRight", 2)):
        before = browser.evaluate(points)
        browser.press(key)
        browser.wait(f"{points} !== {json.dumps(before)}")
        assert browser.evaluate(f"Number({slider}.value)") == episode_shown
    assert browser.errors == []


def test_a_band_of_the_river_opens_its_queries(opened):
    go, browser = opened
    go("experiment-tele.html")
    river = (
        "[...document.querySelectorAll('figure')].find((each) => each.checkVisibility() && "
        "each.querySelector('script')?.textContent.includes('list.html#'))"
    )
    browser.wait(f"{river}?.querySelector('.mark-rect path')")
    bands = f"[...{river}.querySelectorAll('.mark-rect path')]"
    sizes = browser.evaluate(f"{bands}.map((each) => each.getBoundingClientRect().height)")
    browser.press_mouse(f"{bands}[{sizes.index(max(sizes))}]")
    browser.wait(f"{element('.queries li')} && {element('[data-app=list]')}")
    queries, _, full = shown(browser, "[data-app=list] .note").partition(" queries, ")
    assert 0 < int(queries) < 80 and full == f"{queries} with a page" and browser.errors == []


def test_two_systems_are_compared_by_keys_alone(opened):
    go, browser = opened
    go("diff.html")
    browser.wait(element(".queries li a"))
    reached = []
    for _ in range(60):
        browser.press("Tab")
        active = "(({tagName, type}) => [tagName, type ?? ''])(document.activeElement)"
        reached.append(tuple(browser.evaluate(active)))
        if browser.evaluate("document.activeElement.matches('.queries a')"):
            break
    assert reached.count(("SELECT", "select-one")) == 3 and ("INPUT", "search") in reached
    before = shown(browser, ".said")
    browser.evaluate(f"{element('label.choice select')}.focus()")
    browser.press("ArrowDown")
    browser.wait(f"{element('.said')}.textContent.replace(/\\s+/g, ' ').trim() !== {json.dumps(before)}")
    browser.wait(element(".queries li a"))
    browser.evaluate(f"{element('.queries li a')}.focus()")
    browser.press("Enter")
    browser.wait(element(".tops"))
    assert browser.errors == []


def test_the_axes_of_a_comparison_have_the_names_of_the_systems(opened):
    go, browser = opened
    go("diff.html", "test/1/2")
    browser.wait(element(".view .role-axis-title text"))
    chosen = "[...document.querySelectorAll('article:not([hidden]) select, main select')]"
    names = browser.evaluate(f"{chosen}.slice(0, 2).map(({{ selectedOptions }}) => selectedOptions[0].text)")
    titles = browser.evaluate("[...document.querySelectorAll('.role-axis-title text')].map((each) => each.textContent)")
    assert len({*names}) == 2 and titles == names and browser.errors == []


def test_the_search_finds_a_query_by_its_words(opened):
    go, browser = opened
    go("diff.html")
    browser.wait(element(".queries li a"))
    words = shown(browser, ".queries li a")
    browser.evaluate(f"{element('input[type=search]')}.focus()")
    browser.call("Input.insertText", text=words)
    browser.wait(f"{element('.queries')}.querySelectorAll('li').length === 1")
    assert shown(browser, ".queries li a") == words and browser.errors == []


def test_what_a_list_cuts_is_searched_whole(opened):
    go, browser = opened
    go("list.html", "test")
    browser.wait(element(".queries li a"))
    text = shown(browser, ".queries li a")
    browser.evaluate("page.MOST_CHARACTERS = 5; " + element("input[type=search]") + ".focus()")
    browser.call("Input.insertText", text=text[5:])
    browser.wait(f"{element('.queries')}.querySelectorAll('li').length === 1")
    begun = shown(browser, ".queries li a")
    assert begun.endswith("…") and text.startswith(begun[:-1]) and 0 < len(begun) <= 6 and len(text) > 8
    assert browser.errors == []


def test_skipping_the_navigation_keeps_what_is_shown(opened):
    go, browser = opened
    go("list.html", "train")
    lines = "document.querySelectorAll('.queries li').length"
    browser.wait(f"{lines} === 80")
    browser.evaluate("document.querySelector('.skip').click()")
    browser.wait("location.hash === '#main'")
    assert browser.evaluate(lines) == 80 and browser.evaluate(f"{element('label.choice select')}.value") == "train"
    assert browser.errors == []


def test_one_file_opens_at_its_first_page_where_no_address_names_another(opened, marked):
    _, browser = opened
    browser.open(marked.folder / "all.html")
    assert "ANCE-Tele" in shown(browser, ".verdicts")
    assert browser.evaluate("[...document.querySelectorAll('article')].filter((each) => !each.hidden).length") == 1


def test_a_long_list_opens_to_its_end(opened):
    go, browser = opened
    go("list.html")
    browser.wait(element(".queries li a"))
    whole = browser.evaluate("document.querySelectorAll('.queries li').length")
    browser.evaluate("page.MOST = 3; " + element("input[type=search]") + ".dispatchEvent(new Event('input'))")
    browser.wait("document.querySelectorAll('.queries li').length === 3")
    browser.press_mouse(element(".queries button", f"{whole - 3} more"))
    browser.wait(f"document.querySelectorAll('.queries li').length === {whole}")
    assert whole > 3 and browser.errors == []


def test_without_javascript_it_is_read_and_walked(opened, marked):
    """Verdicts, tables, and what is behind a cell; the top tens and negatives of a query."""
    go, browser = opened
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=f"file://{marked.folder}/page/_page/index.html")
        browser.wait("document.querySelector('.verdicts')")
        text = browser.evaluate("document.body.innerText")
        assert "need JavaScript" in text and "ANCE-Tele" in text
        mean = pd.read_csv(marked.folder / "results/tables/main.csv")["RR@10"].iloc[-1]
        assert f"{mean:.3f}" in text
        browser.press_mouse(element("nav a", "Stages"))
        browser.wait("document.title.startsWith('Stages')")
        assert browser.evaluate("document.querySelectorAll('article').length") == 0
        browser.call("Page.navigate", url=f"file://{marked.folder}/all.html")
        browser.wait("document.querySelectorAll('article').length > 9")
        hidden = "[...document.querySelectorAll('article')].filter((each) => !each.checkVisibility()).length"
        assert browser.evaluate(hidden) == 0
        browser.call("Page.navigate", url=f"file://{marked.folder}/page/_page/query-train-5.html")
        browser.wait("document.querySelector('.negatives')")
        assert "momentum" in browser.evaluate("document.querySelector('.negatives').innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_it_prints_with_everything_opened(opened):
    go, browser = opened
    go("experiment-tele.html")
    undrawn = "[...document.querySelectorAll('.chart')].filter((e) => e.checkVisibility() && !e.querySelector('svg'))"
    browser.evaluate(f"window.onafterprint = () => {{ window.undrawn = {undrawn}.length; }}")
    printed = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 1
    closed = "[...document.querySelectorAll('details:not([open])')].length"
    assert browser.evaluate(closed) == 0 and browser.evaluate("window.undrawn") == 0 and browser.errors == []


TABLE = {"title": "Toy", "source": "nowhere", "scale": 100, "decimals": 1}
TABLE |= {"tolerance": {"value": 0.5, "reason": "toy"}}
TABLE |= {"columns": [{"name": "test RR@10", "configuration": "toy", "split": "test", "measure": "RR@10"}]}
TABLE |= {"rows": [{"system": "ANCE-Tele", "values": [39.1], "ours": {"experiment": "tele"}}]}
TABLE["rows"].append({"system": "Cited", "values": [12.0]})


@pytest.mark.slow
def test_published_figures_stand_beside_ours(finished, tmp_path):
    require_chromium()
    world = finished.copy(tmp_path / "world")
    (world.folder / "table.yaml").write_text(yaml.safe_dump(TABLE))
    world.config |= {"name": "toy", "published": ["table.yaml"]}
    report(world)
    browser = Browser(tmp_path / "profile")
    browser.open(world.folder / "page/_page/index.html")
    follow(browser, "nav a", "Beside the papers", to="main table")
    ours = json.loads((episode(world, 3, "evaluate-test") / "manifest.json").read_text())["facts"]["means"]["RR@10"]
    text = shown(browser, "main")
    browser.close()
    assert all(said in text for said in ("Toy", "39.1", "12.0", f"{100 * ours:.1f}")) and browser.errors == []


@pytest.mark.slow
def test_twenty_eight_systems_of_runs_alone(tmp_path):
    """Each has a name and a place of its own, in one colour and best first; a pair opens; no page stands empty."""
    require_chromium()
    labels = [f"System {n:02} with a name of its own, episode {n % 4}" for n in range(28)]
    world = runs_world(tmp_path / "world", labels)
    world.snakemake()
    page, browser = world.folder / "results/report/_page", Browser(tmp_path / "profile")
    means = pd.read_csv(world.folder / "results/tables/main.csv").set_index("system")["RR@10"]
    for width in (400, 1400):
        browser.size(width)
        browser.open(page / "index.html")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        svg = f"{figure('RR@10.')}.querySelector('svg')"
        texts = f"[...{svg}.querySelectorAll('.mark-text text')].filter((each) => each.textContent.startsWith('Sys'))"
        drawn = browser.evaluate(f"{texts}.map((each) => each.textContent)")
        assert sorted(drawn) == labels and [*means[drawn]] == sorted(means, reverse=True)
        places = browser.evaluate(f"{texts}.map((each) => each.getBoundingClientRect().top)")
        assert min(below - above for above, below in pairwise(sorted(places))) > 10, "names lie on each other"
        dots = f"[...{svg}.querySelectorAll('path[aria-roledescription=point]')]"
        fills = browser.evaluate(f"{dots}.map((each) => each.getAttribute('fill'))")
        assert len(fills) == 28 and len(set(fills)) == 1
    assert browser.evaluate("document.querySelectorAll('.verdicts li').length") == 27, "each beside the baseline"
    nav = browser.evaluate("[...document.querySelectorAll('nav li')].map((each) => each.getBoundingClientRect().right)")
    assert max(nav) <= 1400 - 24 and browser.evaluate(f"{element('.verdicts')}.getBoundingClientRect().top") < 400
    assert browser.evaluate("document.querySelectorAll('.matrix tbody tr').length") == 28
    pair = "document.querySelector('.matrix tbody tr:nth-child(9) td:nth-of-type(4) a')"
    browser.press_mouse(pair)
    browser.wait("document.title.startsWith('Compare') && document.documentElement.dataset.ready")
    a, b = labels[3], labels[8]
    assert shown(browser, ".said").startswith(f"{b} {means[b]:.3f}, {a} {means[a]:.3f}: ")
    assert browser.evaluate("document.querySelectorAll('form select')[0].options.length") == 28
    assert browser.evaluate(f"{element('.queries')}.querySelectorAll('li').length") == 20
    links = browser.evaluate("[...document.querySelectorAll('nav a')].map((each) => each.textContent)")
    assert links == ["Verdicts", "Compare", "Queries", "Stages"]
    for name in sorted(path.name for path in page.glob("[!qs]*.html")):
        browser.open(page / name)
        parts = "[...document.querySelectorAll('section, ul, tbody, .pair')]"
        assert browser.evaluate(f"{parts}.filter((each) => !each.textContent.trim()).length") == 0, name
    browser.open(page / "query-test-0.html")
    assert browser.evaluate("document.querySelectorAll('table.tops th.turned').length") == 28
    assert browser.errors == []
    browser.close()


def test_texts_with_markup_are_shown_as_text(opened, marked):
    go, browser = opened
    go("query-train-0.html")
    assert shown(browser, ".question") == MARKUP[0]
    assert "broken" not in browser.evaluate("document.title")
    marked_up = "[...document.querySelectorAll('main b, main i')].map((each) => each.textContent.trim())"
    assert not {"bold", "italics"} & set(browser.evaluate(marked_up)), "a text made an element"
    pages = [path.read_text() for path in (marked.folder / "page/_page").glob("query-*.html")]
    for row in (1, 2):
        page = next(text for text in pages if f'<span class="id">title{row} · d{row}' in text)
        body = page.partition(f'<span class="id">title{row} · d{row}')[2].partition("</p>")[0]
        assert "<i>" not in body and ("&lt;i&gt;" in body) == (row == 1)
    assert browser.errors == []
    assert {request.split(":")[0] for request in browser.requests} <= {"file", "data", "about", "blob"}


@pytest.mark.ci(1)
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_window(opened, width):
    go, browser = opened
    browser.size(width)
    for page in ("index", "diff", "list", "experiments", "experiment-tele", "query-train-5", "query-test-3", "stages"):
        go(f"{page}.html")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page
    browser.size(1400)
