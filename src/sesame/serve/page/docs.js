// The API for people: openapi.json as one section for each path, with its fields and a call to copy.

import { described } from "./api.js";
import { h } from "./dom.js";
import { keyForm } from "./key.js";

const SAMPLES = { // what a call to copy holds; the first of these that a body knows, and all that it must have
  text: "The plot is thin, but the music is lovely.", question: "Who wrote it?", context: "Ada wrote the notes in 1843.",
  a: "a small dog", b: ["a puppy", "the river"], word: "music", texts: ["The music stopped.", "Nobody came."],
  labels: ["sound", "people"], choices: ["It is loved.", "It is green."], pair: "It is loved for its songs.",
};
const SONGS = ["The music stopped.", "She sang all night.", "A loud drum began.", "He hums a tune.", "The choir was late."];
const PEOPLE = ["Nobody came.", "The guests went home.", "Her brother waited.", "Two men talked.", "A child laughed."];
const OWN = { // where the samples do not fit
  "/v1/fill": { text: "The plot is [MASK]." },
  "/v1/layers": { texts: [...SONGS, ...PEOPLE], labels: [...SONGS.map(() => "sound"), ...PEOPLE.map(() => "people")] },
};

const main = document.getElementById("main");

async function start() {
  try {
    const found = await described();
    const paths = Object.entries(found.paths).sort(([, one], [, two]) => ("post" in two) - ("post" in one)); // answers first
    main.replaceChildren(...paths.map(([path, methods]) => section(path, methods, found)));
  } catch (error) {
    const sentence = h("p", { class: "error", role: "alert" }, error.message);
    main.replaceChildren(sentence, ...(error.status === 401 ? [keyForm(start)] : []));
  }
}

function section(path, methods, found) {
  const [method, about] = Object.entries(methods)[0];
  const body = resolve(about.requestBody?.content?.["application/json"]?.schema, found);
  const rows = [...Object.entries(body?.properties ?? {}).map(([name, schema]) => field(name, schema, body.required ?? [])),
    ...(about.parameters ?? []).map(({ name, schema, description }) => field(name, { description, ...schema }, []))];
  return h("section", { class: "path" }, h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
    h("p", { class: "about" }, about.description ?? ""), rows.length > 0 && table(rows), h("pre", { tabindex: "0" }, call(path, method, body)));
}

function table(rows) {
  const head = h("tr", {}, ...["Field", "Kind", "Meaning"].map((name) => h("th", { scope: "col" }, name)));
  return h("div", { class: "wide" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)));
}

function field(name, schema, required) {
  const size = [schema.minimum !== undefined && `from ${schema.minimum}`, schema.maximum !== undefined && `to ${schema.maximum}`].filter(Boolean).join(" ");
  const more = [required.includes(name) && "needed", size, schema.default !== undefined && schema.default !== null && `by default ${schema.default}`];
  return h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), h("td", {}, kind(schema)),
    h("td", {}, [schema.description, more.filter(Boolean).join(", ")].filter(Boolean).join(" · ")));
}

function kind(schema) {
  if (schema.anyOf) return [...new Set(schema.anyOf.filter((one) => one.type !== "null").map(kind))].join(" or ");
  if (schema.type === "array") return `list: ${kind(schema.items)}`;
  return { string: "text", integer: "whole number", number: "number", boolean: "true or false" }[schema.type] ?? "";
}

function resolve(schema, found) {
  return schema?.$ref ? found.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function call(path, method, body) {
  const address = `${location.origin}${path}`;
  if (method === "get") return `curl ${address}`;
  const known = Object.keys(SAMPLES).filter((name) => name in (body?.properties ?? {}));
  const first = known[0] === "question" ? ["question", "context"] : known.slice(0, 1);
  const names = new Set([...first, ...(body?.required ?? [])]);
  const given = Object.fromEntries(known.filter((name) => names.has(name)).map((name) => [name, OWN[path]?.[name] ?? SAMPLES[name]]));
  if (path === "/v1/nsp") given.pair = SAMPLES.pair;
  return `curl ${address} -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(given)}'`;
}

start();
