// A run as it was told: what each member was at a moment, which messages were under way. Shared by the laboratory and by reports.
"use strict";

const ROLES = ["follower", "pre-candidate", "candidate", "synchronizing", "leader"];
const CONDITIONS = ["up", "paused", "disk stalled", "down", "refuses its disk"];
const UP = 0, PAUSED = 1, STALLED = 2, DOWN = 3;
const LINKS = ["open", "slow", "cut"];
const TERM_COLOURS = 8;
// Messages are found by the quarter second in which they were under way.
const BUCKET_MICROS = 250_000;

// The place of the last row whose time is not after this; -1: all are.
function lastUpTo(rows, time, timeOf = (row) => row[0]) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timeOf(rows[middle]) <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function seconds(micros) {
  return `${(micros / 1e6).toFixed(3)} s`;
}

// A moment of a run in words; a trace of the checker has steps and no time.
function timeText(run, micros) {
  return run.isTrace ? `step ${Math.round(micros / 1e6)}` : seconds(micros);
}

// The buckets in which a message was under way.
function bucketsOf(message) {
  const [first, last] = [Math.floor(message.sent / BUCKET_MICROS), Math.floor(message.ended / BUCKET_MICROS)];
  return Array.from({ length: last - first + 1 }, (_, place) => first + place);
}

class Run {
  constructor() {
    this.members = new Map();
    this.links = [];
    this.lines = [];
    this.steps = [];
    this.moments = [];
    this.terms = new Map();
    this.violation = null;
    this.stopped = null;
    this.subject = "";
    this.packsTerms = false;
    this.isTrace = false;
    this.end = 0;
    this.buckets = new Map();
  }

  // Takes in what was told: everything from `told.from` on is new, what was before stays. Costs what is new.
  take(told) {
    const { from } = told;
    const upTo = (rows, timeOf) => { rows.length = lastUpTo(rows, from - 1, timeOf) + 1; };
    for (const rows of this.members.values()) upTo(rows);
    upTo(this.links);
    upTo(this.lines);
    upTo(this.moments, (at) => at);
    this.forget(from);
    const moments = [];
    for (const row of told.members) {
      if (!this.members.has(row[1])) this.members.set(row[1], []);
      this.members.get(row[1]).push(row);
      moments.push(row[0]);
      this.noteTerm(row[4]);
      for (let cell = 1; cell < row[9].length; cell += 3) this.noteTerm(row[9][cell]);
    }
    this.links.push(...told.links);
    for (const line of told.lines) { this.lines.push(line); moments.push(line[0]); }
    for (const [sender, receiver, sent, ended, lost, kind] of told.messages) {
      const message = { from: sender, to: receiver, sent, ended, lost: lost === 1, kind: told.kinds[kind] };
      for (const bucket of bucketsOf(message)) {
        if (!this.buckets.has(bucket)) this.buckets.set(bucket, []);
        this.buckets.get(bucket).push(message);
      }
      moments.push(ended);
    }
    const { steps, violation, stopped, subject, packsTerms, isTrace, end } = told;
    Object.assign(this, { steps, violation, stopped, subject, packsTerms, isTrace, end });
    if (violation) moments.push(violation.at);
    // What will arrive later than what was played is no moment yet.
    for (const at of [...new Set(moments)].sort((a, b) => a - b)) if (at >= from && at <= end) this.moments.push(at);
  }

  // Forgets the messages whose way did not end before this.
  forget(from) {
    const gone = new Set();
    for (const [bucket, messages] of this.buckets) {
      if ((bucket + 1) * BUCKET_MICROS <= from) continue;
      for (const message of messages) if (message.ended >= from) gone.add(message);
    }
    const touched = new Set([...gone].flatMap(bucketsOf));
    for (const bucket of touched) this.buckets.set(bucket, this.buckets.get(bucket).filter((message) => !gone.has(message)));
  }

  noteTerm(term) {
    if (term === 0 || this.terms.has(term)) return;
    this.terms.set(term, 0);
    [...this.terms.keys()].sort((a, b) => a - b).forEach((known, place) => this.terms.set(known, place));
  }

  ids() {
    return [...this.members.keys()].sort((a, b) => a - b);
  }

  // What a member is at a moment: a row, or null before it joined.
  stateOf(id, time) {
    const rows = this.members.get(id) ?? [];
    return rows[lastUpTo(rows, time)] ?? null;
  }

  // How each direction is at a moment, by "from-to".
  linksAt(time) {
    const now = new Map();
    for (let place = 0; place <= lastUpTo(this.links, time); place += 1) {
      const [, from, to, condition] = this.links[place];
      now.set(`${from}-${to}`, condition);
    }
    return now;
  }

  // Messages that were under way at some moment of a span.
  between(from, to) {
    const found = new Set();
    for (let bucket = Math.floor(from / BUCKET_MICROS); bucket <= Math.floor(to / BUCKET_MICROS); bucket += 1) {
      for (const message of this.buckets.get(bucket) ?? []) {
        if (message.sent <= to && message.ended >= from) found.add(message);
      }
    }
    return found;
  }

  // Messages that are under way at a moment and will arrive, the next one first.
  underWay(time) {
    const flying = [...this.between(time, time)].filter((message) => !message.lost && message.sent <= time && message.ended > time);
    return flying.sort((a, b) => a.ended - b.ended);
  }

  // Of the messages between the same two, the how many-th to arrive this one is; 0: it is not under way. A run that was played again
  // has the same messages as other objects, and one that was delayed ends later.
  placeOf(message, time) {
    // One that will be lost where it arrives is under way as well, and counts.
    const between = [...this.between(time, time)].filter((other) =>
      other.from === message.from && other.to === message.to && other.sent <= time && other.ended > time);
    between.sort((a, b) => a.ended - b.ended);
    const isSame = (other) => other.sent === message.sent && other.kind === message.kind;
    const exact = between.findIndex((other) => isSame(other) && other.ended === message.ended);
    return (exact >= 0 ? exact : between.findIndex(isSame)) + 1;
  }

  termText(term) {
    return this.packsTerms ? `${Math.floor(term / 65_536)}.${term % 65_536}` : String(term);
  }

  termClass(term) {
    return this.terms.has(term) ? `term-${this.terms.get(term) % TERM_COLOURS}` : "term-none";
  }

  leaderAt(time) {
    let best = null;
    for (const id of this.ids()) {
      const row = this.stateOf(id, time);
      if (row && row[2] < DOWN && row[3] === 4 && (!best || row[4] > best[4])) best = row;
    }
    return best;
  }

  // The next moment at which something happens, or the one before; null: none.
  momentAfter(time) {
    return this.moments[lastUpTo(this.moments, time, (at) => at) + 1] ?? null;
  }

  momentBefore(time) {
    return this.moments[lastUpTo(this.moments, time - 1, (at) => at)] ?? null;
  }
}

// What a message is about, for its colour; the names are those of all five protocols.
function kindClass(kind) {
  if (/Vote|Elect|Notification|Scouting|Support|Refusal|Cession|FollowerInfo|LeaderInfo|AckEpoch|NewLeader|LowBall|Prepare|Handover|TimeoutNow/.test(kind)) return "election";
  if (/Heartbeat|^Ping$|^Pong$|^Heard$/.test(kind)) return "heartbeat";
  if (/Snapshot|Chunk/.test(kind)) return "snapshot";
  return "entries";
}
