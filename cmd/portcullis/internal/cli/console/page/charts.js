// Charts, as SVG by hand. Each has its numbers in a table beside it, for those who cannot see it.
import { h, link, s, table } from "./dom.js";
import { length } from "./views.js";

const width = 640, height = 120, left = 56, bottom = 18;

// timeline draws p50 and p99 of the calls of a hook in one cluster, minute by minute, from one time to another in milliseconds.
export function timeline(t, from, to) {
  const points = t.points.map((p) => ({ ...p, at: Date.parse(p.minute) }));
  const first = Math.min(from, points[0].at), last = Math.max(to, points.at(-1).at + 60000);
  const top = Math.max(...points.map((p) => p.p99), 0.001);
  const x = (at) => left + ((at - first) / (last - first)) * (width - left - 8);
  const y = (value) => height - bottom - (value / top) * (height - bottom - 10);
  const dots = (field) => points.map((p) => s("circle", { class: field + (p.failed ? " failed" : ""), cx: x(p.at).toFixed(1), cy: y(p[field]).toFixed(1), r: 2.5 }));
  const line = (field) => s("polyline", { class: field, points: points.map((p) => `${x(p.at).toFixed(1)},${y(p[field]).toFixed(1)}`).join(" ") });
  const time = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const slowest = points.reduce((a, b) => (b.p99 > a.p99 ? b : a));
  const title = `Cluster ${t.cluster}, ${t.configuration}`;
  return h("figure", {},
    h("figcaption", {}, title, h("span", { class: "legend" }, h("span", { class: "p99" }, "p99"), " ", h("span", { class: "p50" }, "p50"))),
    s("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}: p99 from ${time(points[0].at)} to ${time(points.at(-1).at)}, at most ${length(slowest.p99)} at ${time(slowest.at)}`,
    },
    [0, top / 2, top].map((value) => [
      s("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      s("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, length(value)),
    ]),
    s("text", { class: "axis", x: left, y: height - 3 }, time(first)),
    s("text", { class: "axis", x: width - 8, y: height - 3, "text-anchor": "end" }, time(last)),
    line("p50"), line("p99"), dots("p50"), dots("p99")),
    h("details", {}, h("summary", {}, "Numbers"),
      table(title, ["Minute", "Calls", "Failed", "p50", "p99"], points.map((p) => [time(p.at), p.calls, p.failed, length(p.p50), length(p.p99)]), "")));
}

// waterfall draws spans, each a row of a table with its bar.
export function waterfall(spans, whole) {
  const bar = (span) => s("svg", { class: "bar", viewBox: "0 0 1000 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", {
      class: span.kind, x: whole > 0 ? ((span.from / whole) * 1000).toFixed(1) : 0, y: 1, height: 10,
      width: Math.max(2, whole > 0 ? (span.took / whole) * 1000 : 0).toFixed(1),
    }));
  const element = table("Where the time of this review went.", ["Span", "From", "Took", "Bar", "Note"], spans.map((span) => [
    h("span", { class: span.kind }, span.hook ? link(["hooks", span.hook], span.name) : span.name), length(span.from), length(span.took), bar(span), span.note ?? "",
  ]), "");
  element.classList.add("waterfall");
  return element;
}
