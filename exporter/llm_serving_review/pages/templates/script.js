for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, at) => {
    const text = row.cells[at].dataset.v;
    if (text === undefined || text === "") return null;
    const number = Number(text);
    return Number.isNaN(number) || heads[at].classList.contains("t") ? text.toLowerCase() : number;
  };
  heads.forEach((head, at) => {
    if (body.rows.length < 2) return;
    head.classList.add("can");
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : !head.classList.contains("t");
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a, at), y = key(b, at);
        if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  });
}
