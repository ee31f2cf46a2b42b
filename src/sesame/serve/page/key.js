// Asks for the server's key, keeps it for this tab of the browser, and goes on.

import { setKey } from "./api.js";
import { h } from "./dom.js";

export function keyForm(goOn) {
  const key = h("input", { type: "password", id: "key", autocomplete: "off" });
  const send = (event) => {
    event.preventDefault();
    setKey(key.value);
    goOn();
  };
  const label = h("label", { for: "key" }, "API key");
  return h("form", { class: "ask", onsubmit: send }, h("div", { class: "field" }, label, key), h("button", { class: "send" }, "Open"));
}
