//! The system's figures about this process, for metrics: [`Process`].
//!
//! Source: proc(5). A figure that cannot be read is zero.

/// The kernel's ticks of processor time per second; 100 on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// The system's figures about this process.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Process {
    /// Memory that is in use.
    pub(crate) resident_bytes: u64,
    /// Memory that is mapped.
    pub(crate) virtual_bytes: u64,
    /// Open files and sockets.
    pub(crate) descriptors: u64,
    /// Most descriptors that it may have open.
    pub(crate) descriptors_max: u64,
    /// Processor time used, seconds.
    pub(crate) cpu_seconds: f64,
    /// Start of the process, seconds since 1970.
    pub(crate) started_seconds: f64,
}

impl Process {
    /// Reads the present figures from five small files.
    pub(crate) fn now() -> Process {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (status, limits, stat) = (read("/proc/self/status"), read("/proc/self/limits"), read("/proc/self/stat"));
        // The name stands in parentheses and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        let boot = number_after(&read("/proc/stat"), "btime") as f64;
        Process {
            resident_bytes: number_after(&status, "VmRSS:") * 1_024,
            virtual_bytes: number_after(&status, "VmSize:") * 1_024,
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            descriptors_max: number_after(&limits, "Max open files"),
            cpu_seconds: (ticks(11) + ticks(12)) / TICKS_PER_SECOND,
            started_seconds: boot + ticks(19) / TICKS_PER_SECOND,
        }
    }
}

/// The first number of the line that begins so.
fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_process() {
        let process = Process::now();
        assert!(process.resident_bytes > 1 << 20 && process.virtual_bytes >= process.resident_bytes, "{process:?}");
        assert!(process.descriptors > 2 && process.descriptors_max > process.descriptors, "{process:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((0.0..86_400.0).contains(&(now - process.started_seconds)), "{process:?}");
    }
}
