// A space-time diagram: members from top to bottom, time from left to right, a message is a slanted line. Needs model.js.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const LANE = 56, TOP = 30, NAMES = 74, MESSAGES_MAX = 5_000, WIDTH_MAX = 200_000;

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Draws a span of a run into `host`. `onLine` hears which line of the story a mark stands for.
class SpaceTime {
  constructor(host, onLine = () => {}) {
    this.onLine = onLine;
    this.zoom = 1;
    this.names = drawn("svg", { class: "names", width: NAMES, "aria-hidden": "true" });
    this.picture = drawn("svg", { role: "group", "aria-label": "Space-time diagram: members from top to bottom, time from left to right" });
    this.frame = element("div", { class: "frame", tabindex: "0", "aria-label": "Space-time diagram; plus and minus zoom, arrows scroll" });
    this.frame.append(this.names, this.picture);
    this.scale = element("output");
    const button = (label, text, act) => {
      const made = element("button", { type: "button", "aria-label": label }, text);
      made.addEventListener("click", act);
      return made;
    };
    const tools = element("div", { class: "tools" },
      button("Zoom in", "+", () => this.zoomBy(2)), button("Zoom out", "−", () => this.zoomBy(0.5)),
      button("Show all of it", "All", () => this.zoomTo(1)), this.scale);
    host.classList.add("spacetime");
    host.replaceChildren(tools, this.frame);
    this.frame.addEventListener("keydown", (event) => {
      if (event.key === "+") this.zoomBy(2);
      if (event.key === "-") this.zoomBy(0.5);
    });
    this.frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - this.frame.getBoundingClientRect().left);
    }, { passive: false });
  }

  zoomTo(zoom) {
    this.zoom = Math.min(Math.max(zoom, 1), 4_096);
    this.draw();
  }

  // Keeps the moment under this place of the frame where it is.
  zoomBy(factor, place = this.frame.clientWidth / 2) {
    const moment = this.timeAt(this.frame.scrollLeft + place - NAMES);
    this.zoomTo(this.zoom * factor);
    this.frame.scrollLeft = this.x(moment) - place + NAMES;
  }

  show(run, from, to, now = null) {
    Object.assign(this, { run, from, to: Math.max(to, from + 1), now });
    this.draw();
  }

  x(time) { return ((time - this.from) / (this.to - this.from)) * this.width; }
  timeAt(x) { return this.from + (x / this.width) * (this.to - this.from); }
  y(id) { return TOP + LANE * (this.lanes.indexOf(id) + 0.6); }

  draw() {
    if (!this.run) return;
    const { run } = this;
    const room = Math.max(this.frame.clientWidth - NAMES - 4, 300);
    this.width = Math.min(room * this.zoom, WIDTH_MAX);
    this.lanes = run.ids();
    const height = TOP + LANE * this.lanes.length + 64;
    for (const svg of [this.names, this.picture]) svg.setAttribute("height", height);
    this.picture.setAttribute("width", this.width);
    this.scale.textContent = `${timeText(this.run, this.from)} to ${timeText(this.run, this.to)}${this.zoom > 1 ? `, ${this.zoom.toFixed(0)} times as large` : ""}`;
    this.names.replaceChildren(...this.lanes.map((id) => drawn("text", { class: "name", x: 10, y: this.y(id) + 4 }, `n${id}`)));
    const parts = [...this.ticks(height), ...this.messages(), ...this.lanes.flatMap((id) => this.lane(id)), ...this.faults(height), ...this.marks()];
    if (this.run.violation && this.run.violation.at >= this.from && this.run.violation.at <= this.to) parts.push(...this.violation(height));
    if (this.now !== null && this.now >= this.from && this.now <= this.to) {
      parts.push(drawn("line", { class: "now", x1: this.x(this.now), x2: this.x(this.now), y1: TOP - 12, y2: height - 50 }));
    }
    this.picture.replaceChildren(...parts);
  }

  ticks(height) {
    const wanted = (this.to - this.from) / (this.width / 110);
    const steps = [1, 2, 5].flatMap((head) => [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].map((tail) => head * tail)).sort((a, b) => a - b);
    const step = steps.find((one) => one >= wanted) ?? 1e9;
    const parts = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.x(at);
      const text = this.run.isTrace ? timeText(this.run, at) : step < 1_000 ? `${(at / 1e3).toFixed(3)} ms` : `${Number((at / 1e6).toFixed(6))} s`;
      parts.push(drawn("line", { class: "tick", x1: x, x2: x, y1: TOP - 6, y2: height - 50 }), drawn("text", { class: "tick", x: x + 3, y: TOP - 10 }, text));
    }
    return parts;
  }

  messages() {
    let shown = [...this.run.between(this.from, this.to)];
    // Heartbeats go first where there are too many.
    if (shown.length > MESSAGES_MAX) shown = shown.filter((message) => kindClass(message.kind) !== "heartbeat" || message.lost);
    return shown.slice(-MESSAGES_MAX).filter((message) => this.lanes.includes(message.from) && this.lanes.includes(message.to)).map((message) => {
      const [from, to] = [this.y(message.from), this.y(message.to)];
      const share = message.lost ? 0.45 : 1;
      const ended = message.lost && message.ended === message.sent ? message.sent + 8 * (this.to - this.from) / this.width : message.ended;
      const line = drawn("line", {
        class: `message ${kindClass(message.kind)}${message.lost ? " lost" : ""}`,
        x1: this.x(message.sent), y1: from, x2: this.x(message.sent + (ended - message.sent) * share), y2: from + (to - from) * share,
      });
      line.append(drawn("title", {}, `${message.kind} n${message.from} → n${message.to}, ${timeText(this.run, message.sent)}${message.lost ? ", lost" : ` to ${timeText(this.run, message.ended)}`}`));
      return line;
    });
  }

  // A member's line: what it was, in which term, and its log where it changed.
  lane(id) {
    const rows = this.run.members.get(id) ?? [];
    const y = this.y(id);
    const parts = [];
    let lastCell = -Infinity, lastKey = "";
    rows.forEach((row, place) => {
      const [since, until] = [Math.max(row[0], this.from), Math.min(rows[place + 1]?.[0] ?? this.run.end, this.to)];
      if (until < this.from || since > this.to) { lastKey = this.lastKey(row); return; }
      const [x, width] = [this.x(since), Math.max(this.x(until) - this.x(since), 0.5)];
      const off = row[2] === DOWN || row[2] === 4 || row[2] === PAUSED;
      const span = drawn("rect", { class: `span ${off ? "off" : ROLES[row[3]]}`, x, y: y - 5, width, height: 10 });
      span.append(drawn("title", {}, this.said(id, row)));
      parts.push(span, drawn("rect", { class: `term ${this.run.termClass(row[4])}`, x, y: y + 6, width, height: 3 }));
      const key = this.lastKey(row);
      if (key !== lastKey && key && x - lastCell >= 15) {
        parts.push(...this.cells(row, x, y - 22));
        lastCell = x;
      }
      lastKey = key;
    });
    return parts;
  }

  lastKey(row) { return row[9].slice(-3, -1).join(":"); }

  // The last entry of the log as it is then.
  cells(row, x, y) {
    const [index, term] = row[9].slice(-3);
    const cell = drawn("rect", { class: `cell ${this.run.termClass(term)}`, x, y, width: 14, height: 12, rx: 2 });
    cell.append(drawn("title", {}, `n${row[1]} holds entry ${index} of term ${this.run.termText(term)}`));
    return [cell, drawn("text", { class: "index", x: x + 7, y: y + 9.5 }, String(index))];
  }

  said(id, row) {
    const condition = row[2] === UP ? ROLES[row[3]] : CONDITIONS[row[2]];
    return `n${id} ${condition}, term ${this.run.termText(row[4])}, committed ${row[6]}, from ${timeText(this.run, row[0])}`;
  }

  faults(height) {
    let place = 0;
    return this.run.lines.flatMap((line) => {
      if (line[1] !== "fault" || line[0] < this.from || line[0] > this.to) return [];
      const x = this.x(line[0]);
      place += 1;
      return [drawn("line", { class: "fault", x1: x, x2: x, y1: TOP - 6, y2: height - 46 }),
        drawn("text", { class: "fault", x: x + 3, y: height - 36 + (place % 3) * 13 }, line[3].replace(/^> /, ""))];
    });
  }

  // A dot for each line of the story.
  marks() {
    return this.run.lines.flatMap((line, place) => {
      if (line[0] < this.from || line[0] > this.to) return [];
      const y = this.lanes.includes(line[2]) ? this.y(line[2]) : TOP - 4;
      const mark = drawn("circle", { class: "mark", cx: this.x(line[0]), cy: y, r: 4, "data-line": place });
      mark.append(drawn("title", {}, `${timeText(this.run, line[0])}  ${line[3]}`));
      mark.addEventListener("click", () => this.onLine(place));
      return [mark];
    });
  }

  violation(height) {
    const { at, property } = this.run.violation;
    const x = this.x(at);
    const left = x > this.width - 220;
    return [drawn("rect", { class: "violation", x: Math.max(x - 14, 0), y: TOP - 12, width: 28, height: height - TOP - 40 }),
      drawn("line", { class: "violation", x1: x, x2: x, y1: TOP - 12, y2: height - 46 }),
      drawn("text", { class: "violation", x: left ? x - 8 : x + 8, y: TOP + 8, "text-anchor": left ? "end" : "start" }, `✕ ${property} falls`)];
  }

  // Marks a line of the story, and brings it into view.
  choose(place) {
    for (const mark of this.picture.querySelectorAll("circle.mark.chosen")) mark.classList.remove("chosen");
    const mark = this.picture.querySelector(`circle.mark[data-line="${place}"]`);
    if (!mark) return;
    mark.classList.add("chosen");
    this.bring(this.run.lines[place][0]);
  }

  bring(time) {
    this.frame.scrollLeft = this.x(time) - (this.frame.clientWidth - NAMES) / 2;
  }
}

// The story beside a picture: each line is a button that shows where it stands.
function storyLines(list, run, from, to, onLine) {
  const items = [];
  run.lines.forEach((line, place) => {
    if (line[0] < from || line[0] > to) return;
    const button = element("button", { type: "button" }, `${timeText(run, line[0]).padStart(10)}  ${line[3]}`);
    button.addEventListener("click", () => onLine(place));
    items.push(element("li", { class: line[1], "data-line": place }, button));
  });
  if (run.violation && run.violation.at <= to) {
    const text = `${timeText(run, run.violation.at).padStart(10)}  ✕ ${run.violation.property}: ${run.violation.what}`;
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => onLine(null));
    items.push(element("li", { class: "violation" }, button));
  }
  list.replaceChildren(...items);
}

function chooseLine(list, place) {
  for (const item of list.querySelectorAll(".chosen")) item.classList.remove("chosen");
  const item = list.querySelector(`li[data-line="${place}"]`);
  if (!item) return;
  item.classList.add("chosen");
  item.scrollIntoView({ block: "nearest" });
}
