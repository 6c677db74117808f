// Elements, and numbers and times in words. Whatever a store says is put in as text alone.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const one of children.flat(Infinity)) {
    if (one !== null && one !== undefined && one !== false) element.append(one);
  }
  return element;
}

function html(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

function counted(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

function processes(number) {
  return `${count(number)} ${number === 1 ? "process" : "processes"}`;
}

// A number on an axis or beside a chart, short.
function brief(number) {
  if (number >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  if (number >= 1e4) return `${+(number / 1e3).toPrecision(3)}k`;
  return number >= 100 || Number.isInteger(number) ? count(number) : decimal(number);
}

function decimal(number) {
  if (number === 0) return "0";
  return number >= 100 ? count(number) : String(+number.toPrecision(2));
}

// A probability as words: one in so many.
function oneIn(rate) {
  if (rate <= 0) return "0";
  return rate >= 0.5 ? decimal(rate) : `1 in ${count(1 / rate)}`;
}

function share(part) {
  return `${Math.floor(part * 100)} %`;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => whole >= size);
  if (first < 0) return "0 s";
  const [size, unit] = parts[first];
  const words = [`${Math.floor(whole / size)} ${unit}`];
  const next = parts[first + 1];
  const rest = next ? Math.floor((whole % size) / next[0]) : 0;
  if (rest) words.push(`${rest} ${next[1]}`);
  return words.join(" ");
}

function moment(seconds) {
  if (seconds === null) return "";
  const text = new Date(seconds * 1000).toISOString();
  return `${text.slice(0, 19).replace("T", " ")} UTC`;
}

function time(seconds) {
  return html("time", { datetime: new Date(seconds * 1000).toISOString() }, moment(seconds));
}

// A table; a column is a title, or a title and "number". A cell is text or an element.
function table(caption, columns, rows, attributes) {
  const titles = columns.map((one) => (Array.isArray(one) ? one : [one, ""]));
  return html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    html("table", attributes || {},
      html("caption", {}, caption),
      html("thead", {}, html("tr", {}, titles.map(([title, kind]) =>
        html("th", { scope: "col", class: kind }, title)))),
      html("tbody", {}, rows.map((row) => html("tr", {}, row.map((cell, at) =>
        html(at ? "td" : "th", { scope: at ? null : "row", class: titles[at][1] }, cell)))))));
}

// What a reader unfolds. It stays unfolded when the page is drawn anew.
function details(key, summary, ...children) {
  const head = html("summary", { "data-key": `${key} summary` }, summary);
  return html("details", { "data-key": key }, head, ...children);
}
