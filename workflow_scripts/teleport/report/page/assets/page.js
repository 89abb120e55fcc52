// What a page does beside being read: draws its charts, copies commands, compares two systems, lists queries. In one
// file for all (`articles`) it also shows the page that a link names.
"use strict";

const page = (() => {
  const store = new Map(), waiting = new Map();

  // An element; text is never taken for markup.
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.flat());
    return element;
  }

  // The value of a data file, which is a script: browsers refuse to fetch from the disk.
  function load(name) {
    if (store.has(name)) return store.get(name);
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
  const named = (text) => articles.find((each) => `${text}/`.startsWith(`${each.id}/`));

  // What follows the name of the page in its address: "test/1/4" → ["test", "1", "4"].
  function place() {
    const text = location.hash.slice(1), article = named(text);
    return (article ? text.slice(article.id.length + 1) : text).split("/").map(decodeURIComponent);
  }

  const address = (name, ...parts) => {
    const rest = parts.map(encodeURIComponent).join("/");
    return articles.length ? `#${name}.html/${rest}` : `${name}.html#${rest}`;
  };

  // Draws every chart that is visible and not drawn yet; data-ready says when all are.
  async function draw() {
    const charts = [...shown().querySelectorAll(".chart:not([data-drawn], .later)")];
    document.documentElement.dataset.ready = "";
    await Promise.all(charts.filter((each) => each.offsetParent).map((each) => {
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
    const next = named(text) ?? articles.find((each) => element && each.contains(element)) ?? articles[0];
    for (const each of articles) each.hidden = each !== next;
    if (element && element !== next) element.scrollIntoView();
    else window.scrollTo(0, 0);
  }

  // On the page of a query: the two systems that its address names, or all.
  function onlyTwo() {
    const table = shown().querySelector("table.tops"), two = place()[0].match(/^\d+-\d+$/)?.[0].split("-");
    if (!table) return;
    const others = [...table.rows[0].cells].map(({ dataset }) => dataset.of && two && !two.includes(dataset.of));
    for (const line of table.rows) others.forEach((each, at) => { line.cells[at].hidden = each; });
    for (const line of table.tBodies[0].rows) line.hidden = !line.querySelector("td:not([hidden], :empty)");
    shown().querySelector(".only").hidden = !two;
  }

  const apps = {};
  async function go() {
    if (articles.length) route();
    onlyTwo();
    const app = shown().querySelector("[data-app]");
    if (app) await apps[app.dataset.app](app, await load("index"));
    await draw();
  }

  document.addEventListener("click", async (event) => {
    if (!event.target.matches?.(".copy")) return;
    const code = event.target.parentElement.querySelector("code");
    getSelection().selectAllChildren(code); // what is left where browsers give no clipboard, as over plain HTTP
    await navigator.clipboard?.writeText(code.textContent);
    event.target.textContent = navigator.clipboard ? "copied" : "selected";
  });
  document.addEventListener("toggle", draw, true);
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
    draw(); // at once: toggles are told of after the paper is full
  });
  window.addEventListener("hashchange", () => location.hash !== "#main" && go()); // the link that skips the navigation
  document.addEventListener("DOMContentLoaded", go);
  return { h, load, put, place, address, chart, apps };
})();

// The address of a query that has a page of its own; null for the others.
page.query = (split, row, full, ...rest) => (full.has(row) ? page.address(`query-${split}-${row}`, ...rest) : null);

// Fills the form of an app; lists: [name, options, chosen, (value) → what follows the app's name in the address].
page.form = (root, lists) => {
  const { h } = page;
  const label = ([name, options, chosen, place]) => {
    const option = ([value, text = value]) => h("option", { value }, text);
    const select = h("select", {}, options.map((each) => option([each].flat())));
    select.value = chosen;
    select.onchange = () => { location.href = page.address(root.dataset.app, ...place(select.value)); };
    return h("label", { class: "choice" }, h("span", {}, name), select);
  };
  root.querySelector("form").replaceChildren(...lists.map(label));
};

// How a text begins: whole words, unless the first one is longer than there is room.
page.begun = (text) => text.slice(0, page.MOST_CHARACTERS + 1).replace(/\s+\S*$/, "").slice(0, page.MOST_CHARACTERS);

// A list of queries: [{row, url, id, text, more: [elements]}] that hold the text searched for, so many at first.
page.MOST = 300;
page.MOST_CHARACTERS = 120; // of a query in a list, which is searched whole
page.listQueries = (root, all, full, cut) => {
  const { h } = page, input = root.querySelector("input[type=search]"), list = root.querySelector(".queries");
  const line = ({ row, url, id, text, more }) => {
    const short = text.length > page.MOST_CHARACTERS ? `${page.begun(text)}…` : text;
    const link = h(url ? "a" : "span", { ...(url ? { href: url } : {}), "data-row": row, dir: "auto" }, short);
    return h("li", {}, h("span", { class: "text" }, link, h("small", {}, id)), more);
  };
  input.oninput = () => {
    const wanted = input.value.toLowerCase();
    const found = all.filter(({ id, text }) => `${id} ${text}`.toLowerCase().includes(wanted));
    const whole = found.filter(({ row }) => full.has(row)).length;
    const short = cut ? `; the first ${cut} characters of each` : "";
    const said = `${found.length.toLocaleString("en")} queries, ${whole} with a page${short}`;
    root.querySelector(".note").textContent = said;
    list.replaceChildren(...found.slice(0, page.MOST).map(line));
    const more = found.slice(page.MOST), button = h("button", { type: "button", class: "cell" }, `${more.length} more`);
    button.onclick = () => button.replaceWith(...more.map(line));
    if (more.length) list.append(button);
  };
  input.oninput();
};

// Two systems on all queries of a split.
page.apps.diff = async (root, { scored, labels, pairs }) => {
  const [given, ...rest] = page.place(), split = scored.includes(given) ? given : scored[0];
  const { systems, scores, fewer } = await page.load(`scores-${split}`), measures = Object.keys(scores);
  const queries = await page.load(`queries-${split}`), full = new Set(queries.full);
  const known = (text, other) => (text !== undefined && systems.includes(Number(text)) ? Number(text) : other);
  const [a, b] = [known(rest[0], systems[Math.min(1, systems.length - 1)]), known(rest[1], systems.at(-1))];
  const measure = measures.includes(rest[2]) ? rest[2] : measures[0], named = systems.map((n) => [n, labels[n]]);
  const ofSplit = ["Split", scored, split, (value) => [value]];
  page.form(root, [...(scored.length > 1 ? [ofSplit] : []),
    ["From", named, a, (value) => [split, value, b, measure]],
    ["To", named, b, (value) => [split, a, value, measure]],
    ["Measure", measures, measure, (value) => [split, a, b, value]]]);
  const [ofA, ofB] = [a, b].map((n) => scores[measure][systems.indexOf(n)]);
  const rows = queries.rows.map((row, at) => {
    const url = page.query(split, row, full, `${a}-${b}`);
    return { row, at, id: queries.ids[at], text: queries.texts[at], a: ofA[at], b: ofB[at], url };
  }).filter((each) => each.a !== null && each.b !== null); // the queries that have this measure
  const fixed = (value) => ((value * 16) % 4 === 1 ? value - 1e-6 : value).toFixed(3); // a half to even, as in tables
  const sign = (value) => `${Number(fixed(value)) < 0 ? "−" : "+"}${fixed(Math.abs(value))}`;
  const better = fewer.includes(measure) ? -1 : 1;
  const way = (value) => (Math.abs(value) > 1e-9 ? better * Math.sign(value) : 0);
  const [won, lost] = [1, -1].map((wanted) => rows.filter((row) => way(row.b - row.a) === wanted).length);
  const [meanA, meanB] = ["a", "b"].map((end) => rows.reduce((sum, row) => sum + row[end], 0) / rows.length);
  const p = pairs[`${split} ${measure}`]?.[`${a} ${b}`];
  const means = `${labels[b]} ${fixed(meanB)}, ${labels[a]} ${fixed(meanA)}: ${sign(meanB - meanA)}`;
  const counts = `won ${won}, lost ${lost}, the same on ${rows.length - won - lost} queries`;
  const chance = p === undefined ? "" : `, p ${p} of this pair alone`;
  root.querySelector(".said").textContent = `${means}${chance} (${measure}, ${split}); ${counts}.`;
  const element = root.querySelector(".chart"), text = element.querySelector("script").textContent;
  const spec = JSON.parse(text.replace(/"(From|To)"/g, (_, end) => JSON.stringify(labels[end === "From" ? a : b])));
  spec.datasets.values = rows;
  await page.chart(element, spec);
  const change = ({ a: from, b: to }) =>
    page.h("span", { class: `change ${{ "1": "up", "-1": "down" }[way(to - from)] ?? ""}` }, sign(to - from));
  const sorted = rows.toSorted((one, other) => better * ((one.b - one.a) - (other.b - other.a)) || one.row - other.row);
  page.listQueries(root, sorted.map((row) => ({ ...row, more: [change(row)] })), full, queries.cut);
};

page.spelled = (path, states) => [...path].map((letter) => states.find((name) => name[0] === letter)).join(", ");
page.measured = (measure) => (measure.startsWith("RR") ? "rank " : `${measure} `);

// All queries of a split, or those that one step of an experiment left in one state.
page.apps.list = async (root, { splits, experiments, states }) => {
  const [given, name, step, state] = page.place(), split = splits.includes(given) ? given : splits[0];
  const queries = await page.load(`queries-${split}`), full = new Set(queries.full);
  const able = experiments.filter((each) => each.splits.includes(split));
  const chosen = able.find((each) => each.name === name);
  const paths = chosen && (await page.load(`paths-${name}`))[split];
  const steps = paths ? paths.checkpoints.slice(1).map((to, at) => [at, `${paths.checkpoints[at]} → ${to}`]) : [];
  const at = Math.max(0, Math.min(Number(step) || 0, steps.length - 1));
  const named = [["", "all queries"], ...able.map((each) => [each.name, each.label])];
  const ofPaths = [
    ["From checkpoint to checkpoint", steps, at, (value) => [split, name, value, state]],
    ["Queries", [["", "all"], ...states], state ?? "", (value) => [split, name, at, value]]];
  page.form(root, [
    ["Split", splits, split, (value) => [value]],
    ["Experiment", named, chosen?.name ?? "", (value) => [split, value, 0, state ?? "forgotten"]],
    ...(paths ? ofPaths : [])]);
  const glyph = (n) => page.h("span", { class: "path", title: page.spelled(paths.paths[n], states) },
    page.measured(paths.measure) + paths.ways[n]);
  const kept = queries.rows
    .map((row, n) => ({ row, n, url: page.query(split, row, full), id: queries.ids[n], text: queries.texts[n] }))
    .filter(({ n }) => !paths || (paths.paths[n] && (!state || paths.paths[n][at] === state[0])))
    .map((query) => ({ ...query, more: paths ? [glyph(query.n)] : [] }));
  page.listQueries(root, kept, full, queries.cut);
};
