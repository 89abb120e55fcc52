// Charts: a specification of the page, rows, and the colours of the reader's theme.
"use strict";

const figures = (() => {
  const { h } = page;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    const [ink, soft, line, font] = [of("--ink"), of("--soft"), of("--line"), of("--sans")];
    const text = { labelColor: ink, titleColor: soft, labelFont: font, titleFont: font, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400 };
    return {
      background: "transparent",
      view: { stroke: null },
      axis: { ...text, domainColor: soft, tickColor: line, gridColor: line, gridOpacity: 0.7, labelPadding: 5, titlePadding: 8 },
      axisX: { grid: false },
      legend: { ...text, symbolStrokeWidth: 2, labelLimit: 220 },
      rule: { color: ink },
      text: { font, color: ink },
    };
  }

  // Leave names that no row has out of a scale of names, and so out of its legend.
  function narrow(channel, rows) {
    const { domain, range } = channel?.scale ?? {};
    if (!channel?.field || !Array.isArray(domain) || typeof domain[0] !== "string") return;
    const found = new Set(rows.map((row) => row[channel.field])), kept = domain.map((name) => found.has(name));
    const others = [...found].filter((name) => !domain.includes(name));
    channel.scale.domain = [...domain.filter((_, at) => kept[at]), ...others];
    channel.scale.range = [...range.filter((_, at) => kept[at]), ...others.map((_, at) => ["#56b4e9", "#f0e442"][at % 2])];
  }

  // How many bars a chart has one above the other: Vega-Lite fits no width to a page where it counts them itself.
  function steps({ encoding }, rows) {
    const distinct = (channel) => (channel ? new Set(rows.map((row) => row[channel.field])).size : 1);
    return distinct(encoding.y) * distinct(encoding.yOffset) * (encoding.yOffset ? 1.3 : 1);
  }

  // Draw a chart into an element; resolves to the Vega view.
  async function draw(element, name, rows, change = () => {}) {
    const specs = await page.load("charts");
    const spec = structuredClone(specs[name]);
    spec.datasets = { values: rows };
    if (spec.height?.step) spec.height = steps(spec.layer?.[0] ?? spec, rows) * spec.height.step;
    for (const part of [spec, ...(spec.layer ?? [])]) narrow(part.encoding?.color, rows);
    change(spec);
    spec.config = { ...theme(), ...(spec.config?.legend ? { legend: { ...theme().legend, ...spec.config.legend } } : {}) };
    const options = { renderer: "svg", actions: false, tooltip: { theme: dark.matches ? "dark" : "light" } };
    const { view } = await vegaEmbed(element, spec, options);
    return view;
  }

  // A figure: its chart, what it shows, and the figure of the paper that it reproduces.
  function figure(name, rows, title, caption, paper = null, change = undefined) {
    const chart = h("div", { class: "chart" });
    const credit = paper ? h("span", { class: "paper" }, paper) : null;
    const whole = h("figure", { "data-chart": name }, h("figcaption", {}, h("strong", {}, title), " ", caption, " ", credit), chart);
    const entry = { whole, chart, again: () => draw(chart, name, rows, change) };
    drawn.push(entry);
    whole.ready = new Promise((resolve) => requestAnimationFrame(() => resolve(entry.again())));
    return whole;
  }

  dark.addEventListener("change", () => {
    for (let at = drawn.length - 1; at >= 0; at--) {
      if (drawn[at].whole.isConnected) drawn[at].again();
      else drawn.splice(at, 1);
    }
  });

  return { figure };
})();
