// The server's answers, or its one sentence as an Error.

const ROOT = new URL("../", import.meta.url);
const KEY = "sesame-key";

export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** What there is: {models, runs: whether runs are shown}. */
export async function served() {
  return call("v1/models", {});
}

/** The OpenAPI description of the server. */
export async function described() {
  return call("openapi.json", {});
}

/** All runs; those that have not changed since a stamp by name and age alone. */
export async function runs(since) {
  return call(`v1/runs?since=${since}`, {});
}

/** The answers to one question, one for each text. */
export async function ask(what, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const reply = await call(`v1/${what}`, { method: "POST", headers, body: JSON.stringify(body), signal });
  return reply.answers ?? [reply];
}

async function call(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(new URL(path, ROOT), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer; is it still running?", 0);
  }
  const reply = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (response.ok && reply !== null) return reply;
  throw new Refused(reply?.error ?? `The server answered ${response.status} without saying why.`, response.status);
}
