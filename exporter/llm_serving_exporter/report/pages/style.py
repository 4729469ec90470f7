"""The page's style sheet and its one script: light and dark, wide and narrow, two sheets of paper, nothing loaded from anywhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f8; --card: #fff; --line: #e3e6ea; --text: #1b2230; --soft: #5b6576; --accent: #24508f; --good: #1c7043; --bad: #b3291f;
  --warn: #7a5200; --warn-back: #fff6dd; --warn-line: #eed9a0;
  --prefill: #2f5d9e; --decode: #7fa8dc; --idle: #c6ccd5; --down: #c4533f; --unattributed: #d9a441;
  --h0: #eff1f4; --h1: #d9e4f2; --h2: #b3cbe8; --h3: #7fa8dc; --h4: #4a7cc0; --h5: #24508f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151a; --card: #1a1f27; --line: #2d3440; --text: #e4e8ef; --soft: #9aa5b6; --accent: #8fb8ef; --good: #7fd6a0;
    --bad: #ff9d92;
    --warn: #f2cd83; --warn-back: #2e2715; --warn-line: #57481f;
    --prefill: #4d82cc; --decode: #9dc0ec; --idle: #4a5361; --down: #d8705e; --unattributed: #d9a441;
    --h0: #232933; --h1: #24344a; --h2: #2b4a72; --h3: #3a689f; --h4: #5d92d4; --h5: #a5c9f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text); font: 14px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
header, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 26px; } footer { padding-bottom: 30px; color: var(--soft); font-size: 12.5px; }
h1 { font-size: 23px; font-weight: 650; margin: 0; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 14.5px; font-weight: 650; margin: 0 0 8px; }
h3 { font-size: 12.5px; font-weight: 600; color: var(--soft); margin: 0 0 4px; }
.sub, .lead { color: var(--soft); margin: 2px 0 0; font-size: 13px; } .lead { margin: -4px 0 8px; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.notes { background: var(--warn-back); border: 1px solid var(--warn-line); color: var(--warn); border-radius: 6px; padding: 9px 14px;
    margin: 14px 0 0; }
.notes p { margin: 0; overflow-wrap: anywhere; } .notes p + p { margin-top: 4px; }
.tiles { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 1px; margin: 16px 0 0; background: var(--line);
  border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles > div { background: var(--card); padding: 11px 14px; }
.tiles dt { font-size: 12px; color: var(--soft); }
.tiles dd { margin: 1px 0 0; font-size: 21px; font-weight: 620; letter-spacing: -.02em; line-height: 1.25; white-space: nowrap; }
.tiles small { display: block; font-size: 12px; font-weight: 400; letter-spacing: 0; color: var(--soft); white-space: normal; }
.grid { display: grid; grid-template-columns: repeat(12, minmax(0, 1fr)); gap: 14px; margin: 14px 0; }
.card { grid-column: span 12; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px;
    min-width: 0; }
.half { grid-column: span 6; } .third { grid-column: span 4; }
.say { margin: 0; padding: 0 0 0 18px; } .say li { padding: 2px 0; overflow-wrap: anywhere; } .say li::marker { color: var(--soft); }
.say b { font-weight: 600; } .say .soft { display: block; font-size: 13px; }
dl { margin: 0; } .card dl > div { display: flex; justify-content: space-between; gap: 12px; padding: 3px 0;
    border-bottom: 1px solid var(--line); }
.card dl > div:last-child { border: 0; } .card dt { color: var(--soft); } .card dd { margin: 0; text-align: right; }
.chart { display: block; width: 100%; height: auto; max-width: 560px; font-size: 11px; fill: var(--text); }
.chart .soft { fill: var(--soft); } .chart .axis { stroke: var(--line); } .chart .mark { stroke: var(--text); stroke-width: 1.5;
    stroke-dasharray: 3 2; }
.chart.bar { max-width: none; margin-bottom: 8px; border-radius: 3px; } .chart.heat { font-size: 10px; }
.prefill { fill: var(--prefill); } .decode { fill: var(--decode); } .idle { fill: var(--idle); } .down { fill: var(--down); }
.unattributed { fill: var(--unattributed); } .up { fill: var(--down); } .fall { fill: var(--prefill); }
.h0 { fill: var(--h0); } .h1 { fill: var(--h1); } .h2 { fill: var(--h2); } .h3 { fill: var(--h3); } .h4 { fill: var(--h4); }
    .h5 { fill: var(--h5); }
.none { fill: none; stroke: var(--line); }
.key { display: inline-block; width: 9px; height: 9px; margin-right: 7px; vertical-align: -.5px; }
.scroll { overflow-x: auto; margin: 0; } .scroll + .scroll { margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
th, td { text-align: right; padding: 4px 9px; border-bottom: 1px solid var(--line); white-space: nowrap; font-weight: 400;
    vertical-align: baseline; }
.t { text-align: left; } th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-size: 12px; vertical-align: bottom; } thead small { display: block; font-size: 11px; opacity: .85; }
tbody th { max-width: 260px; overflow: hidden; text-overflow: ellipsis; background: var(--card); }
tbody tr:last-child > * { border-bottom: 0; } tfoot > tr > * { border-top: 1px solid var(--soft); border-bottom: 0; font-weight: 600; }
th.can { cursor: pointer; } th.can:hover, th.can:focus-visible { color: var(--text); }
th[aria-sort=ascending]::after { content: " ▲"; font-size: 9px; } th[aria-sort=descending]::after { content: " ▼"; font-size: 9px; }
.maps { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px 26px; }
@media (max-width: 900px) {
  .tiles { grid-template-columns: repeat(3, minmax(0, 1fr)); } .half, .third { grid-column: span 12; }
  .maps { grid-template-columns: minmax(0, 1fr); gap: 14px; }
}
@media (max-width: 560px) {
  header, main, footer { padding: 0 12px; } header { padding-top: 16px; } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tiles > div { padding: 9px 11px; } .tiles dd { font-size: 18px; } .card { padding: 12px; } th, td { padding: 4px 7px; }
  tbody th { position: sticky; left: 0; min-width: 84px; max-width: 132px; white-space: normal; overflow-wrap: anywhere; }
}
.paper { display: none; }
@media print {
  @page { size: A4; margin: 9mm 10mm; }
  :root { color-scheme: light; --page: #fff; --card: #fff; --line: #d9dde3; --text: #111722; --soft: #4b5565; --good: #14582f;
    --bad: #93211a;
    --warn: #5f4000; --warn-back: #fff6dd; --warn-line: #e0c98c;
    --prefill: #2f5d9e; --decode: #7fa8dc; --idle: #c6ccd5; --down: #c4533f; --unattributed: #d9a441;
    --h0: #eff1f4; --h1: #d9e4f2; --h2: #b3cbe8; --h3: #7fa8dc; --h4: #4a7cc0; --h5: #24508f; }
  body { font-size: 7.6pt; line-height: 1.3; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  header, main, footer { max-width: none; padding: 0; } header { padding-top: 0; } footer { padding: 0; font-size: 6.6pt; }
  h1 { font-size: 14pt; } h2 { font-size: 8.4pt; margin-bottom: 3px; } .sub, .lead { font-size: 7.2pt; } .lead { margin: -2px 0 3px; }
  .notes { margin-top: 5px; padding: 4px 8px; } .tiles { margin-top: 6px; grid-template-columns: repeat(6, minmax(0, 1fr)); }
  .tiles > div { padding: 4px 7px; } .tiles dt, .tiles small { font-size: 6.6pt; } .tiles dd { font-size: 11pt; }
  .grid { gap: 5px; margin: 5px 0; } .card { padding: 5px 8px; break-inside: avoid; border-radius: 3px; }
  .half { grid-column: span 6; } .third { grid-column: span 4; } .maps { grid-template-columns: repeat(3, minmax(0, 1fr));
    gap: 4px 12px; }
  .say li { padding: 0; } .say .soft { font-size: 7pt; } .chart.bar { margin-bottom: 3px; } .chart.wide { max-width: 300px; }
  table { font-size: 7pt; } thead th { font-size: 6.6pt; } thead small { font-size: 6pt; } th, td { padding: 1.2px 4px; }
    .scroll { overflow: visible; }
  tbody th { max-width: 150px; position: static; } .more { display: none; } .paper { display: block; margin: 1px 0 4px; }
  .scroll + .scroll { margin-top: 5px; }
  h3 { font-size: 7.2pt; } .card dl > div { padding: .6px 0; }
}
"""

SCRIPT = """
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
"""
