// Training curves: every column that trainings left, all episodes and seeds of an experiment on one axis.
"use strict";

(() => {
  const { h } = page;
  const ORDER = ["loss", "learning_rate", "gradient_norm", "positive_score", "negative_score"];
  const title = (name) => { const text = name.replaceAll("_", " "); return text[0].toUpperCase() + text.slice(1); };
  const rank = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);

  // Rows of one column; with `joined`, every episode begins where the one before has ended.
  function rowsOf(curves, column, joined) {
    const rows = [];
    for (const curve of curves) {
      const offset = joined ? curve.offset : 0;
      (curve.columns[column] ?? []).forEach((value, at) => { if (value !== null) rows.push({ episode: curve.episode, seed: curve.seed, step: curve.steps[at] + offset, value }); });
    }
    return rows;
  }

  // Gradient norms of groups of layers, drawn together. A group that an encoder of few layers lacks has no value.
  const LAYERS = ["lower_layers", "middle_layers", "upper_layers", "last_layer"];

  page.section("training", "Training", async (element) => {
    const { training } = await page.load("index");
    const names = Object.entries(training), place = h("div", { class: "pair" });
    let chosen = names.at(-1)?.[0], joined = true;
    if (!chosen) { element.append(h("p", {}, "No training is finished yet.")); return; }
    const most = await Promise.all(names.map(async ([name]) => [name, Math.max(...(await page.load(`training/${name}`)).map((curve) => curve.episode))]));
    chosen = most.reduce((best, each) => (each[1] > best[1] ? each : best))[0];
    const show = async () => {
      const curves = await page.load(`training/${chosen}`);
      const columns = [...new Set(curves.flatMap((curve) => Object.keys(curve.columns)))].sort((a, b) => rank(a) - rank(b));
      const rows = new Map(columns.map((column) => [column, rowsOf(curves, column, joined)]).filter(([, each]) => each.length));
      const steps = joined ? "The steps of all episodes, one after another." : "Every episode from its own first step.";
      const single = [...rows.keys()].filter((column) => !LAYERS.includes(column)).map((column) => figures.figure("curve", rows.get(column), `${title(column)}.`, steps, column === "loss" ? "ANCE-Tele, Figure 2" : null));
      const groups = LAYERS.flatMap((column) => (rows.get(column) ?? []).map((row) => ({ ...row, layer: title(column) })));
      const layered = groups.length ? [figures.figure("layers", groups, "Gradient norm by layer.", `${steps} Means over thirds of the layers.`, "ANCE, Figure 4")] : [];
      const thinned = curves.some((curve) => curve.points > curve.steps.length);
      place.replaceChildren(...single, ...layered, h("p", { class: "note" }, thinned ? `Curves of more than ${Math.max(...curves.map((curve) => curve.steps.length))} steps are thinned evenly.` : "Every step is drawn."));
    };
    const modes = [["joined", "one after another"], ["own", "each from its first step"]];
    element.append(h("div", { class: "bar" },
      page.choice("Experiment", names, chosen, (value) => { chosen = value; show(); }),
      page.choice("Episodes", modes, "joined", (value) => { joined = value === "joined"; show(); })), place);
    await show();
  });
})();
