// The page: it asks for data every few seconds, and shows the view that the address names. It changes nothing in the mesh.
import { h, update } from "./dom.js";
import * as views from "./views.js";

const interval = 5000; // between two questions, in milliseconds

const main = document.getElementById("main");
const problem = document.getElementById("problem");
const updated = document.getElementById("updated");
const lookBack = document.getElementById("window");

let shown = ""; // the address that is shown
let asked = 0; // questions so far: an answer to an earlier one is not shown
let timer;

// takeToken moves the token from the address, which is shared and shown, to the storage of this origin.
function takeToken() {
  const token = /^#token=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
  if (!token) return;
  localStorage.setItem("token", token);
  history.replaceState(null, "", "#/hooks");
}

async function ask(path, parameters) {
  const query = new URLSearchParams({ ...parameters, since: lookBack.value });
  const response = await fetch(`data/${path}?${query}`, { headers: { Authorization: "Bearer " + (localStorage.getItem("token") ?? "") } });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// views by the first word of the address. Each returns an element; what it needs besides the state it asks for.
const routes = {
  hooks: async (state, [name]) => (name === undefined ? views.hooks(state) : views.hook(state, name, ...await Promise.all([ask("reviews", { hook: name }), ask("shadows", { hook: name })]))),
  hosts: async (state) => views.hosts(state),
  reviews: async (state, [id]) => (id === undefined ? views.reviews(await ask("reviews", {})) : views.review(id, await ask("reviews", { id }))),
  clusters: async (state) => views.clusters(state),
  dispatchers: async (state) => views.dispatchers(state),
};

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// show asks, shows the answer, and asks again after a while. A view that the reader has opened gets the focus.
async function show() {
  clearTimeout(timer);
  const address = location.hash.startsWith("#/") ? location.hash : "#/hooks";
  const [name, ...rest] = address.slice(2).split("/").map(decoded);
  const question = ++asked;
  let view, why = "";
  try {
    view = await (routes[name] ?? routes.hooks)(await ask("state", {}), rest);
  } catch (error) {
    why = error instanceof TypeError ? "The console does not answer: is `portcullis console` running?" : error.message;
  }
  if (question !== asked) return;
  if (problem.textContent !== why) problem.textContent = why; // each change is read aloud
  if (view) present(address, name, view);
  timer = setTimeout(() => { if (!document.hidden) show(); }, interval);
}

function present(address, name, view) {
  const moved = shown !== "" && shown !== address;
  document.title = `${view.querySelector("h1").textContent} - Portcullis`;
  if (shown === address) update(main, h("main", { id: "main", tabindex: "-1" }, view));
  else main.replaceChildren(view);
  shown = address;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.getAttribute("href") === "#/" + name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  updated.textContent = `As of ${new Date().toLocaleTimeString()}. It asks again every ${interval / 1000} seconds.`;
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) takeToken();
  if (location.hash.startsWith("#/")) show();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(); });
lookBack.addEventListener("change", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is that of the view
  main.focus();
});

takeToken();
show();
