// The signed table: what the model may say and may never say, by whom and when.

import { get, latest } from "../api.js";
import { bdi, card, classLink, download, empty, fill, h, icon, many, muted, spinner } from "../dom.js";

export default function signature(root, _values, app) {
  const asking = latest();
  async function load() {
    fill(root, h("h1", "Signed table"), spinner());
    let found;
    try {
      found = (await get("signature", {}, asking.signal())).signature;
    } catch (error) {
      if (error.name !== "AbortError") fill(root, empty(error.message));
      return;
    }
    const head = h(
      "div.head",
      h("a", { class: "button ghost", href: "#review" }, icon("left"), "Review"),
      h(
        "div.grow",
        h("h1", "Signed table"),
        muted(
          found
            ? `${many(found.may.length, "claim")}, every one confirmed; signed by ${found.by} on ${found.at.slice(0, 10)}. The next edit or refit ends the signature.`
            : "Nobody has signed this model, or it was changed since.",
        ),
      ),
      download("exports/claims.csv", "CSV"),
      download("exports/claims.json", "JSON"),
      h("button", { onclick: () => window.print() }, "Print"),
      found && !app.state.read_only
        ? h("button", { class: "primary", onclick: app.save }, "Save the signed model")
        : null,
    );
    const table = (title, list, said) => {
      const because = list.some((one) => one.reason);
      return card(
        [title, " ", h("small.muted", many(list.length, "claim"))],
        list.length
          ? h(
              "div.wide",
              h(
                "table",
                h("caption.sr", title),
                h(
                  "thead",
                  h(
                    "tr",
                    ["class", "shows", said, because && "because", "when"].map((one) => one && h("th.text", one)),
                  ),
                ),
                h(
                  "tbody",
                  list.map((one) =>
                    h(
                      "tr",
                      h("td", classLink(one.class ?? one.label)),
                      h("td.text", bdi(one.concept)),
                      h("td.text", bdi(one.by)),
                      because && h("td.text", one.reason),
                      h("td.text.nowrap", (one.at ?? "").slice(0, 10)),
                    ),
                  ),
                ),
              ),
            )
          : muted("none"),
      );
    };
    fill(
      root,
      head,
      found
        ? h(
            "div.stack",
            table("What it may say", found.may, "confirmed by"),
            table("What it may never say", found.never, "rejected by"),
            h("p", "With no concept at all it says ", classLink(found.without), "."),
          )
        : empty("Not signed.", h("a", { href: "#review" }, "Answer the open claims")),
    );
  }
  load();
  return {
    update: () => true,
    refresh: load,
    leave() {
      asking.stop();
    },
  };
}
