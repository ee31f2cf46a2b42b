// Asks which models are served, shows a panel for everything some model can do, and keeps the address true.

import { served as askServed } from "./api.js";
import { h } from "./dom.js";
import { read, write } from "./fragment.js";
import { keyForm } from "./key.js";
import { makePanel } from "./panel.js";
import { makeTabs } from "./tabs.js";
import attention from "./panels/attention.js";
import choice from "./panels/choice.js";
import classify from "./panels/classify.js";
import fill from "./panels/fill.js";
import generate from "./panels/generate.js";
import head from "./panels/head.js";
import layers from "./panels/layers.js";
import neighbours from "./panels/neighbours.js";
import pairs from "./panels/pairs.js";
import qa from "./panels/qa.js";
import runs from "./panels/runs.js";
import tag from "./panels/tag.js";
import tokens from "./panels/tokens.js";
import translate from "./panels/translate.js";

const PANELS = [fill, classify, tag, qa, choice, pairs, neighbours, translate, generate, tokens, layers, attention, head];

const MANY = 2; // models that are described; of more, only the names stand in the head of the page

const served = document.getElementById("served");
const main = document.getElementById("main");

async function start() {
  let found;
  let more;
  try {
    const reply = await askServed();
    found = reply.models;
    more = reply.runs ? [runs] : [];
  } catch (error) {
    served.textContent = "";
    const sentence = h("p", { class: "error", role: "alert" }, error.message);
    main.replaceChildren(sentence, ...(error.status === 401 || error.status === 403 ? [keyForm(start)] : []));
    return;
  }
  const shown = [...PANELS.filter((panel) => found.some(panel.serves)), ...more];
  served.textContent = found.length <= MANY ? found.map(describe).join(" · ") : `${found.length} models: ${found.map((model) => model.name).join(", ")}`;
  if (found.length === 0) served.textContent = "No model is served here, only runs are shown.";
  if (shown.length === 0) main.replaceChildren(h("p", { class: "error" }, "No model is served that this page has a panel for."));
  else open(shown, found);
}

function describe(model) {
  const size = model.parameters >= 1e6 ? `${(model.parameters / 1e6).toFixed(1)} M` : `${(model.parameters / 1e3).toFixed(1)} k`;
  const parts = [`${size} parameters`, model.layers && `${model.layers} layers`, model.heads && `${model.heads} heads`];
  return `${model.name} (${parts.filter(Boolean).join(", ")})`;
}

function open(shown, found) {
  const parts = new Map(shown.map((panel) => [panel.id, panel.make ? panel.make(write) : makePanel(panel, found.filter(panel.serves), write)]));
  main.replaceChildren(...[...parts.values()].map((part) => part.element));
  const choose = makeTabs(document.getElementById("tabs"), shown, (id) => {
    parts.forEach((part, other) => { part.element.hidden = other !== id; });
    document.title = `${shown.find((panel) => panel.id === id).title} · Sesame`;
    parts.get(id).shown?.();
    write(id, parts.get(id).values());
  });
  const follow = () => {
    const { panel, values } = read();
    const part = parts.get(panel);
    if (part && Object.keys(values).length) part.set(values);
    choose(part ? panel : shown[0].id);
    if (part && values.go) part.send();
  };
  window.addEventListener("hashchange", follow);
  follow();
}

start();
