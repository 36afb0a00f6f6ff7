//! Keys and ranges of them on a command line: any bytes but NUL, as the system hands them over; the server takes them as they are.

use bytes::Bytes;
use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use hustings_api::client::prefix_end;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// An argument whose value is bytes, and need not be text.
pub(crate) fn bytes_argument(name: &'static str) -> Arg {
    Arg::new(name).value_parser(OsStringValueParser::new())
}

/// The argument KEY, which must be there.
pub(crate) fn key_argument() -> Arg {
    bytes_argument("key").required(true).help("The key")
}

/// KEY, and the three ways to name a range that begins with it.
pub(crate) fn with_range(command: Command) -> Command {
    command
        .arg(key_argument())
        .arg(bytes_argument("range-end").help("The end of the range, exclusive"))
        .arg(Arg::new("prefix").long("prefix").action(ArgAction::SetTrue).help("All keys that begin with KEY"))
        .arg(Arg::new("from-key").long("from-key").action(ArgAction::SetTrue).help("All keys from KEY on"))
}

/// The bytes of an argument; none where it was left out.
pub(crate) fn bytes_of(matches: &ArgMatches, name: &str) -> Bytes {
    matches.get_one::<OsString>(name).map_or(Bytes::new(), |given| Bytes::copy_from_slice(given.as_bytes()))
}

/// The first key of a range and its end, as requests name them.
pub(crate) fn range_of(matches: &ArgMatches) -> (Bytes, Bytes) {
    let (key, zero) = (bytes_of(matches, "key"), Bytes::from_static(&[0]));
    if !matches.get_flag("prefix") && !matches.get_flag("from-key") {
        return (key, bytes_of(matches, "range-end"));
    }
    let end = if matches.get_flag("prefix") { prefix_end(&key) } else { zero.clone() };
    (if key.is_empty() { zero } else { key }, end)
}
