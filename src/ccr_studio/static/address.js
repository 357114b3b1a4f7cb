// The state is in the address: #photos?classes=Orange&right=wrong. A link shows what I see.

export const read = () => parse(location.hash.slice(1));

export function parse(hash) {
  const cut = hash.indexOf("?");
  const values = {};
  for (const [key, value] of new URLSearchParams(cut < 0 ? "" : hash.slice(cut + 1))) (values[key] ??= []).push(value);
  return { view: (cut < 0 ? hash : hash.slice(0, cut)) || "photos", values };
}

export function query(values) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (Array.isArray(value))
      value.forEach((one) => search.append(key, one)); // also what is empty: its place counts
    else if (value !== undefined && value !== null && value !== "" && value !== false) search.append(key, value);
  }
  return search.toString();
}

export function write(view, values) {
  const text = query(values);
  return `#${view}${text ? `?${text}` : ""}`;
}

export const first = (values, key, otherwise = undefined) => values[key]?.[0] ?? otherwise;
export const all = (values, key) => values[key] ?? [];
