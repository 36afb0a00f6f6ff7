// The laboratory: a script is played by this machine, and drawn. What is clicked is one more line of the script.
"use strict";

const GLYPHS = ["●", "▲", "▲", "▲", "★"];
const WIDTH = 640, HEIGHT = 500;
// Lines that say how a world is made, and not what is done to it.
const HEADER = /^(cluster|timing|network|syncs|load|priorities|regions)\b/;
// How much is played ahead of what is shown, in real milliseconds, and at least in virtual microseconds.
const AHEAD_MILLIS = 3_000, AHEAD_MICROS = 3_000_000;
const LONGEST_MICROS = 3_500_000_000;
const byId = (id) => document.getElementById(id);

let catalogue = null;
// What is played: its first lines, then what is done and when. `source` is a script that was loaded and not changed yet.
let laboratory = { panes: [{ protocol: "raft", form: "repaired" }], header: [], actions: [], source: null, story: null };
let panes = [];
let now = 0, shownAt = 0, isPlaying = false, isWaiting = false, horizon = 0, order = 0, stopAt = null;
let chosen = null;
let spacetime = null;
let isDirty = true, textDirtyAt = 0;

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- the script -----------------------------------------------------------------------------------------------------

function shownTime(micros) {
  if (micros % 1e6 === 0) return `${micros / 1e6}s`;
  return micros % 1e3 === 0 ? `${micros / 1e3}ms` : `${micros}us`;
}

function freshHeader() {
  const clients = Number(byId("clients").value);
  return [`cluster ${byId("nodes").value} seed ${Number(byId("seed").value) || 1}`, "timing 200ms 2s 4s", "network 40ms 120ms", "syncs 5ms 15ms",
    clients ? `load clients ${clients} keys 4 pause 1s rivals 0` : "load clients 0 watchers 0"];
}

// The whole script; `until` lets it end there.
function scriptText(until = null) {
  if (laboratory.source !== null) return laboratory.source;
  const lines = [...laboratory.header];
  let at = 0;
  for (const action of laboratory.actions) {
    if (action.at > at) lines.push(`wait ${shownTime(action.at - at)}`);
    at = Math.max(at, action.at);
    lines.push(action.text);
  }
  if (until !== null && until > at) lines.push(`wait ${shownTime(until - at)}`);
  return `${lines.join("\n")}\n`;
}

// Reads a script: its first lines, and what its comments tell before each command.
function readScript(text) {
  const header = [], steps = [];
  let told = [], number = 0;
  for (const line of text.split("\n")) {
    const [content, comment] = [line.split("#")[0].trim(), line.trim().startsWith("#") ? line.trim().slice(1).trim() : null];
    if (comment !== null) { told.push(comment); continue; }
    if (!content) continue;
    if (HEADER.test(content)) { header.push(content); if (number === 0) { told = []; } continue; }
    if (told.length) { steps.push({ command: number, text: told.join(" ") }); told = []; }
    number += 1;
  }
  if (told.length) steps.push({ command: number, text: told.join(" ") });
  return { header, steps };
}

function nodesOf(header) {
  return Number(/^cluster (\d+)/.exec(header.find((line) => line.startsWith("cluster")) ?? "cluster 3")?.[1] ?? 3);
}

// ---- playing --------------------------------------------------------------------------------------------------------

async function ask(pane, from, until) {
  const body = JSON.stringify({ protocol: pane.protocol, form: pane.form, script: scriptText(), until, from });
  const answer = await fetch("/v1/lab/play", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error ?? `answer ${answer.status}`);
  return told;
}

// Plays on to `until`, and takes in what happened from `from` on.
async function playTo(until, from) {
  const mine = (order += 1);
  isWaiting = true;
  try {
    const wanted = panes.filter((pane) => from === 0 || !pane.run.violation || pane.run.violation.at >= from);
    const told = await Promise.all(wanted.map((pane) => ask(pane, from, Math.min(until, LONGEST_MICROS))));
    if (mine !== order) return "overtaken";
    wanted.forEach((pane, place) => {
      if (from === 0) pane.run = new Run();
      pane.run.take(told[place]);
      pane.shown.clear();
    });
    horizon = Math.max(...panes.map((pane) => pane.run.end));
    if (laboratory.source !== null) takeSteps();
    isWaiting = false;
    isDirty = true;
    return "played";
  } catch (error) {
    if (mine === order) {
      isWaiting = false;
      isPlaying = false;
      setText(byId("told"), error.message);
      isDirty = true;
    }
    return mine === order ? "refused" : "overtaken";
  }
}

// When each command of a loaded script is done is known once it was played.
function takeSteps() {
  const { steps } = panes[0].run;
  laboratory.actions = steps.filter(([, text]) => !/^(wait|settle)\b/.test(text)).map(([at, text]) => ({ at, text }));
}

function ahead() {
  return Math.max(AHEAD_MICROS, speed() * AHEAD_MILLIS * 1e3);
}

function speed() {
  return Number(byId("speed").value);
}

async function begin(wanted, { time = 0, plays = false } = {}) {
  laboratory = wanted;
  panes = laboratory.panes.map((pane) => ({ ...pane, run: new Run(), shown: new Map() }));
  [now, shownAt, horizon, isPlaying, stopAt, chosen] = [0, 0, 0, false, null, null];
  setText(byId("told"), "");
  showChoice();
  buildPanes();
  showGuide();
  if ((await playTo(Math.max(ahead(), time + ahead()), 0)) !== "played") return;
  now = shownAt = Math.min(time, horizon);
  if (plays) setPlaying(true);
  isDirty = true;
  remember();
}

// One more line: what came after this moment did not happen.
async function act(text) {
  if (panes.some((pane) => pane.run.violation && pane.run.violation.at <= now) && panes.length === 1) {
    setText(byId("told"), "A property has fallen, and the run ends there: go back in time first.");
    return;
  }
  const at = Math.round(now);
  const before = laboratory;
  // What a loaded script waits for is waited for as long in the other run from now on, so that one has another past.
  const from = before.source !== null && panes.length > 1 ? 0 : at;
  const actions = before.actions.filter((action) => action.at <= at).concat({ at, text });
  laboratory = { ...before, actions, source: null, story: null };
  stopAt = null;
  showGuide();
  const ended = await playTo(at + ahead(), from);
  if (ended === "played") setText(byId("told"), `${seconds(at)}: ${text}`);
  if (ended === "refused") laboratory = before;
  showGuide();
  remember();
}

function setPlaying(plays) {
  isPlaying = plays;
  setText(byId("play"), plays ? "Pause" : "Play");
  byId("play").setAttribute("aria-pressed", String(plays));
  if (!plays) { stopAt = null; remember(); }
  isDirty = true;
}

// Shows another moment, with nothing flying between the two.
function goTo(time) {
  now = shownAt = Math.max(0, Math.min(Math.round(time), horizon));
  isDirty = true;
}

async function step(direction) {
  setPlaying(false);
  const found = () => {
    const moments = panes.map((pane) => (direction > 0 ? pane.run.momentAfter(now) : pane.run.momentBefore(now))).filter((at) => at !== null);
    return moments.length ? (direction > 0 ? Math.min(...moments) : Math.max(...moments)) : null;
  };
  let at = found();
  for (let tries = 0; at === null && direction > 0 && tries < 8 && !isOver(); tries += 1) {
    if ((await playTo(horizon + ahead(), horizon)) !== "played") return;
    at = found();
  }
  goTo(at ?? (direction > 0 ? horizon : 0));
  remember();
}

// Whether there is nothing to play on.
function isOver() {
  return panes.every((pane) => pane.run.violation || pane.run.stopped) || horizon >= LONGEST_MICROS;
}

// ---- frames ---------------------------------------------------------------------------------------------------------

let lastFrame = null;
function frame(millis) {
  const passed = lastFrame === null ? 0 : Math.min(millis - lastFrame, 100);
  lastFrame = millis;
  if (isPlaying) advance(passed);
  if (isPlaying || isDirty) draw(millis);
  requestAnimationFrame(frame);
}

function advance(passedMillis) {
  const before = now;
  let next = Math.min(now + passedMillis * 1e3 * speed(), horizon);
  const falls = panes.map((pane) => pane.run.violation?.at).filter((at) => at !== undefined && at > before && at <= next);
  const ends = falls.length ? Math.min(...falls) : null;
  if (ends !== null) next = ends;
  const isThere = stopAt !== null && next >= stopAt;
  if (isThere) next = Math.max(before, stopAt);
  shownAt = before;
  // Whole microseconds: what is done at this moment is seen at this moment.
  now = Math.round(next);
  if (isThere || ends !== null || (now >= horizon && isOver())) setPlaying(false);
  else if (!isWaiting && !isOver() && horizon - now < ahead() / 2) playTo(horizon + ahead(), horizon);
}

function draw(millis) {
  isDirty = false;
  for (const pane of panes) drawPane(pane);
  drawTransport();
  // Text is for reading: five times a second is enough while time goes by.
  if (!isPlaying || millis - textDirtyAt > 200) {
    textDirtyAt = millis;
    drawText();
  }
  shownAt = now;
  if (!document.documentElement.dataset.firstPicture && panes.some((pane) => pane.run.members.size)) {
    document.documentElement.dataset.firstPicture = String(Math.round(performance.now()));
  }
}

function placeOf(id, count) {
  const angle = ((id - 1) / count) * 2 * Math.PI - Math.PI / 2;
  return { x: WIDTH / 2 + 225 * Math.cos(angle), y: 225 + 160 * Math.sin(angle) };
}

function buildPanes() {
  byId("panes").replaceChildren(...panes.map((pane, place) => {
    const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `Members under ${pane.protocol}, ${pane.form}` });
    const canvas = element("canvas", { "aria-hidden": "true" });
    const stage = element("div", { class: "stage" });
    stage.append(svg, canvas);
    pane.links = drawn("g");
    pane.members = drawn("g");
    svg.append(pane.links, pane.members);
    Object.assign(pane, { svg, canvas, place, verdict: element("p", { class: "verdict", role: "alert" }), properties: element("ul", { class: "properties", "aria-label": "Properties" }) });
    svg.addEventListener("click", (event) => chooseMessageAt(pane, event));
    const article = element("article", { class: "pane", "data-pane": place });
    article.append(element("h2", {}, titleOf(pane)), stage, pane.verdict, pane.properties);
    return article;
  }));
}

function titleOf(pane) {
  const form = { repaired: "as it is here", "as-published": "as published" }[pane.form] ?? `with the planted defect ${pane.form}`;
  return `${pane.protocol}, ${form}`;
}

function drawPane(pane) {
  const { run } = pane;
  const ids = run.ids();
  const time = Math.min(now, run.end);
  const count = Math.max(ids.length, 1);
  for (const id of ids) {
    const row = run.stateOf(id, time);
    const isChosen = chosen?.kind === "member" && chosen.id === id;
    const key = `${isChosen} ${count}`;
    const known = pane.shown.get(id);
    if (known && known.row === row && known.key === key) continue;
    pane.shown.set(id, { row, key });
    drawMember(pane, id, row, isChosen, placeOf(id, count));
  }
  for (const group of [...pane.members.children]) if (!ids.includes(Number(group.dataset.id))) group.remove();
  drawLinks(pane, ids, count, time);
  drawMessages(pane, count, time);
  drawVerdict(pane);
}

function drawMember(pane, id, row, isChosen, { x, y }) {
  let group = pane.members.querySelector(`[data-id="${id}"]`);
  if (!group) {
    group = drawn("g", { "data-id": id, tabindex: "0", role: "button" });
    const choose = (event) => { event.stopPropagation(); choice({ kind: "member", pane: pane.place, id }); };
    group.addEventListener("click", choose);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(event); } });
    pane.members.append(group);
  }
  if (!row) { group.replaceChildren(); return; }
  const [, , condition, role, term, , commit, , snapshot, cells] = row;
  const isOff = condition >= DOWN;
  const shown = isOff ? "down" : condition === PAUSED ? "paused" : ROLES[role];
  const words = condition === UP ? ROLES[role] : CONDITIONS[condition];
  group.setAttribute("class", `member ${shown} ${pane.run.termClass(term)}${isChosen ? " chosen" : ""}`);
  group.setAttribute("aria-label", `n${id}: ${words}, term ${pane.run.termText(term)}, committed ${commit}`);
  group.setAttribute("aria-pressed", String(isChosen));
  group.dataset.state = shown;
  const glyph = isOff ? "✕" : condition === PAUSED ? "Ⅱ" : GLYPHS[role];
  const parts = [drawn("circle", { class: "halo", cx: x, cy: y, r: 38 }), drawn("circle", { class: "ring", cx: x, cy: y, r: 29 }),
    drawn("circle", { class: "body", cx: x, cy: y, r: 25 }), drawn("text", { class: "glyph", x, y: y + 1 }, glyph),
    drawn("text", { class: "name", x, y: y + 50 }, `n${id}`), drawn("text", { class: "detail", x, y: y + 63 }, `${words}, term ${pane.run.termText(term)}`)];
  const width = 13;
  const count = cells.length / 3;
  const left = x - (Math.max(count, 1) * width) / 2;
  for (let cell = 0; cell < count; cell += 1) {
    const [index, cellTerm, isDurable] = cells.slice(cell * 3, cell * 3 + 3);
    const classes = `cell ${pane.run.termClass(cellTerm)}${isDurable ? "" : " unsynced"}${index <= commit && !isOff ? " committed" : ""}`;
    const box = drawn("rect", { class: classes, x: left + cell * width, y: y + 69, width: width - 1, height: 13, rx: 2 });
    box.append(drawn("title", {}, `entry ${index}, term ${pane.run.termText(cellTerm)}, ${isDurable ? "on disk" : "not on disk yet"}${index <= commit ? ", committed" : ""}`));
    parts.push(box, drawn("text", { class: "index", x: left + cell * width + 6, y: y + 79 }, String(index)));
  }
  if (snapshot > 0) parts.push(drawn("text", { class: "detail snapshot", x, y: y + 95 }, `snapshot up to ${snapshot}`));
  group.replaceChildren(...parts);
}

function drawLinks(pane, ids, count, time) {
  const conditions = pane.run.linksAt(time);
  const key = `${ids.join()} ${[...conditions].join()} ${chosen?.kind === "link" ? chosen.from + "-" + chosen.to : ""}`;
  if (pane.linkKey === key) return;
  pane.linkKey = key;
  const parts = [];
  for (const from of ids) {
    for (const to of ids.filter((other) => other > from)) {
      const [a, b] = [placeOf(from, count), placeOf(to, count)];
      const worst = Math.max(conditions.get(`${from}-${to}`) ?? 0, conditions.get(`${to}-${from}`) ?? 0);
      const isChosen = chosen?.kind === "link" && chosen.from === from && chosen.to === to;
      const ends = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
      const touch = drawn("line", { class: "touch", "data-link": `${from}-${to}`, ...ends });
      const said = (one, other) => `n${one} → n${other} ${LINKS[conditions.get(`${one}-${other}`) ?? 0]}`;
      touch.append(drawn("title", {}, `${said(from, to)}, ${said(to, from)}`));
      touch.addEventListener("click", (event) => {
        if (chooseMessageAt(pane, event)) return;
        event.stopPropagation();
        choice({ kind: "link", pane: pane.place, from, to });
      });
      parts.push(drawn("line", { class: `link ${LINKS[worst]}${isChosen ? " chosen" : ""}`, ...ends }), touch);
    }
  }
  pane.links.replaceChildren(...parts);
}

// Where a message is at a moment, as a point of the picture.
function whereIs(message, time, count) {
  const span = message.ended - message.sent;
  const share = span > 0 ? Math.min(Math.max((time - message.sent) / span, 0), 1) : 1;
  const [from, to] = [placeOf(message.from, count), placeOf(message.to, count)];
  // A little to the right of the line, so that both directions are seen.
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const aside = { x: (-(to.y - from.y) / length) * 6, y: ((to.x - from.x) / length) * 6 };
  return { x: from.x + (to.x - from.x) * share + aside.x, y: from.y + (to.y - from.y) * share + aside.y };
}

let colours = null;
function colourOf(name) {
  if (!colours) {
    const style = getComputedStyle(document.documentElement);
    const of = (variable) => style.getPropertyValue(variable).trim();
    colours = { election: of("--candidate"), heartbeat: of("--quiet"), snapshot: of("--snapshot"), entries: of("--follower"), lost: of("--unreachable"), text: of("--text"), accent: of("--accent") };
  }
  return colours[name];
}

function drawMessages(pane, count, time) {
  const { canvas } = pane;
  const scale = (canvas.clientWidth / WIDTH) * devicePixelRatio;
  const [width, height] = [Math.round(WIDTH * scale), Math.round(HEIGHT * scale)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, WIDTH, HEIGHT);
  const before = Math.min(shownAt, time);
  // What was lost is seen for a while.
  const lingers = Math.max(150_000 * speed(), 20_000);
  context.font = "11px system-ui, sans-serif";
  let labels = 0;
  const seen = pane.run.between(Math.max(0, before - lingers), time);
  for (const message of seen) {
    if (message.sent > time || (message.ended < before && !message.lost)) continue;
    const colour = colourOf(message.lost ? "lost" : kindClass(message.kind));
    context.strokeStyle = context.fillStyle = colour;
    if (message.lost && message.ended <= time) {
      const at = message.ended === message.sent ? whereIs({ ...message, ended: message.sent + 10 }, message.sent + 3, count) : whereIs(message, message.ended, count);
      context.beginPath();
      context.moveTo(at.x - 5, at.y - 5); context.lineTo(at.x + 5, at.y + 5);
      context.moveTo(at.x - 5, at.y + 5); context.lineTo(at.x + 5, at.y - 5);
      context.lineWidth = 2;
      context.stroke();
      continue;
    }
    const at = whereIs(message, time, count);
    if (time > before) {
      // How far it came since the last frame.
      const was = whereIs(message, before, count);
      context.beginPath();
      context.moveTo(was.x, was.y);
      context.lineTo(at.x, at.y);
      context.lineWidth = 1.5;
      context.stroke();
    }
    if (message.ended <= time) continue;
    context.beginPath();
    context.arc(at.x, at.y, kindClass(message.kind) === "heartbeat" ? 4 : 6, 0, 2 * Math.PI);
    context.fill();
    if (chosen?.kind === "message" && isSame(chosen.message, message)) {
      context.strokeStyle = colourOf("accent");
      context.lineWidth = 3;
      context.stroke();
    }
    if (labels < 24) {
      labels += 1;
      context.fillStyle = colourOf("text");
      context.fillText(message.kind, at.x + 8, at.y + 4);
    }
  }
  canvas.dataset.seen = String(seen.size);
}

function isSame(one, other) {
  return one.from === other.from && one.to === other.to && one.sent === other.sent && one.kind === other.kind;
}

function drawVerdict(pane) {
  const { violation, stopped } = pane.run;
  const fell = violation && now >= violation.at;
  const text = fell ? `✕ ${violation.property} fell at ${seconds(violation.at)}: ${violation.what}` : stopped && now >= pane.run.end ? stopped : "";
  setText(pane.verdict, text);
  pane.verdict.className = `verdict${fell ? " bad" : ""}`;
  const key = fell ? violation.property : "";
  if (pane.propertyKey === key) return;
  pane.propertyKey = key;
  const names = catalogue.properties.map((property) => property.name);
  if (fell && !names.includes(violation.property)) names.push(violation.property);
  pane.properties.replaceChildren(...names.map((name) => {
    const item = element("li", { class: fell && name === violation.property ? "bad" : "good" }, name);
    item.title = catalogue.properties.find((property) => property.name === name)?.says ?? "";
    return item;
  }));
}

function drawTransport() {
  setText(byId("clock"), seconds(now));
  const slider = byId("time");
  if (slider.max !== String(horizon)) slider.max = String(horizon);
  slider.value = String(Math.round(now));
  slider.setAttribute("aria-valuetext", seconds(now));
}

// ---- text -----------------------------------------------------------------------------------------------------------

function drawText() {
  const leaders = panes.map((pane) => {
    const leader = pane.run.leaderAt(Math.min(now, pane.run.end));
    const words = leader ? `n${leader[1]} leads in term ${pane.run.termText(leader[4])}` : "nobody leads";
    return panes.length > 1 ? `${pane.protocol} ${pane.form}: ${words}` : words;
  });
  setText(byId("summary"), leaders.join("; "));
  byId("step").disabled = isOver() && now >= horizon;
  drawActions();
  drawUnderWay();
  drawNarration();
  const script = byId("script");
  const text = scriptText(Math.round(now));
  if (document.activeElement !== script && !isPlaying && script.value !== text) script.value = text;
  const { run, place } = told();
  setText(byId("lines-title"), panes.length > 1 ? `What happened: ${titleOf(panes[place])}` : "What happened");
  const from = Math.max(0, now - windowMicros());
  if (!isPlaying) {
    byId("spacetime").hidden = false;
    spacetime.show(run, from, Math.min(Math.max(now, from + 1e3), run.end), Math.min(now, run.end));
    byId("spacetime-note").hidden = true;
  } else {
    byId("spacetime-note").hidden = false;
  }
  const places = run.lines.length ? lastUpTo(run.lines, now) : -1;
  const key = `${place} ${places} ${from > 0} ${run.lines.length} ${now >= (run.violation?.at ?? Infinity)} ${run.lines[places]?.[3]}`;
  if (byId("lines").dataset.key !== key) {
    byId("lines").dataset.key = key;
    const since = run.lines[Math.max(0, places - (isPlaying ? 12 : 200))]?.[0] ?? 0;
    storyLines(byId("lines"), run, since, now, chooseMoment);
    byId("lines").scrollTop = byId("lines").scrollHeight;
  }
}

// The run whose story is told: the one in which something was chosen.
function told() {
  return panes[chosen?.pane ?? 0] ?? panes[0];
}

// What the space-time picture shows: the last four seconds, or less where messages are quick.
function windowMicros() {
  return Math.min(4_000_000, Math.max(200_000, speed() * 8_000_000));
}

// A line of the story was chosen: time goes there, and the picture marks it.
function chooseMoment(place) {
  setPlaying(false);
  const { run } = told();
  goTo(place === null ? run.violation.at : run.lines[place][0]);
  draw(performance.now());
  if (place !== null) { spacetime.choose(place); chooseLine(byId("lines"), place); }
}

function drawUnderWay() {
  const list = byId("messages");
  const flying = isPlaying ? [] : panes.flatMap((pane) => pane.run.underWay(now).slice(0, 12).map((message) => ({ pane, message })));
  const key = JSON.stringify([isPlaying, flying.map(({ pane, message }) => [pane.place, message.from, message.to, message.sent, message.ended])]);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const items = flying.map(({ pane, message }) => {
    const where = panes.length > 1 ? `${pane.protocol} ${pane.form}: ` : "";
    const text = `${where}${message.kind} n${message.from} → n${message.to}, in ${((message.ended - now) / 1e3).toFixed(1)} ms `;
    const button = element("button", { type: "button", "aria-label": `Delay ${text}` }, "Delay by 1 s");
    button.addEventListener("click", () => delay(pane, message, "1s"));
    return element("li", {}, text, button);
  });
  if (!items.length) items.push(element("li", {}, isPlaying ? "Pause to choose a message." : "Nothing."));
  list.replaceChildren(...items);
}

// ---- what one can do ------------------------------------------------------------------------------------------------

// With two runs side by side a leader is called so in both.
function called(pane, id) {
  const leader = panes[pane].run.leaderAt(Math.min(now, panes[pane].run.end));
  return panes.length > 1 && leader && leader[1] === id ? "leader" : `n${id}`;
}

function choice(wanted) {
  chosen = wanted;
  isDirty = true;
  byId("actions").dataset.key = "";
}

function chooseMessageAt(pane, event) {
  const box = pane.svg.getBoundingClientRect();
  const at = { x: ((event.clientX - box.left) / box.width) * WIDTH, y: ((event.clientY - box.top) / box.height) * HEIGHT };
  const count = Math.max(pane.run.ids().length, 1);
  const near = pane.run.underWay(now).map((message) => {
    const place = whereIs(message, now, count);
    return { message, distance: Math.hypot(place.x - at.x, place.y - at.y) };
  }).filter(({ distance }) => distance < 14).sort((a, b) => a.distance - b.distance)[0];
  if (!near) return false;
  event.stopPropagation();
  setPlaying(false);
  choice({ kind: "message", pane: pane.place, message: near.message });
  return true;
}

function delay(pane, message, time) {
  const place = pane.run.placeOf(message, now);
  if (place === 0) { setText(byId("told"), "That message has arrived."); return; }
  act(`delay n${message.from} n${message.to} ${time}${place > 1 ? ` ${place}` : ""}`);
}

function drawActions() {
  const box = byId("actions");
  let words = "Choose a member, a link or a message in the picture.";
  let wanted = [];
  if (chosen?.kind === "member") {
    const { run } = panes[chosen.pane];
    const row = run.stateOf(chosen.id, Math.min(now, run.end));
    const who = called(chosen.pane, chosen.id);
    const condition = row ? row[2] : DOWN;
    words = `n${chosen.id}, ${condition === UP ? ROLES[row[3]] : CONDITIONS[condition]}`;
    if (condition >= DOWN) wanted = [["Start again", `restart n${chosen.id}`]];
    else {
      wanted = [["Kill", `crash ${who}`], ["Cut the power", `power-off ${who}`],
        condition === PAUSED ? ["Resume", `resume n${chosen.id}`] : ["Pause", `pause ${who}`],
        condition === STALLED ? ["Let the disk answer", `disk n${chosen.id} recover`] : ["Stall the disk", `disk ${who} stall`],
        ["Cut off", `isolate ${who}`]];
      if (condition !== PAUSED) wanted.push(["Write here", `put x v${laboratory.actions.length + 1} at n${chosen.id}`], ["Read here", `get x at n${chosen.id}`], ["Campaign", `campaign n${chosen.id}`]);
    }
    for (const peer of run.ids().filter((id) => id !== chosen.id)) wanted.push([`Link to n${peer}…`, null, () => choice({ kind: "link", pane: chosen.pane, from: chosen.id, to: peer })]);
  } else if (chosen?.kind === "link") {
    const { from, to } = chosen;
    const at = panes[chosen.pane].run.linksAt(Math.min(now, panes[chosen.pane].run.end));
    const state = (one, other) => at.get(`${one}-${other}`) ?? 0;
    words = `The link between n${from} and n${to}`;
    wanted = [["Cut it", `cut n${from} n${to}`], [`Cut n${from} → n${to}`, `mute n${from} n${to}`], [`Cut n${to} → n${from}`, `mute n${to} n${from}`],
      [`Slow n${from} → n${to}`, `slow n${from} n${to} 1s 1s`], [`Slow n${to} → n${from}`, `slow n${to} n${from} 1s 1s`], ["Break the connection", `reset n${from} n${to}`]];
    if (state(from, to) || state(to, from)) wanted.unshift(["Mend it", `mend n${from} n${to}`]);
  } else if (chosen?.kind === "message") {
    const { message } = chosen;
    const run = panes[chosen.pane].run;
    words = `${message.kind} from n${message.from} to n${message.to}`;
    if (run.placeOf(message, now) > 0) wanted = ["200ms", "1s", "5s"].map((time) => [`Delay by ${time}`, null, () => delay(panes[chosen.pane], message, time)]);
    else words += ", which is not under way now";
  }
  setText(byId("chosen"), words);
  const key = JSON.stringify(wanted);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const focused = box.contains(document.activeElement) ? document.activeElement.textContent : null;
  box.replaceChildren(...wanted.map(([label, text, does]) => {
    const button = element("button", { type: "button" }, label);
    button.addEventListener("click", does ?? (() => act(text)));
    return button;
  }));
  // Whoever works by keyboard stays where they were.
  if (focused) ([...box.children].find((button) => button.textContent === focused) ?? box.firstElementChild)?.focus();
}

// ---- stories --------------------------------------------------------------------------------------------------------

function showGuide() {
  const { story } = laboratory;
  byId("guide").hidden = !story;
  if (!story) return;
  setText(byId("guide-title"), story.title);
  setText(byId("repair"), story.repair ? `Beside it: ${story.repair} In the published form ${story.property} falls.` : "");
}

// When each part of a story begins; what ends it is its last moment.
function chapters() {
  const { story } = laboratory;
  if (!story) return [];
  const { steps } = panes[0].run;
  return story.steps.map((part) => ({ text: part.text, at: steps[part.command]?.[0] ?? panes[0].run.end }));
}

function drawNarration() {
  if (!laboratory.story) return;
  const all = chapters();
  const place = Math.max(0, all.findLastIndex((chapter) => chapter.at <= now));
  setText(byId("narration"), all[place]?.text ?? "");
  setText(byId("place"), all.length ? `${place + 1} of ${all.length}` : "");
  byId("previous").disabled = now === 0;
  byId("next").disabled = now >= horizon;
}

// Plays to the next part in about five seconds.
function nextChapter() {
  const all = chapters();
  const until = all.find((chapter) => chapter.at > now)?.at ?? horizon;
  const wanted = (until - now) / 5e6;
  const speeds = [...byId("speed").options].map((option) => Number(option.value));
  byId("speed").value = String(speeds.findLast((one) => one <= wanted) ?? speeds[0]);
  stopAt = until;
  setPlaying(true);
}

function previousChapter() {
  setPlaying(false);
  const before = chapters().filter((chapter) => chapter.at < now);
  goTo(before.length ? before[before.length - 1].at : 0);
  remember();
}

function beginStory(name) {
  const story = catalogue.stories.find((one) => one.name === name);
  if (!story) return false;
  const { header, steps } = readScript(story.script);
  begin({ panes: story.panes, header, actions: [], source: story.script, story: { ...story, steps } });
  return true;
}

// ---- choosing, sharing ----------------------------------------------------------------------------------------------

function fill(select, names, value) {
  select.replaceChildren(...names.map(([known, text]) => element("option", { value: known }, text)));
  select.value = value;
}

function formsOf(protocol) {
  const known = catalogue.protocols.find((one) => one.name === protocol);
  return [["repaired", "it is here"], ["as-published", "published"], ...(known?.defects ?? []).map((name) => [name, name])];
}

function showChoice() {
  const names = catalogue.protocols.map(({ name }) => [name, name]);
  const [one, other] = laboratory.panes;
  fill(byId("protocol-0"), names, one.protocol);
  fill(byId("form-0"), formsOf(one.protocol), one.form);
  fill(byId("protocol-1"), [["", "nothing"], ...names], other?.protocol ?? "");
  fill(byId("form-1"), formsOf(other?.protocol ?? one.protocol), other?.form ?? "repaired");
  byId("form-1-label").hidden = !other;
  const header = laboratory.source === null ? laboratory.header : readScript(laboratory.source).header;
  byId("nodes").value = String(nodesOf(header));
  byId("seed").value = /seed (\d+)/.exec(header.join(" "))?.[1] ?? "1";
  const flags = one.form === "repaired" ? "" : one.form === "as-published" ? " --as-published" : ` --plant ${one.form}`;
  setText(byId("play-command"), `hustings play story.txt --protocol ${one.protocol}${flags}`);
}

function chosenPanes() {
  const pane = (place) => ({ protocol: byId(`protocol-${place}`).value, form: byId(`form-${place}`).value });
  return byId("protocol-1").value ? [pane(0), pane(1)] : [pane(0)];
}

// The same script under other protocols.
function changePanes(place) {
  // A defect of one protocol is none of another.
  const wanted = chosenPanes();
  if (place !== null && wanted[place] && !formsOf(wanted[place].protocol).some(([form]) => form === wanted[place].form)) wanted[place].form = "repaired";
  begin({ ...laboratory, panes: wanted, story: null }, { time: now });
}

function beginAnew() {
  begin({ panes: chosenPanes(), header: freshHeader(), actions: [], source: null, story: null }, { plays: true });
}

function beginScript(text, wanted = laboratory.panes, time = 0) {
  const { header, steps } = readScript(text);
  const story = steps.length > 1 ? { title: "A story", repair: "", property: "", steps } : null;
  return begin({ panes: wanted, header, actions: [], source: text, story }, { time });
}

function fragment() {
  const parts = new URLSearchParams();
  if (laboratory.story?.name) parts.set("story", laboratory.story.name);
  else {
    parts.set("panes", laboratory.panes.map((pane) => `${pane.protocol}:${pane.form}`).join(","));
    parts.set("script", scriptText());
  }
  parts.set("at", String(Math.round(now)));
  return `#${parts}`;
}

function remember() {
  history.replaceState(null, "", fragment());
}

// What the address says, or a new laboratory.
async function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const at = Number(parts.get("at")) || 0;
  if (parts.has("story") && beginStory(parts.get("story"))) return;
  if (parts.has("script")) {
    const known = (pane) => catalogue.protocols.some(({ name }) => name === pane.protocol);
    const wanted = (parts.get("panes") ?? "").split(",").map((pane) => ({ protocol: pane.split(":")[0], form: pane.split(":")[1] || "repaired" })).filter(known).slice(0, 2);
    await beginScript(parts.get("script"), wanted.length ? wanted : laboratory.panes, at);
    return;
  }
  beginAnew();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    setText(byId("copied"), `${what} is copied.`);
  } catch (_) {
    byId("script").focus();
    byId("script").select();
    setText(byId("copied"), `The browser does not let this page copy: ${what === "The link" ? "it stands in the address" : "press Ctrl-C"}.`);
  }
}

function theme() {
  const known = localStorage.getItem("hustings-theme");
  const isDark = known ? known === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(isDark));
  colours = null;
  isDirty = true;
}

function listen() {
  byId("theme").addEventListener("click", () => {
    localStorage.setItem("hustings-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    theme();
  });
  byId("begin").addEventListener("click", beginAnew);
  byId("play").addEventListener("click", () => setPlaying(!isPlaying));
  byId("step").addEventListener("click", () => step(1));
  byId("back").addEventListener("click", () => step(-1));
  byId("time").addEventListener("input", () => { setPlaying(false); goTo(Number(byId("time").value)); });
  byId("time").addEventListener("change", remember);
  byId("speed").addEventListener("change", () => { isDirty = true; });
  byId("heal").addEventListener("click", () => act("heal"));
  byId("command-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("command").value.trim();
    if (text) act(text);
    byId("command").value = "";
  });
  for (const place of [0, 1]) {
    byId(`protocol-${place}`).addEventListener("change", () => changePanes(place));
    byId(`form-${place}`).addEventListener("change", () => changePanes(null));
  }
  for (const id of ["nodes", "clients", "seed"]) byId(id).addEventListener("change", beginAnew);
  byId("storm").addEventListener("change", () => {
    const storm = catalogue.storms.find((one) => one.name === byId("storm").value);
    if (storm) beginScript(storm.script, chosenPanes());
    byId("storm").value = "";
  });
  byId("story").addEventListener("change", () => {
    beginStory(byId("story").value);
    byId("story").value = "";
  });
  byId("next").addEventListener("click", nextChapter);
  byId("previous").addEventListener("click", previousChapter);
  byId("copy").addEventListener("click", () => copy(scriptText(Math.round(now)), "The script"));
  byId("link").addEventListener("click", () => { remember(); copy(location.href, "The link"); });
  byId("play-script").addEventListener("click", () => beginScript(byId("script").value, chosenPanes()));
  addEventListener("resize", () => { isDirty = true; });
  addEventListener("hashchange", recall);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
}

async function open() {
  theme();
  spacetime = new SpaceTime(byId("spacetime"), chooseMoment);
  try {
    const answer = await fetch("/v1/lab/catalogue", { cache: "no-store" });
    catalogue = await answer.json();
  } catch (error) {
    setText(byId("summary"), `This laboratory does not answer: ${error.message}`);
    return;
  }
  showChoice();
  fill(byId("nodes"), [1, 2, 3, 4, 5, 6, 7, 8, 9].map((count) => [String(count), String(count)]), "5");
  if (catalogue.storms.length === 0) byId("storm").append(element("option", { value: "", disabled: "" }, "none here: start it with --storms DIR"));
  for (const storm of catalogue.storms) byId("storm").append(element("option", { value: storm.name }, storm.name));
  for (const story of catalogue.stories) byId("story").append(element("option", { value: story.name }, story.title));
  listen();
  await recall();
  requestAnimationFrame(frame);
}

open();
