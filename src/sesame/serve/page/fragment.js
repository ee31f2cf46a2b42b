// The part of the address after #: which panel, and what stood in its fields; so that a link shows the same thing.

const LONGEST = 6000; // letters; longer texts are left out of the address

export function read() {
  const [panel, ...rest] = location.hash.slice(1).split("&");
  return { panel, values: Object.fromEntries(new URLSearchParams(rest.join("&"))) };
}

export function format(panel, values = {}) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined);
  const words = new URLSearchParams(kept).toString();
  return `#${panel}${words && words.length <= LONGEST ? `&${words}` : ""}`;
}

export function write(panel, values) {
  history.replaceState(null, "", format(panel, values));
}
