//! The defects of protocols as they were published, each a story of a few steps: [`STORIES`].
//!
//! A story is a script whose comments tell what one sees. Both forms play it side by side: in the published one the named
//! property falls, in the repaired one all hold. Tests play both.

use super::playing::{PUBLISHED, REPAIRED};
use hustings_protocols as protocols;
use hustings_world::Script;
use serde_json::{Value, json};
use std::path::Path;

/// The story of a published defect.
pub(crate) struct Story {
    /// Its name in an address.
    pub(crate) name: &'static str,
    /// Name of the protocol.
    pub(crate) protocol: &'static str,
    /// The form that has the defect.
    pub(crate) form: &'static str,
    /// The defect in a line.
    pub(crate) title: &'static str,
    /// The repair, and where it is told.
    pub(crate) repair: &'static str,
    /// The property that falls.
    pub(crate) property: &'static str,
    /// The text of the script that shows the defect.
    pub(crate) script: &'static str,
}

/// All of them, in the order in which they are best read.
pub(crate) const STORIES: &[Story] = &[
    Story {
        name: "raft-returning-follower",
        protocol: "raft",
        form: PUBLISHED,
        title: "Raft: a follower that was cut off comes back and deposes a healthy leader",
        repair: "Pre-vote and check-quorum: whoever hears a leader gives no vote, so a campaign that could not win is never begun.",
        property: "expectation",
        script: include_str!("published/raft-returning-follower.txt"),
    },
    Story {
        name: "gmt2000-votes-twice",
        protocol: "gmt2000",
        form: PUBLISHED,
        title: "GMT-2000: a late ELECT makes a voter vote twice, and two servers lead one term",
        repair: "Ballots: a vote is a durable promise, given once (GM-4 and GM-6 in docs/protocols/rules/gmt2000.md).",
        property: "one-leader-per-term",
        script: include_str!("published/gmt2000-votes-twice.txt"),
    },
    Story {
        name: "blazingmq-forgets-support",
        protocol: "blazingmq",
        form: PUBLISHED,
        title: "BlazingMQ: a voter that restarts forgets whom it supported, and two nodes lead one term",
        repair: "The term is written down before support is given (docs/protocols/blazingmq.md, As published).",
        property: "one-leader-per-term",
        script: include_str!("published/blazingmq-forgets-support.txt"),
    },
    Story {
        name: "blazingmq-compares-ids",
        protocol: "blazingmq",
        form: "seed-literal",
        title: "BlazingMQ: a voter says yes to larger ids only, and a majority stays without a leader",
        repair: "A voter compares terms, as the implementation does (docs/protocols/rules/blazingmq.md, §1.7).",
        property: "expectation",
        script: include_str!("published/blazingmq-compares-ids.txt"),
    },
    Story {
        name: "zab-epoch-before-history",
        protocol: "zab",
        form: PUBLISHED,
        title: "ZAB: an epoch is on disk before the history that it vouches for, and an empty log wins",
        repair: "The epoch is written down together with the history, when NEWLEADER comes (ZOOKEEPER-4643).",
        property: "assertions",
        script: include_str!("published/zab-epoch-before-history.txt"),
    },
    Story {
        name: "zab-hasty-acknowledgement",
        protocol: "zab",
        form: PUBLISHED,
        title: "ZAB: NEWLEADER is acknowledged before it is on disk, and what was committed is lost",
        repair: "The acknowledgement rests on the disk (ZOOKEEPER-4646).",
        property: "leader-completeness",
        script: include_str!("published/zab-hasty-acknowledgement.txt"),
    },
    Story {
        name: "paxos-unasked-ballot",
        protocol: "paxos",
        form: PUBLISHED,
        title: "TRex Paxos: accepts that nobody answers are sent again under a ballot that nobody promised",
        repair: "They are sent again under the same ballot; another one begins with a prepare round (TH-1).",
        property: "state-machine-safety",
        script: include_str!("published/paxos-unasked-ballot.txt"),
    },
    Story {
        name: "paxos-raised-ballot",
        protocol: "paxos",
        form: PUBLISHED,
        title: "TRex Paxos: a leader raises its ballot without asking, and overwrites what was chosen",
        repair: "A ballot that nobody promised is never used: who hears of a higher promise has lost that voter (TH-2).",
        property: "state-machine-safety",
        script: include_str!("published/paxos-raised-ballot.txt"),
    },
];

/// The properties that are judged at every step, for people; `crates/properties` has the whole of it.
const PROPERTIES: [(&str, &str); 14] = [
    ("one-leader-per-term", "At most one member leads a term."),
    ("leader-appends-only", "A leader never overwrites or removes entries of its log."),
    ("log-matching", "The same place holds the same entry, after the same entry, everywhere."),
    ("leader-completeness", "The leader holds everything that was committed in earlier terms."),
    ("state-machine-safety", "Nobody commits another entry where one was committed."),
    ("commit-on-quorum", "What is committed is on the disks of a quorum."),
    ("promises-stay", "Promises only grow, and a vote stays for its term."),
    ("votes-are-durable", "A member whose vote is counted has that vote on disk."),
    ("durable-survives", "A restart brings back all that was on disk."),
    ("never-backwards", "Terms and commits do not fall within a life."),
    ("tokens-grow", "A later fencing token is a larger one."),
    ("one-outcome", "What was refused is never committed."),
    ("linearizable", "What clients saw is what one copy of the data would have shown."),
    ("assertions", "No member came to a state that its own code calls impossible."),
];

/// All that a page can choose from.
pub(crate) fn catalogue(storms: &Path) -> Value {
    let protocols = protocols::NAMES.map(|name| json!({ "name": name, "defects": crate::plants_of(name) }));
    let stories: Vec<Value> = STORIES.iter().map(Story::json).collect();
    let properties = PROPERTIES.map(|(name, says)| json!({ "name": name, "says": says }));
    json!({ "protocols": protocols, "stories": stories, "storms": storms_in(storms), "properties": properties })
}

impl Story {
    fn json(&self) -> Value {
        let Story { name, protocol, form, title, repair, property, script } = self;
        json!({ "name": name, "title": title, "repair": repair, "property": property, "script": script,
            "panes": [{ "protocol": protocol, "form": form }, { "protocol": protocol, "form": REPAIRED }] })
    }
}

/// The storms of a directory that a page can show; none if it is not there.
fn storms_in(directory: &Path) -> Vec<Value> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut storms: Vec<(String, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let script = std::fs::read_to_string(entry.path().join("storm.txt")).ok()?;
            let is_shown = Script::parse(&script).is_ok_and(|script| script.settings.nodes <= 9);
            is_shown.then(|| (entry.file_name().to_string_lossy().into_owned(), script))
        })
        .collect();
    storms.sort();
    storms.into_iter().map(|(name, script)| json!({ "name": name, "script": script })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::playing::{Order, play};

    /// The property that falls when a form plays a story.
    fn fallen(story: &Story, form: &str) -> Option<String> {
        let script = Script::parse(story.script).expect("a story can be read");
        assert!(script.headline.len() >= 2, "{} says what it is about", story.name);
        let order = Order {
            protocol: story.protocol.into(),
            form: form.into(),
            script: story.script.into(),
            until: 0,
            from: 0,
        };
        let run = play(&order).expect("a story is played");
        assert!(run["stopped"].is_null());
        Some(run["violation"]["property"].as_str()?.to_owned())
    }

    #[test]
    fn each_published_defect_is_seen_and_its_repair_holds() {
        crate::keep_quiet_about_findings();
        let broken: Vec<_> = STORIES.iter().map(|story| (story.name, fallen(story, story.form))).collect();
        let wanted: Vec<_> = STORIES.iter().map(|story| (story.name, Some(story.property.to_owned()))).collect();
        assert_eq!(broken, wanted);
        let repaired: Vec<_> = STORIES.iter().map(|story| (story.name, fallen(story, REPAIRED))).collect();
        assert_eq!(repaired, STORIES.iter().map(|story| (story.name, None)).collect::<Vec<_>>());
    }

    #[test]
    fn every_protocol_has_a_story() {
        for name in protocols::NAMES {
            assert!(STORIES.iter().any(|story| story.protocol == name && story.form == PUBLISHED), "{name}");
        }
    }
}
