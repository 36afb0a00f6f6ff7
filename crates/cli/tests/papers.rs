//! Goal: what the papers of this repository say of each other is true. Method: read every page and every source.
//!
//! A rule that code cites has a sentence and a source, a decision that code cites exists, every link leads somewhere, the book has
//! every page, and what a newcomer looks for is one click from the README.

use hustings_lease::{Profile, Timing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is two floors up")
}

/// All files of ours below these folders that end so, with their text; what is built or generated is not ours.
fn files(folders: &[&str], endings: &[&str]) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())).flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if !["target", "generated", "node_modules", "book"].contains(&name.as_str()) {
                    waiting.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let text = std::fs::read_to_string(&path).expect("a page of ours is UTF-8");
                found.insert(path.strip_prefix(root()).expect("it is below the root").to_path_buf(), text);
            }
        }
    }
    found
}

/// Every page: those at the root, and those below it.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = files(&["docs", "crates", "packaging", "scenarios", "xtask", "interop", ".github"], &[".md"]);
    for entry in std::fs::read_dir(root()).expect("the root is a directory").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).expect("a page of ours is UTF-8");
            pages.insert(PathBuf::from(entry.file_name()), text);
        }
    }
    pages
}

/// The words of a text that a tag could be: letters, digits and hyphens in a row.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'))
}

/// `RH-14` is the tag of a rule, and so is `E1` where a page of rules speaks of it.
fn is_tag(word: &str) -> bool {
    word.split_once('-').is_some_and(|(family, number)| {
        (2..=3).contains(&family.len())
            && family.bytes().all(|letter| letter.is_ascii_uppercase())
            && (1..=2).contains(&number.len())
            && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// `E1`: a letter and a digit, which only the crates of two protocols use for rules.
fn is_short_tag(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() == 2 && b"CEGP".contains(&bytes[0]) && bytes[1].is_ascii_digit()
}

/// The rules that stand in tables of these pages; each is one sentence with a source.
fn rules(pages: &BTreeMap<PathBuf, String>) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for (path, text) in pages {
        for (number, line) in text.lines().enumerate() {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [tag, sentence, source] = cells.as_slice() else { continue };
            if !(is_tag(tag) || is_short_tag(tag) || *tag == "OLT") {
                continue;
            }
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(sentence.ends_with('.') && sentence.split(' ').count() > 3, "{place}: {tag} is no sentence");
            assert!(sentence.starts_with(char::is_uppercase), "{place}: {tag} begins small");
            assert!(source.len() > 3, "{place}: {tag} has no source");
            assert!(rules.insert((*tag).to_owned()), "{place}: {tag} stands twice");
        }
    }
    rules
}

/// Words that look like a tag and are the name of a format.
const FORMATS: [&str; 2] = ["UTF-8", "SSH-2"];

/// The tags that these texts cite and that have no rule, with the place of the first citation.
fn unresolved(texts: &BTreeMap<PathBuf, String>, rules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut unresolved = BTreeMap::new();
    for (path, text) in texts {
        let has_short_tags = path.starts_with("crates/blazingmq") || path.starts_with("crates/gmt2000");
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            for word in words(line) {
                let is_cited = is_tag(word) || has_short_tags && is_comment && is_short_tag(word);
                if is_cited && !FORMATS.contains(&word) && !rules.contains(word) {
                    unresolved.entry(word.to_owned()).or_insert(format!("{}:{}", path.display(), number + 1));
                }
            }
        }
    }
    unresolved
}

#[test]
fn a_rule_that_is_cited_has_a_sentence_and_a_source() {
    let rules = rules(&files(&["docs/protocols/rules"], &[".md"]));
    assert!(rules.len() > 200, "only {} rules were read", rules.len());
    let citing = files(&["crates", "xtask", "scenarios", "golden", "docs"], &[".rs", ".txt", ".md"]);
    let unresolved = unresolved(&citing, &rules);
    assert!(unresolved.is_empty(), "docs/protocols/rules has no row for {unresolved:#?}");
    let cited: BTreeSet<&str> = citing
        .iter()
        .filter(|(path, _)| !path.starts_with("docs/protocols/rules"))
        .flat_map(|(_, text)| words(text))
        .filter(|word| is_tag(word) && rules.contains(*word))
        .collect();
    assert!(cited.len() > 180, "only {} tags were seen in the sources", cited.len());
}

#[test]
fn a_tag_without_a_rule_is_found() {
    let page = |text: &str| BTreeMap::from([(PathBuf::from("crates/blazingmq/src/a.rs"), text.to_owned())]);
    let rules =
        rules(&page("| RH-1 | It is a whole sentence. | the paper |\n| E1 | It is a whole one too. | the paper |"));
    assert_eq!(rules.len(), 2);
    let found = unresolved(
        &page("// RH-1 to RH\u{2d}2, E1, UTF-8, n(N-1), SHA-256\nlet E2 = \"C7\"; // no comment line"),
        &rules,
    );
    assert_eq!(found.keys().collect::<Vec<_>>(), ["RH\u{2d}2"]);
    assert_eq!(unresolved(&page("    // Never (E5)."), &rules)["E5"], "crates/blazingmq/src/a.rs:1");
}

#[test]
fn a_decision_that_is_cited_is_in_docs_adr() {
    let decisions: BTreeSet<usize> = files(&["docs/adr"], &[".md"])
        .keys()
        .filter_map(|path| path.file_name()?.to_str()?.split('-').next()?.parse().ok())
        .collect();
    let (elsewhere, notes) = (["house", " §"].concat(), ["protocol", " notes"].concat());
    let mut cited = 0;
    for (path, text) in files(&["crates", "xtask", "docs"], &[".rs", ".md"]) {
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(
                !line.contains(&elsewhere),
                "{place} cites what is not in this repository: a decision stands in docs/adr"
            );
            let is_adr = path.starts_with("docs/adr");
            assert!(
                is_adr || !line.contains(&notes),
                "{place} cites what is not in this repository: docs/protocols/rules"
            );
            for citation in ["ADR ", "docs/adr/"].iter().flat_map(|form| line.split(form).skip(1)) {
                let digits: String = citation.chars().take_while(char::is_ascii_digit).collect();
                let Ok(decision) = digits.parse::<usize>() else { continue };
                assert!(decisions.contains(&decision), "{place} cites decision {decision}, and docs/adr has none");
                cited += 1;
            }
        }
    }
    assert!(cited > 50, "only {cited} citations were seen");
}

/// The links of a page with their lines: `[text](target)` outside of code.
fn links(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Every second piece stands between backticks.
            let mut at = 0;
            for (piece, text) in line.split('`').enumerate() {
                let is_prose = piece % 2 == 0;
                for (start, _) in text.match_indices("](").filter(|_| is_prose) {
                    let from = at + start + 2;
                    let target = &line[from..];
                    if let Some(end) = target.find(')') {
                        found.push((number + 1, &target[..end]));
                    }
                }
                at += text.len() + 1;
            }
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let again = (1..).map(|count| format!("{anchor}-{count}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// A path without `.` and `..`, both from the root of the repository.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut parts: Vec<&str> =
        page.parent().into_iter().flat_map(Path::iter).filter_map(|part| part.to_str()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// The reason why a link of a page leads nowhere; `None` if it leads somewhere.
fn broken(page: &Path, target: &str, pages: &BTreeMap<PathBuf, String>) -> Option<String> {
    // The book lacks what is not below docs/: its pages link it where it is published.
    let published =
        ["https://github.com/hustings/hustings/blob/main/", "https://github.com/hustings/hustings/tree/main/"];
    if let Some(target) = published.iter().find_map(|start| target.strip_prefix(start)) {
        return broken(Path::new("README.md"), target, pages);
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_path_buf() } else { resolved(page, path) };
    if !pages.contains_key(&file) && !root().join(&file).exists() {
        return Some(format!("there is no {}", file.display()));
    }
    let text = pages.get(&file)?;
    let anchor = anchor?;
    (!anchors(text).contains(anchor)).then(|| format!("{} has no heading #{anchor}", file.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (path, text) in &pages {
        for (line, target) in links(text) {
            checked += 1;
            if let Some(why) = broken(path, target, &pages) {
                wrong.push(format!("{}:{line}: [..]({target}): {why}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 150, "only {checked} links were seen");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text =
        "# One\n\n[a](b.md) `[not](this.md)` [c](../README.md#run-it) [d](#one)\n```\n[nor](that.md)\n```\n## One\n";
    let page = Path::new("docs/page.md");
    assert_eq!(links(text), [(3, "b.md"), (3, "../README.md#run-it"), (3, "#one")]);
    assert_eq!(anchors("# One, `two`\n# One, two\n"), BTreeSet::from(["one-two".to_owned(), "one-two-1".to_owned()]));
    let pages = BTreeMap::from([(page.to_path_buf(), text.to_owned()), ("README.md".into(), "## Run it\n".to_owned())]);
    assert_eq!(broken(page, "b.md", &pages).as_deref(), Some("there is no docs/b.md"));
    assert_eq!(broken(page, "../README.md#walk-it", &pages).as_deref(), Some("README.md has no heading #walk-it"));
    let published = "https://github.com/hustings/hustings/blob/main/README.md#walk-it";
    assert_eq!(broken(page, published, &pages).as_deref(), Some("README.md has no heading #walk-it"));
    for right in ["../README.md#run-it", "#one", "https://example.org/nowhere", "#one"] {
        assert_eq!(broken(page, right, &pages), None);
    }
}

#[test]
fn the_book_has_every_page_once() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the book has a table of contents");
    let kinds: Vec<&str> = summary.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    assert_eq!(kinds, ["Summary", "Tutorials", "How-to guides", "Reference", "Explanation"]);
    let listed: Vec<PathBuf> =
        links(&summary).into_iter().map(|(_, target)| resolved(Path::new("docs/SUMMARY.md"), target)).collect();
    let once: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page stands twice in docs/SUMMARY.md");
    for page in files(&["docs"], &[".md"]).keys().filter(|page| !page.ends_with("SUMMARY.md")) {
        assert!(once.contains(page), "docs/SUMMARY.md does not list {}", page.display());
    }
    assert!(summary.contains("\n[The book of Hustings](README.md)\n"), "it begins with a page of its own");
    for line in summary.lines().filter_map(|line| line.trim_start().strip_prefix("- [")) {
        let (title, page) = line.rsplit_once("](").expect("an entry is a link");
        let page = root().join("docs").join(page.trim_end_matches(')'));
        let text = std::fs::read_to_string(&page).expect("a link leads somewhere");
        let heading = text.lines().find_map(|line| line.strip_prefix("# "));
        assert_eq!(heading, Some(title), "{} has another title in docs/SUMMARY.md", page.display());
    }
}

/// The subjects that newcomers look for, each with its page and a heading that says that it is there.
const ONE_CLICK: [(&str, &str, &str); 10] = [
    ("how to break a protocol", "docs/tutorials/break-raft-in-five-minutes.md", "Break Raft in five minutes"),
    ("a leader for my service", "docs/tutorials/a-leader-for-your-service.md", "A leader for your service"),
    ("which protocol to choose", "docs/protocols/side-by-side.md", "Five protocols side by side"),
    ("how to see the cluster", "docs/dashboard.md", "The dashboard"),
    ("why the leader changed", "docs/why.md", "Why did the leader change?"),
    ("how fast it is", "docs/performance.md", "Performance"),
    ("how to run a cluster", "docs/operations.md", "Operations"),
    ("what to do when all is lost", "docs/the-worst-day.md", "The worst day"),
    ("how to come from etcd", "docs/coming-from-etcd.md", "Coming from etcd"),
    ("how to contribute", "CONTRIBUTING.md", "Contributing"),
];

#[test]
fn ten_things_are_one_click_from_the_readme() {
    let pages = pages();
    let readme = Path::new("README.md");
    let near: BTreeSet<PathBuf> =
        links(&pages[readme]).into_iter().map(|(_, to)| resolved(readme, to.split('#').next().unwrap_or(to))).collect();
    for (thing, page, heading) in ONE_CLICK {
        assert!(near.contains(Path::new(page)), "{thing}: the README does not link {page}");
        let first = pages[Path::new(page)].lines().next().unwrap_or_default();
        assert!(first.starts_with("# ") && first.contains(heading), "{thing}: {page} begins with {first:?}");
    }
}

/// The commands of a page's blocks, each in one line.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A `hustings run` of a command line, with its times and the store that it names.
struct Run {
    election: String,
    profile: Profile,
    timing: Timing,
}

impl Run {
    /// Reads what stands between `hustings run` and its command.
    fn read(words: &str) -> Run {
        let words: Vec<&str> = words.split_whitespace().take_while(|word| *word != "--").collect();
        let value = |option: &str, usual: &str| {
            let place = words.iter().position(|word| *word == option);
            place.map_or(usual, |place| words[place + 1]).to_owned()
        };
        let time = |option: &str, usual: &str| {
            humantime::parse_duration(&value(option, usual)).expect("the page gives a time")
        };
        let store = value("--store", "hustings://127.0.0.1:2379");
        let scheme = store.split_once("://").expect("a store is a URL").0;
        let profile = Profile::ALL.into_iter().find(|profile| profile.name == scheme);
        let profile = profile.unwrap_or_else(|| panic!("no store is called {scheme:?}"));
        let (stop_grace, kill_margin) = (time("--stop-grace", "2s"), time("--kill-margin", "500ms"));
        let timing = Timing { stop_grace, kill_margin, ..Timing::for_store(time("--ttl", "10s"), &profile) };
        Run { election: value("--election", ""), profile, timing }
    }
}

/// Goal: a command that is copied from a page is not refused. Method: the times of each `hustings run` of the book are given to the rule
/// that `hustings run` follows; one that another one runs must stop within the other's grace.
#[test]
fn the_times_of_every_run_on_a_page_fit_together() {
    let mut count = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            let runs: Vec<Run> = command.split("hustings run ").skip(1).map(Run::read).collect();
            for Run { profile, timing, .. } in &runs {
                timing.check(profile).unwrap_or_else(|misfit| panic!("{}: {command}: {misfit}", page.display()));
            }
            for pair in runs.windows(2) {
                let (outer, inner) = (pair[0].timing.stop_grace, pair[1].timing.stop_before_end());
                assert!(inner < outer, "{}: {command}: {inner:?} do not end within {outer:?}", page.display());
            }
            count += runs.len();
        }
    }
    assert!(count >= 6, "only {count} runs were found");
}

/// `consul lock PREFIX` locks `PREFIX/.lock`: an election of another name would have its own leader.
#[test]
fn who_comes_from_consul_lock_names_the_key_that_it_locks() {
    let page = &pages()[Path::new("docs/coming-from-zookeeper-and-consul.md")];
    let runs = commands(page)
        .into_iter()
        .flat_map(|command| command.split("hustings run ").skip(1).map(Run::read).collect::<Vec<_>>());
    let at_consul: Vec<String> = runs.filter(|run| run.profile == Profile::CONSUL).map(|run| run.election).collect();
    assert_eq!(at_consul, ["locks/billing/.lock"]);
}

/// The rows of the tables of findings, each with its finding and what holds it.
fn findings(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| finding |"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [finding, wrong, held] = cells[..] else { panic!("{row:?} has not three columns") };
        assert!(wrong.ends_with('.') && !held.is_empty(), "{finding}: a sentence, and what holds it");
        (finding, held)
    })
    .collect()
}

/// The findings that these rows lack: each letter with its number, up to the last one that there is.
fn missing_findings(rows: &[(&str, &str)]) -> Vec<String> {
    let counted = [('P', 7), ('M', 9), ('W', 6), ('L', 9), ('H', 14)];
    let all = counted.into_iter().flat_map(|(letter, last)| (1..=last).map(move |number| format!("{letter}{number}")));
    let later = ["P5b", "H5b", "H10b", "H10c", "H11b", "H11c"].map(str::to_owned);
    let is_there = |finding: &String| rows.iter().any(|(named, _)| named.split(", ").next() == Some(finding.as_str()));
    all.chain(later).filter(|finding| !is_there(finding)).collect()
}

/// Names that may hold a finding: functions of the crates, files by the end of their paths, and planted defects.
struct Holders {
    functions: BTreeSet<String>,
    files: Vec<PathBuf>,
    defects: BTreeSet<String>,
}

impl Holders {
    fn of_the_repository() -> Holders {
        let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let function = |text: &str| text.split(|letter| !is_of_a_name(letter)).next().unwrap_or_default().to_owned();
        let sources = files(&["crates"], &[".rs"]);
        let named_after =
            |word: &'static str| sources.values().flat_map(move |text| text.split(word).skip(1).map(function));
        // A test that runs under every protocol is named where it is asked for.
        let functions = named_after("fn ").chain(named_after("under_each_protocol! { ")).collect();
        let folders = ["crates", "docs", "fuzz", "scenarios", "xtask"];
        let files = files(&folders, &[".rs", ".txt", ".md", ".sh"]).into_keys().collect();
        let planted = &pages()[Path::new("docs/planted-defects.md")];
        // Its last tables begin with properties.
        let (planted, _) = planted.split_once("\n## Which defects make").expect("the page has this heading");
        let defect = |cell: &str| Some(cell.trim_start_matches("| ").strip_prefix('`')?.strip_suffix('`')?.to_owned());
        let rows = planted.lines().filter(|line| line.starts_with('|'));
        let defects = rows.filter_map(|row| row.split(" | ").take(2).find_map(defect)).collect();
        Holders { functions, files, defects }
    }

    fn has(&self, name: &str) -> bool {
        self.functions.contains(name)
            || self.defects.contains(name)
            || self.files.iter().any(|file| file.ends_with(name))
    }

    /// The names in code that are nowhere, each with the finding that it is to hold.
    fn unknown<'a>(&self, rows: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let names = |held: &'a str| held.split('`').skip(1).step_by(2);
        let named = rows.iter().flat_map(|(finding, held)| names(held).map(|name| (*finding, name)));
        named.filter(|(_, name)| !self.has(name)).collect()
    }
}

/// Goal: what is said to hold a finding is there. Method: the last column of each row; a finding without a test says so.
#[test]
fn every_finding_names_what_holds_it() {
    let pages = pages();
    let rows = findings(&pages[Path::new("docs/findings.md")]);
    assert_eq!(missing_findings(&rows), [""; 0], "docs/findings.md lacks them");
    let unknown = Holders::of_the_repository().unknown(&rows);
    assert!(unknown.is_empty(), "docs/findings.md names what is nowhere: {unknown:#?}");
    for (finding, held) in rows {
        let says_so = held.contains("ead, no test");
        assert!(held.contains('`') || says_so, "{finding}: neither a name nor a word that there is none");
    }
}

#[test]
fn a_finding_that_nothing_holds_is_found() {
    let page = "| finding | what was wrong | what holds it now |\n|---|---|---|\n\
        | P1 | It was wrong. | `every_finding_names_what_holds_it`, `found/no-such-script.txt`, `papers.rs` |\n\
        | P2, a part | It was wrong. | `pins-fetches`, `state-machine-is-unsafe` |\n";
    let rows = findings(page);
    assert_eq!(missing_findings(&rows)[..2], ["P3", "P4"]);
    let unknown = Holders::of_the_repository().unknown(&rows);
    assert_eq!(unknown, [("P1", "found/no-such-script.txt"), ("P2, a part", "state-machine-is-unsafe")]);
}
