//! Elections without a fault, while others take the processors: [`run`].

use anyhow::{Context, Result};
use hustings_api::Client;
use hustings_api::etcdserverpb::StatusRequest;
use hustings_console::usage::Usage;
use hustings_testbed::{Cluster, Process, Program, put};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(500);

/// A cluster that should keep its leader.
struct Subject {
    name: String,
    cluster: Cluster,
    /// Highest term seen, and how often it or the leader was another than before.
    last: (u64, u64),
    elections: u32,
    /// Writes that were acknowledged, and the longest of them; writes that were refused.
    puts: u32,
    longest: Duration,
    failed: u32,
}

/// All clusters at once, for so many minutes beside so many busy processes; each is written to twice a second.
///
/// # Errors
/// A cluster does not start, or is gone at the end.
pub(crate) async fn run(programs: Vec<(&str, Program)>, busy: u32, minutes: u32) -> Result<()> {
    let mut subjects = Vec::new();
    for (name, program) in programs {
        let cluster = Cluster::start(program, 3).await?;
        let (name, longest) = (name.to_owned(), Duration::ZERO);
        let mut subject = Subject { name, cluster, last: (0, 0), elections: 0, puts: 0, longest, failed: 0 };
        subject.cluster.leader().await?;
        subject.look().await;
        subject.elections = 0;
        subjects.push(subject);
    }
    let mut busy_ones = Vec::new();
    for _ in 0..busy {
        busy_ones.push(Process::start(Command::new("sh").args(["-c", "while :; do :; done"]), Path::new("/dev/null"))?);
    }
    let before = Usage::now(&BTreeSet::new());
    let end = Instant::now() + Duration::from_secs(u64::from(minutes) * 60);
    while Instant::now() < end {
        for subject in &mut subjects {
            subject.look().await;
        }
        tokio::time::sleep(PERIOD).await;
    }
    let idle = Usage::now(&BTreeSet::new()).since(&before).idle_share();
    drop(busy_ones);
    println!("{minutes} minutes beside {busy} busy processes, cpu idle {:.0} %", idle * 100.0);
    for subject in &subjects {
        let Subject { name, cluster, elections, puts, longest, failed, .. } = subject;
        cluster.leader().await.with_context(|| format!("{name} has no leader at the end"))?;
        println!("{name:9} elections: {elections}  puts: {puts}, {failed} refused, longest {longest:.0?}");
    }
    Ok(())
}

impl Subject {
    async fn look(&mut self) {
        let mut seen = self.last;
        for url in self.cluster.endpoints() {
            let Ok(client) = Client::connect(&[&url]).await else { continue };
            let begun = Instant::now();
            match put(&client, "calm", "x").await {
                Ok(_) => {
                    self.puts += 1;
                    self.longest = self.longest.max(begun.elapsed());
                }
                Err(_) => self.failed += 1,
            }
            let Ok(answer) = client.maintenance().status(StatusRequest {}).await else { continue };
            let answer = answer.into_inner();
            // A follower may not have heard yet; a member that knows a higher term knows better.
            if answer.leader != 0 && answer.raft_term > seen.0 {
                seen = (answer.raft_term, answer.leader);
            }
        }
        self.elections += u32::from(seen != self.last);
        self.last = seen;
    }
}
