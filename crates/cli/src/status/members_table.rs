//! The members as a table that fits a terminal of eighty columns.

use crate::output::{narrow_table, table};
use serde_json::Value;

/// Columns of a terminal as everybody has it.
const WIDTH: usize = 80;

/// A way to write an endpoint.
type Spelling = fn(&str) -> String;

/// The members, a line each where that fits a terminal: long terms and names cost the version first, then parts of
/// endpoints. A table that is still too wide is broken within its cells.
pub(super) fn members_table(members: &[Value]) -> String {
    const COLUMNS: [&str; 8] = ["name", "role", "term", "applied", "lag", "disk", "version", "endpoint"];
    const FEWER: [&str; 7] = ["name", "role", "term", "applied", "lag", "disk", "endpoint"];
    let told = |columns: &[&str], endpoint: Spelling| {
        let cell = |row: &Value, column: &str| match &row[column] {
            Value::String(text) if column == "endpoint" => endpoint(text),
            Value::String(text) => text.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        };
        members.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect::<Vec<Vec<String>>>()
    };
    let tries: [(&[&str], Spelling); 4] =
        [(&COLUMNS, address), (&FEWER, address), (&FEWER, short_address), (&FEWER, port)];
    let mut tables = tries.into_iter().map(|(columns, endpoint)| table(columns, told(columns, endpoint)));
    let fitting = tables.find(|table| table.lines().all(|line| line.chars().count() <= WIDTH));
    fitting.unwrap_or_else(|| narrow_table(&FEWER, told(&FEWER, short_address), WIDTH))
}

/// An endpoint without its scheme.
fn address(url: &str) -> String {
    url.split_once("://").map_or(url, |(_, address)| address).to_owned()
}

/// An endpoint by the first part of its host's name and its port: `hustings-0…:2379`. An address of numbers stays whole.
fn short_address(url: &str) -> String {
    let address = address(url);
    match address.rsplit_once(':').and_then(|(host, port)| Some((host.split_once('.')?.0, port))) {
        Some((first, port)) if first.contains(|one: char| !one.is_ascii_digit()) => format!("{first}…:{port}"),
        _ => address,
    }
}

/// An endpoint by its port alone, where its host has a name.
fn port(url: &str) -> String {
    let short = short_address(url);
    short.split_once('…').map_or(short.clone(), |(_, port)| format!("…{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(name: &str, term: u64, endpoint: &str) -> Value {
        json!({
            "name": name, "role": "follower", "term": term, "applied": 1_000_000, "lag": 0, "disk": "ok",
            "version": "0.1.0", "endpoint": endpoint,
        })
    }

    fn shown(members: &[Value]) -> String {
        let table = members_table(members);
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "it fits a terminal:\n{table}");
        table
    }

    #[test]
    fn a_table_of_long_terms_and_names_fits_a_terminal() {
        let after_restore = 1 << 36;
        let short = shown(&[member("n1", 7, "http://127.0.0.1:2379")]);
        assert!(short.contains("0.1.0") && short.contains(" 127.0.0.1:2379"), "nothing is left out:\n{short}");
        let long = shown(&[member("n1", after_restore, "http://192.168.100.100:22379")]);
        assert!(long.contains("68719476736") && long.contains(" 192.168.100.100:22379"), "{long}");
        let kubernetes = shown(&[member("hustings-0", after_restore, "http://hustings-0.hustings:2379")]);
        assert!(!kubernetes.contains("0.1.0") && kubernetes.contains("hustings-0…:2379"), "{kubernetes}");
        let mut silent =
            member("hustings-0", after_restore, "https://hustings-0.hustings.production.svc.cluster.local:2379");
        silent["role"] = "unreachable".into();
        let silent = shown(&[silent]);
        assert!(silent.contains("unreachable") && silent.contains(" …:2379"), "{silent}");
        let name = "a-member-with-a-name-that-is-as-long-as-somebody-has-patience";
        shown(&[member(name, after_restore, &format!("http://{name}.example:2379"))]);
    }
}
