// A report: one run that stands in the page, drawn; text and picture are linked both ways.
"use strict";

const told = JSON.parse(document.getElementById("run").textContent);
const from = told.from;
const run = new Run();
run.take({ ...told, from: 0 });
const lines = document.getElementById("lines");
const choose = (place) => {
  if (place === null) { spacetime.bring(run.violation.at); return; }
  spacetime.choose(place);
  chooseLine(lines, place);
};
const spacetime = new SpaceTime(document.getElementById("spacetime"), choose);
const verdict = document.getElementById("verdict");
verdict.textContent = run.violation ? `✕ ${timeText(run, run.violation.at)}: ${run.violation.property}: ${run.violation.what}` : "All properties held.";
verdict.className = run.violation ? "bad" : "good";
if (from > 0) document.getElementById("note").textContent = `The picture begins at ${timeText(run, from)}; the script has all of it.`;
storyLines(lines, run, 0, Infinity, choose);
const show = () => spacetime.show(run, from, run.end + (run.end - from) / 50);
show();
// What went wrong is looked at first.
if (run.violation) { spacetime.zoomTo(Math.max(1, Math.min(64, (run.end - from) / 3e6))); spacetime.bring(run.violation.at); }
addEventListener("resize", show);
