//! Checks that the probes name all that the protos let a request name: both are read from the declarations, so that a new
//! method or a new field fails here until somebody tries it.

use std::collections::{BTreeMap, BTreeSet};

use hustings_testbed::probes::cases;
use serde_json::Value;

/// Fields by whose value nobody gets at what is another's: numbers of revisions and of watchers on the caller's own stream, and
/// a hash that the server passes over.
const NAME_NOTHING: [&str; 16] = [
    "AuthUserAddRequest.hashedPassword",
    "AuthUserChangePasswordRequest.hashedPassword",
    "Compare.create_revision",
    "Compare.mod_revision",
    "Compare.value",
    "Compare.version",
    "HashKVRequest.revision",
    "RangeRequest.limit",
    "RangeRequest.max_create_revision",
    "RangeRequest.max_mod_revision",
    "RangeRequest.min_create_revision",
    "RangeRequest.min_mod_revision",
    "RangeRequest.revision",
    "WatchCancelRequest.watch_id",
    "WatchCreateRequest.start_revision",
    "WatchCreateRequest.watch_id",
];

/// The declarations of the protos.
pub struct Declared {
    /// The message that each method takes, by the method's path.
    pub methods: BTreeMap<String, String>,
    /// The fields of each message: name and type, without packages.
    messages: BTreeMap<String, BTreeMap<String, String>>,
}

impl Declared {
    /// Reads all files of the declarations.
    pub fn read() -> Declared {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/proto");
        let mut declared = Declared { methods: BTreeMap::new(), messages: BTreeMap::new() };
        for entry in std::fs::read_dir(folder).unwrap() {
            declared.take(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
        }
        declared
    }

    fn take(&mut self, text: &str) {
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let (mut package, mut service, mut message) = ("", "", "");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            let words: Vec<&str> = line.split([' ', '(', ')', ';']).filter(|word| !word.is_empty()).collect();
            match *words.as_slice() {
                ["package", name] => package = name,
                ["service", name, ..] => service = name,
                ["rpc", method, "stream", takes, ..] | ["rpc", method, takes, ..] => {
                    self.methods.insert(format!("/{package}.{service}/{method}"), last(takes));
                }
                ["message", name, ..] => message = name,
                ["repeated", kind, field, "=", ..] | [kind, field, "=", ..] => {
                    self.messages.entry(message.to_owned()).or_default().insert(field.to_owned(), last(kind));
                }
                _ => {}
            }
        }
    }

    /// The fields that can name something in a request of this kind, at any depth, as `Message.field`.
    fn names_in(&self, message: &str, seen: &mut BTreeSet<String>, found: &mut BTreeSet<String>) {
        if !seen.insert(message.to_owned()) {
            return;
        }
        for (field, kind) in self.messages.get(message).into_iter().flatten() {
            match kind.as_str() {
                "bytes" | "string" | "int64" | "uint64" | "int32" | "uint32" => {
                    found.insert(format!("{message}.{field}"));
                }
                kind => self.names_in(kind, seen, found),
            }
        }
    }

    /// The fields that a request of this kind sets, at any depth, in its form in JSON.
    fn set_in(&self, message: &str, value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.set_in(message, item, found)),
            Value::Object(fields) => {
                for (field, inner) in fields {
                    let kind = self.messages.get(message).and_then(|fields| fields.get(field));
                    let kind = kind.unwrap_or_else(|| panic!("{message} has no field {field}"));
                    found.insert(format!("{message}.{field}"));
                    self.set_in(kind, inner, found);
                }
            }
            _ => {}
        }
    }
}

/// Goal: everything that a request can name is tried, in each method by itself. Method: the fields that the protos declare,
/// against those that the probes set.
#[test]
fn every_field_that_names_something_is_tried() {
    let declared = Declared::read();
    let mut tried: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for case in cases(0) {
        let request: Value = serde_json::from_str(&case.json).unwrap();
        declared.set_in(&declared.methods[case.method], &request, tried.entry(case.method).or_default());
    }
    let (mut untried, mut nameless) = (Vec::new(), BTreeSet::new());
    for (method, message) in declared.methods.iter().filter(|(method, _)| !method.contains("Health")) {
        let mut wanted = BTreeSet::new();
        declared.names_in(message, &mut BTreeSet::new(), &mut wanted);
        let set = tried.remove(method.as_str()).unwrap_or_default();
        for field in wanted.difference(&set) {
            if NAME_NOTHING.contains(&field.as_str()) {
                nameless.insert(field.clone());
            } else {
                untried.push(format!("{method}: {field}"));
            }
        }
    }
    assert!(
        untried.is_empty(),
        "no probe sets these fields: try them in hustings_testbed::probes\n{}",
        untried.join("\n")
    );
    let stale: Vec<&&str> = NAME_NOTHING.iter().filter(|field| !nameless.contains(**field)).collect();
    assert!(stale.is_empty(), "no request has these fields any more, or the probes set them: {stale:?}");
}
