// The overview: tables whose cells unfold to what is behind them, measures by episode, and the stages as they ran.
"use strict";

(() => {
  const { h, number, count, percent, seconds, bytes } = page;
  let index, whole;

  // All stages that some stages were made from, and themselves; none before what it was made from.
  function behind(names, found = new Set()) {
    for (const name of names) {
      if (found.has(name) || !whole.stages[name]) continue;
      behind(Object.values(whole.stages[name].inputs).filter((input) => !found.has(input)), found);
      found.add(name);
    }
    return [...found];
  }

  const stageLink = (name, text = name) => h("a", { href: page.address("stage", ...name.split("/")), class: "stage" }, text);
  const spent = (names) => names.reduce((sum, name) => sum + (whole.stages[name]?.seconds ?? 0), 0);
  const value = (text) => h("code", {}, typeof text === "string" ? text : JSON.stringify(text));

  function lead() {
    const facts = whole.collection;
    const queries = Object.entries(facts.splits ?? {}).map(([split, each]) => `${count(each.queries)} ${split}`).join(", ");
    const names = Object.keys(whole.stages);
    const alone = whole.experiments.flatMap((e) => e.seeds.map(([, dag]) => [...new Set(dag.filter(([, , , done]) => done).map(([, , name]) => name))]));
    const saved = alone.reduce((sum, stages) => sum + spent(stages), 0) - spent([...new Set(alone.flat())]);
    const tiles = [
      [count(facts.num_passages), "passages"],
      ...(queries ? [[queries, "queries"]] : []),
      [count(whole.experiments.length), whole.experiments.length === 1 ? "experiment" : "experiments"],
      [`${count(names.length)} of ${count(whole.planned)}`, "stages finished"],
      [seconds(spent(names)), "of computing"],
      ...(saved >= 0.05 ? [[seconds(saved), "saved by sharing stages"]] : []),
    ];
    return h("ul", { class: "tiles" }, tiles.map(([figure, text]) => h("li", {}, h("b", {}, figure), h("span", {}, text))));
  }

  function cellText(cell, best, level) {
    const text = number(cell.mean) + (cell.sd === null ? "" : ` ± ${number(cell.sd)}`);
    const mark = cell.p !== null && level !== undefined && cell.p < level ? "†" : "";
    return [best ? h("b", {}, text) : text, h("span", { class: "mark" }, mark)];
  }

  function detail(table, row, column) {
    const cell = row.cells[column];
    const stages = behind(cell.stages);
    const files = cell.stages.map((name) => `results/stages/${name}/manifest.json`).join(" ");
    const command = `.venv/bin/snakemake --cores all --configfile ${whole.configuration.join(" ")} -- ${files}`;
    const facts = [
      ["Mean", `${cell.mean.toFixed(6)} over ${count(cell.queries)} queries`],
      ["95 % interval", [cell.over_queries === null ? null : `± ${number(cell.over_queries, 4)} over queries`, cell.over_seeds === null ? null : `, ± ${number(cell.over_seeds, 4)} over ${cell.seeds.length} seeds`]],
      ...(cell.seeds.length > 1 ? [["Seeds", cell.seeds.map((each) => number(each, 4)).join(", ")]] : []),
      ...(cell.p !== null ? [["p", `${cell.p} against ${table.test?.baseline}`]] : []),
      ["Command", h("code", { class: "command" }, command)],
      ["Differs from the row above", row.differs.length ? h("ul", { class: "plain" }, row.differs.map(([key, mine, other]) => h("li", {}, h("code", {}, key), ": ", value(mine), " instead of ", value(other)))) : "in no setting but the episode"],
      ["Stages behind it", [`${stages.length}, ${seconds(spent(stages))} of computing: `, h("span", { class: "stages" }, stages.map((name) => stageLink(name)))]],
    ];
    return h("dl", { class: "facts" }, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  }

  function resultTable(table) {
    const said = table.rows.length ? Object.keys(table.rows[0].said) : [];
    const numbers = ["episodes", "seconds"];
    const episodes = !said.includes("episodes") && table.rows.some((row) => row.episode);
    const heads = [["System", true], ...said.map((name) => [name[0].toUpperCase() + name.slice(1), !numbers.includes(name)]), ...(episodes ? [["Episode", false]] : []), ...table.columns.map((name) => [name, false])];
    const shown = (name) => table.rows.filter((row) => row.cells[name]).map((row) => Number(row.cells[name].mean.toFixed(3)));
    const best = Object.fromEntries(table.columns.map((name) => [name, name.includes("Hole@") ? null : Math[name.includes("Errors@") ? "min" : "max"](...shown(name))]));
    const body = h("tbody");
    for (const row of table.rows) {
      const line = h("tr", {}, h("th", { scope: "row", class: "words" }, row.system));
      line.append(...said.map((name) => h("td", { class: numbers.includes(name) ? null : "words said" }, row.said[name] ?? page.none)), ...(episodes ? [h("td", {}, String(row.episode))] : []));
      for (const column of table.columns) {
        const cell = row.cells[column];
        if (!cell) { line.append(h("td", {}, page.none)); continue; }
        const button = h("button", { class: "cell", "aria-expanded": "false", title: "What is behind this figure", "data-system": row.system, "data-episode": row.episode, "data-column": column }, cellText(cell, Number(cell.mean.toFixed(3)) === best[column], table.test?.level));
        button.addEventListener("click", () => unfold(button, line, () => detail(table, row, column), heads.length));
        line.append(h("td", {}, button));
      }
      body.append(line);
    }
    const head = h("thead", {}, h("tr", {}, heads.map(([name, words], at) => h("th", { scope: "col", class: words ? (at ? "words said" : "words") : null }, name))));
    const notes = [
      table.test ? `† differs from ${table.test.baseline}, p < ${table.test.level}, Holm-corrected within the column. ` : "",
      "Best of each column in bold. A figure unfolds to its command, its settings and its stages.",
    ];
    return h("div", { class: "block" }, h("h3", {}, table.title), h("div", { class: "wide", role: "group", "aria-label": table.title, tabindex: "0" }, h("table", { class: "results" }, head, body)), h("p", { class: "note" }, notes));
  }

  function unfold(button, line, content, width) {
    const open = button.getAttribute("aria-expanded") === "true";
    for (const other of line.querySelectorAll("button.cell")) other.setAttribute("aria-expanded", "false");
    if (line.nextElementSibling?.classList.contains("unfolded")) line.nextElementSibling.remove();
    if (open) return;
    button.setAttribute("aria-expanded", "true");
    line.after(h("tr", { class: "unfolded" }, h("td", { colspan: width }, content())));
  }

  function measureCharts() {
    const place = h("div", { class: "pair" });
    const tables = whole.tables.filter((table) => table.rows.length);
    const options = tables.flatMap((table, at) => table.columns.map((column) => [`${at}/${column}`, tables.length > 1 ? `${column}, ${table.title}` : column]));
    if (!options.length) return h("p", {}, "No evaluation is finished yet.");
    const show = (chosen) => {
      const [at, column] = [chosen.slice(0, chosen.indexOf("/")), chosen.slice(chosen.indexOf("/") + 1)];
      const rows = tables[at].rows.filter((row) => row.cells[column]).map((row) => {
        const cell = row.cells[column];
        const [q, s] = [cell.over_queries ?? 0, cell.over_seeds];
        return { label: row.episode && tables[at].rows.filter((other) => other.system === row.system).length > 1 ? `${row.system}, episode ${row.episode}` : row.system, system: row.system, episode: row.episode, mean: cell.mean, over_queries: cell.over_queries, low: cell.mean - q, high: cell.mean + q, seed_low: s === null ? null : cell.mean - s, seed_high: s === null ? null : cell.mean + s };
      });
      const several = rows.filter((row) => rows.filter((other) => other.system === row.system).length > 1);
      const drawn = [figures.figure("systems", rows, `${column} of every system.`, "Thin lines: 95 % intervals over queries; thick: over seeds, where there are several.", null, (spec) => { if (!rows.some((row) => row.seed_low !== null)) spec.layer.splice(1, 1); })];
      if (several.length) drawn.push(figures.figure("episodes", several, `${column} by episode.`, "Lines: 95 % intervals over queries.", "ANCE-Tele, Figures 2 and 8a"));
      place.replaceChildren(...drawn);
    };
    show(options[0][0]);
    return h("div", { class: "block" }, h("div", { class: "bar" }, page.choice("Measure", options, options[0][0], show)), place);
  }

  function dagGrid(experiment, dag) {
    const last = Math.max(...dag.map(([episode]) => episode));
    const links = [...new Set(dag.map(([, link]) => link))];
    const most = Math.max(...dag.map(([, , name]) => whole.stages[name]?.seconds ?? 0), 1e-9);
    const head = h("tr", {}, h("th", { scope: "col", class: "words" }, "Stage"), Array.from({ length: last + 1 }, (_, n) => h("th", { scope: "col" }, n ? `Episode ${n}` : "Start")));
    const body = links.map((link) => h("tr", {}, h("th", { scope: "row", class: "words" }, link), Array.from({ length: last + 1 }, (_, n) => {
      const stages = dag.filter(([episode, name]) => episode === n && name === link);
      return h("td", {}, stages.map(([, , name]) => {
        const stage = whole.stages[name];
        if (!stage) return h("span", { class: "todo" }, "not run");
        const others = stage.users.filter((user) => user !== experiment);
        const cell = stageLink(name, [seconds(stage.seconds), others.length ? h("span", { class: "shared", title: `also of ${others.join(", ")}` }, "shared") : null]);
        cell.style.setProperty("--heat", ((stage.seconds ?? 0) / most).toFixed(3));
        cell.classList.add("heat");
        return cell;
      }));
    })));
    return h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Stages by episode" }, h("table", { class: "dag" }, h("thead", {}, head), h("tbody", {}, body)));
  }

  function stagesBlock() {
    const place = h("div"), named = whole.experiments.flatMap((e) => e.seeds.map(([seed, dag]) => ({ ...e, seed, dag })));
    if (!named.length) return null;
    const show = (at) => place.replaceChildren(dagGrid(named[at].name, named[at].dag));
    show(0);
    const options = named.map((each, at) => [at, each.seeds.length > 1 ? `${each.label}, seed ${each.seed}` : each.label]);
    const kinds = new Map();
    for (const [name, stage] of Object.entries(whole.stages)) {
      const kind = name.split("/")[0], entry = kinds.get(kind) ?? { kind, stages: 0, seconds: 0 };
      kinds.set(kind, { ...entry, stages: entry.stages + 1, seconds: entry.seconds + (stage.seconds ?? 0) });
    }
    const sorted = [...kinds.values()].sort((a, b) => b.seconds - a.seconds);
    return h("div", { class: "block" }, h("h3", {}, "The stages as they ran"),
      h("p", { class: "note" }, "Every cell is a stage, with the time that it took; darker took longer. Shared ones were made once for several experiments."),
      h("div", { class: "bar" }, page.choice("Experiment", options, 0, show)), place,
      figures.figure("kinds", sorted, "Time by kind of stage.", "Every stage of this configuration counts once."));
  }

  function stagePage(name) {
    const stage = whole.stages[name];
    if (!stage) return h("p", {}, `${name} is no finished stage of this configuration.`);
    const flat = (object, key = "") => Object.entries(object ?? {}).flatMap(([k, v]) => (v && typeof v === "object" && !Array.isArray(v) ? flat(v, `${key}${k}.`) : [[key + k, v]]));
    const pairs = (object) => { const rows = flat(object); return rows.length ? h("dl", { class: "settings" }, rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, value(v))))) : page.none; };
    const readers = Object.keys(whole.stages).filter((other) => Object.values(whole.stages[other].inputs).includes(name));
    const facts = [
      ["What", stage.label], ["Experiments", stage.users.join(", ")],
      ["Made from", h("ul", { class: "plain" }, Object.entries(stage.inputs).map(([role, input]) => h("li", {}, `${role}: `, stageLink(input))))],
      ["Read by", readers.length ? h("span", { class: "stages" }, readers.map((each) => stageLink(each))) : page.none],
      ["Took", `${seconds(stage.seconds)}, at most ${stage.memory ? bytes(stage.memory) : page.none} of memory`],
      ["Started", stage.started ?? page.none], ["On", stage.machine ?? page.none],
      ["Code", `${stage.code ?? page.none}, commit ${stage.commit ?? page.none}`],
      ["On disk", [bytes(stage.bytes), " in ", h("code", {}, `results/stages/${name}`)]],
      ["Make anew", h("code", { class: "command" }, `.venv/bin/snakemake --cores all --configfile ${whole.configuration.join(" ")} --forcerun results/stages/${name}/manifest.json`)],
      ["Settings", pairs(stage.settings)], ["Facts", pairs(stage.facts)],
    ];
    return h("div", { class: "block", id: "stage-page", "data-stage": name }, h("h2", {}, "Stage ", h("code", {}, name)), h("p", {}, h("a", { href: page.address("overview") }, "← Overview")), h("dl", { class: "facts" }, facts.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  }

  page.section("overview", "Overview", async (element) => {
    index = await page.load("index");
    whole = index.overview;
    const main = whole.tables.length > 1 ? [...whole.tables.slice(1), whole.tables[0]] : whole.tables;
    element.append(lead(), ...main.filter((table) => table.rows.length).map(resultTable), measureCharts(), stagesBlock() ?? "");
  });

  page.section("stage", null, async (element, parts, again) => {
    index = await page.load("index");
    whole = index.overview;
    element.replaceChildren(stagePage(parts.join("/")));
  });
})();
