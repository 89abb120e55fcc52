// Forgetting: what queries lose from checkpoint to checkpoint, and negatives that go and come back.
"use strict";

(() => {
  const { h, count, percent } = page;
  const setName = ({ split, measure }) => `${split} queries, ${measure}`;

  function rateTable(rows) {
    const steps = [...new Set(rows.flatMap((row) => row.steps))].sort((a, b) => a - b);
    const columns = [{ name: "System", words: true, cell: (row) => row.label }, ...steps.map((step) => ({ name: `Into checkpoint ${step}`, cell: (row) => percent(row.rates[row.steps.indexOf(step)]) }))];
    return page.table(columns, rows, { label: "Forgetting rates" });
  }

  // Means over seeds of the rates of every system on one set of queries.
  function rateRows(all, name) {
    return Object.values(all).map(({ label, seeds }) => {
      const sets = seeds.map((seed) => seed.sets.find((set) => setName(set) === name)).filter(Boolean);
      if (!sets.length) return null;
      const rates = sets[0].rates.map((_, at) => sets.reduce((sum, set) => sum + set.rates[at], 0) / sets.length);
      return { label, rates, steps: sets[0].checkpoints.slice(1) };
    }).filter(Boolean);
  }

  function swingFigure(negatives) {
    const rows = Object.values(negatives).flatMap(({ label, seeds }) => {
      const said = seeds[0], level = said.mined ?? said.trained;
      return Object.entries(level.swings).map(([e, n]) => {
        const [first, at] = [Number(e), said.episodes.indexOf(Number(e))];
        const letter = { 2: "class A: ", 3: "class B: " }[first] ?? "";
        return { name: `${label}, ${letter}in ${first}, out ${first + 1}, in ${first + 2}`, count: n, share: n / Math.max(1, level.pairs[at]) };
      });
    });
    return rows.length ? figures.figure("swings", rows, "Negatives that swing.", "Mined in one episode, not in the next, mined again in the one after. The paper's class A is in 2, out 3, in 4; class B is in 3, out 4, in 5.", "ANCE-Tele, Figure 6 and Table 10") : null;
  }

  page.section("forgetting", "Forgetting", async (element) => {
    const [all, negatives] = await Promise.all([page.load("forgetting"), page.load("negatives")]);
    const names = Object.entries(all).sort((a, b) => b[1].seeds[0].sets.length - a[1].seeds[0].sets.length);
    if (!names.length) { element.append(h("p", {}, "No two checkpoints of an experiment are evaluated yet.")); return; }
    const sets = [...new Set(names.flatMap(([, { seeds }]) => seeds.flatMap((seed) => seed.sets.map(setName))))];
    let set = sets[0], chosen = null, seed = 0;
    const bar = h("div", { class: "bar" }, page.choice("Of", sets.map((each) => [each, each]), set, (value) => { set = value; show(); }));
    const rates = h("div", { class: "block" }), own = h("div", { class: "bar" }), place = h("div", { class: "pair" });
    const show = () => {
      const rows = rateRows(all, set);
      const flat = rows.flatMap((row) => row.rates.map((rate, at) => ({ label: row.label, step: row.steps[at], rate })));
      rates.replaceChildren(figures.figure("rates", flat, "Forgetting rate.", "The share of queries whose score drops in a step from one checkpoint to the next; checkpoint 0 is where the experiment starts. Means over seeds.", "ANCE-Tele, Figure 4 and Table 9"), rateTable(rows));
      const able = names.filter(([, { seeds }]) => seeds.some((each) => each.sets.some((s) => setName(s) === set)));
      if (!able.some(([name]) => name === chosen)) chosen = able.reduce((best, each) => (each[1].seeds[0].sets.find((s) => setName(s) === set)?.rates.length > (best[1].seeds[0].sets.find((s) => setName(s) === set)?.rates.length ?? 0) ? each : best))[0];
      own.replaceChildren(page.choice("Experiment", able.map(([name, each]) => [name, each.label]), chosen, (value) => { chosen = value; show(); }));
      const said = all[chosen].seeds[0].sets.find((s) => setName(s) === set);
      const steps = said.checkpoints.slice(1).map((to, at) => `${said.checkpoints[at]} → ${to}`);
      const states = said.states.flatMap((line, at) => Object.entries(line).map(([state, n], place) => ({ step: steps[at], state, count: n, share: n / said.queries, order: place })));
      const shorten = (text) => (text.length > 56 ? `${text.slice(0, 55)}…` : text);
      const traces = said.traces.flatMap((line, at) => line.map((score, c) => ({ query: `${at + 1}. ${shorten(said.traced[at])}`, checkpoint: said.checkpoints[c], score })));
      place.replaceChildren(
        figures.figure("states", states, "What becomes of queries.", "Found: a positive among the first ten. Swung back: found, lost, and found again.", "ANCE-Tele, §3"),
        figures.figure("traces", traces, `${said.traced.length} queries drawn at random.`, `${said.measure} after every episode.`, "ANCE-Tele, Figures 3 and 8d"));
    };
    element.append(bar, rates, own, place, swingFigure(negatives) ?? "");
    show();
  });
})();
