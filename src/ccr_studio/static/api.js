// The typed JSON API. Addresses are relative: the studio works below any prefix of a proxy.

import { query } from "./address.js";

export class Refused extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      credentials: "same-origin",
      ...options,
      headers: { ...options.headers, "X-Refusals": "quiet" },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The studio does not answer. Is it still running?");
  }
  const refused = answer.headers.get("X-Refused"); // what is refused as expected comes with 200: no error in the console
  if (answer.ok && !refused) return answer;
  let message = `The studio answered ${refused ?? answer.status}.`;
  try {
    message = (await answer.json()).error || message;
  } catch {
    /* no words came */
  }
  throw new Refused(message.charAt(0).toUpperCase() + message.slice(1));
}

export const get = async (path, values = {}, signal) => (await ask(`${path}?${query(values)}`, { signal })).json();
export const bytes = async (path, values = {}, signal) =>
  (await ask(`${path}?${query(values)}`, { signal })).arrayBuffer();
export const post = async (path, body = {}, signal) =>
  (
    await ask(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    })
  ).json();
export const remove = async (path) => (await ask(path, { method: "DELETE" })).json();
export const upload = async (file) =>
  (
    await ask("uploads", {
      method: "POST",
      headers: {
        "Content-Type": "application/octet-stream",
        "X-File-Name": encodeURIComponent(file.name).slice(0, 1900),
      },
      body: file,
    })
  ).json();

// The last refit once it has ended; `told` hears of it until then. Null where nobody waits any more.
export async function followRefit(waiting, told = () => {}) {
  while (waiting()) {
    const job = await get("refit").catch(() => null);
    if (job && waiting()) told(job);
    if (job && job.state !== "running") return waiting() ? job : null;
    await new Promise((done) => setTimeout(done, job ? 200 : 1000));
  }
  return null;
}

// A browser keeps pictures for good, by their address: it names the store, for a row is another photo in another one.
let pictures = "";
export const showing = (digest) => {
  pictures = digest;
};
export const thumbnail = (key, size = 160) =>
  `api/thumbnails/${encodeURIComponent(key)}?${query({ size, of: pictures })}`;
export const file = (path, values = {}) => `api/${path}?${query(values)}`;

// The last question counts: an answer that comes late is not shown.
export function latest() {
  let controller = null;
  return {
    signal() {
      controller?.abort();
      controller = new AbortController();
      return controller.signal;
    },
    stop() {
      controller?.abort();
    },
  };
}
