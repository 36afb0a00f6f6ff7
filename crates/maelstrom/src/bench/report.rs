//! The verdict on a run: [`Report`].

use super::history::{End, History};
use super::network::Traffic;
use super::settings::{Settings, Workload};
use crate::judge;
use hustings_properties::Violation;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Violations of one property that are told to people; all are in the JSON.
const TOLD_MAX: usize = 3;

/// The verdict on a run; the worst of several stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// Every property of the workload holds.
    Valid,
    /// Nothing can be said, since nothing happened.
    Unknown,
    /// A property does not hold.
    Invalid,
    /// The run broke down: a node ended, or was never initialised.
    Broken,
}

impl Verdict {
    /// The genuine tool's exit status.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Valid => 0,
            Verdict::Invalid => 1,
            Verdict::Unknown => 2,
            Verdict::Broken => 255,
        }
    }
}

/// Counts of the ends of one function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// Number of operations that succeeded.
    pub ok: u64,
    /// Number of operations that definitely had no effect.
    pub fail: u64,
    /// Number of operations of which nobody knows whether they had an effect.
    pub info: u64,
}

/// The content of a run and its faults.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The workload of the clients.
    pub workload: Workload,
    /// Number of nodes that took part.
    pub nodes: usize,
    /// The seed of the run.
    pub seed: u64,
    /// Counts of ends, by function.
    pub ends: BTreeMap<String, Ends>,
    /// Answers that came after their clients had given up.
    pub late: u64,
    /// Faults by the nemesis that made them.
    pub faults: BTreeMap<String, u64>,
    /// Counts of messages between nodes.
    pub traffic: Traffic,
    /// Properties that do not hold, and the observations.
    pub violations: Vec<Violation>,
    /// Reasons why the run could not go on.
    pub breakdowns: Vec<String>,
}

impl Report {
    pub(super) fn new(settings: &Settings) -> Report {
        Report {
            workload: settings.workload,
            nodes: settings.nodes,
            seed: settings.seed,
            ends: BTreeMap::new(),
            late: 0,
            faults: BTreeMap::new(),
            traffic: Traffic::default(),
            violations: Vec::new(),
            breakdowns: Vec::new(),
        }
    }

    pub(super) fn violate(&mut self, property: &'static str, what: String) {
        self.violations.push(Violation { property, what });
    }

    pub(super) fn judge(&mut self, workload: Workload, history: &History) {
        for operation in history.operations.iter().filter(|operation| !operation.is_final) {
            let ends = self.ends.entry(operation.function().into()).or_default();
            match &operation.end {
                Some((_, _, End::Ok(_))) => ends.ok += 1,
                Some((_, _, End::Fail(..))) => ends.fail += 1,
                Some((_, _, End::Info(_))) | None => ends.info += 1,
            }
        }
        let never: Vec<String> =
            self.ends.iter().filter(|(_, ends)| ends.ok == 0).map(|(function, _)| function.clone()).collect();
        for function in never {
            self.violate("stats", format!("`{function}` never succeeded"));
        }
        self.violations.extend(judge::judge(workload, &history.operations));
    }

    /// The verdict on the run.
    pub fn verdict(&self) -> Verdict {
        if !self.breakdowns.is_empty() {
            Verdict::Broken
        } else if !self.violations.is_empty() {
            Verdict::Invalid
        } else if self.ends.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Valid
        }
    }

    /// Number of operations that succeeded.
    pub fn ok(&self) -> u64 {
        self.ends.values().map(|ends| ends.ok).sum()
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let ends = self
            .ends
            .iter()
            .map(|(function, ends)| (function.clone(), json!({"ok": ends.ok, "fail": ends.fail, "info": ends.info})));
        let violations =
            self.violations.iter().map(|violation| json!({"property": violation.property, "what": violation.what}));
        json!({
            "apiVersion": "v1",
            "kind": "Workload",
            "valid": match self.verdict() {
                Verdict::Valid => json!(true),
                Verdict::Unknown => json!("unknown"),
                Verdict::Invalid | Verdict::Broken => json!(false),
            },
            "workload": self.workload.to_string(),
            "nodes": self.nodes,
            "seed": self.seed,
            "operations": ends.collect::<serde_json::Map<_, _>>(),
            "late": self.late,
            "faults": self.faults,
            "messages": {"sent": self.traffic.sent, "lost": self.traffic.lost, "doubled": self.traffic.doubled},
            "violations": violations.collect::<Vec<_>>(),
            "breakdowns": self.breakdowns,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict() {
            Verdict::Valid => "valid",
            Verdict::Unknown => "unknown",
            Verdict::Invalid => "INVALID",
            Verdict::Broken => "BROKEN",
        };
        let nodes = if self.nodes == 1 { "1 node".into() } else { format!("{} nodes", self.nodes) };
        write!(f, "{word}: {} with {nodes}, seed {};", self.workload, self.seed)?;
        for (function, ends) in &self.ends {
            write!(f, " {function} {} ok, {} fail, {} info;", ends.ok, ends.fail, ends.info)?;
        }
        let Traffic { sent, lost, doubled } = self.traffic;
        write!(f, " {sent} messages, {lost} lost, {doubled} doubled;")?;
        match self.faults.is_empty() {
            true => write!(f, " no faults")?,
            false => {
                let faults: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
                write!(f, " {}", faults.join(", "))?;
            }
        }
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &self.violations {
            let count = told.entry(violation.property).or_default();
            *count += 1;
            if *count <= TOLD_MAX {
                write!(f, "\n  {violation}")?;
            }
        }
        for (property, count) in told.into_iter().filter(|(_, count)| *count > TOLD_MAX) {
            write!(f, "\n  {property}: and {} more", count - TOLD_MAX)?;
        }
        self.breakdowns.iter().try_for_each(|breakdown| write!(f, "\n  {breakdown}"))
    }
}
