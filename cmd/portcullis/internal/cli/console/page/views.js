// The views: each makes an element out of answers of the mesh.
import { h, link, table } from "./dom.js";
import { timeline, waterfall } from "./charts.js";

const dash = "-";

// ms is a duration of protobuf's JSON ("0.012s") in milliseconds.
const ms = (duration) => (duration === undefined ? 0 : parseFloat(duration) * 1000);

export const length = (milliseconds) =>
  milliseconds >= 1000 ? (milliseconds / 1000).toFixed(2) + " s"
    : milliseconds >= 10 ? milliseconds.toFixed(0) + " ms"
      : milliseconds.toFixed(2) + " ms";

// moment is a time of the last days.
const moment = (time) => (time ? new Date(time).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }) : dash);

const clock = (time) => (time ? new Date(time).toLocaleTimeString() : dash);

// words is a state of the contract: STATE_NOT_GRANTED is "not granted".
const words = (state) => (state ?? "STATE_UNSPECIFIED").replace("STATE_", "").replaceAll("_", " ").toLowerCase();

const good = new Set(["in rotation", "serving", "current", "allowed", "patched"]);
const quiet = new Set(["shadow", "removed", "draining", "discarded", "cancelled"]);

// badge is a word with a colour. The word alone says it.
const badge = (text) => h("span", { class: "badge " + (good.has(text) ? "good" : quiet.has(text) ? "quiet" : "bad") }, text);

const list = (items) => h("ul", {}, items.map((item) => h("li", {}, item)));

const section = (title, ...children) => h("section", {}, h("h2", {}, title), ...children);

const notes = (state) => (state.notes?.length ? h("p", { class: "note" }, state.notes.join(". ")) : null);

const unique = (values) => [...new Set(values)];

// grouped are the hooks of all dispatchers, each once, with what dispatchers say of it.
function grouped(hooks) {
  const groups = new Map();
  for (const hook of hooks ?? []) {
    const key = JSON.stringify([hook.stage, hook.hook.object?.kind, hook.hook.object?.name, hook.hook.name]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(hook);
  }
  return [...groups.values()];
}

const statesOf = (group) => unique([...group.map((hook) => words(hook.state)), ...(group.some((hook) => hook.unserved && hook.state !== "STATE_PENDING") ? ["no host"] : [])]);

function servedBy(group) {
  if (!group[0].streamed) return group[0].url || (group[0].stage === "initialize" ? "controllers" : dash);
  const hosts = group.reduce((sum, hook) => sum + (hook.hosts ?? 0), 0);
  const without = group.filter((hook) => !hook.hosts).length;
  const text = hosts === 0 ? "no host" : hosts === 1 ? "1 host" : hosts + " hosts";
  return hosts > 0 && without > 0 ? `${text}, none on ${without} of ${group.length} dispatchers` : text;
}

const reportsOf = (state, group) => (state.report.hooks ?? []).filter((r) =>
  r.name === group[0].hook.name && r.configuration === group[0].hook.object?.name && r.stage === group[0].stage);

const worst = (reports, field) => reports.map((r) => r[field]).reduce((a, b) => (goMs(b) > goMs(a) ? b : a), "0s");

// goMs is a duration of Go ("1m2.5s", "12.3ms") in milliseconds.
export function goMs(text) {
  const units = { h: 3600000, m: 60000, s: 1000, ms: 1, "µs": 0.001, ns: 0.000001 };
  let sum = 0;
  for (const [, n, unit] of String(text).matchAll(/([\d.]+)(ms|µs|ns|h|m|s)/g)) sum += parseFloat(n) * units[unit];
  return sum;
}

const goLength = (text) => (goMs(text) === 0 ? dash : length(goMs(text)));

// emergencies are the clusters for which no hook is called.
const emergencies = (state) => (state.clusters ?? []).filter((c) => c.bypass?.breakGlass && new Date(c.bypass.breakGlass.until) > new Date(state.now))
  .map((c) => h("p", { class: "emergency" }, "No hook is called for ", link(["clusters"], `cluster ${c.name}`),
    ` until ${c.bypass.breakGlass.until}: ${c.bypass.breakGlass.reason}`));

const findings = (state, about) => {
  const all = (state.report.findings ?? []).filter((f) => about === undefined || (f.hooks ?? []).includes(about));
  return all.length === 0
    ? h("p", { class: "none" }, "Nothing stands out in the time of reviews.")
    : h("ul", { class: "findings" }, all.map((f) => h("li", {}, h("strong", {}, f.code), ": ", f.text, h("br", {}), `${f.help}.`)));
};

export function hooks(state) {
  const rows = grouped(state.hooks).map((group) => {
    const reports = reportsOf(state, group);
    const sum = (field) => reports.reduce((n, r) => n + r[field], 0);
    return [
      link(["hooks", group[0].hook.name], group[0].hook.name), group[0].stage, statesOf(group).map(badge), servedBy(group), group[0].failurePolicy,
      sum("calls"), sum("failed"), goLength(worst(reports, "p50")), goLength(worst(reports, "p99")), goLength(worst(reports, "added")),
    ];
  });
  return h("div", {}, h("h1", {}, "Hooks"), notes(state), emergencies(state), findings(state),
    table("Hooks in force. Times are those of the slowest cluster.",
      ["Hook", "Stage", "State", "Served by", "Policy", "Calls", "Failed", "p50", "p99", "Added"], rows, "No hook is in force."),
    state.staged?.length ? held(state.staged) : null,
    state.shadows?.length ? section("Hooks in shadow", shadowTable("What they would have done in these hours. They decide nothing.", state.shadows)) : null);
}

// held are objects whose creation waits for initializers, those that wait longest first.
const held = (all) => section("Held for initializers", table("Objects that are not created yet, and whom they wait for.",
  ["Object", "Cluster", "Waits for", "Since", "Then", "Held since", "Until", "Created by", "Dispatcher"],
  [...all].sort((a, b) => (a.created ?? "").localeCompare(b.created ?? "")).map((o) => {
    const [first, ...then] = o.result ? [] : o.pending ?? [];
    return [
      objectOf({ ...o.key.resource, namespace: o.key.namespace, name: o.key.name }), o.key.cluster,
      first ? link(["hooks", first], first) : dash, clock(o.waiting), then.join(", ") || dash, clock(o.created), clock(o.expires),
      o.creator?.username || dash, o.dispatcherId,
    ];
  }), "Nothing is held."));

const shadowTable = (caption, all) => table(caption,
  ["Hook", "Cluster", "Requests", "Would deny", "Would change", "Failed", "Dropped", "p50", "p99", "Last seen"],
  all.map((s) => [
    link(["hooks", s.name], s.name), s.cluster, s.calls, s.wouldDeny, s.wouldPatch, s.failed, s.dropped, goLength(s.p50), goLength(s.p99), moment(s.lastSeen),
  ]), "It was not called.");

const would = { denied: "deny", patched: "change", failed: "fail" };

// inShadow is what a hook would have done.
function inShadow(all) {
  const rows = (list) => all.flatMap((s) => s[list].map((item) => [s.cluster, item]));
  const subjects = rows("subjects").filter(([, u]) => u.wouldDeny + u.wouldPatch + u.failed > 0);
  const cases = rows("cases").sort(([, a], [, b]) => b.lastSeen.localeCompare(a.lastSeen));
  const dropped = all.filter((s) => s.incompleteBefore).map((s) => `Records of cluster ${s.cluster} from before ${moment(s.incompleteBefore)} were dropped for memory.`);
  return section("In shadow", dropped.length > 0 ? h("p", { class: "note" }, dropped.join(" ")) : null,
    shadowTable("What it would have done in the last week, with the time of its calls.", all),
    table("Whose requests it would have denied or changed.",
      ["Namespace", "User", "Cluster", "Requests", "Would deny", "Would change", "Failed", "Last seen"],
      subjects.map(([cluster, u]) => [
        u.others ? "(others)" : u.namespace || dash, u.others ? "(others)" : u.user || dash, cluster, u.calls, u.wouldDeny, u.wouldPatch, u.failed, moment(u.lastSeen),
      ]), "It would have denied and changed none."),
    cases.length === 0 ? null : table("The latest cases.", ["Last seen", "Would", "Requests", "Cluster", "Namespace", "User", "Object", "Message"],
      cases.slice(0, 50).map(([cluster, c]) => [
        moment(c.lastSeen), would[c.outcome] ?? c.outcome, c.calls, cluster, c.namespace || dash, c.user || dash,
        objectOf({ ...c, namespace: "" }), c.message || dash,
      ]), ""));
}

export function hook(state, name, answer, shadows) {
  const groups = grouped(state.hooks).filter((group) => group[0].hook.name === name);
  const shadowed = shadows.length > 0 || groups.flat().some((hook) => hook.state === "STATE_SHADOW");
  const lines = (state.timelines ?? []).filter((t) => t.name === name);
  if (groups.length === 0 && lines.length === 0 && shadows.length === 0) {
    return h("div", {}, h("h1", {}, name), h("p", { class: "none" }, "No hook of this name is in force, and none was called. ", link(["hooks"], "All hooks")));
  }
  const hosts = (state.hosts ?? []).filter((host) => host.hooks?.some((served) => served.name === name));
  return h("div", {}, h("h1", {}, name), notes(state), emergencies(state), findings(state, name), groups.map((group) => facts(group)),
    groups.some((group) => group[0].stage === "initialize") && held((state.staged ?? []).filter((o) => o.pending?.includes(name))), shadowed && inShadow(shadows),
    shadowed && lines.length === 0 ? null : section("Time of calls", lines.length === 0 ? h("p", { class: "none" }, "It was not called.") : lines.map((t) => timeline(t, Date.parse(state.now) - state.windowSeconds * 1000, Date.parse(state.now)))),
    shadowed && lines.length === 0 ? null : section("Where the time goes", phases((state.report.hooks ?? []).filter((r) => r.name === name))),
    section("Hosts", hostTable(hosts)),
    section("Slowest reviews", reviewTable(answer)));
}

// facts are what dispatchers say of a hook.
function facts(group) {
  const hook = group[0];
  const messages = unique(group.map((g) => g.message).filter(Boolean));
  const differ = statesOf(group).length > 1;
  return section(`${hook.hook.object?.kind ?? ""} ${hook.hook.object?.name ?? ""}`, h("dl", {},
    h("dt", {}, "State"), h("dd", {}, differ ? list(group.map((g) => [statesOf([g]).map(badge), " on ", g.dispatcherId])) : statesOf(group).map(badge)),
    messages.length > 0 && [h("dt", {}, "Why"), h("dd", {}, messages.join(" "))],
    h("dt", {}, "Stage"), h("dd", {}, hook.stage),
    h("dt", {}, "Served by"), h("dd", {}, servedBy(group)),
    h("dt", {}, "Failure policy"), h("dd", {}, hook.failurePolicy),
    h("dt", {}, "Timeout"), h("dd", {}, length(ms(hook.timeout))),
    h("dt", {}, "Clusters"), h("dd", {}, hook.clusters?.join(", ") || "all"),
    h("dt", {}, "From"), h("dd", {}, [hook.source, hook.origin].filter(Boolean).join(", "))));
}

const phases = (reports) => table("Means of one call.",
  ["Cluster", "Calls", "Failed", "p50", "p99", "Waited", "Added", "Queue", "Wire", "Host", "Webhook", "Apply"],
  reports.map((r) => [
    r.cluster, r.calls, r.failed, goLength(r.p50), goLength(r.p99), Math.round(100 * r.waited) + "%", goLength(r.added),
    goLength(r.phases.queued), goLength(r.phases.wire), goLength(r.phases.host), goLength(r.phases.webhook), goLength(r.phases.applied),
  ]), "It was not called.");

export function hosts(state) {
  return h("div", {}, h("h1", {}, "Hosts"), notes(state), hostTable(state.hosts ?? []));
}

const hostTable = (all) => table("Sessions of hosts, one for each dispatcher.",
  ["Host", "Instance", "State", "Slots", "p50", "p99", "Hooks", "Dispatcher", "Connected"],
  all.map((host) => [
    host.host, host.instance, badge(words(host.state)), `${host.slotsUsed ?? 0}/${host.slots ?? 0}`,
    host.p50 ? length(ms(host.p50)) : dash, host.p99 ? length(ms(host.p99)) : dash, hooksOf(host), host.dispatcherId, clock(host.connected),
  ]), "No host is connected.");

const hooksOf = (host) => [
  (host.hooks ?? []).map((served, i) => [i > 0 && ", ", link(["hooks", served.name], served.name)]),
  host.hooksMore ? ` and ${host.hooksMore} more` : null,
];

const whole = (review) => ms(review.edge) + ms(review.took);

const objectOf = (review) => [review.operation, review.group ? `${review.resource}.${review.group}` : review.resource, review.namespace, review.name]
  .filter(Boolean).join(" ");

// slowestCall is the call that the review waited for alone for longest.
const slowestCall = (review) => (review.calls ?? []).reduce((most, call) => (ms(call.alone) > ms(most?.alone) ? call : most), undefined);

const reviewTable = (answer) => table("Of each minute the slowest and the failed reviews of each cluster and hook are kept.",
  ["Review", "Took", "At", "Cluster", "Stage", "Outcome", "Slowest hook", "Dispatcher"],
  (answer.reviews ?? []).slice(0, 50).map((review) => {
    const slowest = slowestCall(review);
    return [
      link(["reviews", review.uid], objectOf(review)), length(whole(review)), clock(review.begun), review.cluster, review.stage, badge(review.outcome),
      slowest ? [link(["hooks", slowest.hook.name], slowest.hook.name), " ", length(ms(slowest.alone))] : dash, review.dispatcherId,
    ];
  }), "No review is kept.");

export function reviews(answer) {
  return h("div", {}, h("h1", {}, "Slow reviews"), reviewTable(answer));
}

export function review(id, answer) {
  const all = [...(answer.reviews ?? [])].sort((a, b) => a.begun.localeCompare(b.begun));
  if (all.length === 0) {
    return h("div", {}, h("h1", {}, "Review"), h("p", { class: "none" }, `Review ${id} is not kept (any more). `, link(["reviews"], "Slow reviews")));
  }
  return h("div", {}, h("h1", {}, objectOf(all[0])), all.map((r) => section(`Stage ${r.stage}`,
    h("dl", {},
      h("dt", {}, "Outcome"), h("dd", {}, badge(r.outcome)),
      h("dt", {}, "Took"), h("dd", {}, length(whole(r))),
      h("dt", {}, "Cluster"), h("dd", {}, r.cluster),
      h("dt", {}, "At"), h("dd", {}, r.begun),
      h("dt", {}, "Dispatcher"), h("dd", {}, r.dispatcherId),
      h("dt", {}, "uid"), h("dd", {}, r.uid),
      r.traceId && [h("dt", {}, "Trace"), h("dd", {}, r.traceId)]),
    waterfall(spans(r), whole(r)))));
}

// spans are the lines of a waterfall, with times in milliseconds since the request came in.
function spans(review) {
  const edge = ms(review.edge);
  const out = [{ name: "review", kind: "whole", from: 0, took: whole(review), note: review.outcome }];
  if (edge > 0) out.push({ name: "read and decoded", kind: "phase", from: 0, took: edge });
  if (ms(review.held) >= 1) out.push({ name: "held for a fresh configuration", kind: "phase", from: edge, took: ms(review.held) });
  for (const call of review.calls ?? []) {
    const from = edge + ms(call.begun);
    const initializes = call.hook.stage === "initialize";
    const parts = [
      ["queue", ms(call.queued)], [call.streamed ? "wire" : "webhook", ms(call.wire)],
      [initializes && !call.instance ? "controller" : "host", ms(call.host)], ["apply", ms(call.applied)],
    ];
    out.push({
      name: call.hook.name + (initializes ? " (initializer)" : "") + (call.round ? " (again)" : ""), hook: call.hook.name, kind: "call", from, took: ms(call.ended) - ms(call.begun) + ms(call.applied),
      note: [call.outcome, call.instance && "by " + call.instance, call.reason].filter(Boolean).join(" "),
    });
    let at = from;
    for (const [name, took] of parts) {
      if (took > 0) out.push({ name, kind: "phase", from: at, took });
      at += took;
    }
  }
  return out;
}

export function clusters(state) {
  const times = state.report.clusters ?? [];
  return h("div", {}, h("h1", {}, "Clusters"), notes(state),
    table("Clusters of the configuration.", ["Cluster", "Bypassed", "Conditions"],
      (state.clusters ?? []).map((c) => [c.name, bypass(c.bypass, new Date(state.now)), conditions(c.conditions)]), "The configuration has no cluster."),
    section("Time of reviews", table("Reviews by cluster and stage.", ["Cluster", "Stage", "Reviews", "Failed", "p50", "p99", "Held", "Before the dispatcher"],
      times.map((c) => [c.cluster, c.stage, c.reviews, c.failed, goLength(c.p50), goLength(c.p99), goLength(c.held), goLength(c.edge)]), "No review was judged.")));
}

// bypass is what a cluster exempts from hooks.
function bypass(b, now) {
  if (!b) return "nothing";
  const out = [];
  if (b.breakGlass) {
    const active = new Date(b.breakGlass.until) > now;
    out.push(h("strong", {}, active ? `everything, until ${b.breakGlass.until}: ${b.breakGlass.reason}` : `nothing by break-glass since ${b.breakGlass.until}`));
  }
  for (const [field, word] of [["namespaces", "namespaces"], ["users", "users"], ["serviceAccounts", "service accounts"], ["groups", "groups"]]) {
    if (b[field]?.length) out.push(`${word}: ${b[field].join(", ")}`);
  }
  for (const open of b.failOpen ?? []) {
    out.push(`fails open: ${(open.resources ?? []).map((r) => (open.groups ?? []).map((g) => (g ? `${r}.${g}` : r)).join(", ") || r).join(", ")}`);
  }
  return out.length === 0 ? "nothing" : list(out);
}

const conditions = (all) => (all?.length ? list(all.map((c) => [
  h("span", { class: "badge " + (c.status === "True" ? "good" : "bad") }, c.status === "True" ? c.type : `${c.type}: ${c.status}`), " ",
  c.status === "True" ? null : c.message,
])) : dash);

export function dispatchers(state) {
  const answer = state.dispatchers ?? {};
  const rows = (answer.dispatchers ?? []).map((d) => {
    const is = [
      !d.judging && "stopped", answer.behind?.includes(d.dispatcherId) && "behind", d.diverging?.length > 0 && "diverging",
    ].filter(Boolean);
    return [
      d.dispatcherId, (is.length ? is : ["current"]).map(badge),
      Object.entries(d.applied?.sources ?? {}).map(([source, revision]) => h("div", {}, `${source} ${revision.slice(0, 12)}`)), d.applied?.digest?.slice(0, 12) ?? dash,
      length(d.configAgeMs ?? 0), d.servesStaleUntil ?? dash, d.diverging?.join(", ") || dash, d.version ?? dash,
    ];
  });
  return h("div", {}, h("h1", {}, "Dispatchers"), notes(state),
    answer.noStore ? h("p", { class: "note" }, "There is no store, so dispatchers do not know each other: this is the one that answered.") : null,
    table("The configuration that each dispatcher judges by.",
      ["Dispatcher", "State", "Revision", "Digest", "Configuration age", "Serves stale until", "Keeps an older version of", "Version"], rows, "No dispatcher."));
}
