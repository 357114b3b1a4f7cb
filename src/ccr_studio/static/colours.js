// Colours of classes and values. Okabe and Ito's first, which the colour-blind tell apart; then evenly spaced hues.
const SAFE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a7a00", "#7b4ea3"];
const SAFE_DARK = ["#4aa3df", "#f28e3c", "#35c29a", "#e3a0c4", "#f0b93a", "#8fd3ff", "#d6cf5a", "#b38bdc"];

export function hue(at, count, dark) {
  const safe = dark ? SAFE_DARK : SAFE;
  if (count <= safe.length) return safe[at % safe.length];
  const turn = (at * 137.508 + 205) % 360,
    light = dark ? [68, 58, 76] : [42, 52, 34];
  return `hsl(${turn.toFixed(1)} ${dark ? 62 : 66}% ${light[at % 3]}%)`;
}

// From a quiet grey to the report's blue: more of it is more ink.
export function ramp(share, dark) {
  const from = dark ? [58, 64, 71] : [214, 219, 224],
    to = dark ? [124, 206, 255] : [0, 78, 128];
  return `rgb(${from.map((start, at) => Math.round(start + (to[at] - start) * share)).join(" ")})`;
}
