// Elements without innerHTML: every word from a model or a user becomes a text node, so it can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `on…` are listeners, `vars` custom properties for the style sheet, all else attributes. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") setVars(element, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Through the object model, which a strict content security policy allows; style attributes it does not. */
export function setVars(element, vars) {
  for (const [name, value] of Object.entries(vars)) element.style.setProperty(name, String(value));
}

/** Makes these the children, in order; those that are in place are not touched, for moving an element takes its focus away. */
export function arrange(parent, elements) {
  [...parent.children].filter((child) => !elements.includes(child)).forEach((child) => child.remove());
  elements.forEach((element, index) => { if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null); });
}

let last = 0;
export function freshId(word) {
  last += 1;
  return `${word}-${last}`;
}

/** One stop for the tab key among many elements; `step(key, index)` says where an arrow leads, or null. */
export function roving(elements, step) {
  const reach = (index) => elements.forEach((element, other) => { element.tabIndex = other === index ? 0 : -1; });
  elements.forEach((element, index) => {
    element.addEventListener("focus", () => reach(index));
    element.addEventListener("keydown", (event) => {
      const next = event.ctrlKey || event.metaKey || event.altKey ? null : step(event.key, index);
      if (next === null || !elements[next]) return;
      event.preventDefault();
      elements[next].focus();
    });
  });
  reach(0);
  return reach;
}

/** Up and down (or left and right) through a list, Home and End to its ends. */
export function along(count, { back = "ArrowUp", on = "ArrowDown", round = false } = {}) {
  return (key, index) => {
    if (key === "Home") return 0;
    if (key === "End") return count - 1;
    if (key !== back && key !== on) return null;
    const next = index + (key === on ? 1 : -1);
    return round ? (next + count) % count : next;
  };
}
