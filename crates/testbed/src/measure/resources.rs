//! Resources that processes use, by `/proc`: memory, and time on a processor.

use std::time::Duration;

/// Memory that a process has resident, MiB; 0 for one that has ended.
pub(crate) fn resident_mib(pid: u32) -> f64 {
    hustings_testbed::memory_mib(pid, "VmRSS").unwrap_or(0.0)
}

/// Time that all threads of a process were on a processor, nanoseconds: ticks of 10 ms would be a third of what is measured.
fn on_processor(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.map(of_thread).sum()
}

/// Resources that the largest of some processes uses while nobody asks it anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRest {
    /// Share of one core, in percent.
    pub(crate) core_percent: f64,
    /// Memory that is resident, MiB: pages of the program among it.
    pub(crate) resident_mib: f64,
}

impl AtRest {
    /// Looks at them for a while, after another in which they come to rest.
    pub(crate) async fn of(pids: &[u32], settle: Duration, look: Duration) -> AtRest {
        tokio::time::sleep(settle).await;
        let before: Vec<u64> = pids.iter().map(|pid| on_processor(*pid)).collect();
        tokio::time::sleep(look).await;
        let used = pids.iter().zip(before).map(|(pid, before)| on_processor(*pid).saturating_sub(before)).max();
        AtRest {
            core_percent: 100.0 * used.unwrap_or(0) as f64 / look.as_nanos() as f64,
            resident_mib: pids.iter().map(|pid| resident_mib(*pid)).fold(0.0, f64::max),
        }
    }
}

impl std::fmt::Display for AtRest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AtRest { core_percent, resident_mib } = self;
        write!(formatter, "{core_percent:.2} % of a core, {resident_mib:.1} MiB (the largest of the nodes)")
    }
}
