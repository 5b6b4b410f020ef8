//! How the page looks.

/// The style sheet. Pictures take their colours from the same variables.
pub const CSS: &str = "\
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2021; --pale: #6b7075; --line: #d5d8da; --bar: #9aa3ab;
  --ours: #1f7a4d; --owed: #c9ced2; --read: #2468c2; --write: #d9730d; --mark: #eaf4ee; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191b; --ink: #e6e8e9; --pale: #9aa1a6; --line: #363c40;
  --bar: #6c757c; --ours: #4cc38a; --owed: #3f464b; --read: #6ea8fe; --write: #ffa94d; --mark: #1c2b23; } }
@media print { :root { --paper: #ffffff; --ink: #000000; --pale: #444444; --line: #bbbbbb; --bar: #8c949b;
  --ours: #1f7a4d; --owed: #d0d4d7; --read: #2468c2; --write: #d9730d; --mark: #eeeeee; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } main { max-width: none; } body { font-size: 9pt; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 0; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; margin: 0 0 .5rem; } h2 { margin: 2.2rem 0 .6rem; } h3 { margin: 1.4rem 0 .3rem; }
code { background: var(--mark); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9em; margin: .4rem 0; }
th, td { padding: .18rem .6rem .18rem 0; text-align: left; vertical-align: top; } th { vertical-align: bottom; }
th { border-bottom: 2px solid var(--line); color: var(--pale); font-weight: 600; }
td.figure { text-align: right; } tr.group td { border-top: 1px solid var(--line); }
tr.ours td { background: var(--mark); font-weight: 600; }
.verdict { font-size: 1.25rem; line-height: 1.35; max-width: 56rem; margin: .6rem 0 1rem; }
.pale { color: var(--pale); } .words { color: var(--pale); max-width: 60rem; } .words b { color: var(--ink); } .loss { border-left: 4px solid var(--write); padding-left: .6rem; }
figure { margin: 1rem 0; } figcaption { margin-bottom: .3rem; }
.panels { display: flex; flex-wrap: wrap; gap: .8rem 1.2rem; } svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; } svg text.pale { fill: var(--pale); }
svg .axis { stroke: var(--line); fill: none; } svg .bar { fill: var(--bar); } svg .ours { fill: var(--ours); }
svg .owed { fill: var(--owed); } svg .r { fill: var(--read); } svg .w { fill: var(--write); }
svg .curve { stroke: var(--ink); stroke-width: 1; fill: none; }
@media (max-width: 700px) { main { padding: .8rem; } h1 { font-size: 1.5rem; } .verdict { font-size: 1.1rem; }
  table, tbody, tr, td { display: block; } thead { display: none; } tr { padding: .4rem 0; border-top: 1px solid var(--line); }
  tr.ours { background: var(--mark); } tr.group td { border: 0; } td { padding: .05rem .3rem; overflow-wrap: anywhere; } td:empty { display: none; }
  td.figure { text-align: left; } td::before { content: attr(data-of) \": \"; color: var(--pale); font-weight: 400; } }
";
