// Comfort only: every page works without this file.
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "Enter") return;
  const ask = event.target.closest("form")?.querySelector("button[value=ask]");
  if (ask) { event.preventDefault(); ask.click(); }
});
// A slider beside the error: to the right for smaller errors, which cost more.
const error = document.querySelector("input[name=error]");
if (error) {
  const slider = document.createElement("input");
  slider.type = "range"; slider.min = "0"; slider.max = "60"; slider.value = "20";
  slider.setAttribute("aria-label", "error, from 10,000 to 1/100");
  error.after(slider);
  slider.addEventListener("input", () => {
    error.value = Number((10 ** (4 - slider.value / 10)).toPrecision(2));
    error.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  });
});
