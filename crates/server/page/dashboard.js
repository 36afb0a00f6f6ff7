// The dashboard: draws what /v1/cluster/events tells. It keeps the last samples, for rates, and the newest of the members' stories.
"use strict";

const GLYPHS = { leader: "★", follower: "●", learner: "○", witness: "◇", candidate: "▲", "pre-candidate": "▲", synchronizing: "▲", unreachable: "✕" };
const SVG = "http://www.w3.org/2000/svg";
const WINDOW_MILLIS = 10_000;
const LINKS_WINDOW_MILLIS = 60_000;
const EVENTS_KEPT_MAX = 2_000;

const byId = (id) => document.getElementById(id);
const samples = new Map();
let token = sessionStorage.getItem("hustings-token");
let cluster = null;
let elections = { elections: [], why: null };
let retryMillis = 500;

// ---- small things -------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function bytes(count) {
  if (count === null || count === undefined) return "?";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (count >= 1024 && place < units.length - 1) { count /= 1024; place += 1; }
  return `${count >= 100 || place === 0 ? Math.round(count) : count.toFixed(1)} ${units[place]}`;
}

function duration(millis) {
  if (millis < 1) return `${(millis * 1000).toFixed(0)} µs`;
  if (millis < 10) return `${millis.toFixed(1)} ms`;
  if (millis < 1000) return `${Math.round(millis)} ms`;
  if (millis < 120_000) return `${(millis / 1000).toFixed(1)} s`;
  if (millis < 7_200_000) return `${Math.round(millis / 60_000)} min`;
  return `${Math.round(millis / 3_600_000)} h`;
}

function clock(unixMillis) {
  const at = new Date(unixMillis);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// The bound below which this share of a histogram lies, in microseconds; null: nothing was counted.
function quantile(bounds, counts, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let left = total * share;
  for (let place = 0; place < counts.length; place += 1) {
    left -= counts[place];
    if (left <= 0) return place < bounds.length ? bounds[place] : Infinity;
  }
  return Infinity;
}

function micros(value, bounds) {
  if (value === null) return "–";
  if (value === Infinity) return `> ${duration(bounds[bounds.length - 1] / 1000)}`;
  return `≤ ${duration(value / 1000)}`;
}

const minus = (later, earlier) => later.map((count, place) => count - (earlier[place] ?? 0));

// ---- the stream -----------------------------------------------------------------------------------------------------

function connection(state, text) {
  byId("connection").className = state;
  setText(byId("connection-text"), text);
}

function headers() {
  return token ? { Authorization: token } : {};
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/v1/cluster/events", { headers: headers(), cache: "no-store" });
      if (!answer.ok) {
        const said = await answer.text();
        await refused(said, answer.status);
        continue;
      }
      retryMillis = 500;
      connection("live", "live");
      await read(answer.body.getReader());
      connection("lost", "this member ended the stream");
    } catch (_) {
      connection("lost", `this member does not answer since ${clock(Date.now())}`);
    }
    await new Promise((resolve) => setTimeout(resolve, retryMillis));
    retryMillis = Math.min(retryMillis * 2, 5_000);
  }
}

// What server-sent events end a line with, and nothing else does: U+2028 may stand in the data. A carriage return that is the last of
// what has come may be half of an end.
const LINE_END = /\r\n|\n|\r(?!$)/;

// Hears events until the stream ends. However that comes, the stream is given back: a member has few of them.
async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  let event = { kind: null, data: [] };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split(LINE_END);
      rest = lines.pop();
      for (const line of lines) event = heedLine(event, line);
    }
  } finally {
    reader.cancel().catch(() => { /* it has failed already */ });
  }
}

// Adds a line to an event, or has the event heard that it ends; gives the event that the next line belongs to.
function heedLine(event, line) {
  if (line === "") {
    if (event.kind && event.data.length > 0) hear(event.kind, JSON.parse(event.data.join("\n")));
    return { kind: null, data: [] };
  }
  const colon = line.indexOf(":");
  const [field, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
  if (field === "event") event.kind = value;
  if (field === "data") event.data.push(value);
  return event;
}

function hear(kind, told) {
  if (kind === "cluster") {
    cluster = told;
    remember(told);
    requestAnimationFrame(draw);
  } else if (kind === "elections") {
    elections = told;
    requestAnimationFrame(drawElections);
  } else if (kind === "refused") {
    connection("lost", told.error);
  }
}

async function refused(said, status) {
  let why = said;
  try { why = JSON.parse(said).error ?? said; } catch (_) { /* plain text is told as it stands */ }
  connection("lost", `refused: ${why.trim()}`);
  if (status !== 400 && status !== 401 && status !== 403) {
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    return;
  }
  if (/token/.test(why)) { token = null; sessionStorage.removeItem("hustings-token"); }
  await signIn(token ? why.trim() : "");
}

function signIn(why) {
  const dialog = byId("sign-in");
  setText(byId("sign-in-error"), why);
  if (!dialog.open) dialog.showModal();
  byId("user").focus();
  return new Promise((resolve) => {
    const form = byId("sign-in-form");
    form.onsubmit = async (event) => {
      event.preventDefault();
      const body = JSON.stringify({ name: byId("user").value, password: byId("password").value });
      try {
        const answer = await fetch("/v3/auth/authenticate", { method: "POST", headers: { "Content-Type": "application/json" }, body });
        const said = await answer.json();
        if (!answer.ok) { setText(byId("sign-in-error"), said.error ?? said.message ?? `answer ${answer.status}`); return; }
        token = said.token;
      } catch (error) {
        setText(byId("sign-in-error"), `this member does not answer: ${error.message}`);
        return;
      }
      sessionStorage.setItem("hustings-token", token);
      byId("password").value = "";
      byId("sign-out").hidden = false;
      dialog.close();
      resolve();
    };
  });
}

// ---- samples --------------------------------------------------------------------------------------------------------

function remember(told) {
  for (const member of told.members) {
    if (!member.report) continue;
    const kept = samples.get(member.name) ?? [];
    // A process that began again counts from nothing.
    const last = kept[kept.length - 1];
    if (last && last.report.pid !== member.report.pid) kept.length = 0;
    // The teller's clock may be set back: what was kept by it means nothing then.
    const now = told.now_unix_millis;
    if (last && last.at > now) kept.length = 0;
    // What rates are made of, not the story beside it.
    const { pid, requests, syncs, round_trips } = member.report;
    kept.push({ at: now, report: { pid, requests, syncs, round_trips } });
    while (kept.length > 2 && kept[0].at < now - LINKS_WINDOW_MILLIS) kept.shift();
    samples.set(member.name, kept);
  }
}

// The last sample, and the first within so many milliseconds before it.
function span(name, millis) {
  const kept = samples.get(name);
  if (!kept || kept.length === 0) return null;
  const last = kept[kept.length - 1];
  return { first: kept.find((sample) => sample.at >= last.at - millis), last };
}

function load(name) {
  const seen = span(name, WINDOW_MILLIS);
  if (!seen) return { rate: "–", p99: "–", sync: "–" };
  const { first, last } = seen;
  const seconds = (last.at - first.at) / 1000;
  const requests = last.report.requests;
  const rate = seconds > 0 ? (requests.answered - first.report.requests.answered) / seconds : null;
  const p99 = quantile(requests.bounds_micros, minus(requests.counts, first.report.requests.counts), 0.99);
  const syncs = last.report.syncs;
  let sync = "–";
  if (syncs.counts) {
    const recent = minus(syncs.counts, first.report.syncs.counts ?? []);
    const counts = recent.some((count) => count > 0) ? recent : syncs.counts;
    sync = [0.5, 0.99].map((share) => micros(quantile(syncs.bounds_micros, counts, share), syncs.bounds_micros)).join(" / ");
  }
  return { rate: rate === null ? "–" : rate.toFixed(rate < 10 ? 1 : 0), p99: micros(p99, requests.bounds_micros), sync };
}

function roundTrip(from, to) {
  const seen = span(from, LINKS_WINDOW_MILLIS);
  if (!seen) return null;
  const of = (sample) => sample.report.round_trips.peers.find((peer) => peer.member === to)?.counts;
  const last = of(seen.last);
  if (!last) return null;
  const { bounds_micros: bounds } = seen.last.report.round_trips;
  const recent = minus(last, of(seen.first) ?? []);
  return quantile(bounds, recent.some((count) => count > 0) ? recent : last, 0.5);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

// Members of one term have one colour around them; terms next to each other have colours far apart.
const colourOf = (term) => `hsl(${(term * 137) % 360} 70% 48%)`;

function roleOf(member) {
  if (member.report) return member.report.role;
  return member.is_witness && member.is_reached ? "witness" : "unreachable";
}

function draw() {
  if (!cluster) return;
  setText(byId("summary"), headline());
  setText(byId("asked"), cluster.asked);
  document.title = `${leaderName() ?? "no leader"} · Hustings`;
  const unseen = cluster.members.filter((member) => !member.report).map((member) => member.name);
  setText(byId("not-seen"), unseen.length ? `It cannot ask ${unseen.join(", ")} now; what is told of them is what the others see.` : "");
  const quorum = cluster.is_quorum_there === null ? "" : cluster.is_quorum_there ? ", quorum held" : ", no quorum: writes wait";
  setText(byId("quorum"), `${cluster.summary ?? ""}${quorum}`);
  drawRing();
  drawMembers();
  drawStore();
  drawWarnings();
  drawLeaderships();
}

function leaderName() {
  const leaders = cluster.members.filter((member) => roleOf(member) === "leader");
  leaders.sort((a, b) => b.report.term - a.report.term);
  return leaders[0]?.name ?? null;
}

function headline() {
  const name = leaderName();
  if (!name) return "Nobody leads";
  const leader = cluster.members.find((member) => member.name === name);
  return `${name} leads in term ${leader.report.term}`;
}

function drawRing() {
  const ring = byId("ring");
  const count = cluster.members.length;
  const places = new Map(cluster.members.map((member, place) => {
    const angle = (place / count) * 2 * Math.PI - Math.PI / 2;
    const radius = count === 1 ? 0 : 105;
    return [member.name, { x: 200 + radius * Math.cos(angle) * 1.25, y: 155 + radius * Math.sin(angle) }];
  }));
  const focused = ring.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const lines = [];
  for (let a = 0; a < count; a += 1) {
    for (let b = a + 1; b < count; b += 1) {
      const [one, other] = [cluster.members[a], cluster.members[b]];
      const sees = (from, to) => from.report?.members?.find((seen) => seen.name === to.name);
      const views = [sees(one, other), sees(other, one)].filter(Boolean);
      const dead = views.length === 0 || views.some((view) => view.reach !== "reachable");
      const trip = roundTrip(one.name, other.name) ?? roundTrip(other.name, one.name);
      const why = views.find((view) => view.why)?.why;
      const text = dead ? `no link${why ? `: ${why}` : ""}` : `round trip ${trip === null ? "not measured yet" : micros(trip, [])}`;
      const [from, to] = [places.get(one.name), places.get(other.name)];
      const line = drawn("line", { class: dead ? "link dead" : "link", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
      line.append(drawn("title", {}, `${one.name} – ${other.name}: ${text}`));
      lines.push(line);
      if (count <= 5 && !dead && trip !== null) {
        lines.push(drawn("text", { class: "detail", x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 4 }, micros(trip, [])));
      }
    }
  }
  const members = cluster.members.map((member) => {
    const { x, y } = places.get(member.name);
    const role = roleOf(member);
    const trips = cluster.members
      .filter((other) => other !== member && roundTrip(member.name, other.name) !== null)
      .map((other) => `${other.name} ${micros(roundTrip(member.name, other.name), [])}`);
    const reached = trips.length ? `, round trips: ${trips.join(", ")}` : "";
    const spoken = `${member.name}: ${role}${member.report ? `, term ${member.report.term}${reached}` : `, ${member.why ?? ""}`}`;
    const group = drawn("g", { class: "member", tabindex: "0", role: "img", "aria-label": spoken, "data-name": member.name });
    group.append(
      drawn("title", {}, spoken),
      drawn("circle", { class: role, cx: x, cy: y, r: 22 }),
      ...(member.report ? [drawn("circle", { class: "term", cx: x, cy: y, r: 26, stroke: colourOf(member.report.term) })] : []),
      drawn("text", { class: "glyph", x, y: y + 1 }, GLYPHS[role] ?? "?"),
      drawn("text", { class: "name", x, y: y + 40 }, member.name),
      drawn("text", { class: "detail", x, y: y + 54 }, member.report ? `term ${member.report.term}` : role === "witness" ? "votes, holds no data" : "not reachable"),
    );
    return group;
  });
  ring.replaceChildren(...lines, ...members);
  if (focused) ring.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
}

// Rows that stay are changed and not made anew: focus and selection survive. Makes so many new ones at most, and gives how many are
// left to make.
function rows(body, items, keyOf, make, fill, most = Infinity) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  let place = body.firstElementChild;
  let made = 0;
  let left = 0;
  for (const item of items) {
    const key = keyOf(item);
    let row = known.get(key);
    if (!row) {
      if (made === most) { left += 1; continue; }
      made += 1;
      row = make(item);
      row.dataset.key = key;
    }
    known.delete(key);
    fill(row, item);
    if (row === place) place = place.nextElementSibling; else body.insertBefore(row, place);
  }
  for (const row of known.values()) row.remove();
  return left;
}

function cells(count) {
  const row = element("tr", {}, element("th", { scope: "row" }));
  for (let cell = 1; cell < count; cell += 1) row.append(element("td"));
  return row;
}

function drawMembers() {
  const furthest = Math.max(1, ...cluster.members.map((member) => member.report?.last ?? 0));
  const breaks = cluster.can_break || cluster.members.some((member) => roleOf(member) === "leader");
  byId("break-title").hidden = !breaks;
  rows(byId("members-body"), cluster.members, (member) => member.name, () => cells(9), (row, member) => {
    const role = roleOf(member);
    const [name, roleCell, term, log, sync, rate, p99, disk, actions] = row.children;
    setText(name, member.votes ? member.name : `${member.name} (learner)`);
    roleCell.className = role;
    setText(roleCell, `${GLYPHS[role] ?? ""} ${role}`);
    const report = member.report;
    if (!report) {
      setText(term, "");
      term.style.boxShadow = "";
      log.className = "free";
      setText(log, member.why ?? "");
      for (const cell of [sync, rate, p99, disk]) setText(cell, "");
    } else {
      setText(term, String(report.term));
      term.style.boxShadow = `inset 0 -3px ${colourOf(report.term)}`;
      log.className = "";
      drawLog(log, report, furthest);
      const { rate: perSecond, p99: slowest, sync: syncs } = load(member.name);
      setText(sync, report.disk === "stalled" ? "does not answer" : syncs);
      setText(rate, perSecond);
      setText(p99, slowest);
      setText(disk, bytes(report.disk_room.free_bytes));
    }
    drawActions(actions, member, role, breaks);
  });
}

function drawLog(cell, report, furthest) {
  if (!cell.querySelector(".bar")) {
    cell.replaceChildren(
      element("div", { class: "bar", "aria-hidden": "true" }, element("i", { class: "last" }), element("i", { class: "commit" }), element("i", { class: "applied" })),
      element("span", { class: "small" }),
    );
  }
  const share = (index) => `${Math.min(100, (index / furthest) * 100)}%`;
  const [last, commit, applied] = cell.querySelectorAll("i");
  last.style.width = share(report.last);
  commit.style.width = share(report.commit);
  applied.style.width = share(report.applied);
  setText(cell.querySelector("span"), `${report.last}, ${report.commit}, ${report.applied}`);
}

function drawStore() {
  const asked = cluster.members.find((member) => member.name === cluster.asked)?.report;
  if (!asked) return;
  const { revision, compact_revision: compacted, keys, bytes: held, quota_bytes: quota } = asked.store;
  const list = byId("store");
  if (!list.firstElementChild) {
    for (const name of ["Keys", "Revision", "Compacted up to", "Bytes against quota", "Protocol", "Version", "Cluster"]) {
      list.append(element("dt", {}, name), element("dd"));
    }
  }
  const values = list.querySelectorAll("dd");
  setText(values[0], keys.toLocaleString());
  setText(values[1], revision.toLocaleString());
  setText(values[2], compacted > 0 ? compacted.toLocaleString() : "nothing yet");
  if (!values[3].querySelector("meter")) values[3].append(element("meter", { min: "0", "aria-label": "bytes against quota" }), element("span"));
  const meter = values[3].querySelector("meter");
  meter.max = quota; meter.high = quota * 0.8; meter.value = held;
  setText(values[3].querySelector("span"), ` ${bytes(held)} of ${bytes(quota)}`);
  setText(values[4], asked.protocol);
  setText(values[5], `hustings ${asked.version}, rules ${asked.apply_version}`);
  setText(values[6], cluster.cluster_id);
}

function drawWarnings() {
  const all = new Map();
  for (const member of cluster.members) {
    for (const { what, cure } of member.report?.warnings ?? []) {
      // How long somebody has been silent changes, and is one warning.
      const key = what.replace(/\d+(\.\d+)? (s|min|h|d)\b/g, "");
      if (!all.has(key)) all.set(key, { key, what, cure, by: [] });
      all.get(key).by.push(member.name);
    }
  }
  // What one that is cut off says of the others is its own view, and stands behind what most say.
  const said = cluster.members.filter((member) => member.report).length;
  const ordered = [...all.values()].sort((a, b) => b.by.length - a.by.length);
  for (const warning of ordered) if (warning.by.length * 2 <= said) warning.what = `${warning.by.join(", ")} ${warning.by.length === 1 ? "says" : "say"}: ${warning.what}`;
  byId("warnings-section").hidden = all.size === 0;
  rows(byId("warnings"), ordered, (warning) => warning.key,
    () => element("li", {}, element("span"), " ", element("code")),
    (row, { what, cure }) => { setText(row.children[0], what); setText(row.children[1], cure); });
}

// ---- leaderships ----------------------------------------------------------------------------------------------------

// Some leaders synchronize first: that one leads is then no reason, and who voted stands before it.
const VOTED = /^vote won \{| is elected by \{/;

function becauseOf(event, ordered, place) {
  for (let before = place; before >= 0; before -= 1) {
    const one = ordered[before];
    if (one.member !== event.member) continue;
    if (VOTED.test(one.because ?? "")) return one.because;
    if (before !== place && one.to === "follower") break;
  }
  return event.because;
}

const keyOf = (event) => `${event.member} ${event.at_unix_millis} ${event.from} ${event.to} ${event.term}`;

function leaderships() {
  const seen = new Set();
  const events = [];
  for (const member of cluster.members) {
    for (const event of member.report?.story ?? []) {
      const key = `${event.member} ${event.at_unix_millis} ${event.lsn} ${event.from} ${event.to} ${event.term}`;
      if (!seen.has(key)) { seen.add(key); events.push(event); }
    }
  }
  for (const event of events) kept.set(keyOf(event), event);
  // A member that died has forgotten its story; what this page heard of it before counts.
  const all = [...kept.values()].sort((a, b) => a.at_unix_millis - b.at_unix_millis);
  const ordered = all.slice(-EVENTS_KEPT_MAX);
  for (const event of all.slice(0, -EVENTS_KEPT_MAX)) kept.delete(keyOf(event));
  const found = [];
  ordered.forEach((event, place) => {
    if (event.to !== "leader" || event.from === "leader") return;
    const before = found[found.length - 1];
    let gap = null;
    if (before) {
      let lost = place;
      while (lost > 0 && ordered[lost - 1].at_unix_millis > before.at && !(ordered[lost - 1].leader === before.leader && ordered[lost - 1].to !== "candidate")) lost -= 1;
      // One that nobody heard had ended when it was heard last, as far as the others know.
      const ends = ordered.slice(lost, place + 1).map((one) => one.at_unix_millis - (one.silent_millis ?? 0));
      before.until = Math.max(before.at, Math.min(...ends));
      gap = event.at_unix_millis - before.until;
    }
    found.push({ leader: event.member, term: event.term, at: event.at_unix_millis, because: becauseOf(event, ordered, place), lost: null, gap, until: null });
    const lostEvent = before && ordered.find((other) => other.at_unix_millis >= before.until && other.at_unix_millis <= event.at_unix_millis && other !== event && other.member !== event.member && other.because);
    const own = before && ordered.find((other) => other.at_unix_millis >= before.until && other.at_unix_millis <= event.at_unix_millis && other !== event && other.member === event.member && other.because);
    found[found.length - 1].lost = (own ?? lostEvent)?.because ?? null;
  });
  return found;
}
const kept = new Map();

function drawLeaderships() {
  const found = leaderships().slice(-50);
  const list = byId("leaderships");
  rows(list, found.slice().reverse(), (one) => `${one.leader} ${one.term} ${one.at}`, () => element("li"), (row, one) => {
    const gap = one.gap === null ? "" : `; nobody led for ${duration(one.gap)}`;
    const lost = one.lost ? `, after ${one.lost}` : "";
    setText(row, `${clock(one.at)}  ${one.leader} leads, term ${one.term}, because ${one.because}${lost}${gap}`);
  });
  setText(byId("line-note"), found.length ? "From what the members remember." : "No member remembers a change of leader.");
  const line = byId("line");
  if (!found.length) { line.replaceChildren(); return; }
  const [start, end] = [found[0].at, cluster.now_unix_millis];
  const x = (at) => (end > start ? ((at - start) / (end - start)) * 1000 : 0);
  line.replaceChildren(...found.map((one) => {
    const until = one.until ?? end;
    const bar = drawn("rect", { class: "reign", fill: colourOf(one.term), x: x(one.at), y: 6, width: Math.max(2, x(until) - x(one.at)), height: 28 });
    bar.append(drawn("title", {}, `${one.leader}, term ${one.term}: ${clock(one.at)} to ${one.until ? clock(one.until) : "now"}`));
    return bar;
  }));
}

// ---- elections ------------------------------------------------------------------------------------------------------

// A browser lays out a thousand new rows in most of a second, in which it shows nothing else: a frame gets a part of them.
const ROWS_A_FRAME = 100;
let listings = 0;

function drawElections() {
  const wanted = byId("filter").value.toLowerCase();
  const all = elections.elections;
  const shown = all.filter((one) => one.name.toLowerCase().includes(wanted));
  const count = elections.why ? `not told: ${elections.why}` : shown.length === all.length ? `${all.length}` : `${shown.length} of ${all.length}`;
  setText(byId("elections-count"), count);
  listings += 1;
  drawListing(shown, listings);
}

// Draws what has no row yet in parts, until another listing begins.
function drawListing(shown, listing) {
  if (listing !== listings) return;
  const left = rows(byId("elections-body"), shown, (one) => one.name, () => cells(7), (row, one) => {
    const [name, holder, fence, ttl, candidates, since, because] = row.children;
    setText(name, one.name);
    setText(holder, one.holder || "(without a name)");
    setText(fence, one.token);
    setText(ttl, `${duration(one.remaining_millis)} of ${duration(one.ttl_millis)}`);
    setText(candidates, String(one.candidates));
    setText(since, one.since_unix_seconds ? new Date(one.since_unix_seconds * 1000).toLocaleString() : "");
    because.className = "free";
    setText(because, one.because ?? "");
  }, ROWS_A_FRAME);
  if (left > 0) requestAnimationFrame(() => drawListing(shown, listing));
}

// ---- what one can do ------------------------------------------------------------------------------------------------

function drawActions(cell, member, role, breaks) {
  cell.hidden = !breaks;
  cell.className = "actions";
  const wanted = [];
  if (role === "follower" && leaderName()) wanted.push(["lead", "Make it lead"]);
  if (cluster.can_break) {
    // One that stands still does not answer, as one that is dead.
    if (member.report) wanted.push(["kill", "Kill"], ["pause", "Pause"], member.report.is_cut ? ["heal", "Heal"] : ["cut", "Cut off"]);
    else wanted.push(["resume", "Resume"]);
  }
  const key = wanted.map(([verb]) => verb).join(" ");
  if (cell.dataset.wanted === key) return;
  cell.dataset.wanted = key;
  cell.replaceChildren(...wanted.map(([verb, label]) => {
    const button = element("button", { type: "button", "data-verb": verb, "aria-label": `${label}: ${member.name}` }, label);
    button.addEventListener("click", () => act(verb, member));
    return button;
  }));
}

async function act(verb, member) {
  const [path, body] = verb === "lead"
    ? ["/v1/transfer", { member: member.name }]
    : ["/v1/workbench", { verb, member: member.name }];
  let said;
  try {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body) });
    const text = await answer.text();
    said = answer.ok ? `${verb} ${member.name}: done at ${clock(Date.now())}` : `${verb} ${member.name}: ${JSON.parse(text).error ?? text}`;
  } catch (error) {
    said = `${verb} ${member.name}: no answer from ${cluster.asked} (${error.message})`;
  }
  setText(byId("told"), said);
}

// ---- the page -------------------------------------------------------------------------------------------------------

function theme() {
  const chosen = localStorage.getItem("hustings-theme");
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(isDark));
}

byId("theme").addEventListener("click", () => {
  localStorage.setItem("hustings-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  theme();
});
byId("filter").addEventListener("input", drawElections);
byId("sign-out").addEventListener("click", () => {
  sessionStorage.removeItem("hustings-token");
  location.reload();
});
byId("sign-out").hidden = !token;
theme();
follow();
