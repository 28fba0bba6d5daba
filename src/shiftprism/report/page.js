// Column names become buttons that sort, and what is wider than the screen says so.
// Without this script the tables read as they are, and a shadow shows where there is more.
"use strict";
const watch = new ResizeObserver((seen) => {
  for (const { target } of seen) target.classList.toggle("cut", target.scrollWidth > target.clientWidth + 1);
});
for (const wide of document.querySelectorAll(".wide, figure")) watch.observe(wide);
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const number = (row, column) => Number.parseFloat(row.cells[column].dataset.value ?? "nan");
  const text = (row, column) => row.cells[column].textContent;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rows = [...table.tBodies[0].rows];
      const numeric = rows.some((row) => !Number.isNaN(number(row, column)));
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((a, b) => {
        if (!numeric) return sign * text(a, column).localeCompare(text(b, column), undefined, { numeric: true });
        const [x, y] = [number(a, column), number(b, column)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // unmeasured goes last
        return sign * (x - y);
      });
      table.tBodies[0].append(...rows);
      table.classList.add("sorted");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
    });
  });
}
