// Negatives: of which sources, since when, how alike between episodes, at which ranks, and how close to the positive.
"use strict";

(() => {
  const { h, count, percent } = page;
  const SOURCES = ["query", "lookahead", "momentum", "bm25", "random", "file"];
  const order = (source) => (SOURCES.includes(source) ? SOURCES.indexOf(source) : SOURCES.length);
  const sourceRows = (pool, more) => Object.entries(pool.sources).map(([source, n]) => ({ ...more, source, count: n, share: n / pool.negatives, order: order(source) }));

  function pairRows(said, matrix, name) {
    return said.episodes.flatMap((episode, e) => matrix[e].map((n, f) => ({ episode, [name]: said.episodes[f], count: n, share: n / Math.max(1, said.pairs?.[e] ?? 1), order: f })).filter((row) => row.count > 0 || name !== "first"));
  }

  function firstFigure(said, level, what) {
    if (!said[level]) return null;
    const rows = pairRows({ ...said[level], episodes: said.episodes }, said[level].first, "first");
    const paper = level === "mined" ? "ANCE-Tele, Figures 5 and 10" : "ANCE-Tele, Figure 9";
    return figures.figure("first", rows, `Since when: ${what}.`, "Pairs of a query and a passage by the episode that met them first.", paper);
  }

  function overlapFigure(said, level, what) {
    if (!said[level] || said.episodes.length < 2) return null;
    const rows = said[level].overlap.flatMap((line, e) => line.map((share, f) => ({ episode: said.episodes[e], other: said.episodes[f], share })));
    return figures.figure("overlap", rows, `Overlap between episodes: ${what}.`, "The share of the pairs of one episode that another has too.");
  }

  function newFigure(said) {
    if (!said.mined?.new.some(([, near]) => near !== null)) return null;
    const rows = said.mined.new.flatMap(([all, near], at) => [["near the positive before", near, 0], ["elsewhere", all - near, 1]].map(([kind, n, place]) => ({ episode: said.episodes[at + 1], near: kind, count: n, share: n / Math.max(1, all), order: place })));
    return figures.figure("new", rows, "New negatives.", "Neighbours of the query that no earlier episode mined; coloured: those that were already among the neighbours of its positive one episode before.", "ANCE-Tele, Figure 7");
  }

  function rankFigure(said, bounds) {
    const rows = said.pools.flatMap((pool, e) => Object.entries(pool.ranks).flatMap(([source, bins]) => bins.map((n, at) => ({ episode: said.episodes[e], source, rank: at * bounds.rank_bin + 1, count: n }))));
    return rows.length ? figures.figure("ranks", rows, "Ranks.", `Negatives of this episode's own searches, by tens of ranks in the search that found them.`) : null;
  }

  function gapFigure(said, bounds) {
    const bins = bounds.gap_bins;
    const rows = said.pools.flatMap((pool, e) => (pool.gaps ?? []).map((n, at) => ({ episode: said.episodes[e], gap: (bins[at] + bins[at + 1]) / 2, share: n / pool.scored })));
    if (!rows.length) return null;
    const queries = Math.max(...said.pools.map((pool) => pool.scored_queries ?? 0));
    return figures.figure("gaps", rows, "Score gaps.", `How far negatives lie below the query's positive under the model that mined them, of ${count(queries)} queries. Left of the dashed line: 95 % of the positive's score or more, suspected false negatives.`);
  }

  function factTable(said) {
    const names = [...new Set(said.pools.flatMap((pool) => Object.keys(pool.facts.wanted ?? {})))];
    const drawn = (pool) => names.filter((name) => name in pool.facts.wanted).map((name) => `${name} ${count(pool.facts.drawn[name])}`).join(", ");
    const short = (pool) => Object.values(pool.facts.short_queries ?? {}).reduce((a, b) => a + b, 0);
    const filtered = (pool) => { const found = pool.facts.filters; return found ? Object.entries(found).map(([k, v]) => `${k.replaceAll("_", " ")} ${typeof v === "object" ? JSON.stringify(v) : count(v)}`).join("; ") : page.none; };
    const rows = said.pools.map((pool, at) => ({ pool, episode: said.episodes[at] }));
    const columns = [
      { name: "Episode", cell: ({ episode }) => String(episode) },
      { name: "Drawn", words: true, cell: ({ pool }) => drawn(pool) },
      { name: "Queries short", cell: ({ pool }) => count(short(pool)) },
      { name: "Queries empty", cell: ({ pool }) => count(pool.facts.empty_queries) },
      { name: "Repeated", cell: ({ pool }) => percent(pool.facts.overlap) },
      { name: "Suspects", cell: ({ pool }) => percent(pool.suspects) },
      { name: "Dropped by filters", words: true, cell: ({ pool }) => filtered(pool) },
      { name: "Stage", words: true, cell: ({ pool }) => h("a", { class: "stage", href: page.address("stage", ...pool.stage.split("/")) }, pool.stage) },
    ];
    return h("div", { class: "block" }, h("h3", {}, "The pools"), page.table(columns, rows, { label: "The pools" }),
      h("p", { class: "note" }, "Short: queries with fewer candidates than a source wanted. Repeated: slots with a passage that the query already has. Suspects: negatives with at least 95 % of the positive's score under the model that mined them."));
  }

  page.section("negatives", "Negatives", async (element) => {
    const [{ bounds }, all] = await Promise.all([page.load("index"), page.load("negatives")]);
    const names = Object.entries(all);
    if (!names.length) { element.append(h("p", {}, "No pool of negatives is finished yet.")); return; }
    let chosen = names.reduce((best, each) => (each[1].seeds[0].episodes.length > best[1].seeds[0].episodes.length ? each : best))[0], seed = 0;
    const shares = names.flatMap(([, { label, seeds }]) => sourceRows(seeds[0].pools.at(-1), { label }));
    const place = h("div"), bar = h("div", { class: "bar" });
    const show = () => {
      const { seeds } = all[chosen], said = seeds[Math.min(seed, seeds.length - 1)];
      const sources = said.pools.flatMap((pool, e) => sourceRows(pool, { episode: said.episodes[e] }));
      const drawn = [
        figures.figure("sources", sources, "Sources.", "Negatives in the pool of each episode, by where they came from; momentum keeps those of earlier episodes.", "ANCE-Tele, Figure 9"),
        firstFigure(said, "trained", "the pool"), overlapFigure(said, "trained", "the pool"), overlapFigure(said, "mined", "all that was mined"), firstFigure(said, "mined", "all that was mined"), newFigure(said), rankFigure(said, bounds), gapFigure(said, bounds),
      ];
      bar.replaceChildren(page.choice("Experiment", names.map(([name, each]) => [name, each.label]), chosen, (value) => { chosen = value; show(); }),
        ...(seeds.length > 1 ? [page.choice("Seed", seeds.map((each, at) => [at, each.seed]), seed, (value) => { seed = Number(value); show(); })] : []));
      const counted = `Counted over ${count(said.queries)} training queries${said.queries === bounds.counted ? ", drawn at random" : ""}.`;
      place.replaceChildren(h("div", { class: "pair" }, drawn.filter(Boolean)), h("p", { class: "note" }, counted), factTable(said));
    };
    element.append(bar, place, names.length > 1 ? figures.figure("shares", shares, "Sources of every system.", "The pool of the last episode.", "ANCE-Tele, Figure 9") : "");
    show();
  });
})();
