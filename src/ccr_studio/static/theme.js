// Before the first paint: the theme that was chosen last, if any.
const chosen = (() => {
  try {
    return localStorage.getItem("ccr-theme");
  } catch {
    return null;
  }
})();
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
