// What the tests of accessibility ask a page; evaluated as one expression.
({
  // Where an element is: by its place in the page, or, of a tile of the wall, which is made anew, by that of its photo.
  place(one) {
    const tile = one.closest("[data-at]"),
      path = [];
    for (let at = one; at !== (tile ?? document.body); at = at.parentElement)
      path.push([...at.parentElement.children].indexOf(at));
    return `${tile ? `photo ${tile.dataset.at}` : "page"} ${path.join(" ")}`;
  },
  // The controls that the Tab key should reach.
  stops() {
    const all = document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']");
    return [...all]
      .filter((one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({ visibilityProperty: true }))
      .map((one) => this.place(one));
  },
  // Where the focus is, and whether that can be seen.
  focus() {
    const one = document.activeElement;
    if (!one || one === document.body) return null;
    const style = getComputedStyle(one);
    return {
      place: this.place(one),
      seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      what: one.outerHTML.slice(0, 150),
    };
  },
  // Controls that are hard to hit: less than 24 pixels high or wide (WCAG 2.2, 2.5.8), but for links amid text.
  small() {
    const all = document.querySelectorAll("button, input, select, summary, a.button");
    return [...new Set([...all].map((one) => (one.tagName === "INPUT" && one.closest("label")) || one))]
      .filter((one) => !one.matches(".sr") && one.checkVisibility())
      .map((one) => [one.getBoundingClientRect(), one.outerHTML.slice(0, 150)])
      .filter(([box]) => box.width < 24 || box.height < 24);
  },
  // Texts whose colour stands out too little from what is painted behind them: 4.5 to 1, large letters 3 to 1; and edges
  // of fields and check boxes, 3 to 1 (WCAG 2.1, 1.4.3 and 1.4.11).
  faint() {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
      return [red, green, blue, alpha / 255];
    };
    const over = (front, back) => front.slice(0, 3).map((value, at) => value * front[3] + back[at] * (1 - front[3]));
    const linear = (value) => (value <= 0.04045 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    const ratio = (one, other) =>
      (Math.max(light(one), light(other)) + 0.05) / (Math.min(light(one), light(other)) + 0.05);
    const behind = (one) => {
      const layers = [];
      for (let at = one; at; at = at.parentElement) {
        layers.push(rgba(getComputedStyle(at).backgroundColor));
        if (layers.at(-1)[3] === 1) break;
      }
      return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
    };
    const opacity = (one) => {
      let whole = 1;
      for (let at = one; at; at = at.parentElement) whole *= Number(getComputedStyle(at).opacity);
      return whole;
    };
    const found = [],
      skipped = "[disabled], .sr, .skip, noscript, option, .pic, svg";
    for (const one of document.querySelectorAll("body *")) {
      if (!one.checkVisibility({ visibilityProperty: true }) || one.closest(skipped)) continue;
      const style = getComputedStyle(one),
        size = parseFloat(style.fontSize);
      if ([...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) {
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700),
          back = behind(one),
          colour = rgba(style.color);
        colour[3] *= opacity(one);
        const got = ratio(over(colour, back), back);
        if (got < (large ? 3 : 4.5)) found.push(`${got.toFixed(2)} ${one.outerHTML.slice(0, 110)}`);
      }
      if (one.matches("input:not([type=range], [type=file], .pick, :checked), select")) {
        const back = behind(one.parentElement),
          got = ratio(over(rgba(style.borderTopColor), back), back);
        if (got < 3) found.push(`edge ${got.toFixed(2)} ${one.outerHTML.slice(0, 110)}`);
      }
    }
    return found.slice(0, 8);
  },
});
