// What every section uses: data files, elements, numbers, sections and their places in the address.
"use strict";

const page = (() => {
  const base = new URL(".", document.currentScript.src).href;
  const waiting = new Map();
  const sections = [];

  // Data files call this: put("q/train-3", {...}).
  function put(name, value) {
    waiting.get(name).resolve(value);
  }

  // A promise of the value of a data file. A script tag loads it: browsers refuse fetch on file://.
  function load(name) {
    if (!waiting.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      waiting.set(name, entry);
      const script = document.createElement("script");
      script.src = `${base}data/${name.split("/").map(encodeURIComponent).join("/")}.js`;
      script.onerror = () => entry.reject(new Error(`${name}.js is missing beside this page`));
      document.head.append(script);
    }
    return waiting.get(name).promise;
  }

  // An element. Children are elements or plain text: nothing is ever parsed as HTML.
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  }

  const none = "–";
  const number = (value, digits = 3) => (value === null || value === undefined ? none : value.toFixed(digits).replace("-", "−"));
  const count = (value) => (value === null || value === undefined ? none : value.toLocaleString("en-US"));
  const percent = (value, digits = 1) => (value === null || value === undefined ? none : `${(100 * value).toFixed(digits)} %`);
  const score = (value) => (value === null || value === undefined ? none : Number(value.toPrecision(4)).toString().replace("-", "−"));
  const bytes = (value) => (value >= 1e9 ? `${(value / 1e9).toFixed(2)} GB` : `${(value / 1e6).toFixed(value < 1e6 ? 2 : 1)} MB`);
  function seconds(value) {
    if (value === null || value === undefined) return none;
    if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
    return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  }

  // A labelled choice among [value, text] pairs.
  function choice(label, options, value, onchange) {
    const select = h("select", { onchange: (event) => onchange(event.target.value) });
    for (const [each, text] of options) select.append(h("option", { value: each, selected: String(each) === String(value) }, text));
    return h("label", { class: "choice" }, h("span", {}, label), select);
  }

  // A table from columns {name, cell(row), words} and rows.
  function table(columns, rows, attributes = {}) {
    const head = columns.map((column) => h("th", { scope: "col", class: column.words ? "words" : null }, column.name));
    const body = rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: column.words ? "words" : null }, column.cell(row)))));
    return h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": attributes.label ?? "Table" },
      h("table", attributes, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
  }

  // Keys for a row of tabs: arrows, home and end.
  function tabs(label, names, selected, onselect) {
    const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
    names.forEach(([value, text], at) => {
      const here = String(value) === String(selected);
      list.append(h("button", {
        role: "tab", "aria-selected": String(here), tabindex: here ? "0" : "-1", "data-value": value,
        onclick: () => onselect(value),
        onkeydown: (event) => {
          const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 };
          if (!(event.key in steps)) return;
          event.preventDefault();
          onselect(names[(steps[event.key] + names.length) % names.length][0], true);
        },
      }, text));
    });
    return list;
  }

  const section = (id, title, render) => sections.push({ id, title, render });
  const place = () => location.hash.slice(1).split("/").map(decodeURIComponent);
  const address = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;

  return { put, load, h, none, number, count, percent, score, bytes, seconds, choice, table, tabs, section, sections, place, address };
})();
