//! Names the command here that does what a word of etcdctl, zkCli or consul does there: [`hinted`].

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs of other tools, and what to say instead.
const VERBS: [(&str, &str); 17] = [
    ("version", "`hustings --version` for this program, `hustings status` for the members"),
    ("delete", "`hustings del`"),
    ("deleteall", "`hustings del --prefix`"),
    ("rm", "`hustings del`"),
    ("move-leader", "`hustings transfer MEMBER`"),
    ("endpoint", "`hustings status`"),
    ("health", "`hustings status`"),
    ("members", "`hustings member list`"),
    ("compaction", "`hustings compact REVISION`"),
    ("set", "`hustings put`"),
    ("create", "`hustings put`"),
    ("ls", "`hustings get --prefix --keys-only`"),
    ("leader", "`hustings status` for the cluster's, `hustings observe NAME` for an election's"),
    ("kv", "`hustings put`, `get` and `del`"),
    ("operator", "`hustings status`, `hustings member`, `hustings transfer`"),
    ("make-mirror", "`hustings export` into an etcd, `hustings import` from one"),
    ("agent", "`hustings serve`"),
];

/// etcdctl's `-w`, or its value where `-w` is a flag of ours.
const FORMS: [&str; 6] = ["-w", "json", "simple", "table", "fields", "protobuf"];

/// The error, with a tip where what was typed is another tool's word for something that is here.
pub(crate) fn hinted(mut error: Error) -> Error {
    let typed = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => typed(&error, ContextKind::InvalidSubcommand).and_then(|word| {
            VERBS.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| format!("here that is {ours}"))
        }),
        ErrorKind::UnknownArgument => typed(&error, ContextKind::InvalidArg)
            .filter(|word| FORMS.contains(&word.as_str()) && std::env::args_os().any(|word| word == "-w"))
            .map(|_| "etcdctl's `-w json` is `-o json` here".to_owned()),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tip_names_commands_that_there_are() {
        let command = crate::command();
        for (theirs, ours) in VERBS {
            assert!(command.find_subcommand(theirs).is_none(), "{theirs} is a command of ours");
            let verbs: Vec<&str> = ours.split('`').filter_map(|part| part.strip_prefix("hustings ")).collect();
            assert!(!verbs.is_empty(), "{theirs}: {ours}");
            for verb in verbs.iter().filter_map(|verb| verb.split(' ').next()).filter(|verb| *verb != "--version") {
                assert!(command.find_subcommand(verb).is_some(), "{theirs}: there is no {verb}");
            }
        }
    }
}
