// A list of tabs as the ARIA practices describe it: arrows, Home and End move, and what is moved to is shown.

import { along, h, roving } from "./dom.js";

/** Fills `list`; `show(id)` is called when a tab is chosen. Returns a function that chooses one. */
export function makeTabs(list, panels, show) {
  const buttons = panels.map(({ id, title }) =>
    h("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, "aria-selected": "false",
      onclick: () => choose(id), onfocus: () => choose(id),
    }, title));
  list.replaceChildren(...buttons);
  list.hidden = false;
  const reach = roving(buttons, along(buttons.length, { back: "ArrowLeft", on: "ArrowRight", round: true }));
  let chosen = null;
  function choose(id) {
    if (id === chosen) return;
    chosen = id;
    buttons.forEach((button, index) => {
      const on = panels[index].id === id;
      button.setAttribute("aria-selected", String(on));
      if (!on) return;
      reach(index);
      list.scrollTo({ left: button.offsetLeft - (list.clientWidth - button.offsetWidth) / 2 });
    });
    show(id);
  }
  return choose;
}
