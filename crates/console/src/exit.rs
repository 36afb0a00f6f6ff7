//! The exit codes of this program, in one table: [`Code`].
//!
//! `hustings --help` ends with it, `docs/exit-codes.md` has it for readers, and a test ends the program with each of them.
//! Deliberately absent: codes of a command that `hustings run` or `lock` passes on, which are that command's own.

use std::fmt;
use std::fmt::Write as _;

/// The ways in which this program may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The command did what it was to do.
    Done,
    /// It failed, and said why.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The thing that was asked for is not there.
    NotFound,
    /// No quorum, no leader, or no answer in time.
    Unavailable,
    /// This user may not do that.
    NotAllowed,
    /// There is a leader, and some member is not as it should be.
    Degraded,
    /// A search that came to no verdict.
    Unjudged,
    /// A test in which nothing happened that could be judged.
    Unknown,
    /// The leadership was lost.
    Lost,
    /// The sidecar itself failed.
    Sidecar,
    /// The command cannot be run.
    NotExecutable,
    /// There is no such command.
    NoCommand,
    /// The user ended a search before it was over.
    Interrupted,
    /// The command line of a bench for Maelstrom is wrong.
    BadArguments,
    /// The test could not be carried out.
    Broken,
}

/// Exit code of a sidecar that failed, as `hustings_election::supervisor::EXIT_SUPERVISOR`; a test of the program compares the two.
pub const SIDECAR: u8 = 125;

/// The commands that judge protocols.
const PROVERS: &str = "simulate, check, play, compare, convict";

impl Code {
    /// All codes, by number.
    pub const ALL: [Code; 16] = [
        Code::Done,
        Code::Failed,
        Code::Usage,
        Code::Unknown,
        Code::NotFound,
        Code::Unjudged,
        Code::Unavailable,
        Code::NotAllowed,
        Code::Degraded,
        Code::Lost,
        Code::Sidecar,
        Code::NotExecutable,
        Code::NoCommand,
        Code::Interrupted,
        Code::BadArguments,
        Code::Broken,
    ];

    /// The exit status that the operating system is told.
    pub fn number(self) -> u8 {
        match self {
            Code::Done => 0,
            Code::Failed => 1,
            Code::Usage | Code::Unknown => 2,
            Code::NotFound | Code::Unjudged => 3,
            Code::Unavailable => 4,
            Code::NotAllowed => 5,
            Code::Degraded => 6,
            Code::Lost => 75,
            Code::Sidecar => SIDECAR,
            Code::NotExecutable => 126,
            Code::NoCommand => 127,
            Code::Interrupted => 130,
            Code::BadArguments => 254,
            Code::Broken => 255,
        }
    }

    /// The commands that end so.
    fn commands(self) -> &'static str {
        match self {
            Code::Done | Code::Failed | Code::Usage => "all",
            Code::NotFound => "get, member, user, role, elect, observe, inspect, ...",
            Code::Unavailable => "all that ask a member",
            Code::NotAllowed => "all that ask a member, or a store of elections",
            Code::Degraded => "status",
            Code::Unjudged => PROVERS,
            Code::Interrupted => "simulate",
            Code::Unknown | Code::BadArguments | Code::Broken => "workload",
            Code::Lost => "run, lock, elect",
            Code::Sidecar | Code::NotExecutable | Code::NoCommand => "run, lock",
        }
    }

    /// The meaning in half a line.
    fn meaning(self) -> &'static str {
        match self {
            Code::Done => "done; also a member that was removed or told to stop",
            Code::Failed => "it failed, and said why; a property was violated; a data directory is damaged",
            Code::Usage => "the command line is wrong",
            Code::NotFound => "what was asked for is not there",
            Code::Unjudged => "nothing was found, and not everything was looked at",
            Code::Unavailable => "no quorum, no leader, or no answer in time; a write may have been made",
            Code::NotAllowed => "this user may not do that",
            Code::Degraded => "there is a leader, and some member is not as it should be",
            Code::Unknown => "no verdict: no operation of a client ended",
            Code::Lost => "the leadership was lost; try again later",
            Code::Sidecar => "the sidecar itself failed",
            Code::NotExecutable => "the command cannot be run",
            Code::NoCommand => "there is no such command",
            Code::Interrupted => "SIGINT or SIGTERM ended it early; what it had found is told and written",
            Code::BadArguments => "the command line is wrong",
            Code::Broken => "the test could not be carried out",
        }
    }

    /// The table as `docs/exit-codes.md` has it.
    #[cfg(test)]
    fn as_markdown() -> String {
        let mut text = "| code | commands | meaning |\n|---|---|---|\n".to_string();
        for code in Code::ALL {
            let _ = writeln!(text, "| {} | {} | {} |", code.number(), code.commands(), code.meaning());
        }
        text
    }

    /// The table for the end of `hustings --help`.
    pub fn as_help() -> String {
        let mut text = "Exit codes:\n".to_string();
        for code in Code::ALL {
            let _ = writeln!(text, "  {:>3}  {} ({})", code.number(), code.meaning(), code.commands());
        }
        text.push_str("  What `run` and `lock` start passes its own code on; 128+N where signal N ended it.");
        text
    }
}

/// An outcome that has an exit code of its own.
#[derive(Debug)]
pub struct Exit {
    /// Code that the program ends with.
    pub code: Code,
    /// Words that it says before.
    pub what: String,
}

impl Exit {
    /// The error that ends the program with this code, after it said this.
    pub fn with(code: Code, what: impl Into<String>) -> anyhow::Error {
        Exit { code, what: what.into() }.into()
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl std::error::Error for Exit {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let table = Code::as_markdown();
        assert!(page.contains(&table), "docs/exit-codes.md lacks this table:\n{table}");
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.number()));
    }
}
