//! A run as a page: who was what, what was said, what went wrong, drawn as a space-time diagram.
//!
//! One file without scripts: each member is a horizontal line whose colour is its role, each message a slanted line, each fault
//! a mark with its name. People look before they read.

use hustings_core::{NodeId, Role};
use hustings_world::seed::Report;
use hustings_world::{Arrow, Line, Script};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const LANE: f64 = 60.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const WIDTH_MAX: f64 = 12_000.0;
/// Seconds before the end that are drawn: there the story is.
const SHOWN: u64 = 12_000_000;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn colour(role: Role) -> &'static str {
    match role {
        Role::Follower => "#7a8aa0",
        Role::PreCandidate => "#e0b000",
        Role::Candidate => "#e07000",
        Role::Synchronizing => "#6060e0",
        Role::Leader => "#1a9850",
    }
}

/// Elections and heartbeats are what a diagram is about: the kinds of messages have colours.
fn stroke(kind: &str) -> &'static str {
    if kind.contains("Vote") || kind == "Elect" {
        "#e07000"
    } else if kind.contains("Heartbeat") {
        "#d5dae2"
    } else if kind.contains("Snapshot") || kind.contains("Chunk") {
        "#6060e0"
    } else {
        "#9fc5a8"
    }
}

struct Canvas {
    from: u64,
    scale: f64,
    svg: String,
    lanes: BTreeMap<NodeId, f64>,
}

impl Canvas {
    fn x(&self, at: u64) -> f64 {
        LEFT + at.saturating_sub(self.from) as f64 * self.scale
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str, title: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        // Writing to a string does not fail.
        let _ = writeln!(
            self.svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}><title>{}</title></line>",
            escaped(title)
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text));
    }

    fn arrow(&mut self, arrow: &Arrow) {
        let (Some(from), Some(to)) = (self.lanes.get(&arrow.from).copied(), self.lanes.get(&arrow.to).copied()) else {
            return;
        };
        let start = (self.x(arrow.sent_at), from);
        let title = format!("{} {} → {} at {:.3} s", arrow.kind, arrow.from, arrow.to, arrow.sent_at as f64 / 1e6);
        match arrow.arrived_at {
            Some(at) => {
                let end = (self.x(at), to);
                self.line(start, end, &format!("stroke=\"{}\" stroke-width=\"1\"", stroke(&arrow.kind)), &title);
            }
            None => {
                // Lost on the way: half of it, and broken.
                let end = (start.0 + 6.0, from + (to - from) * 0.4);
                let title = format!("{title}, lost");
                self.line(start, end, "stroke=\"#d73027\" stroke-width=\"1\" stroke-dasharray=\"3 2\"", &title);
            }
        }
    }
}

/// The page.
pub(crate) fn page(script: &Script, report: &Report) -> String {
    let end = report.simulated;
    let from = end.saturating_sub(SHOWN);
    let lines = &report.journal.lines;
    let mut ids: Vec<NodeId> = (1..=script.settings.nodes).map(NodeId).collect();
    ids.extend(lines.iter().filter_map(|(_, line)| match line {
        Line::Transition(transition) => Some(transition.node),
        _ => None,
    }));
    ids.sort_unstable();
    ids.dedup();
    let lanes = ids.iter().enumerate().map(|(lane, id)| (*id, TOP + LANE * (lane as f64 + 1.0))).collect();
    let scale = (WIDTH_MAX - LEFT) / (end - from).max(1) as f64;
    let mut canvas = Canvas { from, scale, svg: String::new(), lanes };
    draw_time(&mut canvas, from, end);
    for arrow in report.journal.arrows.iter().filter(|arrow| arrow.sent_at >= from) {
        canvas.arrow(arrow);
    }
    draw_roles(&mut canvas, lines, end);
    draw_faults(&mut canvas, lines, from);
    let height = TOP + LANE * (ids.len() as f64 + 2.0);
    let headline = script.headline.join(" · ");
    let verdict = match &report.violation {
        Some((at, violation)) => {
            format!("<p class=\"bad\">after {:.3} s: {}</p>", *at as f64 / 1e6, escaped(&violation.to_string()))
        }
        None => "<p class=\"good\">All properties held.</p>".to_string(),
    };
    let mut story = String::new();
    for (at, line) in lines {
        let class = match line {
            Line::Fault(_) => "fault",
            Line::Host(..) => "host",
            _ => "",
        };
        let _ = writeln!(
            story,
            "<tr class=\"{class}\"><td>{:.3}</td><td>{}</td></tr>",
            *at as f64 / 1e6,
            escaped(&line.to_string())
        );
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><h1>{title}</h1>{verdict}<p>{legend}</p>\
         <div class=\"scroll\"><svg width=\"{WIDTH_MAX}\" height=\"{height}\" role=\"img\">{svg}</svg></div>\
         <h2>What happened</h2><table>{story}</table><h2>The run as a script</h2><pre>{script}</pre></body></html>",
        title = escaped(&headline),
        legend = legend(),
        svg = canvas.svg,
        script = escaped(&script.to_string()),
    )
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em;color:#223}h1{font-size:1.3em}.scroll{overflow-x:auto;\
border:1px solid #ccd;direction:rtl}svg{direction:ltr}.bad{color:#b00020;font-weight:600}.good{color:#1a7f37}td{padding:1px 12px;font:13px monospace;\
white-space:pre-wrap}.fault td{background:#fdecea}.host td{background:#fff8e1}text.name{font:bold 14px monospace}\
text.tick{font:11px monospace;fill:#667}text.fault{font:11px monospace;fill:#b00020}pre{background:#f5f6f8;padding:1em}\
.key{display:inline-block;width:1.2em;height:.5em;margin:0 .3em 0 1em}";

fn legend() -> String {
    let roles = [Role::Follower, Role::PreCandidate, Role::Candidate, Role::Synchronizing, Role::Leader];
    let mut legend: String = roles
        .iter()
        .map(|role| format!("<span class=\"key\" style=\"background:{}\"></span>{role}", colour(*role)))
        .collect();
    legend.push_str(
        " · orange lines are votes, green ones entries and acknowledgements, grey ones heartbeats, red ones lost",
    );
    legend
}

fn draw_time(canvas: &mut Canvas, from: u64, end: u64) {
    let mut at = from.div_ceil(250_000) * 250_000;
    let bottom = TOP + LANE * (canvas.lanes.len() as f64 + 0.5);
    while at <= end {
        let x = canvas.x(at);
        canvas.line((x, TOP), (x, bottom), "stroke=\"#eef0f4\"", "");
        canvas.text(x + 2.0, TOP - 4.0, "tick", &format!("{:.2} s", at as f64 / 1e6));
        at += 250_000;
    }
}

fn draw_roles(canvas: &mut Canvas, lines: &[(u64, Line)], end: u64) {
    for (id, y) in canvas.lanes.clone() {
        canvas.text(8.0, y + 5.0, "name", &id.to_string());
        let mut since = (canvas.from, None::<Role>);
        let mut spans = Vec::new();
        for (at, line) in lines {
            match line {
                Line::Transition(transition) if transition.node == id => {
                    spans.push((since.0, *at, since.1, transition.to_string()));
                    since = (*at, Some(transition.to));
                }
                Line::Host(node, what) if *node == id && what.starts_with("ends") => {
                    spans.push((since.0, *at, since.1, what.clone()));
                    since = (*at, None);
                }
                Line::Fault(what) if crashes(what, id) => {
                    spans.push((since.0, *at, since.1, what.clone()));
                    since = (*at, None);
                }
                _ => {}
            }
        }
        spans.push((since.0, end, since.1, String::new()));
        for (start, stop, role, title) in spans {
            if stop < canvas.from {
                continue;
            }
            let (from, to) = ((canvas.x(start.max(canvas.from)), y), (canvas.x(stop), y));
            let style = match role {
                Some(role) => {
                    format!("stroke=\"{}\" stroke-width=\"{}\"", colour(role), if role == Role::Leader { 8 } else { 5 })
                }
                None => "stroke=\"#ccc\" stroke-width=\"1\" stroke-dasharray=\"2 4\"".into(),
            };
            canvas.line(from, to, &style, &title);
        }
    }
}

fn crashes(what: &str, id: NodeId) -> bool {
    let mut words = what.split(' ');
    matches!(words.next(), Some("crash" | "power-off" | "wipe"))
        && words.next().is_some_and(|who| who == "all" || who == id.to_string())
}

fn draw_faults(canvas: &mut Canvas, lines: &[(u64, Line)], from: u64) {
    let bottom = TOP + LANE * (canvas.lanes.len() as f64 + 0.7);
    let mut row = 0;
    for (at, line) in lines {
        if let Line::Fault(what) = line
            && *at >= from
        {
            let x = canvas.x(*at);
            let style = "stroke=\"#d73027\" stroke-width=\"1\" stroke-opacity=\"0.35\"";
            canvas.line((x, TOP), (x, bottom), style, what);
            canvas.text(x + 2.0, bottom + 12.0 + f64::from(row % 3) * 13.0, "fault", what);
            row += 1;
        }
    }
}
