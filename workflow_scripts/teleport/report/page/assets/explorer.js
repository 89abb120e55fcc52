// The explorer: a training query, its positives, and every negative that each episode gave it.
"use strict";

const passages = (() => {
  const { h } = page;
  const LONG = 200;

  // [doc id, title, text, characters that are left out] of a passage by its number on the page.
  async function passage(number) {
    const { starts } = (await page.load("index")).passages;
    let block = starts.length - 1;
    while (starts[block] > number) block -= 1;
    return (await page.load(`p/${block}`))[number - starts[block]];
  }

  // A passage as text, cut where it is long until the reader asks for the rest.
  function show(number) {
    const place = h("div", { class: "passage", "data-passage": number });
    place.ready = passage(number).then(([id, title, text, cut]) => {
      const whole = cut ? `${text}… (${page.count(cut)} more characters are not in this report)` : text;
      const body = h("p", { dir: "auto" }, text.length > LONG ? `${text.slice(0, LONG)}…` : text);
      place.append(h("span", { class: "id", title: id }, title && title !== id ? `${title} · ${id}` : id), body);
      if (text.length > LONG) {
        const label = cut ? `the first ${page.count(text.length)} characters` : `all ${page.count(text.length)} characters`;
        const more = h("button", { class: "more", "aria-expanded": "false" }, label);
        more.addEventListener("click", () => {
          const open = more.getAttribute("aria-expanded") === "true";
          body.textContent = open ? `${text.slice(0, LONG)}…` : whole;
          more.setAttribute("aria-expanded", String(!open));
          more.textContent = open ? label : "less";
        });
        place.append(more);
      }
    });
    return place;
  }

  return { show, passage };
})();

(() => {
  const { h, number, score, count } = page;
  const GROUPS = { all: "all", gain: "largest gains", loss: "largest losses", swing: "largest swings", random: "drawn at random" };
  let index, list, body, state;

  function queries() {
    const wanted = state.search.toLowerCase();
    return index.explorer.queries.filter(([, id, text, groups]) => (state.group === "all" || groups.includes(state.group)) && (!wanted || `${id} ${text}`.toLowerCase().includes(wanted)));
  }

  function showList() {
    const found = queries();
    list.replaceChildren(h("p", { class: "note" }, `${count(found.length)} of ${count(index.explorer.queries.length)} shown in full, of ${count(index.explorer.of)} training queries`),
      h("ol", { class: "queries" }, found.map(([row, id, text]) => h("li", {}, h("a", { href: page.address("explorer", row, state.system, state.episode), "aria-current": row === state.row ? "true" : null, "data-row": row, dir: "auto", title: id }, text)))));
  }

  function trace(system) {
    if (!system?.trace) return null;
    const checkpoints = index.explorer.checkpoints[state.system];
    return h("p", { class: "trace" }, "Reciprocal rank@100: ", checkpoints.map((n, at) => [at ? " → " : "", h("span", { title: `checkpoint ${n}` }, number(system.trace[at], 2))]));
  }

  function negativeTable(episode) {
    const threshold = episode.positive === null ? null : episode.positive - Math.abs(episode.positive) * (1 - index.explorer.suspect);
    const suspect = (line) => threshold !== null && line[6] !== null && line[6] >= threshold;
    const columns = [
      { name: "Source", words: true, cell: (line) => h("span", { class: `source ${line[1].replaceAll(" + ", "-")}` }, line[1]) },
      { name: "First", cell: (line) => String(line[2]) },
      { name: "Rank then", cell: (line) => line[3] === null ? page.none : String(line[3]) },
      { name: "now", cell: (line) => line[5] === null || line[5] === undefined ? page.none : String(line[5]) },
      { name: "Score then", cell: (line) => score(line[4]) },
      { name: "now", cell: (line) => [suspect(line) ? h("span", { class: "suspect", title: "95 % of the positive's score or more: perhaps a positive that nobody judged" }, "⚑ ") : null, score(line[6])] },
      { name: "", words: true, cell: (line) => line[7] ? h("span", { class: `state ${line[7]}` }, line[7]) : "" },
      { name: "Passage", words: true, cell: (line) => passages.show(line[0]) },
    ];
    return page.table(columns, episode.negatives, { label: "Negatives", class: "negatives" });
  }

  function mapFigure(system, at) {
    if (!system.map) return null;
    const { passages: shown, positives, points } = system.map;
    const here = new Set(system.episodes[at].negatives.map((line) => line[0]));
    const rows = points[at].map(([x, y], place) => {
      const what = place === 0 ? "query" : place <= positives ? "positive" : here.has(shown[place - 1]) ? "negative of this episode" : "negative of another";
      const front = { query: [190, 1], positive: [150, 1], "negative of this episode": [55, 0.85], "negative of another": [40, 0.6] }[what];
      return { x, y, what, passage: place ? `passage ${shown[place - 1]}` : "the query", size: front[0], opacity: front[1] };
    }).reverse();
    return figures.figure("map", rows, "The neighbourhood.", `Two principal components of the vectors of all episodes together, so that the places of episodes compare; at most 48 negatives.`, "ANCE-Tele, Figure 6");
  }

  async function showQuery(focus) {
    if (state.row === null) { body.replaceChildren(h("p", { class: "note" }, "Pick a query.")); return; }
    if (!index.explorer.queries.some(([row]) => row === state.row)) { body.replaceChildren(h("p", { class: "note" }, "This query is not shown in full.")); return; }
    const data = await page.load(`q/train-${state.row}`);
    const system = data.systems[state.system];
    const at = Math.max(0, system.episodes.findIndex((each) => each.episode === state.episode));
    const episode = system.episodes[at];
    const go = (system_, episode_) => { location.hash = page.address("explorer", state.row, system_, episode_); };
    const tabs = page.tabs("Episodes", system.episodes.map((each) => [each.episode, `Episode ${each.episode}`]), episode?.episode, (value, keyed) => { state.focus = keyed; go(state.system, value); });
    body.replaceChildren(
      h("h3", { class: "question", dir: "auto" }, data.text), h("p", { class: "id" }, data.id), trace(system) ?? "",
      h("div", { class: "bar" }, page.choice("System", index.explorer.experiments, state.system, (value) => go(value, 1))),
      h("h4", {}, data.positives.length === 1 ? "Positive" : `${data.positives.length} positives`), ...data.positives.slice(0, 5).map(passages.show),
      h("h4", {}, "Negatives"), tabs,
      episode ? h("div", { role: "tabpanel", "data-episode": episode.episode },
        h("p", { class: "note" }, `${episode.negatives.length} negatives`, episode.positive === null ? "" : `; the positive scores ${score(episode.positive)} under the model that mined them`, ". Then: in the search that found it. Now: by the model that mined this episode, the rank among the query's own neighbours."),
        negativeTable(episode),
        episode.gone.length ? h("details", {}, h("summary", {}, `${episode.gone.length} gone since the episode before`), ...episode.gone.map(passages.show)) : null) : h("p", {}, "No pool is finished."),
      mapFigure(system, at) ?? "");
    if (state.focus) { state.focus = false; body.querySelector('[role="tab"][aria-selected="true"]').focus(); }
  }

  page.section("explorer", "Explorer", async (element, parts) => {
    index = await page.load("index");
    if (!index.explorer) { element.append(h("p", {}, "No pool of negatives is finished yet.")); return; }
    const most = index.explorer.experiments.at(-1)[0];
    if (!list) {
      const deepest = Object.entries(index.explorer.checkpoints).reduce((best, each) => (each[1].length > best[1].length ? each : best))[0];
      state = { row: index.explorer.queries[0]?.[0] ?? null, system: deepest ?? most, episode: 1, group: "all", search: "" };
      list = h("div", { class: "list" });
      body = h("div", { class: "query-page" });
      const search = h("input", { type: "search", oninput: (event) => { state.search = event.target.value; showList(); } });
      element.append(h("div", { class: "split" },
        h("aside", { "aria-label": "Queries" }, h("div", { class: "bar" }, page.choice("Show", Object.entries(GROUPS), "all", (value) => { state.group = value; showList(); }), h("label", { class: "choice" }, h("span", {}, "Search"), search)), list), body));
    }
    if (parts[0]) Object.assign(state, { row: Number(parts[0]), system: parts[1] ?? state.system, episode: Number(parts[2] ?? 1) });
    showList();
    const queries = list.querySelector(".queries"), current = queries.querySelector('[aria-current="true"]');
    if (current) queries.scrollTop = current.offsetTop - queries.offsetTop - queries.clientHeight / 2;
    await showQuery();
  });
})();
