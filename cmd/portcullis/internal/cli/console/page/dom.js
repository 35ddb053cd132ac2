// Elements out of values. A value of the mesh becomes text or an attribute, never HTML.

const svgNamespace = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// h makes an element of HTML.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

// s makes an element of SVG.
export const s = (tag, attributes, ...children) => fill(document.createElementNS(svgNamespace, tag), attributes, children);

// link makes a link within the page. Each part of the path is a value.
export const link = (path, ...text) => h("a", { href: "#/" + path.map(encodeURIComponent).join("/") }, ...text);

const most = 500; // rows of a table: a browser makes them anew with each answer

// table makes a table. A phone shows each row as a card (style.css), which takes the role of a table from it unless it is named.
export function table(caption, columns, rows, none) {
  if (rows.length === 0) return h("p", { class: "none" }, none);
  const more = rows.length - most;
  const cell = (value, i) => h(i === 0 ? "th" : "td",
    { role: i === 0 ? "rowheader" : "cell", scope: i === 0 ? "row" : null, "data-label": columns[i] }, h("div", {}, value)); // one child, which a card lays out beside the label
  return h("table", { role: "table" },
    h("caption", {}, caption, more > 0 && ` The first ${most} are shown; \`portcullis get\` has ${more} more.`),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { role: "columnheader", scope: "col" }, c)))),
    h("tbody", { role: "rowgroup" }, rows.slice(0, most).map((row) => h("tr", { role: "row" }, row.map(cell)))));
}

// update makes one tree like another, and keeps the elements that stay: so focus, selection and what is scrolled stay too.
export function update(old, now) {
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && name !== "open" && name !== "tabindex") old.removeAttribute(name); // open: of a <details>, by the reader
  }
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const before = [...old.childNodes], after = [...now.childNodes];
  after.forEach((child, i) => {
    const at = before[i];
    if (!at) old.append(child);
    else if (at.nodeName !== child.nodeName) at.replaceWith(child);
    else if (child.nodeType !== Node.ELEMENT_NODE) {
      if (at.data !== child.data) at.data = child.data;
    } else update(at, child);
  });
  before.slice(after.length).forEach((child) => child.remove());
}
