//! Goal: the book that readers get is whole. Method: the real mdBook builds it, and each link of each page is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The pages that mdBook made, by their paths in the book.
fn build(book: &Path) -> BTreeMap<PathBuf, String> {
    let mdbook = std::env::var("HUSTINGS_TEST_MDBOOK").unwrap_or_else(|_| "mdbook".to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(&mdbook).arg("build").arg(&root).arg("--dest-dir").arg(book).output();
    let built = built.unwrap_or_else(|why| {
        panic!("{mdbook}: {why}: `cargo install mdbook --no-default-features`, or name it in HUSTINGS_TEST_MDBOOK")
    });
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let mut pages = BTreeMap::new();
    let mut waiting = vec![book.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).expect("it was just made").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text = std::fs::read_to_string(&path).expect("mdBook writes UTF-8");
                pages.insert(path.strip_prefix(book).expect("it is below").to_path_buf(), text);
            }
        }
    }
    pages
}

/// The values of an attribute.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    page.split(begin.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// A link of a page, from the root of the book; `None` if it leads out at the top.
fn resolved(page: &Path, target: &str) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    for part in page.parent().into_iter().flat_map(Path::components).chain(Path::new(target).components()) {
        match part {
            Component::ParentDir if !found.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => found.push(part),
        }
    }
    Some(found)
}

/// The links that lead nowhere, each with its page.
fn broken(book: &Path, pages: &BTreeMap<PathBuf, String>) -> Vec<(PathBuf, String)> {
    let names: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path, values(text, "id").into_iter().collect())).collect();
    let leads_somewhere = |page: &PathBuf, link: &str| {
        let (path, name) = link.split_once('#').map_or((link, None), |(path, name)| (path, Some(name)));
        let Some(file) = (if path.is_empty() { Some(page.clone()) } else { resolved(page, path) }) else {
            return false;
        };
        match (names.get(&file), name.filter(|name| !name.is_empty())) {
            (Some(names), Some(name)) => names.contains(name),
            (found, None) => found.is_some() || book.join(&file).is_file(),
            (None, Some(_)) => false,
        }
    };
    let mut wrong = Vec::new();
    for (page, text) in pages {
        let links = values(text, "href").into_iter().chain(values(text, "src"));
        for link in links.filter(|link| !link.contains(':') && *link != "/") {
            if !leads_somewhere(page, link) {
                wrong.push((page.clone(), link.to_owned()));
            }
        }
    }
    wrong
}

#[test]
fn each_link_of_the_book_leads_somewhere() {
    let book = tempfile::tempdir().expect("there is room");
    let pages = build(book.path());
    let first = &pages[Path::new("index.html")];
    assert!(first.contains("<h1 id=\"the-book-of-hustings\">"), "it begins with its own first page");
    assert!(pages.len() > 70, "{} pages", pages.len());
    let links: usize = pages.values().map(|text| values(text, "href").len()).sum();
    assert!(links > 2_000, "only {links} links were seen");
    assert_eq!(broken(book.path(), &pages), []);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = |text: &str| text.to_owned();
    let pages = BTreeMap::from([
        (
            PathBuf::from("a.html"),
            page("<h1 id=\"top\"> <a href=\"b/c.html#there\"> <a href=\"#top\"> <a href=\"#bottom\">"),
        ),
        (
            PathBuf::from("b/c.html"),
            page("<p id=\"there\"> <a href=\"../a.html\"> <a href=\"../../README.md\"> <img src=\"d.png\">"),
        ),
    ]);
    let wrong = broken(Path::new("/nowhere"), &pages);
    let wrong: Vec<&str> = wrong.iter().map(|(_, link)| link.as_str()).collect();
    assert_eq!(wrong, ["#bottom", "../../README.md", "d.png"]);
}
