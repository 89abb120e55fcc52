// What a page does beside being read: draws its charts, copies commands, compares two systems, lists queries. In one
// file for all (`articles`) it also shows the page that a link names.
"use strict";

const page = (() => {
  const store = new Map(), waiting = new Map();

  // An element; text is never taken for markup.
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat());
    return element;
  }

  // The value of a data file, which is a script: browsers refuse to fetch from the disk.
  function load(name) {
    if (store.has(name)) return Promise.resolve(store.get(name));
    return new Promise((resolve) => {
      waiting.set(name, resolve);
      document.head.append(h("script", { src: `${name}.js` }));
    });
  }

  function put(name, value) {
    store.set(name, value);
    waiting.get(name)?.(value);
  }

  const articles = [...document.querySelectorAll("article")];
  const shown = () => articles.find((each) => !each.hidden) ?? document.getElementById("main");

  // What follows the name of the page in its address: "test/1/4" → ["test", "1", "4"].
  function place() {
    const text = location.hash.slice(1), article = articles.find((each) => text.startsWith(`${each.id}/`));
    return (article ? text.slice(article.id.length + 1) : text).split("/").map(decodeURIComponent);
  }

  const address = (name, ...parts) => {
    const rest = parts.map(encodeURIComponent).join("/");
    return articles.length ? `#${name}.html/${rest}` : `${name}.html#${rest}`;
  };

  // Draws every chart that is visible and not drawn yet; data-ready says when all are.
  async function draw() {
    const visible = (each) => each.offsetParent;
    const charts = [...shown().querySelectorAll(".chart:not([data-drawn], .later)")].filter(visible);
    document.documentElement.dataset.ready = "";
    await Promise.all(charts.map((each) => {
      each.dataset.drawn = "";
      return chart(each, JSON.parse(each.querySelector("script").textContent));
    }));
    document.documentElement.dataset.ready = location.hash || "#";
  }

  const chart = (element, spec) => {
    const here = element.querySelector(".view") ?? element.appendChild(h("div", { class: "view" }));
    const linked = () => JSON.parse(JSON.stringify(spec).replace(/"(query-[^"]*|list)\.html#?/g, '"#$1.html/'));
    return vegaEmbed(here, articles.length ? linked() : spec, { actions: false, renderer: "svg", logLevel: 1 });
  };

  // In one file for all: the page that the address names, or that has the element that it names.
  function route() {
    const text = decodeURIComponent(location.hash.slice(1)), element = text && document.getElementById(text);
    const named = articles.find((each) => text === each.id || text.startsWith(`${each.id}/`));
    const next = named ?? (element && articles.find((each) => each.contains(element))) ?? articles[0];
    for (const each of articles) each.hidden = each !== next;
    if (element && element !== next) element.scrollIntoView();
    else window.scrollTo(0, 0);
  }

  function onlyTwo() {
    const table = shown().querySelector("table.tops"), two = place()[0].match(/^(\d+)-(\d+)$/);
    if (!table) return;
    const systems = [...table.querySelectorAll("[data-of]")].map((cell) => cell.dataset.of);
    for (const line of table.rows) {
      systems.forEach((number, at) => { line.cells[at + 1].hidden = Boolean(two) && !two.slice(1).includes(number); });
    }
    for (const line of table.querySelectorAll("tbody tr")) {
      line.hidden = [...line.querySelectorAll("td")].every((cell) => cell.hidden || !cell.textContent);
    }
    shown().querySelector(".only").hidden = !two;
  }

  const apps = {};
  async function go() {
    if (articles.length) route();
    onlyTwo();
    const app = shown().querySelector("[data-app]");
    const index = () => JSON.parse(shown().querySelector("script.index").textContent);
    if (app) await apps[app.dataset.app](app, index());
    await draw();
  }

  document.addEventListener("click", async (event) => {
    if (!event.target.matches?.(".copy")) return;
    await navigator.clipboard.writeText(event.target.parentElement.querySelector("code").textContent);
    event.target.textContent = "copied";
  });
  document.addEventListener("toggle", draw, true);
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  window.addEventListener("hashchange", go);
  document.addEventListener("DOMContentLoaded", go);
  return { h, load, put, place, address, chart, apps };
})();

// The address of a query: of its page, or of the light one for all that have none.
page.query = (split, row, full, ...rest) =>
  full.has(row) ? page.address(`query-${split}-${row}`, ...rest) : page.address("query", split, row, ...rest);

// A list of queries: [{row, id, text, more: [elements]}] that hold the text searched for.
page.MOST = 300;
page.listQueries = (root, split, all, full, rest) => {
  const { h } = page, input = root.querySelector("input[type=search]"), list = root.querySelector(".queries");
  const named = (row, text) =>
    h("a", { href: page.query(split, row, full, ...rest), "data-row": row, dir: "auto" }, text);
  const show = () => {
    const wanted = input.value.toLowerCase();
    const found = all.filter(({ id, text }) => `${id} ${text}`.toLowerCase().includes(wanted));
    const whole = found.filter(({ row }) => full.has(row)).length;
    const missing = whole < found.length ? "; the others open without texts" : "";
    const cut = found.length > page.MOST ? `the first ${page.MOST} of ` : "";
    const said = `${cut}${found.length.toLocaleString("en")} queries, ${whole} in full${missing}`;
    root.querySelector(".note").textContent = said;
    const words = (row, id, text) => h("span", { class: "text" }, named(row, text), h("small", {}, id));
    const line = ({ row, id, text, more }) => h("li", {}, words(row, id, text), more);
    list.replaceChildren(...found.slice(0, page.MOST).map(line));
  };
  input.oninput = show;
  show();
};

page.choice = (name, options, chosen, change) => {
  const { h } = page;
  const select = h("select", { onchange: (event) => change(event.target.value) });
  const selected = (value) => (String(value) === String(chosen) ? "" : null);
  for (const [value, text] of options) select.append(h("option", { value, selected: selected(value) }, text));
  return h("label", { class: "choice" }, h("span", {}, name), select);
};

// Two systems on all queries of a split.
page.apps.diff = async (root, { splits, labels, pairs }) => {
  const [given, ...rest] = page.place(), split = splits.includes(given) ? given : splits[0];
  const data = await page.load(`scores-${split}`), queries = await page.load(`queries-${split}`);
  const known = (value, other) => (value !== undefined && data.systems.includes(Number(value)) ? Number(value) : other);
  const a = known(rest[0], data.systems[Math.min(1, data.systems.length - 1)]);
  const b = known(rest[1], data.systems.at(-1));
  const measure = data.measures.includes(rest[2]) ? rest[2] : data.measures[0];
  const go = (...parts) => { location.hash = page.address("diff", ...parts).replace(/^[^#]*/, ""); };
  const systems = data.systems.map((n) => [n, labels[n]]), twice = (names) => names.map((n) => [n, n]);
  root.querySelector("form").replaceChildren(
    ...(splits.length > 1 ? [page.choice("Split", twice(splits), split, (value) => go(value))] : []),
    page.choice("From", systems, a, (value) => go(split, value, b, measure)),
    page.choice("To", systems, b, (value) => go(split, a, value, measure)),
    page.choice("Measure", twice(data.measures), measure, (value) => go(split, a, b, value)));
  const column = (n) => data.scores[measure][data.systems.indexOf(n)], full = new Set(queries.full);
  const [ofA, ofB] = [column(a), column(b)];
  const query = (row, at) => ({ row, id: queries.ids[at], text: queries.texts[at], a: ofA[at], b: ofB[at] });
  const rows = queries.rows.map(query), sign = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
  const mean = (key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length;
  const better = data.fewer.includes(measure) ? -1 : 1;
  const [won, lost] = [better, -better].map((way) => rows.filter((row) => way * (row.b - row.a) > 1e-9).length);
  const pair = measure === data.measures[0] ? pairs[split]?.[`${Math.min(a, b)} ${Math.max(a, b)}`] : undefined;
  const [meanA, meanB] = [mean("a"), mean("b")];
  const means = `${labels[b]} ${meanB.toFixed(3)}, ${labels[a]} ${meanA.toFixed(3)}: ${sign(meanB - meanA)}`;
  const counts = `won ${won}, lost ${lost}, the same on ${rows.length - won - lost} queries`;
  const chance = pair === undefined ? "" : `, p ${pair}`;
  root.querySelector(".said").textContent = `${means}${chance} (${measure}, ${split}); ${counts}.`;
  const places = new Map();
  for (const row of rows) {
    const key = `${row.a} ${row.b}`, url = page.query(split, row.row, full, `${a}-${b}`);
    const there = places.get(key) ?? { a: row.a, b: row.b, count: 0, queries: row.id, url };
    places.set(key, { ...there, count: there.count + 1 });
  }
  const element = root.querySelector(".chart"), spec = JSON.parse(element.querySelector("script").textContent);
  spec.datasets.values = [...places.values()].sort((one, other) => other.count - one.count);
  await page.chart(element, spec);
  rows.sort((one, other) => better * ((one.b - one.a) - (other.b - other.a)) || one.row - other.row);
  const way = (value) => (better * value > 1e-9 ? "up" : better * value < -1e-9 ? "down" : "");
  const change = (value) => page.h("span", { class: `change ${way(value)}` }, sign(value));
  page.listQueries(root, split, rows.map((row) => ({ ...row, more: [change(row.b - row.a)] })), full, [`${a}-${b}`]);
};

page.spelled = (path, states, letters) => [...path].map((each) => states[letters.indexOf(each)]).join(", ");
page.measured = (measure) => (measure.startsWith("RR") ? "rank " : `${measure} `);

// A query without a page of its own: its scores, what became of it, and passages by their ids.
page.apps.light = async (root, { splits, scored, experiments, states, letters }) => {
  const [split, row, only] = page.place(), { h } = page;
  if (!splits.includes(split)) return;
  const queries = await page.load(`queries-${split}`), at = queries.rows.indexOf(Number(row));
  if (at < 0) return;
  const { columns, most, lists, positives } = await page.load(`light-${split}`);
  const scores = scored.includes(split) ? await page.load(`scores-${split}`) : null;
  const ids = (text) => (text ?? "").split(" ").filter(Boolean), known = new Set(ids(positives[at]));
  const passages = (text) => ids(text).flatMap((id) => [known.has(id) ? h("b", {}, id) : id, " "]);
  const line = (name, ...parts) =>
    h("tr", {}, h("th", { scope: "row", class: "words" }, name), h("td", { class: "words" }, ...parts));
  const lines = [line("Positives", ...passages(positives[at]))];
  const measures = (n) => scores?.measures.map((name) => `${name} ${scores.scores[name][n][at]}`).join(", ") ?? "";
  for (const [n, column] of columns.entries()) {
    if (scores && only && !only.split("-").includes(String(scores.systems[n]))) continue;
    lines.push(line(column, h("small", {}, measures(n)), " ", ...passages(lists[at]?.[n])));
  }
  for (const each of experiments.filter((one) => one.splits.includes(split))) {
    const { paths, ways, measure, checkpoints } = (await page.load(`paths-${each.name}`))[split];
    const way = `${page.measured(measure)}${ways[at]}: ${page.spelled(paths[at], states, letters)}`;
    if (paths[at]) lines.push(line(`${each.label}, checkpoints ${checkpoints.join(" → ")}`, way));
  }
  root.querySelector(".id").textContent = `${split} query ${queries.ids[at]}; at most ${most} passages of each`;
  root.querySelector(".question").textContent = queries.texts[at];
  root.querySelector(".wide").replaceChildren(h("table", { class: "light" }, h("tbody", {}, ...lines)));
};

// All queries of a split, or those that one step of an experiment left in one state.
page.apps.list = async (root, { splits, experiments, states, letters }) => {
  const [given, name, step, state] = page.place(), split = splits.includes(given) ? given : splits[0];
  const go = (...parts) => { location.hash = page.address("list", ...parts).replace(/^[^#]*/, ""); };
  const queries = await page.load(`queries-${split}`), twice = (names) => names.map((n) => [n, n]);
  const able = experiments.filter((each) => each.splits.includes(split));
  const chosen = able.find((each) => each.name === name);
  const paths = chosen && (await page.load(`paths-${chosen.name}`))[split];
  const steps = paths ? paths.checkpoints.slice(1).map((to, at) => [at, `${paths.checkpoints[at]} → ${to}`]) : [];
  const at = Math.max(0, Math.min(Number(step) || 0, steps.length - 1)), wanted = states.indexOf(state);
  const named = [["", "all queries"], ...able.map((each) => [each.name, each.label])];
  root.querySelector("form").replaceChildren(
    page.choice("Split", twice(splits), split, (value) => go(value)),
    page.choice("Experiment", named, chosen?.name ?? "", (value) => go(split, value, 0, state ?? "forgotten")),
    ...(paths ? [
      page.choice("From checkpoint to checkpoint", steps, at, (value) => go(split, name, value, state)),
      page.choice("Queries", [["", "all"], ...twice(states)], state ?? "", (value) => go(split, name, at, value)),
    ] : []));
  const glyph = ({ path, way }) =>
    page.h("span", { class: "path", title: page.spelled(path, states, letters) }, page.measured(paths.measure) + way);
  const way = (n) => ({ path: paths?.paths[n], way: paths?.ways[n] });
  const query = (row, n) => ({ row, id: queries.ids[n], text: queries.texts[n], ...way(n) });
  const kept = queries.rows.map(query)
    .filter(({ path }) => !paths || (path && (wanted < 0 || path[at] === letters[wanted])))
    .map((row) => ({ ...row, more: row.path ? [glyph(row)] : [] }));
  page.listQueries(root, split, kept, new Set(queries.full), []);
};
