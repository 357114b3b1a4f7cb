// A class: its reasons, its photos, how often it is right, what it is confused with.

import { first, write } from "../address.js";
import { get, latest } from "../api.js";
import { bdi, card, classLink, conceptLink, empty, fill, fixed, h, icon, many, muted, spinner } from "../dom.js";
import { strip } from "../tiles.js";
import { STATES } from "./review.js";

export default function classPage(root, values, app) {
  let name = first(values, "name", "");
  const asking = latest();
  async function load() {
    fill(root, h("h1", bdi(name)), spinner());
    let one, claims;
    try {
      const signal = asking.signal();
      [one, claims] = await Promise.all([
        get("class", { name, held: true }, signal),
        get("claims", { by: app.viewer() }, signal),
      ]);
    } catch (error) {
      if (error.name !== "AbortError")
        fill(root, h("h1", bdi(name)), empty(error.message, h("a", { href: "#review" }, "All classes")));
      return;
    }
    const own = claims.classes.find((item) => item.name === name)?.claims ?? [];
    const others = (title, list, link) =>
      card(
        title,
        list.length
          ? h(
              "table",
              h(
                "tbody",
                list.map((item) =>
                  h(
                    "tr",
                    h("td", classLink(item.name)),
                    h("td", h("a", { href: link(item.name) }, many(item.count, "photo"))),
                  ),
                ),
              ),
            )
          : muted("none"),
      );
    fill(
      root,
      h(
        "div.head",
        h("a", { class: "button ghost", href: "#mistakes" }, icon("left"), "Mistakes"),
        h(
          "div.grow",
          h("h1", bdi(name)),
          muted(
            `${many(one.photos, "photo")} that are not of test; ${one.validation ? `${app.state.folds === "ready" ? `${one.right} of them are right by refits that had not seen them` : `of ${one.validation} validation photos ${one.validation_right} are right${app.state.flattered ? " (the model may have been trained on them)" : ""}`}` : `none for validation${app.state.folds === "ready" ? `; ${one.right} are right by refits that had not seen them` : ""}`}. With no concept at all the model says `,
            classLink(one.without),
            `; this class's head start is ${fixed(one.bias)}.`,
          ),
        ),
        h("a", { class: "button", href: write("review", { class: name }) }, "Review its claims"),
        h("a", { class: "button", href: write("photos", { classes: name }) }, "Its photos"),
      ),
      h(
        "div.split",
        h(
          "div.stack",
          card(
            "What the model may say of it",
            own.length
              ? h(
                  "table",
                  h("caption.sr", "Claims"),
                  h("thead", h("tr", h("th", "shows"), h("th", "weight"), h("th.text", "review"))),
                  h(
                    "tbody",
                    own.map((claim) =>
                      h(
                        "tr",
                        h("td", conceptLink(claim.concept)),
                        h("td", fixed(claim.weight)),
                        h("td.text.nowrap", STATES[claim.state].join(" ")),
                      ),
                    ),
                  ),
                )
              : h("p", "Nothing: it has no reason."),
            one.against.length ? muted(`Speaks against it: ${one.against.join(", ")}`) : null,
          ),
          card("Photos that it is surest of", strip(one.portraits, { values: { from: location.hash.slice(1) } })),
        ),
        h(
          "div.stack",
          others("Taken for", one.taken_for, (other) => write("photos", { classes: name, predicted: other })),
          others("Taken for it", one.taken_from, (other) => write("photos", { classes: other, predicted: name })),
        ),
      ),
    );
  }
  load();
  return {
    update(next) {
      name = first(next, "name", "");
      load();
      return true;
    },
    refresh: load,
    leave() {
      asking.stop();
    },
  };
}
