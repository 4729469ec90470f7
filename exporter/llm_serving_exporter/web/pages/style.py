"""The landing page's style sheet: light and dark, wide and narrow, nothing loaded from anywhere."""

from markupsafe import Markup

STYLE = Markup("""
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #fff; --line: #e1e4e9; --text: #1c2330; --soft: #5d6778; --link: #1756c4; --bar: #e6e9ee;
  --good: #12703a; --good-back: #dcf3e4; --bad: #b3231a; --bad-back: #fde4e1; --warn: #8a5300; --warn-back: #fdeecb;
  --wait: #1a5fa8; --wait-back: #dcebfb; --calm: #5b4a9a; --calm-back: #e9e4fa; --fill: #3b7ddd;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1b2029; --line: #2e3542; --text: #e5e9f0; --soft: #98a3b5; --link: #7fb0ff; --bar: #2b3240;
    --good: #7ddba1; --good-back: #173625; --bad: #ff9a90; --bad-back: #44201d; --warn: #f3c26b; --warn-back: #3c2f14;
    --wait: #8fc1f7; --wait-back: #1a3048; --calm: #bcaef5; --calm-back: #2c2649; --fill: #5b97ee;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text); font: 15px/1.45 system-ui, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main, body > header, body > footer { max-width: 1240px; margin: 0 auto; padding: 0 20px; }
body > header { padding-top: 22px; }
h1 { font-size: 21px; margin: 0; letter-spacing: -.01em; }
h1 small, .soft { color: var(--soft); font-weight: 400; }
h1 small { font-size: 14px; margin-left: 6px; letter-spacing: 0; }
a { color: var(--link); text-decoration: none; }
a:hover, a:focus-visible { text-decoration: underline; }
.top { display: flex; flex-wrap: wrap; gap: 6px 24px; align-items: baseline; justify-content: space-between; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; }
.summary { display: flex; flex-wrap: wrap; gap: 8px; margin: 14px 0 0; padding: 0; list-style: none; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 16px 0; }
.card > :last-child { margin-bottom: 0; }
.title { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; }
h2 { font-size: 17px; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 13px; font-weight: 600; margin: 16px 0 4px; color: var(--soft); }
.facts { margin: 4px 0 0; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.facts > * { margin-right: 14px; display: inline-block; max-width: 100%; }
.facts b { color: var(--text); font-weight: 500; }
.badge { border-radius: 99px; padding: 2px 10px; font-size: 12.5px; font-weight: 600; white-space: nowrap; }
.good { color: var(--good); background: var(--good-back); } .bad { color: var(--bad); background: var(--bad-back); }
.warn { color: var(--warn); background: var(--warn-back); } .wait { color: var(--wait); background: var(--wait-back); }
.calm { color: var(--calm); background: var(--calm-back); } .plain { background: var(--bar); color: var(--text); }
.note { border-radius: 8px; padding: 9px 12px; margin: 12px 0; overflow-wrap: anywhere; }
.note p { margin: 0; } .note p + p { margin-top: 2px; color: var(--text); font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(5, 1fr); gap: 14px 22px; margin: 16px 0; }
.tiles dt { color: var(--soft); font-size: 12.5px; }
.tiles dd { margin: 0; font-size: 19px; font-weight: 600; letter-spacing: -.01em; line-height: 1.3; }
.tiles dd small { display: block; font-size: 12.5px; font-weight: 400; color: var(--soft); letter-spacing: 0; }
.bar { display: block; height: 5px; border-radius: 3px; background: var(--bar); overflow: hidden; margin: 3px 0; min-width: 60px; }
.bar i { display: block; height: 100%; background: var(--fill); border-radius: 3px; }
.bar.high i { background: var(--bad); }
td .bar { display: inline-block; width: 44px; min-width: 44px; margin: 0 6px 2px 0; }
.level { display: inline-block; min-width: 48px; }
th[scope=colgroup] { text-align: center; } tr:has(th[scope=colgroup]) th { border-bottom: 0; padding-bottom: 0; }
th[scope=row] { position: sticky; left: 0; background: var(--card); }
/* the names of pods are long, and break before a figure leaves the page */
#gpus th[scope=row], #targets th[scope=row] { white-space: normal; overflow-wrap: anywhere; min-width: 230px; }
.scroll { overflow-x: auto; margin: 8px 0 0; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th { color: var(--soft); font-weight: 500; font-size: 12.5px; }
th, td { text-align: right; padding: 5px 10px; white-space: nowrap; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child > * { border-bottom: 0; }
tfoot td, tfoot th { border-top: 1px solid var(--line); border-bottom: 0; font-weight: 600; color: var(--text); }
tbody th, tfoot th { color: var(--text); font-size: 14px; } .text { text-align: left; } td.wrap { white-space: normal; min-width: 200px; }
ul.why { margin: 4px 0 0; padding: 0; list-style: none; font-size: 13.5px; }
ul.why li { padding: 3px 0; overflow-wrap: anywhere; } ul.why b { font-weight: 500; }
code { font: 12.5px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
body > footer { color: var(--soft); font-size: 13px; padding-bottom: 26px; }
@media (max-width: 900px) { .tiles { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); } }
@media (max-width: 560px) {
  main, body > header, body > footer { padding: 0 12px; }
  body > header { padding-top: 14px; } body > footer { padding-bottom: 18px; }
  .card { padding: 13px 13px; margin: 12px 0; }
  th, td { padding: 5px 7px; } th[scope=row] { white-space: normal; min-width: 94px; }
 #gpus th[scope=row], #targets th[scope=row] { min-width: 158px; }
  .tiles { grid-template-columns: repeat(auto-fill, minmax(118px, 1fr)); gap: 12px; } .tiles dd { font-size: 17px; }
}
""")
