// Comfort only: every page works without this file. Its words are in the page.
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "Enter") return;
  const ask = event.target.closest("form")?.querySelector("button[value=ask]");
  if (ask) { event.preventDefault(); ask.click(); }
});
// A slider beside the error: to the right for smaller errors, which cost more.
const error = document.querySelector("input[data-slider]");
if (error) {
  const slider = document.createElement("input");
  slider.type = "range"; slider.min = "0"; slider.max = "60"; slider.value = "20";
  slider.setAttribute("aria-label", error.dataset.slider);
  slider.title = error.dataset.slider;
  error.after(slider);
  const follow = () => {
    const stated = Number(error.value.split("=").pop());
    if (stated > 0) slider.value = Math.round(10 * (4 - Math.log10(stated)));
  };
  follow();
  error.addEventListener("input", (event) => { if (event.isTrusted) follow(); });
  slider.addEventListener("input", () => {
    const names = error.value.includes("=") ? error.value.slice(0, error.value.lastIndexOf("=") + 1) : "";
    error.value = names + Number((10 ** (4 - slider.value / 10)).toPrecision(2));
    error.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = button.dataset.done;
  });
});
