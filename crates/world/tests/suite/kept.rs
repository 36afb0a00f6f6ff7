//! Runs that are kept because it took long to find them: [`Run`].
//!
//! `HUSTINGS_CONVICTIONS=write cargo test -p hustings-world --test stories defects` plays none of them, looks for every defect anew,
//! and keeps the run of each that took a second or more; `mend` instead of `write` does so for those whose run convicts nobody any
//! more, or that have none. A run says what it does and not whom it convicts: after a change of the
//! members' behaviour it may convict nobody any more. Then the defect is looked for, as if nothing had been kept.

use super::Conviction;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A defect that is found sooner than this is looked for anew each time.
const LONG: Duration = Duration::from_secs(1);

/// The run that convicted a defect when it was last looked for.
pub struct Run {
    path: PathBuf,
    is_played: bool,
    is_written: bool,
}

impl Run {
    /// The run of this defect, if one is kept.
    pub fn of(protocol: &str, defect: &str) -> Run {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/defects/kept");
        let word = std::env::var("HUSTINGS_CONVICTIONS").unwrap_or_default();
        let (is_played, is_written) = (word != "write", ["write", "mend"].contains(&&*word));
        Run { path: folder.join(format!("{protocol}-{defect}.txt")), is_played, is_written }
    }

    /// Plays it: the conviction, if it still is one.
    pub fn played(&self, play: impl FnOnce(&str) -> Option<String>) -> Option<Conviction> {
        if !self.is_played {
            return None;
        }
        let text = std::fs::read_to_string(&self.path).ok()?;
        let property = play(&text)?;
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Some(Conviction { script: Some(text), ..Conviction::new(format!("kept run {name}"), property) })
    }

    /// Looks for the defect, and keeps the run that convicts it, if that took long and is asked for.
    pub fn looked_for(&self, look: impl FnOnce() -> Option<Conviction>) -> Option<Conviction> {
        let begun = Instant::now();
        let found = look();
        if self.is_written {
            let script = found.as_ref().and_then(|found| found.script.as_ref()).filter(|_| begun.elapsed() >= LONG);
            match script {
                Some(script) => std::fs::write(&self.path, script).expect("the folder of kept runs can be written"),
                // A defect that is found at once, by a story, or by nothing, needs no script.
                None => drop(std::fs::remove_file(&self.path)),
            }
        }
        found
    }
}
