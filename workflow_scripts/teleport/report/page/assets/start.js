// Shows the section that the address names; each is made when it is first looked at.
"use strict";

(() => {
  const { h } = page;
  const places = new Map();

  for (const { id, title } of page.sections.filter((section) => section.title)) {
    document.getElementById("nav").append(h("li", {}, h("a", { href: page.address(id), "data-section": id }, title)));
  }

  async function route() {
    const [name, ...parts] = page.place();
    const section = page.sections.find(({ id }) => id === name) ?? page.sections[0];
    for (const link of document.querySelectorAll("#nav a")) {
      const here = link.dataset.section === section.id;
      if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    let element = places.get(section.id);
    const made = Boolean(element);
    if (!made) {
      element = h("section", { id: `section-${section.id}`, "aria-label": section.title ?? "Stage" }, section.title ? h("h2", {}, section.title) : "");
      places.set(section.id, element);
      document.getElementById("main").append(element);
    }
    const moved = element.hidden || !made;
    for (const each of places.values()) each.hidden = each !== element;
    if (moved) scrollTo(0, 0);
    if (!made || ["stage", "explorer", "diff"].includes(section.id)) await section.render(element, parts);
    if (section.id === "stage") scrollTo(0, 0);
    document.documentElement.dataset.ready = location.hash || "#overview";
  }

  addEventListener("hashchange", route);
  document.querySelector("#main noscript")?.remove();
  page.load("index").then(({ shown, passages, overview, explorer, diff }) => {
    const full = Object.entries(diff.splits).map(([split, each]) => `${page.count(each.shown.length)} ${split}`);
    if (explorer) full.unshift(`${page.count(explorer.queries.length)} training`);
    document.getElementById("foot").textContent = `${page.count(shown.passages)} passages and the queries ${full.join(", ")} are here in full, ${page.bytes(shown.bytes)} of data beside this page${passages.cut ? `; passages are cut after ${page.count(passages.cut)} characters` : ""}. Made from ${page.count(Object.keys(overview.stages).length)} finished stages; nothing is loaded from the network.`;
  });
  route();
})();
