//! Files that a command writes at its end: what cannot be written is refused before the run, and a file is there whole or not at all.

use anyhow::{Context, Result};
use hustings_console::exit::{Code, Exit};
use hustings_console::files::{folder_of, target_of};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A name beside this file, for as long as it is being written.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder_of(path).join(format!(".{name}.{}.partial", std::process::id()))
}

/// Whether this is there and is something that cannot be replaced: a terminal, a pipe, `/dev/null`.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// Refuses a file that cannot be written, before a run that may take hours.
///
/// # Errors
/// With [`Code::Usage`]: the flag, the file, and what is wrong with it.
pub(crate) fn check_file(flag: &str, path: &Path) -> Result<()> {
    let refused = |why: String| {
        Exit::with(Code::Usage, format!("--{flag} {}: {why}; give a file that can be written", path.display()))
    };
    if path.is_dir() {
        return Err(refused("it is a directory".into()));
    }
    if is_special(path) {
        return probe_special(path).map_err(|error| refused(error.to_string()));
    }
    // An open file, such as the standard output, can be written to as it is.
    let Ok(path) = target_of(path) else { return Ok(()) };
    let probe = temporary(&path);
    File::create(&probe).map_err(|error| refused(error.to_string()))?;
    std::fs::remove_file(&probe).map_err(|error| refused(error.to_string()))
}

/// A device may take no bytes at all, which only writing shows; people and pipes are not disturbed.
fn probe_special(path: &Path) -> std::io::Result<()> {
    if !path.metadata()?.file_type().is_char_device() {
        return Ok(());
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.is_terminal() { Ok(()) } else { file.write_all(b"\n") }
}

/// Makes a directory where there is none, and refuses one that cannot be written to.
///
/// # Errors
/// With [`Code::Usage`]: the flag, the directory, and what is wrong with it.
pub(crate) fn check_directory(flag: &str, path: &Path) -> Result<()> {
    let probe = path.join(format!(".{}.partial", std::process::id()));
    let probed =
        std::fs::create_dir_all(path).and_then(|()| File::create(&probe)).and_then(|_| std::fs::remove_file(&probe));
    probed.map_err(|error| {
        let path = path.display();
        Exit::with(Code::Usage, format!("--{flag} {path}: {error}; give a directory that can be written to"))
    })
}

/// Writes a file under another name first: nobody ever reads half of it.
///
/// # Errors
/// It cannot be written; what stood there before stands there still.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let write = || {
        // A link stays a link: the file that it names is replaced. A path that is no file is written to, and so is an open file.
        let Some(path) = target_of(path).ok().filter(|path| !is_special(path)) else {
            return OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes());
        };
        let partial = temporary(&path);
        let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, &path));
        if written.is_err() {
            // The failure that is told is the one that came first.
            let _ = std::fs::remove_file(&partial);
        }
        written
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: hours are not lost to a typo. Method: a file in no folder, a folder, a device that is full, a file as a folder.
    #[test]
    fn what_cannot_be_written_is_refused_before_the_run() {
        let folder = std::env::temp_dir().join(format!("hustings-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("story.txt");
        let refused = |result: Result<()>| result.expect_err("it is refused").to_string();
        assert!(refused(check_file("script", &folder.join("nowhere/story.txt"))).starts_with("--script "));
        assert!(refused(check_file("script", &folder)).contains("it is a directory"));
        assert!(refused(check_file("report", Path::new("/dev/full"))).contains("--report /dev/full"));
        check_file("report", Path::new("/dev/null")).expect("it takes everything");
        check_file("script", &file).expect("it can be written");
        assert!(!file.exists(), "a check leaves nothing");
        write(&file, "settle 5s\n").expect("it is written");
        write(&file, "wait 1s\n").expect("it is replaced");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "wait 1s\n");
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 1, "nothing else is left");
        std::os::unix::fs::symlink("one/target", folder.join("link")).expect("a link");
        assert!(
            refused(check_file("script", &folder.join("link"))).starts_with("--script "),
            "its target has no folder"
        );
        check_directory("corpus", &folder.join("one")).expect("it is made");
        write(&folder.join("link"), "behind a link\n").expect("it is written");
        assert_eq!(std::fs::read_to_string(folder.join("one/target")).expect("it is there"), "behind a link\n");
        assert!(refused(check_directory("corpus", &file)).starts_with("--corpus "));
        check_directory("corpus", &folder.join("one/two")).expect("it is made");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
