// The state is in the address: #photos?classes=Orange&right=wrong. A link shows what I see.

export function read() {
  const hash = location.hash.slice(1), cut = hash.indexOf("?");
  const values = {};
  for (const [key, value] of new URLSearchParams(cut < 0 ? "" : hash.slice(cut + 1))) (values[key] ??= []).push(value);
  return { view: (cut < 0 ? hash : hash.slice(0, cut)) || "photos", values };
}

export function write(view, values) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "" && one !== false) search.append(key, one);
  }
  const text = search.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

export const first = (values, key, otherwise = undefined) => values[key]?.[0] ?? otherwise;
export const all = (values, key) => values[key] ?? [];
