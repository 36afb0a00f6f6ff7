//! The file that a path means, for commands that write under another name first: renaming replaces a symbolic link by the file.

use std::path::{Path, PathBuf};

/// Links that are followed one after the other, as the kernel does.
const LINKS_MAX: usize = 40;

/// The folder that a path is in: `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file or directory that a path names, behind its symbolic links; also where the last one names what is not there yet.
///
/// # Errors
/// A path of an open file, such as `/dev/stdout`: whatever it is, it has no name that could be given to another one; links that
/// lead in a circle. In words that follow the path.
pub fn target_of(path: &Path) -> Result<PathBuf, String> {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        if !target.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
            return Ok(target);
        }
        let folder = folder_of(&target);
        if folder.canonicalize().is_ok_and(|folder| folder.starts_with("/proc")) {
            return Err("names an open file, and a new file cannot take its place: give the path of a file".to_owned());
        }
        let link = target.read_link().map_err(|error| format!("cannot be followed: {error}"))?;
        target = folder.join(link);
    }
    Err("is a link that leads in a circle: give the path of a file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Goal: who writes beside a file and renames finds the right place. Method: a file, links to what is there and what is not, a
    /// circle, an open file.
    #[test]
    fn a_path_is_followed_to_what_it_names() {
        let folder = std::env::temp_dir().join(format!("hustings-target-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("big")).expect("a folder");
        let at = |name: &str| folder.join(name);
        symlink("big/monday", at("latest")).expect("a link");
        symlink(at("latest"), at("newest")).expect("a link");
        symlink("round", at("round")).expect("a link");
        symlink("/proc/self/fd/1", at("open")).expect("a link");
        for name in ["latest", "newest"] {
            assert_eq!(target_of(&at(name)), Ok(at("big/monday")));
        }
        std::fs::write(at("big/monday"), "x").expect("it is written");
        assert_eq!(target_of(&at("newest")), Ok(at("big/monday")));
        assert_eq!(target_of(&at("none")), Ok(at("none")));
        assert!(target_of(&at("round")).expect_err("it is refused").contains("circle"));
        for open in [at("open"), "/dev/fd/1".into(), "/proc/self/fd/1".into()] {
            assert!(target_of(&open).expect_err("it is refused").contains("an open file"), "{}", open.display());
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
