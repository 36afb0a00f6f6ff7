//! A run as a page: who was what, what was said, what went wrong, drawn as a space-time diagram.
//!
//! One file that asks nobody: styles, script and the run stand in it. The drawing is the laboratory's (`page/spacetime.js`): names
//! stay while one scrolls, one can zoom, logs are cells in the colours of their terms, the step that violates is marked, and each
//! line of the story shows where it stands in the picture. People look before they read.

use crate::files;
use crate::picture::Run;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;

/// Microseconds before the end that are drawn: there the story is.
const SHOWN: u64 = 12_000_000;

const PAGE: &str = include_str!("../page/report.html");
/// Marks in the page, and the files that replace them.
const PARTS: [(&str, &str); 5] = [
    ("SPACETIME_CSS", include_str!("../page/spacetime.css")),
    ("REPORT_CSS", include_str!("../page/report.css")),
    ("MODEL_JS", include_str!("../page/model.js")),
    ("SPACETIME_JS", include_str!("../page/spacetime.js")),
    ("REPORT_JS", include_str!("../page/report.js")),
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The part of a run that a page shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// All of the run.
    Everything,
    /// Its end, where it is long.
    End,
}

/// The text of the page.
pub(crate) fn page(headline: &str, run: &Run<'_>, shown: Shown, script: &str) -> String {
    let from = match shown {
        Shown::Everything => 0,
        Shown::End => run.end.saturating_sub(SHOWN),
    };
    page_of(headline, &run.json_of_end(from), script)
}

/// The page of a run that was told as [`Run::json`] tells one.
fn page_of(headline: &str, told: &Value, script: &str) -> String {
    // In a page a script ends at the first `</script`, whatever it is about.
    let told = told.to_string().replace('<', "\\u003c");
    let (headline, script) = (escaped(headline), escaped(script));
    let told = [("HEADLINE", headline.as_str()), ("SCRIPT", &script), ("RUN", &told)];
    let mut page = String::new();
    let mut rest = PAGE;
    // Once from the beginning to the end: what is filled in is not looked at again.
    while let Some((before, behind)) = rest.split_once("{{") {
        let (word, behind) = behind.split_once("}}").unwrap_or((behind, ""));
        page.push_str(before);
        let part = PARTS.iter().chain(&told).find(|(known, _)| *known == word);
        page.push_str(part.map_or("", |(_, part)| part));
        rest = behind;
    }
    page + rest
}

/// Writes the page to a file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, headline: &str, run: &Run<'_>, shown: Shown, script: &str) -> Result<()> {
    let page = page(headline, run, shown, script);
    files::write(path, &page)
}

/// Writes the page of a run that somebody else tells, in the shape of [`crate::picture`].
///
/// # Errors
/// The file cannot be written.
pub fn write_page(path: &Path, headline: &str, told: &Value, script: &str) -> Result<()> {
    files::write(path, &page_of(headline, told, script))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Time;
    use hustings_properties::Violation;
    use hustings_world::Journal;

    #[test]
    fn a_page_holds_the_run_and_asks_nobody() {
        let journal = Journal::default();
        let run = Run {
            subject: "raft".into(),
            packs_terms: false,
            nodes: 3,
            end: 30_000_000,
            journal: &journal,
            recording: None,
            violation: Some((29_000_000, Violation::of("log-matching", "</script> is \"closed\""))),
            steps: Vec::new(),
            stopped: None,
            time: Time::Virtual,
        };
        let page = page("<b>A story</b>", &run, Shown::End, "cut n1 n2 # {{RUN}}");
        assert!(page.contains("&lt;b&gt;A story") && page.contains("log-matching") && page.contains("class SpaceTime"));
        assert_eq!(page.matches("</script>").count(), 2, "nothing that is told ends a script");
        let known = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http://", "https://", "@import"] {
            assert!(!known.contains(foreign), "the page mentions {foreign}");
        }
        assert!(page.contains("cut n1 n2 # {{RUN}}</pre>"), "what is filled in is text");
    }
}
