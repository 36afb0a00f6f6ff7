//! What is wrong with a cluster and what to do about it: the warnings of `hustings status`, and the explanation of a request that
//! waited in vain.
//!
//! The remedies themselves are in [`hustings_node::remedies`]: a member's log and the dashboard say the same words.

use super::cluster::Cluster;
use super::{ask, text};
use crate::exit::{Code, Exit};
use crate::output::{endpoints_of, options_of, unavailable};
use clap::ArgMatches;
use hustings_node::remedies;
use serde_json::Value;
use std::time::Duration;

/// Time that a member may take to say how it is when a request has waited in vain already.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

impl Cluster {
    /// Warnings about the cluster by name, each with its cause.
    pub(super) fn warnings(&self) -> Vec<String> {
        let suspended = self.members.iter().filter(|row| row["preference_suspended"] == true);
        let notes = suspended.map(|row| {
            let name = text(row, "name");
            format!("{name}: it is preferred as leader no more for a while, because it lost leadership again and again, asked by nobody")
        });
        self.ailments().into_iter().chain(notes).collect()
    }

    /// Warnings of states that an operator has to mend; `--wait` waits until there are none.
    pub(super) fn ailments(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let clusters = self.clusters();
        if clusters.len() > 1 {
            let told: Vec<String> =
                clusters.iter().map(|(id, names)| format!("{} of {id}", names.join(" and "))).collect();
            let leads = |id: &&String| {
                self.members.iter().any(|row| row["leader"].is_string() && row["cluster_id"].as_str() == Some(id))
            };
            let (may_write, remedy) = match clusters.keys().filter(leads).count() {
                0 | 1 => ("", "if they are to be one, compare their --initial-cluster and --initial-cluster-token"),
                _ => (", and each may take writes", "stop the one that clients should not use"),
            };
            warnings.push(format!("{} clusters answer{may_write}: {}; {remedy}", clusters.len(), told.join(", ")));
        }
        for row in &self.members {
            let name = row["name"].as_str().or(row["endpoint"].as_str()).unwrap_or("a member");
            if row["role"] == "unreachable" {
                warnings.push(format!("{name}: {}", text(row, "why")));
            }
            if row["role"] == "caretaker" {
                warnings.push(format!(
                    "{name}: it leads as a caretaker and accepts nothing: it is a witness, and the others lack entries of which it has the last; start the member that has them all"
                ));
            }
            if let Some(what) = row["contradiction"].as_str() {
                warnings.push(format!("{name}: {what}"));
            }
            if row["disk"] == "stalled" {
                warnings.push(format!("{name}: its disk does not answer"));
            }
        }
        let mut alarms: Vec<(String, String)> = self
            .members
            .iter()
            .flat_map(|row| row["alarms"].as_array().into_iter().flatten())
            .map(|alarm| (text(alarm, "member"), text(alarm, "alarm")))
            .collect();
        alarms.sort();
        alarms.dedup();
        for (name, alarm) in alarms {
            warnings.push(match alarm.as_str() {
                "NOSPACE" => format!("{name}: NOSPACE, writes are refused: {}", remedies::NO_SPACE),
                "CORRUPT" => format!("{name}: CORRUPT, writes are refused: {}", remedies::CORRUPT),
                _ => format!("{name}: the alarm {alarm} stands; `hustings alarm list` tells more"),
            });
        }
        let differing: Vec<&Value> =
            self.members.iter().flat_map(|row| row["differing"].as_array().into_iter().flatten()).collect();
        if let Some(name) = differing.first().and_then(|name| name.as_str()) {
            warnings.push(format!("{name}: its data differs from that of most: {}", remedies::CORRUPT));
        }
        warnings
    }
}

/// The remedy where nobody leads, by what a member told of the others.
pub(super) fn remedy(told: &Value) -> &'static str {
    let (reachable, voters) = (told["reachable_voters"].as_u64(), told["voters"].as_u64());
    // An older member counts and does not judge.
    let is_majority = || reachable.zip(voters).is_none_or(|(reachable, voters)| reachable > voters / 2);
    match told["quorum"].as_bool().unwrap_or_else(is_majority) {
        false => remedies::NO_QUORUM,
        true => remedies::NO_LEADER_YET,
    }
}

/// Adds to an error of a request that waited in vain which members are missing, since when and why, and the remedy of `status`;
/// other errors stay as they are.
pub(crate) async fn explained(error: anyhow::Error, matches: &ArgMatches) -> anyhow::Error {
    let Some(Exit { code: Code::Unavailable, what }) = error.downcast_ref::<Exit>() else { return error };
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    let Ok(options) = options_of(matches) else { return error };
    let answers = ask(&endpoints_of(matches), options.tls.as_ref(), DIAGNOSIS_TIMEOUT).await;
    let told = answers
        .iter()
        .filter_map(|(_, answer)| answer.as_ref().ok())
        .max_by_key(|told| (!told["leader"].is_null(), told["term"].as_u64()));
    let Some(told) = told else {
        // The cause of the request's failure is said already.
        let news = answers.iter().filter_map(|(url, answer)| Some((url, answer.as_ref().err()?)));
        let news = news.filter(|(_, unasked)| !what.contains(&unasked.why));
        let each: Vec<String> = news.map(|(url, unasked)| format!("{url}: {}", unasked.why)).collect();
        if each.is_empty() {
            return error;
        }
        return unavailable(format!("{what}; no member answers ({})", each.join("; ")));
    };
    let (name, leader) = (text(told, "name"), told["leader"].as_str());
    let Some(summary) = told["summary"].as_str() else { return error };
    match leader {
        Some(leader) => unavailable(format!("{what}; {name} says: {leader} leads, {summary}")),
        None => unavailable(format!("{what}; {name} says: nobody leads, {summary}; {}", remedy(told))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: a client that waits for a leader that cannot come is told so. Method: 3 of 5 voters, and of the old three one; an older
    /// member.
    #[test]
    fn a_majority_of_all_is_no_quorum_of_a_joint_membership() {
        let joint = json!({"voters": 5, "reachable_voters": 3, "quorum": false});
        assert_eq!(remedy(&joint), remedies::NO_QUORUM);
        let mut simple = joint.clone();
        simple["quorum"] = true.into();
        assert_eq!(remedy(&simple), remedies::NO_LEADER_YET);
        for (reachable, remedy_then) in [(3, remedies::NO_LEADER_YET), (2, remedies::NO_QUORUM)] {
            let older = json!({"voters": 5, "reachable_voters": reachable});
            assert_eq!(remedy(&older), remedy_then);
        }
    }
}
