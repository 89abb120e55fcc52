// Two systems on all queries of a split: a scatter of their scores, and both top tens of a query.
"use strict";

(() => {
  const { h, number, count } = page;
  const MOVERS = 8;
  let index, state, controls, chart, movers, query;

  const go = (changes = {}) => {
    const next = { ...state, ...changes };
    location.hash = page.address("diff", next.split, next.a, next.b, next.measure, next.row ?? "");
  };

  function showControls() {
    const split = index.splits[state.split];
    const systems = split.systems.map((n) => [n, index.systems[n]]);
    controls.replaceChildren(
      page.choice("From", systems, state.a, (value) => go({ a: Number(value) })), page.choice("To", systems, state.b, (value) => go({ b: Number(value) })),
      page.choice("Measure", split.measures.map((name) => [name, name]), state.measure, (value) => go({ measure: value })),
      ...(Object.keys(index.splits).length > 1 ? [page.choice("Split", Object.keys(index.splits).map((name) => [name, name]), state.split, (value) => go({ split: value, measure: index.splits[value].measures[0], row: null }))] : []));
  }

  async function scores() {
    const [a, b] = await Promise.all([state.a, state.b].map((n) => page.load(`diff/${state.split}-${n}`)));
    const split = index.splits[state.split], shown = new Set(split.shown);
    return split.queries.map(([row, id], at) => ({ row, id, a: a[state.measure]?.[at], b: b[state.measure]?.[at], shown: shown.has(row) })).filter(({ a, b }) => a !== null && b !== null && a !== undefined && b !== undefined);
  }

  function showScatter(rows) {
    const places = new Map();
    for (const row of rows) {
      const key = `${row.a} ${row.b} ${row.shown}`, place = places.get(key) ?? { a: row.a, b: row.b, shown: row.shown ? "top tens are here" : "score only", count: 0, rows: [] };
      place.count += 1;
      place.rows.push(row.row);
      places.set(key, place);
    }
    const drawn = [...places.values()].sort((one, other) => other.count - one.count).map(({ rows: each, ...place }) => ({ ...place, first: each[0], queries: each.length === 1 ? `query ${each[0]}` : `${each.length} queries` }));
    const names = [index.systems[state.a], index.systems[state.b]];
    const better = rows.filter(({ a, b }) => b > a).length, worse = rows.filter(({ a, b }) => b < a).length;
    const figure = figures.figure("scatter", drawn, `${state.measure} of ${count(rows.length)} queries.`, `${names[1]} is better on ${count(better)}, worse on ${count(worse)}, the same on ${count(rows.length - better - worse)}. A larger dot is more queries; click one to see both top tens.`, null, (spec) => {
      for (const layer of spec.layer) { for (const [channel, name] of [["x", names[0]], ["y", names[1]]]) if (layer.encoding?.[channel]) layer.encoding[channel].title = name; }
    });
    figure.ready.then((view) => view.addEventListener("click", (_, item) => { if (item?.datum?.first !== undefined) go({ row: item.datum.first }); }));
    chart.replaceChildren(figure);
  }

  function showMovers(rows) {
    const sorted = rows.filter((row) => row.shown).sort((one, other) => (one.b - one.a) - (other.b - other.a));
    const moved = (each) => { const change = each.b - each.a; return h("span", { class: change > 0 ? "up" : change < 0 ? "down" : null }, `${change > 0 ? "+" : ""}${number(change)}`); };
    const columns = [
      { name: "Query", words: true, cell: (row) => h("a", { href: page.address("diff", state.split, state.a, state.b, state.measure, row.row), "data-row": row.row, dir: "auto" }, row.id) },
      { name: "From", cell: (row) => number(row.a) }, { name: "To", cell: (row) => number(row.b) }, { name: "Change", cell: moved },
    ];
    const part = (title, each) => h("div", {}, h("h4", {}, title), page.table(columns, each, { label: title, class: "movers" }));
    movers.replaceChildren(part("Lost most", sorted.slice(0, MOVERS)), part("Gained most", sorted.slice(-MOVERS).reverse()));
  }

  // Where a passage at `rank` of the first list is in the second one, or came from to the second list.
  function move(rank, other, forward) {
    if (other === undefined) return h("span", { class: `move ${forward ? "down" : "up"}` }, forward ? "out" : "new");
    if (other === rank) return h("span", { class: "move" }, "=");
    if (forward) return h("span", { class: `move ${other < rank ? "up" : "down"}`, title: `rank ${other} there` }, `→ ${other}`);
    return h("span", { class: `move ${other > rank ? "up" : "down"}`, title: `rank ${other} there` }, `${other > rank ? "▲" : "▼"} ${Math.abs(other - rank)}`);
  }

  function ranking(mine, other, positives, forward) {
    const places = new Map(other.map(([passage], at) => [passage, at + 1]));
    return h("ol", { class: "ranking" }, mine.map(([passage, value], at) => h("li", { class: positives.has(passage) ? "positive" : null },
      h("div", { class: "line" }, h("span", { class: "rank" }, String(at + 1)), move(at + 1, places.get(passage), forward), h("span", { class: "score" }, page.score(value)), positives.has(passage) ? h("span", { class: "tag" }, "positive") : null),
      passages.show(passage))));
  }

  async function showQuery() {
    if (state.row === null) { query.replaceChildren(); return; }
    const split = index.splits[state.split];
    if (!split.shown.includes(state.row)) {
      const id = split.queries.find(([row]) => row === state.row)?.[1];
      query.replaceChildren(h("p", { class: "note" }, `${id}: the top tens of this query are not in this report, which has ${count(split.shown.length)} of ${count(split.queries.length)} in full; set report.queries to all.`));
      return;
    }
    const data = await page.load(`q/top-${state.split}-${state.row}`), positives = new Set(data.positives);
    const [a, b] = [data.tops[state.a] ?? [], data.tops[state.b] ?? []];
    query.replaceChildren(h("h3", { class: "question", dir: "auto" }, data.text), h("p", { class: "id" }, data.id),
      h("div", { class: "pair rankings", "data-row": state.row },
        h("div", {}, h("h4", {}, index.systems[state.a]), ranking(a, b, positives, true)), h("div", {}, h("h4", {}, index.systems[state.b]), ranking(b, a, positives, false))));
  }

  page.section("diff", "Diff", async (element, parts) => {
    index = (await page.load("index")).diff;
    const first = Object.keys(index.splits)[0];
    if (!first) { element.append(h("p", {}, "No evaluation is finished yet.")); return; }
    if (!controls) {
      const { systems, measures } = index.splits[first];
      state = { split: first, a: systems[Math.min(1, systems.length - 1)], b: systems.at(-1), measure: measures[0], row: null };
      [controls, chart, movers, query] = ["bar", "scatter", "moves", "query-page"].map((name) => h("div", { class: name }));
      element.append(controls, h("div", { class: "block pair" }, chart, movers), query);
    }
    const before = JSON.stringify({ ...state, row: null });
    if (index.splits[parts[0]] && [1, 2].every((at) => index.splits[parts[0]].systems.includes(Number(parts[at])))) state = { split: parts[0], a: Number(parts[1]), b: Number(parts[2]), measure: parts[3], row: parts[4] ? Number(parts[4]) : null };
    if (!chart.firstChild || before !== JSON.stringify({ ...state, row: null })) {
      showControls();
      const rows = await scores();
      showScatter(rows);
      showMovers(rows);
    }
    await showQuery();
    if (parts[4]) query.scrollIntoView({ block: "start" });
  });
})();
