// A text field that offers names: arrows choose, Enter takes, Escape leaves. `careful`: Enter takes no first one unasked.
import { bdi, fill, h } from "./dom.js";

let count = 0;

export function combobox({
  label,
  placeholder,
  names,
  note = () => "",
  value = "",
  take,
  hideLabel = false,
  careful = false,
}) {
  const id = `combo-${(count += 1)}`;
  const input = h("input", {
    type: "text",
    id,
    placeholder,
    value,
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    "aria-autocomplete": "list",
    autocomplete: "off",
  });
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, class: "hidden", tabindex: "-1" }); // a list that scrolls would be a stop of its own
  let found = [],
    at = -1;

  const close = () => {
    list.classList.add("hidden");
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  };
  const mark = () => {
    [...list.children].forEach((one, number) => one.setAttribute("aria-selected", String(number === at)));
    const current = list.children[at];
    if (current) {
      input.setAttribute("aria-activedescendant", current.id);
      current.scrollIntoView({ block: "nearest" });
    }
  };
  const choose = (name) => {
    close();
    input.value = value;
    take(name, input);
  };
  const open = () => {
    const words = input.value.trim().toLowerCase();
    found = names()
      .filter((name) => name.toLowerCase().includes(words))
      .sort((a, b) => a.toLowerCase().indexOf(words) - b.toLowerCase().indexOf(words) || a.localeCompare(b))
      .slice(0, 60);
    fill(
      list,
      found.map((name, number) =>
        h(
          "li",
          {
            role: "option",
            id: `${id}-${number}`,
            "aria-selected": "false",
            onpointerdown: (event) => {
              event.preventDefault();
              choose(name);
            },
          },
          bdi(name),
          h("small", note(name)),
        ),
      ),
    );
    list.classList.toggle("hidden", !found.length);
    input.setAttribute("aria-expanded", String(found.length > 0));
    list.scrollIntoView({ block: "nearest" }); // where it opens at the end of what scrolls
    at = -1;
  };
  const wanted = () =>
    found[at] ?? found.find((name) => name === input.value.trim()) ?? (careful ? undefined : found[0]);
  input.addEventListener("focus", () => {
    if (!input.closest("[data-quiet]")) open();
  });
  input.addEventListener("input", open);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.classList.contains("hidden")) open();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(found.length, 1);
      mark();
    } else if (event.key === "Enter" && !list.classList.contains("hidden")) {
      event.preventDefault();
      if (wanted() !== undefined) choose(wanted());
    } else if (event.key === "Escape") close();
  });
  return h("div.combo", h("label", { for: id, class: hideLabel ? "sr" : "muted" }, label), input, list);
}
