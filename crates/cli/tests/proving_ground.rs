//! Goal: the proving ground answers numbers that nobody can mean, files that cannot be written and users who lose patience in words
//! and with the right code. Method: the binary itself, as a user calls it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const HUSTINGS: &str = env!("CARGO_BIN_EXE_hustings");

fn hustings(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(HUSTINGS).args(arguments).current_dir(root).output().expect("the binary runs")
}

fn words(line: &str) -> Output {
    hustings(&line.split_whitespace().collect::<Vec<_>>())
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

#[test]
fn numbers_that_nobody_can_mean_are_refused_with_the_flag_and_its_range() {
    for (line, flag) in [
        ("simulate --minutes 18446744073709551615", "--minutes"),
        ("simulate --minutes 307445734561825861", "--minutes"),
        ("simulate --hours 18446744073709551615", "--hours"),
        ("simulate --hours 5124095576030431", "--hours"),
        ("simulate --guided --seed 1 --hours 999999999999999 --seeds 2", "--hours"),
        ("compare --storm star --seeds 18446744073709551615", "--seeds"),
    ] {
        let output = words(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(flag) && said(&output).contains(".."), "{line}: {}", said(&output));
    }
}

#[test]
fn the_last_seeds_are_seeds_like_others_and_the_first_one_follows() {
    for (line, seeds) in [
        ("simulate --seed 18446744073709551615 --minutes 1", "1"),
        ("simulate --from 18446744073709551610 --seeds 10 --minutes 0 --jobs 1000000", "10"),
        ("simulate --guided --seed 18446744073709551615 --seeds 3", "3"),
    ] {
        let output = words(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        let row = said(&output).lines().find(|line| line.starts_with("seeds ")).map(str::to_owned);
        assert!(row.is_some_and(|row| row.ends_with(&format!(" {seeds}"))), "{line}: {}", said(&output));
    }
}

/// Goal: a check says that all holds only of what it was asked to plant. Method: a defect of hosts and one of candidates, of which its worlds
/// have none; and one that all protocols share, which it convicts.
#[test]
fn a_check_plants_what_its_worlds_have_and_refuses_the_rest() {
    let refused = [
        ("answers-early", "hosts"),
        ("candidate-releases-early", "candidates"),
        ("commits-once", "changes of members"),
    ];
    for (defect, of) in refused {
        let output = words(&format!("check --plant {defect}"));
        assert_eq!(output.status.code(), Some(2), "{defect}: {}", said(&output));
        assert!(said(&output).contains(of) && said(&output).contains("`simulate` has them"), "{}", said(&output));
    }
    let bounds = "check --terms 2 --proposals 1 --crashes 1 --timers 1 --no-pre-vote --states 100000";
    let output = words(&format!("{bounds} --plant unsynced-entries"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("commit-on-quorum"), "{}", said(&output));
}

#[test]
fn where_there_is_time_for_no_run_a_search_says_so_as_seeds_do() {
    for line in ["simulate --for 0s", "simulate --seeds 0", "simulate --guided --for 0s", "simulate --guided --seeds 0"]
    {
        let output = words(line);
        assert_eq!(output.status.code(), Some(3), "{line}: {}", said(&output));
    }
}

#[test]
fn a_script_that_makes_no_sense_is_refused_with_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("script.txt");
    for (text_of_it, wanted) in [
        ("pace 18446744073709551615us", "line 1: `18446744073709551615us` is too long a time; 8760h is the longest"),
        ("wait 1s\nsuspend n1 18446744073709551615us", "line 2: `18446744073709551615us` is too long a time"),
        ("load values 18446744073709551615", "line 1: `values` is 1572864 at most"),
        ("load clients 9000 values 1000000", "line 1: 9000 clients with values of 1000000 bytes"),
        ("load rivals 18446744073709551615", "line 1: `rivals` is 1000 at most"),
        ("disk n1 full 18446744073709551615", "line 1: the number of bytes that are left is 1099511627776 at most"),
        ("disk n1 crash-at 18446744073709551615", "line 1: the number of an operation is"),
        ("cluster 3\ncrash n77", "line 2: there is no member `n77` here"),
        ("crash n0", "line 1: there is no member `n0`; the first one is `n1`"),
        ("put k v at n4", "line 1: there is no member `n4` here"),
        ("crash n4\njoin", "line 1: there is no member `n4` here"),
        ("peace crash n99", "line 1: there is no member `n99` here"),
        ("network 5ms 1ms", "line 1: the shortest comes first: write 1ms 5ms"),
        ("links 5ms 1ms", "line 1: the shortest comes first: write 1ms 5ms"),
        ("syncs 2ms 1ms", "line 1: the shortest comes first: write 1ms 2ms"),
        ("load stays 7", "line 1: `stays` is 1 at most, not 7"),
        ("network 1ms 2ms loss 1000001", "line 1: `loss` is 1000000 at most"),
        ("links 1ms 2ms loss 1000001", "line 1: the number of messages lost in a million is 1000000 at most"),
        ("priorities preferred", "line 1: `priorities` has one word a member: 3, not 1"),
        ("expect changes 5 to 1", "line 1: the least comes first: write `expect changes 1 to 5`"),
        ("wait 1s\npartition", "line 2: `partition` names no member"),
        ("cluster 3\ncluster 5", "line 2: there is one `cluster` line"),
        ("wait 1s\ncluster 5", "line 2: `cluster` says how the world is made"),
        ("", "there is nothing to play in it"),
        ("# Only words.\n", "there is nothing to play in it"),
    ] {
        std::fs::write(&script, text_of_it).expect("a file");
        let output = hustings(&["play", text(&script)]);
        assert_eq!(output.status.code(), Some(2), "{text_of_it}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{text_of_it}: {}", said(&output));
    }
    std::fs::write(&script, "settle 5s\njoin\nsettle 5s\nput k v at n4\ncrash n4\n").expect("a file");
    assert!(hustings(&["play", text(&script)]).status.success(), "one that joined is there");
}

#[test]
fn an_expectation_that_is_not_met_is_told_in_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("script.txt");
    std::fs::write(&script, "crash all\nwait 1s\nexpect leader n1\n").expect("a file");
    let output = hustings(&["play", text(&script)]);
    assert!(said(&output).contains("n1 was to lead, and nobody does"), "{}", said(&output));
}

#[test]
fn what_is_not_there_to_be_played_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    for command in [["play", "--storms"], ["compare", "--storms"]] {
        let output = hustings(&[&command[..], &[text(directory.path())]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("there is no storm in"), "{}", said(&output));
    }
    let names = said(&hustings(&["play", "--help"]));
    let names = names.split("broken and repaired: ").nth(1).expect("the stories are named");
    let first = names.split([',', '.']).next().expect("a name");
    let output = hustings(&["play", &format!("{first}x")]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(&format!("did you mean `{first}`?")), "{}", said(&output));
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let missing = directory.path().join("missing/story.txt");
    // A run of this length takes longer than anybody waits.
    let long = ["simulate", "--hours", "900"];
    let search = ["simulate", "--guided", "--for", "1h"];
    for (command, flag, path) in [
        (&long[..], "--script", missing.clone()),
        (&long, "--report", PathBuf::from("/dev/full")),
        (&search, "--corpus", file.clone()),
        (&search, "--script", missing.clone()),
    ] {
        let output = hustings(&[command, &[flag, text(&path)]].concat());
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", said(&output));
        assert!(said(&output).contains(flag) && said(&output).contains(text(&path)), "{}", said(&output));
    }
    // The genuine tool's code for "could not be carried out": 1 would say that the history is invalid.
    for store in [text(&file), "/proc"] {
        let output = hustings(&["workload", "--virtual", "--time-limit", "3600", "--store", store]);
        assert_eq!(output.status.code(), Some(255), "{store}: {}", said(&output));
        assert!(said(&output).contains("--store"), "{}", said(&output));
    }
}

/// Goal: a history that cannot be kept is not taken for an invalid one. Method: the shell lets this process write no byte to a file.
#[test]
fn a_valid_run_whose_history_cannot_be_written_could_not_be_carried_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = r#"trap "" XFSZ; ulimit -f 0; exec "$0" workload --virtual --seed 1 --time-limit 5 --store "$1""#;
    let output = Command::new("sh").args(["-c", line, HUSTINGS, text(directory.path())]).output().expect("sh runs");
    assert_eq!(output.status.code(), Some(255), "{}", said(&output));
    assert!(said(&output).starts_with("valid: ") && said(&output).contains("cannot write"), "{}", said(&output));
}

#[test]
fn a_search_that_is_interrupted_tells_and_keeps_what_it_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let corpus = directory.path().join("corpus");
    for signal in ["-INT", "-TERM"] {
        let mut search = Command::new(HUSTINGS);
        search.args(["simulate", "--guided", "--for", "1h", "--corpus", text(&corpus)]);
        let search = search.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let begun = Instant::now();
        while !corpus.is_dir() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args([signal, &search.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let output = search.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert!(said(&output).contains("interrupted"), "{}", said(&output));
        let _ = std::fs::remove_dir_all(&corpus);
    }
}

/// Number of facts that a search in this corpus says it reached, and of the runs that it kept.
fn searched(corpus: &Path, arguments: &[&str]) -> (u64, u64) {
    let search = ["simulate", "--guided", "--minutes", "1", "--corpus", text(corpus)];
    let output = hustings(&[&search, arguments].concat());
    assert!(output.status.success(), "{}", said(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name)).expect("the line is there");
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
    };
    (number("facts reached"), number("runs kept"))
}

/// Goal: what a search kept is where the next one begins. Method: a short search; one that only runs what was kept; one that has no time for
/// all of it; and a file that no search wrote.
#[test]
fn a_search_begins_with_what_an_earlier_one_kept_and_loses_none_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = || std::fs::read_dir(directory.path()).expect("a directory").count() as u64;
    let (reached, kept) = searched(directory.path(), &["--seed", "1", "--seeds", "30"]);
    assert_eq!(files(), kept);
    let count = kept.to_string();
    let (again, needed) = searched(directory.path(), &["--seed", "2", "--seeds", &count]);
    assert!(again >= reached && needed <= kept, "{again} of {reached} facts by {needed} of {kept} runs");
    assert_eq!(files(), needed);
    searched(directory.path(), &["--seed", "3", "--seeds", "1"]);
    assert_eq!(files(), needed, "what was not run stays");
    let story = directory.path().join("raft-00000.txt");
    std::fs::write(&story, "cluster 3\nsettle 5s\n").expect("a file");
    let output = hustings(&["simulate", "--guided", "--seeds", "1", "--corpus", text(directory.path())]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(text(&story)), "{}", said(&output));
}

#[test]
fn seeds_that_are_interrupted_are_summed_up() {
    for (arguments, summary) in
        [(&["--for", "1h"][..], "virtual time"), (&["--seeds", "1000000", "-o", "json"], "\"seeds\"")]
    {
        let mut search = Command::new(HUSTINGS);
        let search = search.arg("simulate").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let search = search.spawn().expect("the binary runs");
        let begun = Instant::now();
        while !hears(search.id(), 2) && begun.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args(["-INT", &search.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let output = search.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        let is_before = said(&output).contains("interrupted before the first run");
        assert!(is_before || said(&output).contains(summary), "{}", said(&output));
    }
}

/// Goal: the page on five continents shows what the command prints today. Method: the command is typed; 12 s of one core.
#[test]
fn the_tables_on_five_continents_are_those_of_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/regions.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let tables = page.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
    let (tables, _) = tables.expect("the page has tables");
    let output = words("regions");
    assert!(output.status.success(), "{}", said(&output));
    let printed = said(&output);
    let differ = tables.lines().zip(printed.lines()).find(|(shown, printed)| shown != printed);
    assert_eq!(
        differ, None,
        "docs/regions.md shows the first: put there what `hustings regions` prints, and read the text above it"
    );
    assert_eq!(tables.lines().count(), printed.lines().count(), "docs/regions.md ends elsewhere");
}

/// Whether a process catches this signal.
fn hears(id: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
