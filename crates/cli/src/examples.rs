//! The examples at the end of every `--help`, and the pages and completions that are made of the same tree of commands.
//!
//! Tests walk the tree: a command without an example fails, and so does an example that clap refuses.

use crate::exit::Code;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

/// Each command, by its words, with lines to type; what stands after `# ` explains.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "hustings up  # a cluster of three on this machine",
            "hustings status  # who leads, and who follows",
            "hustings put greeting hello",
        ],
    ),
    (
        "up",
        &[
            "hustings up",
            "hustings up --nodes 5 --protocol zab --data-dir /tmp/five",
            "hustings up --tls  # both ports in TLS",
            "hustings up --audit  # who did what, once `hustings auth enable` has made users count",
        ],
    ),
    (
        "serve",
        &[
            "hustings serve --name n1 --data-dir /var/lib/hustings  # one member alone",
            "hustings serve --name n1 --initial-cluster n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380",
            "hustings serve --config /etc/hustings/n1.toml",
        ],
    ),
    ("config", &["hustings config explain", "hustings config validate --config n1.toml"]),
    ("config explain", &["hustings config explain --name n1  # each setting, and where its value came from"]),
    ("config validate", &["hustings config validate --config n1.toml"]),
    ("config etcd", &["hustings config etcd  # what becomes of each flag of etcd"]),
    (
        "status",
        &[
            "hustings status",
            "hustings status --endpoints 10.0.0.1:2379 -o json",
            "hustings status --wait 30s  # until all follow one leader and are up to date",
        ],
    ),
    ("put", &["hustings put greeting hello", "hustings put --lease 7b greeting hello"]),
    (
        "get",
        &[
            "hustings get greeting",
            "hustings get --prefix /config/ --keys-only",
            "hustings get greeting --rev 7 -o json",
        ],
    ),
    ("del", &["hustings del greeting", "hustings del --prefix /config/"]),
    ("watch", &["hustings watch --prefix /config/", "hustings watch greeting --rev 7 -o json"]),
    ("member", &["hustings member list", "hustings member remove n3"]),
    ("member list", &["hustings member list -o json"]),
    (
        "member add",
        &[
            "hustings member add n4 --peer-urls http://10.0.0.4:2380",
            "hustings member add n4 --peer-urls http://10.0.0.4:2380 --learner",
        ],
    ),
    ("member remove", &["hustings member remove n3"]),
    ("member promote", &["hustings member promote n4"]),
    ("member update", &["hustings member update n3 --peer-urls http://10.0.0.13:2380"]),
    ("alarm", &["hustings alarm list", "hustings alarm disarm  # when there is room again"]),
    ("alarm list", &["hustings alarm list -o json"]),
    ("alarm disarm", &["hustings alarm disarm"]),
    ("compact", &["hustings compact 1000  # what was before revision 1000 is forgotten"]),
    ("transfer", &["hustings transfer n2  # before n1 is stopped"]),
    ("snapshot", &["hustings snapshot save backup.snapshot", "hustings snapshot status backup.snapshot"]),
    ("snapshot save", &["hustings snapshot save --endpoints 10.0.0.1:2379 backup.snapshot"]),
    ("snapshot status", &["hustings snapshot status backup.snapshot -o json"]),
    (
        "snapshot restore",
        &[
            "hustings snapshot restore backup.snapshot --name n1 --data-dir new --initial-cluster n1=http://10.0.0.1:2380",
            "hustings snapshot restore etcd.db --name n1 --data-dir new --initial-cluster n1=http://10.0.0.1:2380  # by etcdctl",
            "hustings snapshot restore backup.snapshot --name n1 --data-dir new --protocol zab --initial-cluster n1=http://10.0.0.1:2380",
        ],
    ),
    ("auth", &["hustings auth status"]),
    ("auth enable", &["hustings auth enable  # after `user add root` and `user grant-role root root`"]),
    ("auth disable", &["hustings auth disable --user root"]),
    ("auth status", &["hustings auth status -o json"]),
    ("user", &["hustings user add alice", "hustings user grant-role alice reader"]),
    ("user add", &["hustings user add alice  # asks for the password", "hustings user add alice --no-password"]),
    ("user get", &["hustings user get alice"]),
    ("user list", &["hustings user list"]),
    ("user delete", &["hustings user delete alice"]),
    ("user passwd", &["hustings user passwd alice"]),
    ("user grant-role", &["hustings user grant-role alice reader"]),
    ("user revoke-role", &["hustings user revoke-role alice reader"]),
    ("role", &["hustings role add reader", "hustings role grant-permission reader read --prefix /config/"]),
    ("role add", &["hustings role add reader"]),
    ("role get", &["hustings role get reader"]),
    ("role list", &["hustings role list"]),
    ("role delete", &["hustings role delete reader"]),
    ("role grant-permission", &["hustings role grant-permission reader read --prefix /config/"]),
    ("role revoke-permission", &["hustings role revoke-permission reader --prefix /config/"]),
    (
        "run",
        &[
            "hustings run --election billing -- ./billing --port 80",
            "hustings run --election billing --store etcd://10.0.0.1:2379 --on-loss exit -- ./billing",
        ],
    ),
    ("lock", &["hustings lock nightly -- ./report.sh"]),
    ("elect", &["hustings elect billing 10.0.0.1:80", "hustings elect billing --step-down"]),
    ("observe", &["hustings observe billing", "hustings observe billing --once -o json"]),
    (
        "why",
        &[
            "hustings why  # the last change of leader, from what all members noted",
            "hustings why --at 2026-11-23T20:34:05Z --endpoints 10.0.0.1:2379",
            "hustings why --ring /var/lib/hustings/default  # of a member that is gone",
            "hustings why billing  # an election of your own",
        ],
    ),
    (
        "replay",
        &["hustings replay /var/lib/hustings/default", "hustings replay n1.recording n2.recording --transitions"],
    ),
    (
        "report",
        &[
            "hustings report  # of all members that answer, into hustings-report-TIME.tar",
            "hustings report n3.tar --ring /var/lib/hustings/default  # of a member that is gone",
        ],
    ),
    ("inspect", &["hustings inspect /var/lib/hustings", "hustings inspect /var/lib/hustings --records"]),
    (
        "bench",
        &[
            "hustings bench put --clients 64 --seconds 10",
            "hustings bench mix --reads 95 --distribution zipf --rate 5000  # open loop: a target that falls behind is seen to",
        ],
    ),
    (
        "bench put",
        &[
            "hustings bench put --endpoints 10.0.0.1:2379 --clients 64 --value-size 256",
            "hustings bench put --value-size 256:90,16384:10 --rate 1000",
        ],
    ),
    ("bench get", &["hustings bench get --clients 64", "hustings bench get --serializable --distribution hot"]),
    (
        "bench mix",
        &[
            "hustings bench mix --reads 95 --distribution zipf  # YCSB's workload B",
            "hustings bench mix --mix get:80,put:15,range:4,delete:1",
        ],
    ),
    ("bench txn", &["hustings bench txn --txn-ops 4"]),
    ("bench range", &["hustings bench range --range-keys 100"]),
    ("bench delete", &["hustings bench delete --keys 100000 --total 100000 --distribution sequential"]),
    ("bench watch", &["hustings bench watch --watchers 1000 --keys 10 --rate 100"]),
    (
        "bench lease",
        &["hustings bench lease keep-alive --clients 1000", "hustings bench lease expiry --leases 1000 --ttl 2"],
    ),
    ("maelstrom", &["hustings maelstrom --protocol raft  # what `maelstrom test --bin` starts"]),
    (
        "workload",
        &[
            "hustings workload --virtual --node-count 5 --nemesis partition,kill",
            "hustings workload --node-count 3 --rate 30",
        ],
    ),
    ("simulate", &["hustings simulate --seeds 1000 --jobs 2", "hustings simulate --protocol zab --seed 7"]),
    ("check", &["hustings check --nodes 3 --terms 2", "hustings check --protocol paxos --crashes 1"]),
    (
        "play",
        &[
            "hustings play scenarios/leader-crash/storm.txt",
            "hustings play scenarios/leader-crash/storm.txt --protocol zab --report run.html  # the run as a picture",
        ],
    ),
    ("compare", &["hustings compare --storm all --seeds 200"]),
    (
        "lab",
        &[
            "hustings lab  # then open http://127.0.0.1:2390/",
            "hustings lab --as-published  # published defects as stories, each beside its repair",
        ],
    ),
    ("regions", &["hustings regions --protocol raft,zab"]),
    ("convict", &["hustings convict --protocol raft"]),
    (
        "recover",
        &[
            "hustings recover /var/lib/hustings/db-a --lost db-b,db-c",
            "hustings recover /var/lib/hustings/db-a --lost db-b,db-c --into /var/lib/hustings/db-a.new",
        ],
    ),
    ("import", &["hustings import --from-etcd http://10.0.0.1:2379 --endpoints 10.0.0.5:2379"]),
    ("export", &["hustings export --to-etcd http://10.0.0.1:2379 --endpoints 10.0.0.5:2379"]),
    ("completions", &["hustings completions bash  # to /usr/share/bash-completion/completions/hustings"]),
    ("manual", &["hustings manual /usr/share/man/man1"]),
];

/// Adds the examples to a command and all below it; the top gets the table of exit codes, too.
pub(crate) fn with_examples(command: Command) -> Command {
    let command = with_examples_below(command, "");
    let footer = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_help(format!("{footer}\n\n{}", Code::as_help()))
}

fn with_examples_below(mut command: Command, words: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_string()).collect();
    for name in names {
        let words = format!("{words} {name}");
        command = command.mut_subcommand(&name, |below| with_examples_below(below, words.trim()));
    }
    let Some((_, lines)) = EXAMPLES.iter().find(|(known, _)| *known == words) else { return command };
    let mut footer = command.get_after_help().map(|footer| format!("{footer}\n\n")).unwrap_or_default();
    footer.push_str("Examples:");
    for line in *lines {
        footer.push_str("\n  ");
        footer.push_str(line);
    }
    command.after_help(footer)
}

/// The command lines of `completions` and `manual`.
pub(crate) fn commands() -> [Command; 2] {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(clap_complete::Shell));
    let directory = Arg::new("directory").required(true).value_parser(value_parser!(PathBuf));
    [
        Command::new("completions")
            .about("Print what completes this program's command lines in a shell")
            .arg(shell.help("Which shell")),
        Command::new("manual")
            .about("Write a manual page for every command into a directory")
            .arg(directory.help("Where to; made if it is not there")),
    ]
}

/// Runs `hustings completions` or `manual`.
pub(crate) fn run(verb: &str, matches: &ArgMatches, mut tree: Command) -> anyhow::Result<()> {
    if verb == "completions" {
        let shell = *matches.get_one::<clap_complete::Shell>("shell").expect("clap requires it");
        // Written whole and then printed: the generator would panic where nobody reads to the end.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut tree, "hustings", &mut script);
        print!("{}", String::from_utf8_lossy(&script));
        return Ok(());
    }
    let directory = matches.get_one::<PathBuf>("directory").expect("clap requires it");
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(tree.disable_help_subcommand(true), directory)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with its words, the hidden ones too.
    fn all_below(command: &Command, words: &str, found: &mut Vec<(String, String)>) {
        let footer = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((words.to_string(), footer));
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            all_below(below, format!("{words} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_command_has_examples_and_clap_takes_them() {
        let mut commands = Vec::new();
        all_below(&crate::command(), "", &mut commands);
        assert!(commands.len() > 50, "the tree is walked");
        for (words, footer) in &commands {
            let (_, examples) = footer
                .split_once("Examples:\n")
                .unwrap_or_else(|| panic!("`hustings {words}` has no examples: add them to EXAMPLES"));
            let lines: Vec<&str> = examples.lines().take_while(|line| line.starts_with("  ")).collect();
            assert!(!lines.is_empty(), "`hustings {words}` has no examples");
            for line in lines {
                let typed: Vec<&str> = line.split("  # ").next().unwrap_or(line).split_whitespace().collect();
                let parsed = crate::command().try_get_matches_from(&typed);
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
                assert!(
                    typed.join(" ").starts_with(format!("hustings {words}").trim()),
                    "{line} is of another command"
                );
            }
        }
        let unknown: Vec<&str> = EXAMPLES
            .iter()
            .map(|(words, _)| *words)
            .filter(|words| !commands.iter().any(|(known, _)| known == words))
            .collect();
        assert!(unknown.is_empty(), "there are no such commands: {unknown:?}");
    }
}
