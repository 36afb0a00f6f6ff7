//! The output of a command: its tables, and the words around them: [`Said`]; and how several stand on a page: [`shown`].

use std::fmt::Write as _;

/// The output of one command: words, and at most one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) command: String,
    words: Vec<String>,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Said {
    /// Reads what the command printed.
    pub(super) fn by(command: &str, output: &str) -> Said {
        let mut said = Said { command: command.to_owned(), words: Vec::new(), header: Vec::new(), rows: Vec::new() };
        for line in output.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                said.words.push(line.to_owned());
                continue;
            };
            let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
            let is_rule =
                cells.iter().all(|cell| cell.bytes().all(|byte| matches!(byte, b'-' | b':')) && !cell.is_empty());
            match (said.header.is_empty(), is_rule || cells == said.header) {
                // A command may print its table several times, a row each.
                (_, true) => {}
                (true, false) => said.header = cells,
                (false, false) => said.rows.push(cells),
            }
        }
        said
    }

    /// The number that a flag of the command has.
    pub(super) fn flag(&self, name: &str) -> Option<f64> {
        let mut words = self.command.split_whitespace().skip_while(|word| *word != name);
        words.nth(1)?.parse().ok()
    }

    /// The cells of a column, by its name.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }
}

/// The words of each command that not all have: what tells them apart.
fn differences(said: &[Said]) -> Vec<String> {
    let of = |said: &Said| said.command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all: Vec<Vec<String>> = said.iter().map(of).collect();
    let common = all.iter().map(|words| all[0].iter().zip(words).take_while(|(one, other)| one == other).count());
    // A flag stands with its value.
    let mut common = common.min().unwrap_or(0);
    while common > 0 && all[0].get(common - 1).is_some_and(|word| word.starts_with("--")) {
        common -= 1;
    }
    all.iter().map(|words| words[common..].join(" ")).collect()
}

/// All of it in Markdown: one table where the commands print the same one.
pub(super) fn shown(said: &[Said]) -> String {
    let mut text = String::new();
    let is_one_table =
        said.len() > 1 && said.iter().all(|one| one.header == said[0].header) && !said[0].header.is_empty();
    let differences = differences(said);
    if is_one_table {
        let header = [&["".to_owned()], &said[0].header[..]].concat();
        let rows = said
            .iter()
            .zip(&differences)
            .flat_map(|(said, which)| said.rows.iter().map(|row| [std::slice::from_ref(which), &row[..]].concat()));
        table(&mut text, &header, rows);
        text.push('\n');
    }
    for (said, which) in said.iter().zip(&differences) {
        let which = if which.is_empty() { String::new() } else { format!("`{which}`: ") };
        for words in &said.words {
            // Writing to a string does not fail.
            let _ = writeln!(text, "- {which}{words}");
        }
        if !is_one_table && !said.header.is_empty() {
            text.push('\n');
            table(&mut text, &said.header, said.rows.iter().cloned());
            text.push('\n');
        }
    }
    text
}

fn table(text: &mut String, header: &[String], rows: impl Iterator<Item = Vec<String>>) {
    let mut line = |cells: &[String]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(header);
    line(&vec!["---".to_owned(); header.len()]);
    rows.for_each(|row| line(&row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_columns_are_found_by_name() {
        let said = Said::by("measure store --keys 1000 --rounds 3", "two of them\n| a | b |\n|---|:-:|\n| 1 | - |\n");
        assert_eq!((said.flag("--keys"), said.flag("--leases")), (Some(1_000.0), None));
        assert_eq!((said.column("b"), said.column("c")), (Some(1), None));
        assert_eq!((said.rows.len(), said.words.len()), (1, 1), "a dash in a row is no rule: {said:?}");
    }

    #[test]
    fn a_table_that_is_printed_again_is_the_same_one() {
        let said = Said::by("measure failover", "| a |\n|---|\n| 1 |\nwords\n| a |\n|---|\n| 2 |\n");
        assert_eq!(said.rows, [["1"], ["2"]]);
    }

    #[test]
    fn commands_without_a_common_table_stand_one_after_the_other() {
        let one = Said::by("measure idle", "hustings: 0.5 %");
        assert_eq!(shown(std::slice::from_ref(&one)), "- hustings: 0.5 %\n");
        let other = Said::by("measure calm --busy 3", "| elections |\n|---|\n| 0 |");
        let text = shown(&[one, other]);
        assert!(text.contains("- `idle`: hustings: 0.5 %") && text.contains("| elections |\n| --- |\n| 0 |"), "{text}");
    }
}
