// What the browser keeps: in this window, or for good. Where it keeps nothing, it is there for this page only.

const page = new Map();
const storage = (forGood) => (forGood ? localStorage : sessionStorage); // asked for inside try: it may be forbidden

export function remember(key, value, { forGood = false } = {}) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  page.set(key, text);
  try {
    storage(forGood).setItem(key, text);
  } catch {
    /* full, or not allowed */
  }
}

export function recall(key, { forGood = false } = {}) {
  try {
    return storage(forGood).getItem(key) ?? page.get(key) ?? null;
  } catch {
    return page.get(key) ?? null;
  }
}

// What was no text; null where there is none.
export function recalled(key, options) {
  try {
    return JSON.parse(recall(key, options));
  } catch {
    return null;
  }
}
