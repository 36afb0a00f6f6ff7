//! A cluster as its members describe it: one row for each member, by its own answer or by what the others say of it, and what follows
//! from the rows together.
//!
//! Read next: [`crate::status::advice`], which finds what is wrong in it.

use super::{Asked, is_same, text};
use hustings_node::reach::in_words;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that could be learnt about a cluster.
pub(super) struct Cluster {
    pub(super) members: Vec<Value>,
    /// An answering member's view of who can be reached: the leader's, if it answers.
    pub(super) told: Option<Value>,
}

impl Cluster {
    pub(super) fn of(answers: Vec<Asked>, known: &BTreeMap<String, Value>) -> Cluster {
        let furthest = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?["commit"].as_u64()).max();
        let told = answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok())
            .max_by_key(|a| (a["role"] == "leader", a["leader"].is_string(), a["term"].as_u64()))
            .cloned();
        let mut members = Vec::new();
        for (url, answer) in answers {
            match answer {
                Ok(mut status) => {
                    status["endpoint"] = url.into();
                    let applied = status["applied"].as_u64();
                    status["lag"] =
                        applied.zip(furthest).map(|(applied, furthest)| furthest.saturating_sub(applied)).into();
                    status["why"] = Value::Null;
                    status["silent_millis"] = 0.into();
                    if let Some(status) = status.as_object_mut() {
                        for field in ["apiVersion", "members", "summary", "voters", "reachable_voters", "quorum"] {
                            status.remove(field);
                        }
                    }
                    members.push(status);
                }
                Err(unasked) => members.push(missing(Some(&url), None, &unasked.why, known)),
            }
        }
        // A member that nobody could ask is still a member.
        for (name, member) in known {
            if !members.iter().any(|row| row["name"] == *name) {
                let why = match member["client_urls"][0].as_str() {
                    Some(_) => "it was not asked".to_owned(),
                    None => "it has not said yet where clients reach it".to_owned(),
                };
                members.push(missing(member["client_urls"][0].as_str(), Some(name), &why, known));
            }
        }
        // The same member, asked by two of its names.
        let mut seen = Vec::new();
        members.retain(|row| {
            let place = (row["id"].clone(), row["name"].clone(), row["cluster_id"].clone());
            let is_new = row["name"].is_null() || !seen.contains(&place);
            seen.push(place);
            is_new
        });
        members.sort_by_key(|row| (row["name"].is_null(), text(row, "name")));
        Cluster { members, told }
    }

    pub(super) fn leader(&self) -> Option<&Value> {
        self.members.iter().filter(|row| row["role"] == "leader").max_by_key(|row| row["term"].as_u64())
    }

    /// The leader that an answering member follows and hears, though it cannot be asked: its name, its term, and those who follow it.
    pub(super) fn unasked_leader(&self) -> Option<(String, u64, Vec<String>)> {
        let told = self.told.as_ref().filter(|_| self.leader().is_none())?;
        let name = told["leader"].as_str()?;
        self.members.iter().find(|row| row["name"] == name && row["role"] == "unreachable")?;
        let members = told["members"].as_array().into_iter().flatten();
        let is_heard = members.filter(|member| member["name"] == name).any(|member| member["reach"] == "reachable");
        let followers = self.members.iter().filter(|row| row["leader"] == name).map(|row| text(row, "name"));
        is_heard.then(|| (name.to_owned(), told["term"].as_u64().unwrap_or_default(), followers.collect()))
    }

    pub(super) fn is_healthy(&self) -> bool {
        let is_even = self.members.iter().all(|row| row["differing"].as_array().is_none_or(Vec::is_empty));
        self.leader().is_some()
            && is_even
            && self.clusters().len() < 2
            && self.members.iter().all(|row| row["healthy"] == true)
    }

    /// The clusters to which those that answered belong, each with its members' names.
    pub(super) fn clusters(&self) -> BTreeMap<String, Vec<String>> {
        let mut clusters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.members.iter().filter(|row| row["cluster_id"].is_string()) {
            clusters.entry(text(row, "cluster_id")).or_default().push(text(row, "name"));
        }
        clusters
    }

    /// The highest commit index that a member told; `None` while none tells one.
    pub(super) fn committed(&self) -> Option<u64> {
        self.members.iter().filter_map(|row| row["commit"].as_u64()).max()
    }

    /// Whether all members are well, follow one leader and have applied the log up to `goal`.
    ///
    /// # Errors
    /// Names the first member that is not there yet, and what it lacks.
    pub(super) fn is_settled(&self, goal: Option<u64>) -> Result<(), String> {
        if let Some(warning) = self.ailments().into_iter().next() {
            return Err(warning);
        }
        let Some(leader) = self.leader() else { return Err(self.summary()) };
        for row in &self.members {
            let name = row["name"].as_str().unwrap_or("a member");
            if row["healthy"] != true {
                return Err(format!("{name} is not healthy"));
            } else if row["leader"] != leader["name"] {
                return Err(format!("{name} does not follow {}", leader["name"]));
            } else if row["applied"].as_u64() < goal {
                return Err(format!("{name} has applied {} of {} entries", row["applied"], goal.unwrap_or_default()));
            }
        }
        Ok(())
    }

    pub(super) fn in_json(&self) -> Value {
        let told = |field: &str| self.told.as_ref().map(|told| told[field].clone());
        let leader = self.leader();
        json!({
            "apiVersion": "v1", "kind": "Status",
            "cluster_id": told("cluster_id"),
            "leader": leader.map(|leader| leader["name"].clone()).or(self.unasked_leader().map(|(name, ..)| name.into())),
            "term": leader.map_or_else(|| told("term"), |leader| Some(leader["term"].clone())),
            "voters": told("voters"),
            "reachable_voters": told("reachable_voters"),
            "quorum": told("quorum"),
            "healthy": self.is_healthy(),
            "summary": self.summary(),
            "warnings": self.warnings(),
            "members": self.members,
        })
    }

    /// One line: how it stands.
    pub(super) fn summary(&self) -> String {
        let Some(told) = &self.told else { return "no member answers".to_owned() };
        let counted = match (told["reachable_voters"].as_u64(), told["voters"].as_u64()) {
            (Some(reachable), Some(voters)) => {
                let is_silent = |row: &&Value| row["role"] == "unreachable" && row["votes"] == true;
                let silent = self.members.iter().filter(is_silent).count() as u64;
                // One that stands still is missed by the others only after a while, and by this command at once.
                match reachable + silent > voters {
                    true => format!(
                        "{reachable} of {voters} voters reachable as {} sees it, and {silent} did not answer here",
                        text(told, "name")
                    ),
                    false => format!("{reachable} of {voters} voters reachable"),
                }
            }
            _ => "one member".to_owned(),
        };
        match self.leader() {
            Some(leader) => format!("{} leads in term {}, {counted}", text(leader, "name"), leader["term"]),
            None => match self.unasked_leader() {
                Some((name, term, followers)) => {
                    format!(
                        "{name} leads in term {term}, say {}, and cannot be asked from here; {counted}",
                        followers.join(" and ")
                    )
                }
                None => format!("nobody leads: {counted}"),
            },
        }
    }
}

/// A member that did not answer, with what the others know of it: by its name, or by the URL that was asked.
fn missing(url: Option<&str>, name: Option<&str>, why: &str, known: &BTreeMap<String, Value>) -> Value {
    let is_it = |member: &&Value| {
        let urls = member["client_urls"].as_array().into_iter().flatten();
        url.is_some_and(|url| urls.filter_map(Value::as_str).any(|known| is_same(known, url)))
    };
    let member = name.and_then(|name| known.get(name)).or_else(|| known.values().find(is_it));
    let mut why = why.to_owned();
    if let Some(member) = member.filter(|member| member["reach"] != "reachable") {
        let since = in_words(Duration::from_millis(member["silent_millis"].as_u64().unwrap_or(0)));
        match member["reach"].as_str() {
            Some("refuses" | "refused") => why = format!("refused by its peers: {}", text(member, "why")),
            _ => why = format!("{why}; its peers have not heard it for {since}"),
        }
    }
    json!({
        "name": member.map(|member| member["name"].clone()),
        "id": member.map(|member| member["id"].clone()),
        "votes": member.map(|member| member["votes"].clone()),
        "endpoint": url, "pid": null, "role": "unreachable", "term": null, "leader": null, "commit": null, "applied": null,
        "contradiction": null, "lag": null, "disk": null, "alarms": [], "version": null, "protocol": null, "apply_version": null, "differing": [], "partitions": [],
        "healthy": false, "why": why, "silent_millis": member.map(|member| member["silent_millis"].clone()),
    })
}
