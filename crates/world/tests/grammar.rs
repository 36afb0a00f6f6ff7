//! Goal: the page of the scripts' grammar says all that the parser reads, and nothing else. Method: each row's example is parsed and
//! written again, and so is each option; each word of the parser has a row; the page holds the tables as they are.

use hustings_raft::{Options, Raft};
use hustings_world::every::{Bounds, bounds_of, header, replay};
use hustings_world::grammar::{BOUNDS, GRAMMAR, HEADERS, Sentence, TRACE, beginnings, fixed, options, tables};
use hustings_world::regions::REGIONS;
use hustings_world::{Command, Script};
use std::collections::BTreeSet;
use std::path::Path;

/// The first words of a line, as many as are asked for.
fn beginning(line: &str, words: usize) -> Vec<&str> {
    line.split(' ').take(words).collect()
}

#[test]
fn every_example_is_read_and_written_as_it_stands() {
    for Sentence { form, example, .. } in &GRAMMAR {
        let command = Command::parse(example).unwrap_or_else(|why| panic!("{form}: {why}"));
        assert_eq!(command.to_string(), *example, "{form}");
        assert_eq!(beginning(form, 1), beginning(example, 1), "{form}");
    }
    for Sentence { form, example, .. } in &HEADERS {
        let script = Script::parse(example).unwrap_or_else(|why| panic!("{form}: {why}"));
        assert!(script.commands.is_empty(), "{form} makes the world");
        assert_ne!(script.settings, Script::parse("mark").expect("it is one").settings, "{form} says something");
        let again = Script::parse(&script.to_string()).expect("it is what was written");
        assert_eq!(again.settings, script.settings, "{form}");
    }
}

/// Something that an option may be given, by what its form says.
fn given(value: &str) -> &str {
    match value {
        "TIME" => "3s",
        "WHO" => "n1",
        "0|1" => "1",
        "yes|no" => "yes",
        "N" => "2",
        // `expect changes 0 to 7`.
        "MOST" => "7",
        other => panic!("nobody knows what {other} stands for"),
    }
}

/// The options of a form that begin with a word, each with something given.
fn options_of(form: &str) -> Vec<String> {
    let options = form.split('[').skip(1).filter_map(|option| option.split(']').next());
    let pairs = options.filter_map(|option| option.split_once(' '));
    let pairs = pairs.filter(|(word, _)| word.starts_with(char::is_lowercase));
    pairs.map(|(word, value)| format!("{word} {}", given(value))).collect()
}

/// The parser reads all that a row says: each option, and each word where a row has several to choose from.
#[test]
fn the_parser_reads_every_word_of_every_row() {
    let mut seen = 0;
    for Sentence { form, example, .. } in HEADERS.iter().chain(&GRAMMAR) {
        let required = form.split(" [").next().expect("a form begins");
        let shortest = beginning(example, required.split(' ').count()).join(" ");
        for option in options_of(form) {
            let line = format!("{shortest} {option}");
            let (with, without) = (Script::parse(&line), Script::parse(&shortest));
            let with = with.unwrap_or_else(|why| panic!("`{form}`, so `{line}`: {why}"));
            assert_ne!(Ok(with), without, "`{line}` says no more than `{shortest}`");
            seen += 1;
        }
        let choices: Vec<&str> = required.split(' ').nth(1).unwrap_or_default().split('|').collect();
        for word in choices.iter().filter(|_| choices.len() > 1) {
            let line = format!("cluster 5\n{} {word}{}", beginning(form, 1)[0], " normal".repeat(4));
            let line = if form.starts_with("regions") { line.replace(" normal", "") } else { line };
            Script::parse(&line).unwrap_or_else(|why| panic!("`{form}`, so `{line}`: {why}"));
            seen += 1;
        }
    }
    assert!(seen >= 30, "only {seen} words were given to the parser");
}

/// The words in quotes of which a line of source says that they are read: before an arrow, in `Some` or in a list's beginning.
fn read_in(file: &str) -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let source = std::fs::read_to_string(source).expect("the parser has a source");
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut words = BTreeSet::new();
    for line in source.lines() {
        let pattern = line.split_once("=>").map_or("", |(pattern, _)| pattern);
        let others = ["Some(\"", "takes(statement, \"", "== \"", "strip_prefix(\""];
        let others =
            others.iter().flat_map(|before| line.split(before).skip(1).filter_map(|rest| rest.split('"').next()));
        words.extend(pattern.split('"').skip(1).step_by(2).chain(others).map(str::to_owned));
    }
    words
}

/// No arm of the parser reads a word that no row has; members and units of time are told above the tables.
#[test]
fn every_word_that_the_parser_knows_has_a_row() {
    let mut known = BTreeSet::from(["|".to_owned()]);
    for statement in beginnings() {
        known.extend([statement].into_iter().chain(fixed(statement)).chain(options(statement)).map(str::to_owned));
    }
    let page = page();
    let told = |word: &str| {
        page.contains(&format!("`{word}")) || page.contains(&format!("0{word}`")) || page.contains(&format!("1{word}`"))
    };
    let read: BTreeSet<String> = read_in("parse.rs").union(&read_in("script.rs")).cloned().collect();
    let strangers: Vec<&String> = read.difference(&known).filter(|word| !told(word)).collect();
    assert_eq!(strangers, Vec::<&String>::new(), "the parser knows them, and docs/scripts.md does not");
    let unread: Vec<&String> = known.difference(&read).filter(|word| !REGIONS.contains(&word.as_str())).collect();
    assert_eq!(unread, Vec::<&String>::new(), "docs/scripts.md has them, and no arm of the parser reads them");
}

#[test]
fn a_word_behind_the_first_is_refused_where_its_row_does_not_have_it() {
    for (line, nearest) in [
        ("cluster 3 sead 7", "seed"),
        ("network 1ms 2ms los 5", "loss"),
        ("load client 3", "clients"),
        ("priorities normal prefered normal", "preferred"),
        ("regions virgin", "virginia"),
        ("links 1ms 2ms duplicate 3", "duplicates"),
        ("disk n1 stal", "stall"),
        ("expect leaders n1", "leader"),
    ] {
        let why = Script::parse(line).expect_err(line).to_string();
        assert!(why.ends_with(&format!("did you mean `{nearest}`?")), "{line}: {why}");
    }
    // A word is known where its row has it, and nowhere else.
    for line in ["load seed 7", "cluster 3 loss 1", "expect leader n1 to n2", "wait 1s at n1", "links 1ms 2ms seed 3"] {
        Script::parse(line).expect_err(line);
    }
}

#[test]
fn a_typo_in_any_first_word_is_answered_with_that_word() {
    for word in beginnings() {
        let why = Command::parse(&format!("{word}q")).expect_err("it is no word");
        assert_eq!(why, format!("`{word}q` is no command; did you mean `{word}`?"));
    }
    let why = Command::parse("network 1ms 5ms").expect_err("it stands above the commands");
    assert!(why.contains("how the world is made, as `network SHORTEST LONGEST"), "{why}");
}

/// The page of the grammar.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripts.md");
    std::fs::read_to_string(page).expect("the page is there")
}

/// The first line of a trace is read as it is written, and each of its options says something.
#[test]
fn the_bounds_of_a_trace_are_read_as_their_row_says() {
    let bounds = bounds_of(BOUNDS.example).expect("the example is one");
    assert_eq!(header(&bounds), BOUNDS.example);
    let default = Bounds::default();
    for option in options_of(BOUNDS.form) {
        let line = format!("every nodes 5 {option}");
        let read = bounds_of(&line).unwrap_or_else(|why| panic!("{line}: {why}"));
        let turned = line.replace("yes", "no").replace(" 2", " 1");
        let other = bounds_of(&turned).unwrap_or_else(|why| panic!("{turned}: {why}"));
        assert!(header(&read) != header(&other) && header(&read) != header(&default), "`{option}` says nothing");
    }
    for line in
        ["every nodes 3 notices maybe", "every nodes 3 duplicates 1", "every nodes three", "every nodes 3 terms"]
    {
        bounds_of(line).expect_err(line);
    }
    let why = bounds_of("every nodes 3 crash 1").expect_err("no such option");
    assert!(why.ends_with("did you mean `crashes`?"), "{why}");
}

/// Each step that the checker can write has a row, and each example can be played.
#[test]
fn the_steps_of_a_trace_are_those_of_their_rows() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/every/state.rs");
    let source = std::fs::read_to_string(source).expect("the checker has a source");
    let named = source.lines().filter_map(|line| line.split_once("=> format!(\"")?.1.split_once(' '));
    let mut written: BTreeSet<&str> = named.map(|(word, _)| word).filter(|word| !word.contains('{')).collect();
    // Links come back only when a cluster is asked whether it would serve, and of that there is no script.
    assert!(written.remove("link-up"));
    let (suffix, rows) = TRACE.split_last().expect("there are rows");
    assert_eq!(written, rows.iter().map(Sentence::beginning).collect());
    assert!(source.contains("{base}, and n{id} crashes with {way} of its records written"));

    let examples = |words: &[&str]| -> Vec<&str> {
        let example = |word: &&str| rows.iter().find(|row| row.beginning() == *word).expect("there is a row").example;
        words.iter().map(example).collect()
    };
    let lines = [vec![suffix.example], examples(&["restart", "fire", "deliver", "crash"])].concat();
    let options = Options { pre_vote: false, ..Options::default() };
    let bounds = bounds_of(BOUNDS.example.replace("crashes 1", "crashes 2").as_str()).expect("bounds");
    let played = replay::<Raft>(&bounds, &options, &lines).expect("each can happen");
    assert_eq!((played.steps.len(), played.violation), (lines.len(), None));
    // These two are lines of a trace that another test plays.
    let kept = include_str!("defects/zab-epoch-before-entries.txt");
    for line in examples(&["propose", "link-down"]) {
        assert!(kept.lines().any(|kept| kept == line), "{line}");
    }
}

#[test]
fn the_page_has_the_tables() {
    assert!(page().contains(&tables()), "docs/scripts.md has these tables:\n\n{}", tables());
}
