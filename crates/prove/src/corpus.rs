//! What a search keeps, in a folder: scripts that `play` takes, and that the next search of this folder begins with.

use super::{files, play};
use anyhow::{Context, Result};
use hustings_console::exit::{Code, Exit};
use hustings_world::guided::Search;
use hustings_world::seed::Plan;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder of one protocol's corpus.
pub(crate) struct Corpus<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) protocol: &'a str,
}

impl Corpus<'_> {
    fn path_of(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{}-{number:05}.txt", self.protocol))
    }

    /// The files of this protocol that a search wrote here, in their order.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.folder).with_context(|| format!("reading {}", self.folder.display()))?;
        let is_ours = |name: &str| {
            let number = name.strip_prefix(self.protocol).and_then(|rest| rest.strip_prefix('-'));
            let digits = number.and_then(|rest| rest.strip_suffix(".txt"));
            digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| is_ours(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect();
        files.sort();
        Ok(files)
    }

    /// The plans that an earlier search kept here.
    ///
    /// # Errors
    /// With [`Code::Usage`]: a file that cannot be read, is no script, or is no script of a plan.
    pub(crate) fn read(&self) -> Result<Vec<Plan>> {
        let read = |path: PathBuf| {
            Plan::of_script(&play::read(&path)?).ok_or_else(|| {
                let what = "it has lines that no search writes; take the file away, or give another directory";
                Exit::with(Code::Usage, format!("--corpus: {}: {what}", path.display()))
            })
        };
        self.files()?.into_iter().map(read).collect()
    }

    /// Writes what this search kept in the place of what stood here; what it was handed and did not come to run stays.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub(crate) fn write(&self, search: &Search) -> Result<()> {
        let kept = search.corpus().iter().map(|kept| {
            let headline = vec![format!("Reached {} facts that no run before it had reached.", kept.brought)];
            kept.plan.script(headline)
        });
        let not_run =
            search.handed().map(|plan| plan.script(vec!["Kept by an earlier search, and not run by the last.".into()]));
        let mut superfluous: BTreeSet<PathBuf> = self.files()?.into_iter().collect();
        for (number, script) in kept.chain(not_run).enumerate() {
            let path = self.path_of(number);
            files::write(&path, &script.to_string())?;
            superfluous.remove(&path);
        }
        for old in &superfluous {
            std::fs::remove_file(old).with_context(|| format!("removing {}", old.display()))?;
        }
        Ok(())
    }
}
