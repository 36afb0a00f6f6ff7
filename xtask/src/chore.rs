//! The parts that chores share: where things lie, how they are built and run, how a chore's version is read.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The result of a chore: an error is a sentence for the person who ran it.
pub type Outcome = Result<(), String>;

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Directory of the builds.
pub fn target() -> PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), Into::into)
}

/// The `cargo` that runs this chore, in the repository.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.current_dir(root());
    command
}

/// Builds this binary again, with a feature, and runs a chore of it.
#[cfg_attr(
    all(feature = "kube-apiserver", feature = "upgrade", feature = "proto"),
    expect(dead_code, reason = "this binary has it all")
)]
pub fn again_with(feature: &str, chore: &str, arguments: &[&str]) -> Outcome {
    run(cargo().args(["run", "-q", "-p", "xtask", "--features", feature, "--", chore]).args(arguments))
}

/// Runs a command to its end.
///
/// It does not see what `cargo run` told this chore about its own package: build scripts that look at it (that of `ring` does) would
/// differ from those of a shell, and with them everything above would be built anew at each change between the two.
pub fn run(command: &mut Command) -> Outcome {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?} did not start: {error}")),
    }
}

/// The build profile of the programs that a chore measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Release builds, as users have them.
    Release,
    /// As tests have them: built sooner.
    Dev,
}

impl Profile {
    /// The folder with what is built so.
    pub fn folder(self) -> PathBuf {
        target().join(if self == Profile::Release { "release" } else { "debug" })
    }

    /// Builds these packages or targets.
    pub fn build(self, what: &[&str]) -> Outcome {
        let release: &[&str] = if self == Profile::Release { &["--release"] } else { &[] };
        run(cargo().args(["build", "-q"]).args(what).args(release))
    }
}

/// The machine that a measurement runs on: without it the figures say little.
#[cfg(feature = "kube-apiserver")]
pub struct Surroundings {
    profile: Profile,
    before: Option<Ticks>,
}

/// Ticks of all processors since the start of the machine.
#[cfg(feature = "kube-apiserver")]
struct Ticks {
    all: u64,
    idle: u64,
}

#[cfg(feature = "kube-apiserver")]
impl Ticks {
    fn now() -> Option<Ticks> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<u64> =
            text.lines().next()?.split_whitespace().skip(1).filter_map(|one| one.parse().ok()).collect();
        // The fourth is idle time, and the fifth idle but for a disk.
        Some(Ticks { all: ticks.iter().take(8).sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }
}

#[cfg(feature = "kube-apiserver")]
impl Surroundings {
    /// Notes that the measurement begins.
    pub fn begin(profile: Profile) -> Surroundings {
        Surroundings { profile, before: Ticks::now() }
    }

    /// The machine in words, and how busy it was meanwhile, with this measurement and all others.
    pub fn told(&self) -> String {
        let name = if self.profile == Profile::Release { "release" } else { "dev" };
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let busy = self.before.as_ref().zip(Ticks::now()).map(|(before, now)| {
            let (all, idle) = (now.all.saturating_sub(before.all), now.idle.saturating_sub(before.idle));
            format!(", {} % busy meanwhile with this and all else", (all - idle.min(all)) * 100 / all.max(1))
        });
        format!("{name} profile, {cores} cores{}", busy.unwrap_or_default())
    }
}

/// Reads `[--version VERSION] [FLAG]`; the default, where no version is given, and whether there is the flag.
pub fn version_and<'a>(arguments: &[&'a str], default: &'a str, flag: &str) -> Option<(&'a str, bool)> {
    let (version, rest) = match arguments {
        ["--version", version, rest @ ..] => (*version, rest),
        rest => (default, rest),
    };
    match rest {
        [] => Some((version, false)),
        [one] if *one == flag => Some((version, true)),
        _ => None,
    }
}

/// Runs `go` in a folder, which need not have its sums yet; it yields to all other processes.
pub fn go(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("nice");
    command.args(["-n", "5", "go"]).args(arguments).current_dir(folder);
    run(command.env("GOFLAGS", "-mod=mod -p=1").env("CGO_ENABLED", "0"))
}

/// Runs what a chore does beside processes of its own, on so many threads.
#[cfg(feature = "kube-apiserver")]
pub fn block_on<T>(threads: usize, done: impl Future<Output = anyhow::Result<T>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(done).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stands_before_the_flag() {
        let read = |arguments: &[&'static str]| version_and(arguments, "1.0", "--stay");
        assert_eq!(read(&[]), Some(("1.0", false)));
        assert_eq!(read(&["--stay"]), Some(("1.0", true)));
        assert_eq!(read(&["--version", "2.0"]), Some(("2.0", false)));
        assert_eq!(read(&["--version", "2.0", "--stay"]), Some(("2.0", true)));
        for wrong in [&["--stay", "--version", "2.0"][..], &["--version"], &["2.0"]] {
            assert_eq!(read(wrong), None);
        }
    }
}
