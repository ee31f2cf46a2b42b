// What every panel shares: choosers, fields, an example, sending, the busy state, the server's sentence, the answer.
//
// A panel is {id, title, about, serves(model), fits?(task), fields, example, request(values, model) -> [what, body],
// draw(answers, values, model) -> element or list of elements}.

import { ask } from "./api.js";
import { freshId, h } from "./dom.js";
import { makeField } from "./fields.js";

const NO_ANSWER = "Write something first, or take the example.";

export function makePanel(panel, models, remember) {
  const chosen = { model: models[0], task: null, abort: null };
  const fields = new Map();
  const places = h("div", { class: "fields" });
  const choosers = h("div", { class: "choosers" });
  const send = h("button", { class: "send", type: "submit" }, "Ask");
  const example = h("button", { class: "quiet", type: "button", onclick: () => { set(panel.example); submit(); } }, "Example");
  const hint = h("span", { class: "hint" }, panel.enter ? "Enter sends; Shift+Enter starts a new line" : "Ctrl+Enter sends");
  const status = h("p", { class: "status", role: "status" });
  const output = h("div", { class: "output" });
  const form = h("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); press(); }, onkeydown: keys },
    choosers, places, h("div", { class: "buttons" }, send, example, hint));
  const title = freshId("title");
  const element = h("section", { class: "panel", id: `panel-${panel.id}`, role: "tabpanel", "aria-labelledby": `tab-${panel.id}`, hidden: true },
    h("h2", { id: title }, panel.heading), h("p", { class: "about" }, panel.about), form, status, output);

  function values() {
    const found = Object.fromEntries([...fields].map(([name, field]) => [name, field.get()]));
    if (models.length > 1) found.model = chosen.model.name;
    if (chosen.task && tasks().length > 1) found.task = chosen.task;
    return found;
  }

  function set(given) {
    const model = models.find((one) => one.name === given.model);
    if (model && model !== chosen.model) { chosen.model = model; build(); }
    if (given.task && tasks().some((task) => task.name === given.task)) { chosen.task = given.task; choose(); }
    for (const [name, field] of fields) if (given[name] !== undefined) field.set(given[name]);
  }

  function tasks() {
    return (chosen.model.tasks ?? []).filter((task) => panel.fits?.(task));
  }

  function build() {
    const before = [...fields].map(([name, field]) => [name, field.get()]);
    fields.clear();
    for (const given of panel.fields) fields.set(given.name, makeField(given, chosen.model));
    for (const [name, value] of before) fields.get(name).set(value);
    places.replaceChildren(...[...fields.values()].map((field) => field.element));
    chosen.task = tasks().some((task) => task.name === chosen.task) ? chosen.task : tasks()[0]?.name ?? null;
    choose();
  }

  function choose() {
    const model = models.length > 1 && chooser("Model", models.map((one) => one.name), chosen.model.name, (name) => {
      chosen.model = models.find((one) => one.name === name);
      build();
    });
    const task = tasks().length > 1 && chooser("Task", tasks().map((one) => one.name), chosen.task, (name) => { chosen.task = name; });
    choosers.replaceChildren(...[model, task].filter(Boolean));
  }

  function keys(event) {
    if (event.key !== "Enter" || event.isComposing || event.target.tagName !== "TEXTAREA") return;
    if (!(event.ctrlKey || event.metaKey || (panel.enter && !event.shiftKey))) return;
    event.preventDefault();
    if (!chosen.abort) submit();
  }

  function press() {
    if (chosen.abort) chosen.abort.abort();
    else submit();
  }

  function busy(on) {
    send.textContent = on ? "Stop" : "Ask";
    element.classList.toggle("busy", on);
    output.setAttribute("aria-busy", String(on));
    if (on) status.textContent = "Working …";
  }

  async function submit() {
    chosen.abort?.abort();
    const given = values();
    remember(panel.id, given);
    const empty = panel.fields.find((field) => !field.optional && fields.get(field.name)?.get().trim() === "");
    if (!empty && !form.reportValidity()) return;
    if (empty) { complain(NO_ANSWER); fields.get(empty.name).focus(); return; }
    const abort = new AbortController();
    chosen.abort = abort;
    busy(true);
    try {
      const [what, body] = panel.request(given, chosen.model, chosen.task);
      const model = chosen.model;
      const answers = await ask(what, { ...body, model: model.name, ...(chosen.task ? { task: chosen.task } : {}) }, abort.signal);
      if (abort !== chosen.abort) return;
      output.replaceChildren(...[panel.draw(answers, given, model)].flat().filter(Boolean));
      status.textContent = "";
      status.classList.remove("error");
    } catch (error) {
      if (abort !== chosen.abort) return;
      complain(error.name === "AbortError" ? "Stopped." : error.message);
    }
    chosen.abort = null;
    busy(false);
  }

  function complain(sentence) {
    status.classList.add("error");
    status.textContent = sentence;
    output.replaceChildren();
  }

  build();
  return { element, values, set, send: submit };
}

function chooser(label, names, chosen, pick) {
  const id = freshId("choose");
  const options = names.map((name) => h("option", { value: name, selected: name === chosen }, name));
  return h("div", { class: "field short" }, h("label", { for: id }, label), h("select", { id, onchange: (event) => pick(event.target.value) }, ...options));
}
