// How far everything is: what runs, what is left, each experiment and seed, kinds of stages, and repeated attempts.
"use strict";

(() => {
  const { h, count } = page;
  const share = (done, all) => [`${count(done)} of ${count(all)} `, h("progress", { value: done, max: Math.max(all, 1), "aria-label": `${done} of ${all}` })];
  const block = (title, ...content) => h("div", { class: "block" }, h("h3", {}, title), content);

  function running({ columns, unfinished, left, seen }) {
    const named = columns.map((name, at) => ({ name: name[0].toUpperCase() + name.slice(1), words: at < 3, cell: (row) => row[at] }));
    const table = unfinished.length ? page.table(named, unfinished, { label: "Stages and shards that run or were stopped" }) : h("p", {}, "No stage is running, and none was stopped.");
    return block("What runs", table, h("p", { class: "note" }, `${left[0].toUpperCase()}${left.slice(1)}. Seen at ${seen}.`));
  }

  page.section("status", "Status", async (element) => {
    const { kinds, seeds, attempts, seen } = await page.load("status");
    const [done, all] = [1, 2].map((at) => kinds.reduce((sum, kind) => sum + kind[at], 0));
    element.append(h("p", {}, `${count(done)} of ${count(all)} stages are finished.`), seen ? running(seen) : "");
    element.append(
      block("Experiments and seeds", page.table([
        { name: "Experiment", words: true, cell: (row) => row[0] }, { name: "Seed", cell: (row) => String(row[1]) },
        { name: "Episodes", cell: (row) => share(row[2], row[3]) }, { name: "Stages", cell: (row) => share(row[4], row[5]) },
      ], seeds, { label: "Experiments and seeds" })),
      block("Kinds of stages", page.table([
        { name: "Kind", words: true, cell: (row) => row[0] }, { name: "Finished", cell: (row) => share(row[1], row[2]) },
      ], kinds, { label: "Kinds of stages" })),
      block("Attempts", attempts.length ? page.table([
        { name: "Stage", words: true, cell: ([name]) => h("a", { href: page.address("stage", ...name.split("/")), class: "stage" }, name) },
        { name: "What", words: true, cell: (row) => row[1] }, { name: "Attempts", cell: (row) => String(row[2]) },
      ], attempts, { label: "Stages of several attempts" }) : h("p", {}, "Every finished stage took one attempt.")));
  });
})();
