// Review: every positive weight is a claim about a class. People answer it with the photos before their eyes.

import { first, write } from "../address.js";
import { followRefit, get, latest, post } from "../api.js";
import { toast } from "../dialogs.js";
import {
  bdi,
  card,
  classLink,
  conceptLink,
  debounce,
  empty,
  fill,
  h,
  icon,
  kept,
  keyed,
  many,
  muted,
  percent,
  segments,
  signed,
  spinner,
} from "../dom.js";
import { strip } from "../tiles.js";

export const STATES = {
  confirmed: ["✓", "confirmed"],
  rejected: ["×", "rejected"],
  unclear: ["?", "unclear"],
  disputed: ["!", "disputed"],
  waiting: ["…", "waits for others"],
  open: ["", "open"],
};
const REASONS = [
  ["background", "background"],
  ["wrong of this class", "wrong of this class"],
  ["true of all classes", "true of all classes"],
  ["not to be seen", "photos do not show it"],
];
// Answers on their way to the log: whoever closes the window before they are there is asked first.
let unsent = 0;
window.addEventListener("beforeunload", (event) => {
  if (unsent) event.preventDefault();
});
const VIEWS = [
  ["class", "by class"],
  ["concept", "by concept"],
  ["open", "only open"],
  ["disputed", "only disputed"],
];
const POLICIES = {
  two: "Two reviewers must agree on a claim.",
  all: "Everybody who has answered anything must agree on a claim.",
};
const HELP = [
  ["Y", "yes, and on"],
  ["N", "no, and on"],
  ["U", "unclear, and on"],
  ["1 – 4", "no, because …"],
  ["X", "never a reason for any class"],
  ["J K", "next, previous claim"],
  ["[ ]", "previous, next class"],
  ["W", "where in the pictures (held)"],
  ["Enter", "open the concept"],
  ["R", "refit"],
  ["Ctrl Z", "take back my last answer"],
];

export default function review(root, values, app) {
  let by = first(values, "by", "class"),
    chosen = first(values, "class"),
    shown = null,
    focus = first(values, "concept"),
    evidence = null,
    aside = null,
    round = null,
    fresh = false,
    alive = true;
  const asking = latest(),
    looking = latest(),
    lining = latest();
  const head = h("div.head"),
    rail = h("nav", { class: "claim-rail", "aria-label": "Classes" }),
    body = h("div", { class: "stack", "data-content": "", tabindex: "-1" }),
    claims = h("div.stack"),
    bar = h("div.review-bar");
  root.append(head, h("div.review", rail, body), bar);
  const reviewer = app.reviewer;
  const may = () => app.state.decides;

  // With `quiet` the question that is drawn already stays.
  async function load(quiet = false) {
    if (!shown) fill(body, h("h1", "Review"), spinner());
    try {
      const signal = asking.signal();
      shown = await get("claims", { by: app.viewer() }, signal);
      if (round?.version !== shown.version) round = await get("review/round", {}, signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(body, empty(error.message));
      return;
    }
    chosen = shown.classes.some((one) => one.name === chosen)
      ? chosen
      : (shown.classes.find((one) => one.claims.some((claim) => stateOf(claim) === "open"))?.name ??
        shown.classes[0].name);
    draw(quiet);
  }

  const all = () => shown.classes.flatMap((one) => one.claims);
  // By a policy of several reviewers, a claim that who looks has answered may be open still.
  const answered = (one) => one.votes.some((vote) => vote.by === reviewer());
  const stateOf = (one) => (one.state === "open" && answered(one) ? "waiting" : one.state);
  const isAsked = (one) => ["open", "unclear"].includes(stateOf(one));
  const count = (state) => all().filter((one) => stateOf(one) === state).length;
  // What is listed in this view, in the order in which keys go through it.
  function listed() {
    if (by === "open") return all().filter(isAsked);
    if (by === "disputed") return all().filter((one) => one.state === "disputed");
    if (by === "concept") return all().filter((one) => one.concept === (focus ?? all()[0]?.concept));
    return shown.classes.find((one) => one.name === chosen)?.claims ?? [];
  }
  const key = (one) => `${one.class}\n${one.concept}`;
  const same = (one, other) => one && other && key(one) === key(other);
  let current = null;

  function draw(quiet = false) {
    const list = listed();
    if (!list.some((one) => same(one, current)))
      current =
        list.find((one) => one.concept === focus && (by !== "class" || one.class === chosen)) ??
        list.find((one) => stateOf(one) === "open") ??
        list[0] ??
        null;
    kept(head, drawHead);
    kept(rail, drawRail);
    kept(body, () => drawBody(list, quiet));
    kept(bar, drawBar);
  }

  function drawHead() {
    fill(
      head,
      h(
        "div.grow",
        h("h1", "Review: what the model may say"),
        muted("Every weight is a claim about a class. Confirm what one can see; what you reject is never used again."),
      ),
      segments(
        "Claims to show",
        VIEWS.map(([value, label]) => [
          value,
          label,
          value === "open" ? all().filter(isAsked).length : value === "disputed" ? count("disputed") : undefined,
        ]),
        by,
        (value) => app.go("review", { by: value === "class" ? null : value, class: chosen }),
      ),
      h("a", { class: "button", href: "#signature" }, "Signed table"),
    );
  }

  function drawRail() {
    const dot = (state) => h("i", { class: `dot-state ${state}`, title: STATES[state][1] }, STATES[state][0]);
    const line = (name, found, here, href) => [
      name,
      JSON.stringify([here, href, found.map(stateOf)]),
      () =>
        h(
          "a",
          {
            href,
            "aria-current": here ? "true" : null,
            "aria-label": `${name}: ${found.map((one) => STATES[stateOf(one)][1]).join(", ")}`,
          },
          bdi(name),
          h(
            "span",
            { class: "dots", "aria-hidden": "true" },
            found.slice(0, 8).map((one) => dot(stateOf(one))),
          ),
        ),
    ];
    const groups = new Map();
    if (by === "concept")
      for (const one of all()) {
        if (!groups.has(one.concept)) groups.set(one.concept, []);
        groups.get(one.concept).push(one);
      }
    const here = listed()[0]?.concept,
      { agreements, policy } = shown,
      counts = Object.keys(STATES).map((state) => [state, count(state)]);
    keyed(rail, [
      ["\nheading", by, () => h("h2", by === "concept" ? "Concepts" : "Classes")],
      ...(by === "concept"
        ? [...groups]
            .sort((a, b) => b[1].length - a[1].length)
            .map(([name, found]) => line(name, found, name === here, write("review", { by, concept: name })))
        : shown.classes.map((one) =>
            line(one.name, one.claims, one.name === chosen && by === "class", write("review", { class: one.name })),
          )),
      [
        "\ncounts",
        JSON.stringify([counts, agreements]),
        () =>
          h(
            "div",
            muted(
              counts
                .filter(([state, number]) => number || !["disputed", "waiting"].includes(state))
                .map(([state, number]) => [...STATES[state], number].filter((word) => word !== "").join("\u00a0"))
                .join(" · "),
            ),
            POLICIES[policy] ? muted(POLICIES[policy]) : null,
            agreements
              .filter((one) => one.questions)
              .map((one) =>
                muted(
                  bdi(one.first),
                  " and ",
                  bdi(one.second),
                  ` agree on ${percent(one.share)} of ${one.questions}${one.kappa === null ? "" : `, kappa ${one.kappa.toFixed(2)}`}`,
                ),
              ),
          ),
      ],
    ]);
  }

  // What is drawn already stays, but for what was answered; the question in focus too, if `quiet`.
  let drawings = 0;
  function drawBody(list, quiet = false) {
    if (!quiet) drawings += 1;
    const thin = shown.thin.filter((one) => by !== "class" || one.class === chosen),
      parts = [];
    if (round?.number) parts.push(["round", `${round.version} ${fresh}`, lastRound]);
    if (by === "class")
      parts.push([
        "class",
        `${chosen}\n${shown.without}`,
        () =>
          h(
            "div.row",
            h("h2.class-name", classLink(chosen)),
            h("span.muted", "With no concept at all the model says ", classLink(shown.without), "."),
          ),
      ]);
    for (const one of thin)
      parts.push([
        `thin ${one.class}`,
        one.reasons,
        () =>
          h(
            "p.note",
            classLink(one.class),
            ` has ${one.reasons === 1 ? "one reason" : "no reason"} left: confirm one that is next in line, or `,
            h("a", { href: "#bench" }, "add a concept on the bench"),
            ".",
          ),
      ]);
    parts.push(
      list.length
        ? ["claims", "", () => claims]
        : [
            "empty",
            `${by} ${shown.rejected}`,
            () =>
              empty(
                by === "disputed"
                  ? "Nobody disputes anything."
                  : by === "open"
                    ? "Every claim is answered."
                    : "This class has no reason.",
                by === "open" && shown.rejected ? "Refit, and the rejected ones go." : "",
              ),
          ],
    );
    if (by === "class") parts.push(["next", `${chosen} ${shown.version}${quiet ? "" : drawings}`, nextInLine]);
    const before = [evidence, aside];
    keyed(
      claims,
      list.map((one) => {
        const now = same(one, current),
          stamp = JSON.stringify([one.state, one.votes, now && [shown.version, reviewer(), drawings]]);
        return [key(one), stamp, () => (now ? opened(one) : closed(one))];
      }),
    );
    keyed(body, parts);
    if (aside !== before[1]) line();
    if (evidence !== before[0]) look();
  }
  // What the last refit changed; unfolded until the first answer after it.
  const lastRound = () => {
    const pairs = (title, list) =>
      h(
        "div",
        h("h4", title),
        list.length
          ? h(
              "ul.pairs",
              list.map((one) => h("li", sentence(one))),
            )
          : muted("none"),
      );
    return h(
      "details",
      { class: "card", id: "round", open: fresh },
      h(
        "summary",
        h("b", `Round ${round.number}`),
        `: ${many(round.gone.length, "claim")} went, ${many(round.new.length, "is", "are")} new`,
        round.n
          ? `; right on ${percent(round.before, 1)} → ${percent(round.after, 1)} of ${many(round.n, "validation photo")}${round.honest ? " (before: the opened model, refitted on the training photos alone)" : ""}`
          : "",
      ),
      h("div.two-strips", pairs("Went", round.gone), pairs("New to judge", round.new)),
      shown.thin.length
        ? h(
            "p.note",
            "Fewer than two reasons: ",
            shown.thin.map((one, at) => [
              at ? ", " : "",
              h("a", { href: write("review", { class: one.class }) }, bdi(one.class)),
            ]),
            ".",
          )
        : null,
    );
  };
  const nextInLine = () => {
    aside = card(
      "Next in line",
      muted("Concepts that would move up where a reason is rejected: tick or strike them ahead."),
      spinner(),
    );
    return aside;
  };

  const sentence = (one) => [bdi(one.class), " shows ", h("b", bdi(one.concept))];
  function verdict(one) {
    const reason = one.votes.find((vote) => vote.reason)?.reason,
      told = one.votes.some((vote) => vote.by !== reviewer()) || stateOf(one) === "waiting",
      votes = told ? one.votes.map((vote) => `${vote.by}: ${vote.answer}`).join(", ") : "",
      why = [reason, votes].filter(Boolean).join("; ");
    const [mark, words] = STATES[stateOf(one)];
    return h(
      "span",
      {
        class:
          one.state === "rejected" || one.state === "disputed"
            ? "wrong"
            : one.state === "confirmed"
              ? "right"
              : "muted",
      },
      `${mark} ${words}`,
      why ? h("span.muted", ` ${why}`) : null,
    );
  }
  const closed = (one) =>
    h(
      "button",
      {
        class: "claim",
        onclick: () => {
          current = one;
          draw(true);
          body.querySelector(".claim.now")?.scrollIntoView({ block: "nearest" });
        },
      },
      h("span.grow", sentence(one)),
      verdict(one),
    );

  function opened(one) {
    const button = (answer, label, key) =>
      h(
        "button",
        {
          "aria-pressed": String(one.votes.some((vote) => vote.by === reviewer() && vote.answer === answer)),
          disabled: !may(),
          onclick: () => decide(one, answer),
        },
        label,
        h("kbd", key),
      );
    const never = h(
      "button",
      { class: "chip", disabled: !may(), onclick: () => strike(one) },
      "never a reason for any class ",
      h("kbd", "X"),
    );
    evidence = h("div.stack", spinner("Looking for photos"));
    return h(
      "section",
      { class: "claim now", "aria-label": `${one.class} shows ${one.concept}?` },
      h(
        "div.row",
        h("h3.grow", classLink(one.class), " shows ", conceptLink(one.concept), "?"),
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "Your answer" },
          button("yes", "Yes, it does", "Y"),
          button("no", "No", "N"),
          button("unclear", "Unclear", "U"),
        ),
      ),
      evidence,
      h(
        "div.row",
        h("span.muted", "No, because"),
        REASONS.map(([value, label], at) =>
          h(
            "button",
            { class: "chip", disabled: !may(), onclick: () => decide(one, "no", value) },
            label,
            " ",
            h("kbd", String(at + 1)),
          ),
        ),
        never,
        h("span.grow"),
        app.state.where
          ? h(
              "button",
              {
                class: "chip",
                id: "where",
                "aria-pressed": "false",
                title: "Light up what adds to it in the pictures",
                onclick: () => (lit.length ? dark() : where()),
              },
              "where in the pictures ",
              h("kbd", "W"),
            )
          : null,
        verdict(one),
      ),
    );
  }

  // Photos of the class that show a concept most, and of others that do.
  function strips(found) {
    const photos = (list, title, kind, words) =>
      h(
        "div",
        { class: kind },
        h("h4", title),
        list.length ? strip(list, { values: { from: location.hash.slice(1) }, words }) : muted("none"),
      );
    return h(
      "div.two-strips",
      photos(found.mine, [bdi(found.class), " that show it most"], "mine", ""),
      photos(found.others, "Others that show it", "others", (one) => one.truth),
    );
  }

  // The photos come after the page: an answer need not wait for them.
  async function look() {
    const one = current,
      place = evidence;
    dark();
    if (!one || !place?.isConnected) {
      looking.stop();
      return;
    }
    try {
      const found = await get("claim", { class: one.class, concept: one.concept }, looking.signal());
      const facts = [
        found.adds === null ? "" : `Adds ${signed(found.adds)} on average`,
        found.share === null ? "" : `${percent(found.share)} of the class's photos show it`,
        found.purity === null ? "" : `${percent(found.purity)} of the photos that show it are of the class`,
      ];
      fill(
        place,
        muted(
          `${facts.filter(Boolean).join("; ")}.`,
          found.accuracy_without === null
            ? ""
            : ` Without it, ${percent(found.accuracy, 1)} right becomes ${percent(found.accuracy_without, 1)} on ${many(found.photos, "photo")}, ${app.state.flattered ? "which it may have been trained on" : "most of which it was trained on"}.`,
        ),
        strips(found),
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(place, muted(error.message));
    }
  }

  async function line() {
    const place = aside,
      label = chosen;
    try {
      const { concepts } = await get("claims/next", { class: label }, lining.signal());
      const answer = (concept, said) => async (event) => {
        const row = event.target.closest("div.next-line");
        if (await send({ class: label, concept, answer: said })) row.remove();
      };
      fill(
        place,
        h("h2", "Next in line"),
        muted("Concepts that would move up where a reason is rejected: tick or strike them ahead."),
        concepts.length
          ? concepts.map((concept) =>
              h(
                "div.next-line.row",
                h(
                  "details.grow",
                  { ontoggle: (event) => photosOf({ class: label, concept }, event.target) },
                  h("summary", sentence({ class: label, concept })),
                ),
                h(
                  "span.row",
                  h(
                    "button",
                    { disabled: !may(), "aria-label": `Yes, ${concept}`, onclick: answer(concept, "yes") },
                    icon("check"),
                    "Yes",
                  ),
                  h(
                    "button",
                    { disabled: !may(), "aria-label": `No, ${concept}`, onclick: answer(concept, "no") },
                    icon("cross"),
                    "No",
                  ),
                ),
              ),
            )
          : muted("None is left."),
      );
    } catch (error) {
      if (error.name !== "AbortError" && place) fill(place, muted(error.message));
    }
  }

  // Photos of a concept that is next in line, once they are asked for.
  async function photosOf(one, box) {
    if (!box.open || box.children.length > 1) return;
    const place = h("div", spinner("Looking for photos"));
    box.append(place);
    try {
      fill(place, strips(await get("claim", one)));
    } catch (error) {
      fill(place, muted(error.message));
    }
  }

  function drawBar() {
    const total = Math.max(1, all().length),
      confirmed = count("confirmed"),
      share = (state) => h("i", { class: state, style: { width: `${(100 * count(state)) / total}%` } });
    const busy = app.state.job?.state === "running";
    fill(
      bar,
      h(
        "span",
        {
          class: "progress",
          role: "img",
          "aria-label": `${confirmed} of ${total} claims are confirmed, ${count("rejected")} rejected`,
        },
        share("confirmed"),
        share("rejected"),
        share("unclear"),
        share("disputed"),
      ),
      h("b.nowrap", `${confirmed} of ${total} confirmed`),
      h("span.muted.keys", "Y N U decide · J K claim · [ ] class"),
      h("button", { class: "ghost", onclick: help }, "Keys ", h("kbd", "?")),
      h(
        "button",
        {
          class: "ghost",
          onclick: async () => {
            if (await app.whoAmI(true)) load();
          },
        },
        reviewer() ? ["reviewer: ", bdi(reviewer())] : "Who are you?",
      ),
      app.state.read_only
        ? null
        : [
            h(
              "button",
              {
                disabled: busy || shown.signed || shown.blocking > 0,
                title: shown.blocking ? `${many(shown.blocking, "claim is", "claims are")} not confirmed` : "",
                onclick: sign,
              },
              shown.signed ? "Signed" : "Sign",
            ),
            h(
              "button",
              {
                disabled: busy,
                onclick: () => refit("confirmed"),
                title: "Only what was confirmed may be a reason",
              },
              "Refit, only confirmed",
            ),
            h(
              "button",
              { class: "primary", id: "review-refit", disabled: busy, onclick: () => refit("open") },
              busy
                ? [h("span.spinner.inline"), " Refitting …"]
                : [shown.rejected ? `Refit without ${many(shown.rejected, "claim")}` : "Refit ", h("kbd", "R")],
            ),
          ],
    );
  }

  // Answers go to the log one after the other; the page does not wait for them.
  let sent = Promise.resolve();
  async function send(body) {
    const name = await app.whoAmI();
    if (!name || !may()) return null;
    const done = sent.then(() => post("decisions", { by: name, reason: "", ...body }));
    sent = done.catch(() => {});
    unsent += 1;
    try {
      return (await done).decision;
    } catch (error) {
      app.fail(error);
      return null;
    } finally {
      unsent -= 1;
    }
  }

  const settle = debounce(() => {
    if (alive) load(true);
  }, 100); // states and counts follow, once for answers that come quickly
  const given = new Set(); // answers that may not be among the votes yet
  // The question after this one: the next that is open, in this list or else in another class or concept.
  function following(one, list) {
    const from = (claims) => {
      const at = claims.findIndex((other) => same(other, one));
      return [...claims.slice(at + 1), ...claims.slice(0, at)];
    };
    const isOpen = (other) => stateOf(other) === "open" && !given.has(key(other)),
      after = list[list.findIndex((other) => same(other, one)) + 1];
    if (by === "disputed") return after;
    return from(list).find(isOpen) ?? (by === "open" ? after : (from(all()).find(isOpen) ?? after));
  }
  async function decide(one, answer, reason = "") {
    if (!(await app.whoAmI()) || !may()) return;
    const list = listed(),
      after = following(one, list);
    const done = send({ class: one.class, concept: one.concept, answer, reason });
    given.add(key(one));
    fresh = false;
    if (after) {
      current = after;
      focus = after.concept;
      if (list.includes(after)) kept(body, () => drawBody(list, true));
      else {
        chosen = after.class;
        moved();
        draw();
      }
    }
    body.querySelector(".claim.now")?.scrollIntoView({ block: "nearest" });
    if (await done) {
      settle();
      return;
    }
    given.delete(key(one));
    current = one; // it is not in the log: asked again
    if (by === "class") chosen = one.class;
    draw();
  }
  async function strike(one) {
    const made = await send({ concept: one.concept, answer: "no", reason: "never" });
    if (!made) return;
    toast(`${one.concept} is never a reason for any class, from the next refit on.`, {
      action: ["Undo", () => undo(made.id)],
    });
    const list = listed();
    current = list[list.findIndex((other) => same(other, one)) + 1] ?? one;
    await load();
  }
  // My last answer, or the one of this id: others may have been given since.
  async function undo(id = null) {
    try {
      await sent;
      const { decision } = await post("decisions/undo", { by: reviewer(), id });
      given.clear();
      toast(`Taken back: ${decision.class ?? "every class"}, ${decision.concept}: ${decision.answer}`);
      await load();
    } catch (error) {
      app.fail(error);
    }
  }
  function toClass(step) {
    const names = shown.classes.map((one) => one.name),
      next = names[names.indexOf(chosen) + step];
    if (next === undefined) return;
    current = null;
    focus = null;
    app.go("review", { class: next });
  }
  const moved = () =>
    history.replaceState(
      history.state,
      "",
      write("review", by === "concept" ? { by, concept: focus } : { class: chosen }),
    );
  function toClaim(step) {
    const list = listed(),
      next = list[list.findIndex((one) => same(one, current)) + step];
    if (next) {
      current = next;
      draw(true);
      body.querySelector(".claim.now")?.scrollIntoView({ block: "nearest" });
    }
  }

  async function refit(claims) {
    if (app.state.read_only) return;
    try {
      await sent;
      app.state.job = await post(`review/refit?claims=${claims}`);
      drawBar();
    } catch (error) {
      app.fail(error);
      return;
    }
    const job = await followRefit(() => alive);
    if (!job) return;
    await app.changed();
    if (job.state !== "done") {
      toast(job.message, { bad: true });
      drawBar();
      return;
    }
    current = null;
    fresh = true;
    if (by === "class") {
      chosen = null; // the first class with something new to judge
      focus = null;
    }
    await load();
    if (by === "class") moved();
    toast(`${many(round.gone.length, "claim")} went, ${many(round.new.length, "is", "are")} new to judge.`);
    scrollTo(0, 0);
  }
  async function sign() {
    const name = await app.whoAmI();
    await sent;
    if (
      name &&
      (await app.change("sign", { by: name }, `Signed by ${name}. The next edit or refit ends the signature.`))
    )
      app.go("signature");
  }
  function help() {
    const box = h(
      "dialog",
      { "aria-label": "Keys" },
      h(
        "form",
        { method: "dialog" },
        h("h2", "Keys"),
        h(
          "table",
          h(
            "tbody",
            HELP.map(([key, words]) => h("tr", h("td", h("kbd", key)), h("td.text", words))),
          ),
        ),
        h("div.actions", h("button.primary", { type: "submit" }, "Close")),
      ),
    );
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  }

  // Held W: the photos of the claim with what each patch adds, darkened where nothing does.
  let lit = [];
  async function where() {
    if (lit.length || !current || !app.state.where) return;
    lit = [null];
    body.querySelector("#where")?.setAttribute("aria-pressed", "true");
    const { overlayOn } = await import("../where.js");
    if (!lit.length) return; // let go meanwhile
    lit = [...body.querySelectorAll(".claim.now .tile")].map((card) =>
      overlayOn(card.querySelector(".pic"), card.dataset.row, current.concept),
    );
  }
  const dark = () => {
    lit.forEach((one) => one?.remove());
    lit = [];
    body.querySelector("#where")?.setAttribute("aria-pressed", "false");
  };

  function keys(event) {
    if (event.target.closest("input, select, textarea, dialog") || event.altKey || !shown) return;
    const pressed = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (pressed === "z" && !event.shiftKey && may()) {
        event.preventDefault();
        event.stopImmediatePropagation();
        undo();
      }
      return;
    }
    const answers = { y: "yes", n: "no", u: "unclear" };
    if (answers[pressed] && current && may()) decide(current, answers[pressed]);
    else if (/^[1-4]$/.test(pressed) && current && may()) decide(current, "no", REASONS[pressed - 1][0]);
    else if (pressed === "x" && current && may()) strike(current);
    else if (pressed === "j" || pressed === "k") toClaim(pressed === "j" ? 1 : -1);
    else if (pressed === "[" || pressed === "]") toClass(pressed === "]" ? 1 : -1);
    else if (pressed === "w" && !event.repeat) where();
    else if (pressed === "r") refit("open");
    else if (pressed === "enter" && current && !event.target.closest("a, button, summary"))
      app.go("concept", { name: current.concept });
    else if (pressed === "?") help();
    else return;
    event.preventDefault();
  }
  const up = (event) => {
    if (event.key.toLowerCase() === "w") dark();
  };
  window.addEventListener("keydown", keys, { capture: true }); // before the session's own undo
  window.addEventListener("keyup", up);
  load();
  return {
    update(next) {
      by = first(next, "by", "class");
      chosen = first(next, "class", chosen);
      focus = first(next, "concept");
      current = null;
      if (shown) draw();
      return true;
    },
    refresh: () => load(),
    leave() {
      alive = false;
      asking.stop();
      looking.stop();
      lining.stop();
      dark();
      window.removeEventListener("keydown", keys, { capture: true });
      window.removeEventListener("keyup", up);
    },
  };
}
