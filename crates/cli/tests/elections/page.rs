//! Goal: the lines in Rust that the README, the crate's own and the tutorial show do what is said of them. Method: they stand below, are
//! compared with the page, and run as a process of their own at a real cluster.

use crate::support::{HUSTINGS, program, run};
use hustings_election::{Election, Lead, Named};
use hustings_testbed::Cluster;
use std::process::Command;

async fn charge(lead: Lead<'_>) {
    println!("working with the token {}", lead.token());
}

async fn story(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let office = Election::open(url)?.candidate(Named::new("rust-1"));
    let leadership = office.campaign().await?;
    leadership.run(charge).await?;
    leadership.resign("the invoices are charged").await;
    Ok(())
}

/// Names the election to the process that is the service of the page.
const SERVICE: &str = "HUSTINGS_TEST_PAGE_URL";

/// The token that the service says it works with.
fn token_of_a_service(url: &str) -> u64 {
    let this = std::env::current_exe().expect("a test is a program");
    let name = "elections::page::the_lines_in_rust_do_what_the_page_says";
    let ended = run(Command::new(this).args(["--exact", name, "--nocapture"]).env(SERVICE, url));
    let said = ended.ok();
    let token = said.lines().find_map(|line| line.split_once("working with the token "));
    let (_, token) = token.unwrap_or_else(|| panic!("the page says that it prints a token: {said}"));
    token.parse().expect("a token is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_in_rust_do_what_the_page_says() {
    if let Ok(url) = std::env::var(SERVICE) {
        story(&url).await.expect("it leads, and resigns");
        return;
    }
    let page = include_str!("../../../../docs/tutorials/a-leader-for-your-service.md");
    let lines = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("lines in Rust");
    let lines = lines.replace("story()", "story(url: &str)");
    let lines = lines.replace("\"hustings://127.0.0.1:2379/invoices\"", "url");
    for part in lines.split("\n\n").skip(1).chain(["use hustings_election::{Election, Lead, Named};"]) {
        assert!(include_str!("page.rs").contains(part.trim()), "the page has other lines: {part}");
    }

    let cluster = Cluster::start(program(), 1).await.expect("it starts");
    let store = format!("hustings://{}", cluster.endpoints()[0].trim_start_matches("http://"));
    let url = format!("{store}/invoices");
    let first = token_of_a_service(&url);
    let second = token_of_a_service(&url);
    assert!(second > first, "a later leadership has a higher token: {first}, then {second}");
    let why = run(Command::new(HUSTINGS).args(["why", "invoices", "--store", &store])).ok();
    assert!(why.contains("rust-1") && why.contains("the invoices are charged"), "{why}");
}
