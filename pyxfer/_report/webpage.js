"use strict";
// Sorts a table by a column: numbers by their exact value, the rest as text, empty cells last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const value = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
    const order = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const numbers = !isNaN(x) && !isNaN(y);
      return (falling ? -1 : 1) * (numbers ? x - y : x.localeCompare(y));
    };
    body.append(...[...body.rows].sort(order));
  });
}
// Marks what has more at its right, which then fades out there.
for (const box of document.querySelectorAll(".scroll")) {
  const mark = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(box);
}
// Shows the words of a mark beside the pointer.
const tip = document.getElementById("tip");
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest("figure [aria-roledescription][aria-label]");
  tip.hidden = !mark || !mark.getAttribute("aria-label");
  if (!tip.hidden) {
    tip.textContent = mark.getAttribute("aria-label");
    tip.style.left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8) + "px";
  }
});
