// Questions and short notices.
import { h } from "./dom.js";

export function ask({
  title,
  text = "",
  label,
  value = "",
  type = "text",
  confirm = "Save",
  danger = false,
  step = null,
}) {
  return new Promise((resolve) => {
    const input = label
      ? h("input", { type, value, step, autocomplete: "off", maxlength: 200, id: "ask-input" })
      : null;
    const box = h(
      "dialog",
      { "aria-labelledby": "ask-title" },
      h(
        "form",
        {
          method: "dialog",
          onsubmit: (event) => {
            event.preventDefault();
            box.close("yes");
          },
        },
        h("h2", { id: "ask-title" }, title),
        text ? h("p.small", text) : null,
        input ? h("label", { class: "field", for: "ask-input" }, h("span", label), input) : null,
        h(
          "div.actions",
          h("button", { onclick: () => box.close() }, "Cancel"),
          h("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm),
        ),
      ),
    );
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue === "yes" ? (input ? input.value.trim() : true) : null);
    });
    document.body.append(box);
    box.showModal();
    input?.select();
  });
}

const region = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(region);

export function toast(words, { bad = false, action = null, seconds = bad ? 9 : 5 } = {}) {
  const box = h(
    "div",
    { class: `toast ${bad ? "bad" : ""}` },
    h("span", words),
    action
      ? h(
          "button",
          {
            onclick: () => {
              box.remove();
              action[1]();
            },
          },
          action[0],
        )
      : null,
    h("button", { "aria-label": "Dismiss", onclick: () => box.remove() }, "×"),
  );
  region.append(box);
  while (region.children.length > 3) region.firstChild.remove();
  setTimeout(() => box.remove(), seconds * 1000);
}
