//! Goal: the page of the scripts' grammar says all that the parser reads, and nothing else. Method: each row's example is parsed and
//! written again; each word of the parser has a row; the page holds the tables as they are.

use hustings_world::grammar::{GRAMMAR, HEADERS, Sentence, beginnings, tables};
use hustings_world::parse::{DISK_FAULTS, EXPECTATIONS};
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

/// The words that begin a match arm of the parser's source, where arms begin so.
fn arms(file: &str, before: &str) -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let source = std::fs::read_to_string(source).expect("the parser has a source");
    let word = |line: &str| Some(line.strip_prefix(before)?.split_once('"')?.0.to_owned());
    source.lines().filter_map(word).collect()
}

#[test]
fn every_word_that_the_parser_knows_has_a_row() {
    let words = |rows: &[Sentence]| rows.iter().map(|row| row.beginning().to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(words(&GRAMMAR), arms("parse.rs", "            \""));
    assert_eq!(words(&HEADERS), arms("script.rs", "            [\""));
    let second = |first: &str| {
        let rows = GRAMMAR.iter().filter(|row| row.beginning() == first);
        let words =
            rows.filter_map(|row| row.form.split(' ').skip(1).find(|word| !word.starts_with(char::is_uppercase)));
        words.collect::<BTreeSet<&str>>()
    };
    assert_eq!(second("disk"), BTreeSet::from(DISK_FAULTS));
    assert_eq!(second("expect"), BTreeSet::from(EXPECTATIONS));
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

#[test]
fn the_page_has_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripts.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    assert!(page.ends_with(&tables()), "docs/scripts.md ends with these tables:\n\n{}", tables());
}
