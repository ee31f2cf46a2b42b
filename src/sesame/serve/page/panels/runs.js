// Runs while they learn: a table, and curves of those that are chosen; asked for anew every two seconds while in sight.

import { runs as askRuns } from "../api.js";
import { arrange, h } from "../dom.js";
import { AXES, curves, swatch } from "../drawings/curves.js";
import { runTable } from "../drawings/runs.js";

const EVERY = 2000; // milliseconds
const FIRST = 6; // runs that are chosen until somebody chooses
const ABOUT = "How training goes: the loss of training, smoothed, with the values themselves faint behind it; losses or scores on text that was held out; the learning rate.";

export default { id: "runs", title: "Runs", make };

function make(remember) {
  const known = new Map();
  const slots = new Map(); // chosen runs, and which color and dash they keep
  const charts = new Map();
  const state = { order: [], stamp: 0, axis: "step", log: false, picked: null, asking: false };
  const table = runTable(choose);
  const status = h("p", { class: "status", role: "status" }, "Looking for runs …");
  const note = h("p", { class: "note" });
  const legend = h("ul", { class: "legend", "aria-label": "Runs that are drawn" });
  const places = h("div", { class: "charts" });
  const axes = Object.keys(AXES).map((name) => choice("radio", `Over ${AXES[name].title}`, (on) => on && turn({ axis: name }), { name: "axis", value: name }));
  const log = choice("checkbox", "Logarithmic losses", (on) => turn({ log: on }), { name: "log" });
  const controls = h("fieldset", { class: "views" }, h("legend", {}, "Curves"), ...axes.map((one) => one.element), log.element);
  const found = h("div", { hidden: true }, table.element, controls, legend, note, places);
  const element = h("section", { class: "panel", id: "panel-runs", role: "tabpanel", "aria-labelledby": "tab-runs", hidden: true },
    h("h2", {}, "Watch runs learn"), h("p", { class: "about" }, ABOUT), status, found);

  function values() {
    const picked = state.picked && state.picked.join("\n");
    return { ...(state.axis === "step" ? {} : { x: state.axis }), ...(state.log ? { log: "1" } : {}), ...(picked === null ? {} : { runs: picked || "\n" }) };
  }

  function set(given) {
    if (given.x in AXES) state.axis = given.x;
    state.log = given.log === "1";
    if (given.runs !== undefined) {
      state.picked = given.runs.split("\n").filter(Boolean);
      slots.clear();
      state.picked.filter((name) => known.has(name)).forEach(take);
    }
    show();
  }

  function turn(change) {
    Object.assign(state, change);
    remember("runs", values());
    show();
  }

  function take(name) {
    const used = new Set(slots.values());
    let slot = 0;
    while (used.has(slot)) slot += 1;
    slots.set(name, slot);
  }

  function choose(name, on) {
    if (on) take(name);
    else slots.delete(name);
    turn({ picked: [...slots.keys()] });
  }

  async function poll() {
    if (state.asking) return;
    state.asking = true;
    try {
      receive(await askRuns(state.stamp));
    } catch (error) {
      tell(error.message, true); // what stands stays; the next look may find the server again
    }
    state.asking = false;
  }

  function tell(words, wrong) {
    status.classList.toggle("error", wrong);
    if (status.textContent !== words) status.textContent = words; // a reader hears news, not every look
  }

  function receive(reply) {
    if (reply.runs.some((run) => !run.state && !known.has(run.name))) { state.stamp = 0; return; } // another server's stamps: all anew
    const names = reply.runs.map((run) => run.name);
    reply.runs.forEach((run) => known.set(run.name, { ...known.get(run.name), ...run }));
    for (const name of [...known.keys()]) if (!names.includes(name)) { known.delete(name); slots.delete(name); }
    const fresh = names.filter((name) => !state.order.includes(name));
    const changed = fresh.length > 0 || names.length !== state.order.length + fresh.length || reply.runs.some((run) => run.state);
    state.order = [...fresh, ...state.order.filter((name) => known.has(name))]; // what is known keeps its place under the pointer
    for (const name of fresh) if (state.picked ? state.picked.includes(name) : slots.size < FIRST) take(name);
    state.stamp = reply.stamp;
    tell(sentence(reply), false);
    found.hidden = names.length === 0;
    if (changed) show();
    else table.draw(state.order.map((name) => known.get(name)), slots);
  }

  function show() {
    axes.forEach((one) => { one.input.checked = one.input.value === state.axis; });
    log.input.checked = state.log;
    table.draw(state.order.map((name) => known.get(name)), slots);
    const chosen = [...slots].sort(([, a], [, b]) => a - b).map(([name, slot]) => ({ ...known.get(name), slot }));
    const drawn = chosen.filter((run) => run.train[state.axis] !== null);
    const left = chosen.filter((run) => run.train[state.axis] === null).map((run) => run.name);
    legend.replaceChildren(...drawn.map((run) => h("li", {}, swatch(run.slot), run.name, run.state === "running" && h("span", { class: "live" }, " running"))));
    note.textContent = chosen.length === 0 ? "Choose runs in the table to draw their curves." : left.length ? `Not drawn, for their logs do not tell it: ${left.join(", ")}.` : "";
    drawCharts(chartsOf(drawn, state));
  }

  function drawCharts(wanted) {
    for (const title of [...charts.keys()]) if (!wanted.some((chart) => chart.title === title)) charts.delete(title);
    arrange(places, wanted.map(({ title }) => {
      if (!charts.has(title)) charts.set(title, curves(title));
      return charts.get(title).element;
    }));
    wanted.forEach(({ title, ...given }) => charts.get(title).draw(given));
  }

  const inSight = () => !element.hidden && document.visibilityState === "visible";
  const again = () => { if (inSight()) poll(); };
  setInterval(again, EVERY);
  document.addEventListener("visibilitychange", again);
  show();
  return { element, values, set, send: poll, shown: poll };
}

function sentence({ folder, found, runs }) {
  if (runs.length === 0) return `No runs yet under “${folder}”; sesame pretrain and sesame finetune make them.`;
  const running = runs.length < found ? ` The newest ${runs.length} of ${found} are shown.` : "";
  return `${found === 1 ? "One run" : `${found} runs`} under “${folder}”.${running}`;
}

function choice(type, label, heard, more) {
  const input = h("input", { type, ...more, onchange: () => heard(input.checked) });
  return { input, element: h("label", { class: "radio" }, input, label) };
}

/** Training loss, a chart for each name of a held-out figure, the rate: those that some run has. */
function chartsOf(runs, { axis, log }) {
  const of = (pick) => runs.map((run) => ({ name: run.name, slot: run.slot, ...pick(run) })).filter((one) => one.x?.length);
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.held_out)))];
  const kept = ({ train }) => train.rate.map((rate, index) => (rate === null ? -1 : index)).filter((index) => index >= 0);
  const found = [
    { title: "Training loss", log, series: of(({ train }) => ({ x: train[axis], y: train.smooth, raw: train.loss })) },
    ...names.map((name) => ({
      title: name === "valid" ? "Score on validation rows" : `Held-out loss: ${name}`, log: log && name !== "valid",
      series: of(({ held_out: told }) => (told[name] ? { x: told[name][axis], y: told[name].value, marked: true } : {})),
    })),
    { title: "Learning rate", log: false, series: of((run) => ({ x: kept(run).map((index) => run.train[axis][index]), y: kept(run).map((index) => run.train.rate[index]) })) },
  ];
  return found.filter((chart) => chart.series.length).map((chart) => ({ ...chart, axis }));
}
