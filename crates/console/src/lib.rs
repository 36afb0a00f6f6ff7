//! The parts that the commands of `hustings` share on a terminal: exit codes ([`exit`]), output to a reader that may
//! have gone ([`println!`], [`print!`], [`say`]), the file that a path means ([`files`]), and who used this machine meanwhile ([`usage`]).
//!
//! Below all crates of commands, so that each of them can be compiled by itself.

pub mod exit;
pub mod files;
pub mod usage;

use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Arg;

/// Time for the last words of a process.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The program's last action before it ends from within [`write_out`].
static FAREWELL: OnceLock<fn()> = OnceLock::new();

/// As the standard library's, which panics when nobody reads any more; this one ends the program.
#[macro_export]
macro_rules! println {
    () => { $crate::write_out(format_args!(""), "\n") };
    ($($word:tt)*) => { $crate::write_out(format_args!($($word)*), "\n") };
}

/// As [`println!`], without an end of line.
#[macro_export]
macro_rules! print {
    ($($word:tt)*) => { $crate::write_out(format_args!($($word)*), "") };
}

/// As the standard library's, which panics when nobody hears any more; this one goes on.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::write_error(format_args!("")) };
    ($($word:tt)*) => { $crate::write_error(format_args!($($word)*)) };
}

/// Sets what is done before the program ends because nobody reads its output any more. Counts once.
pub fn set_farewell(farewell: fn()) {
    // The first one stays.
    let _ = FAREWELL.set(farewell);
}

/// Writes to standard output: a reader that has read enough, as `head` has, ends the program without a word, and does not make
/// it panic.
pub fn write_out(text: std::fmt::Arguments<'_>, end: &str) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_fmt(text).and_then(|()| out.write_all(end.as_bytes())) else { return };
    drop(out);
    let code = match error.kind() {
        std::io::ErrorKind::BrokenPipe => 0,
        _ => {
            say(format_args!("cannot write to standard output: {error}"));
            1
        }
    };
    if let Some(farewell) = FAREWELL.get() {
        farewell();
    }
    std::process::exit(code);
}

/// Writes a line to standard error; whether anybody can hear it is not this process' business.
pub fn write_error(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says something on standard error, under the program's name.
pub fn say(what: std::fmt::Arguments<'_>) {
    write_error(format_args!("hustings: {what}"));
}

/// Says what there is to say at the end, and waits for it for two seconds at most: a pipe that nobody reads takes nothing, and a process
/// whose end is decided must end all the same.
pub fn last_words(words: impl FnOnce() + Send + 'static) {
    within(LAST_WORDS, words);
}

/// Does something on a thread of its own, for as long at most; says whether it was done.
fn within(longest: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (done, waits) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("hustings-last".into()).spawn(move || {
        work();
        // An error means that nobody waits any more.
        let _ = done.send(());
    });
    thread.is_ok() && waits.recv_timeout(longest).is_ok()
}

/// `-o table|json`, the same for every command that answers something.
pub fn output_argument() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .alias("write-out")
        .value_parser(["table", "json"])
        .default_value("table")
        .help("For people or for programs (one JSON object per line)")
}

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: words that nobody hears keep no process alive. Method: some that never end, and some that do.
    #[test]
    fn words_without_an_end_are_waited_for_no_longer_than_said() {
        let (end, never) = std::sync::mpsc::channel::<()>();
        assert!(!within(Duration::from_millis(10), move || assert!(never.recv().is_err())));
        assert!(within(Duration::from_secs(60), || {}));
        drop(end);
    }
}
