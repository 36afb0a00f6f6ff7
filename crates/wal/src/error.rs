//! Errors of the log, each with the file, the place, the cause and the remedy: [`WalError`].

use hustings_core::ApplyVersion;
use std::io;

/// The reason why the disk cannot be used, or can no longer be.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The operating system refused an operation.
    #[error("{action} {file}{}: {error}; check the disk, its mount and its permissions, then start again", at(*.offset))]
    Io {
        /// The operation that was tried, such as "syncing".
        action: &'static str,
        /// Path of the file.
        file: String,
        /// Offset of the operation in bytes; `None` if it concerns the whole file.
        offset: Option<u64>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// There is no space left.
    #[error(
        "{action} {file}: the disk is full ({error}); free space on it, but delete no file of the data directory, then try again"
    )]
    Full {
        /// The operation that was tried, such as "writing".
        action: &'static str,
        /// Path of the file.
        file: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// No file can be opened now, because the process or the machine has too many open.
    #[error("{action} {file}: too many files are open ({error}); raise the limit of open files, or close connections")]
    NoDescriptors {
        /// The operation that was tried, such as "opening".
        action: &'static str,
        /// Path of the file.
        file: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Another process lives in the directory.
    #[error(
        "the data directory {directory} is in use by another process{holder}; stop it, or choose another directory"
    )]
    InUse {
        /// Path of the data directory.
        directory: String,
        /// The process that holds it, as " (pid 12)"; empty when it does not say.
        holder: String,
    },
    /// The directory belongs to something else.
    #[error(
        "the data directory {directory} belongs to {what} {found}, and this node is configured for {what} {configured}; \
         correct the configuration, or choose another directory"
    )]
    Foreign {
        /// Path of the data directory.
        directory: String,
        /// The property that differs: "cluster", "node" or "protocol".
        what: &'static str,
        /// Its value in the directory.
        found: String,
        /// Its value in the configuration.
        configured: String,
    },
    /// A newer version wrote it.
    #[error(
        "{file} has format {found} and this version reads up to format {supported}; run the version that wrote it, or a newer one"
    )]
    NewerFormat {
        /// Path of the file.
        file: String,
        /// Format of the file.
        found: u32,
        /// The newest one known here.
        supported: u32,
    },
    /// The log asks for an apply version that this build does not know.
    #[error(
        "the data directory {directory} needs apply version {found}, and this build can apply {supported} at most; nothing was \
         changed: start the build that wrote it, or a newer one. There is no way back to an older build but a snapshot that was \
         saved before the upgrade (`hustings snapshot restore`)"
    )]
    NewerRules {
        /// Path of the data directory.
        directory: String,
        /// The apply version that its log asks for.
        found: ApplyVersion,
        /// The highest one known here.
        supported: ApplyVersion,
    },
    /// An older version wrote it, in a format that means something else.
    #[error(
        "{file} has format {found} and this version reads format {supported}; run the version that wrote it, save a snapshot \
         (`hustings snapshot save`), and restore that with this version"
    )]
    OlderFormat {
        /// Path of the file.
        file: String,
        /// Format of the file.
        found: u32,
        /// The only format known here.
        supported: u32,
    },
    /// Other members refused the directory: it is older than what its member has acknowledged.
    #[error("the data directory {directory} is not used any more: {why}")]
    RolledBack {
        /// Path of the data directory.
        directory: String,
        /// The reason that they gave, with the remedy.
        why: String,
    },
    /// Bytes that were durable are not what they were.
    #[error(
        "{file} is damaged at byte {offset}: {what}; nothing was changed: restore the directory, or remove the member from the \
         cluster, delete the directory and add it again (`hustings member remove`, `hustings member add`); if no quorum is left, see \
         `hustings recover`"
    )]
    Damaged {
        /// Path of the file.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// The damage found there.
        what: String,
    },
    /// A file that must be there is not.
    #[error(
        "{file} is missing: {what}; restore it, or remove the member from the cluster, delete the directory and add it again \
         (`hustings member remove`, `hustings member add`); if no quorum is left, see `hustings recover`"
    )]
    Missing {
        /// Path of the missing file.
        file: String,
        /// The reason why it must be there.
        what: String,
    },
    /// A record contradicts what is recorded already: the protocol that emitted it is broken.
    #[error(
        "the log at {directory} was handed a record that contradicts it: {what}; this is a defect, please report it"
    )]
    Contradiction {
        /// Path of the data directory.
        directory: String,
        /// The contradiction, in words.
        what: String,
    },
    /// An earlier error made the log unusable; nothing is ever retried.
    #[error("the log at {directory} takes nothing more after an error: {first}; end the process and start it again")]
    Poisoned {
        /// Path of the data directory.
        directory: String,
        /// The error that did it.
        first: String,
    },
    /// A record or a snapshot is larger than the format can hold.
    #[error(
        "{what} of {bytes} bytes is larger than {bytes_max} bytes, the most that {file} can hold; lower the request limit"
    )]
    TooLarge {
        /// The thing that is too large, such as "a batch".
        what: &'static str,
        /// Path of the file that should have held it.
        file: String,
        /// Its size, in bytes.
        bytes: u64,
        /// The most that fits, in bytes.
        bytes_max: u64,
    },
}

fn at(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

impl WalError {
    /// An error of the operating system, told apart by what ran out: space, descriptors, or neither.
    pub(crate) fn io(action: &'static str, file: String, offset: Option<u64>, error: io::Error) -> WalError {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return WalError::Full { action, file, error };
        }
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                WalError::NoDescriptors { action, file, error }
            }
            _ => WalError::Io { action, file, offset, error },
        }
    }

    /// An error about damage in this file, at this offset.
    pub(crate) fn damaged(file: String, offset: u64, what: impl Into<String>) -> WalError {
        WalError::Damaged { file, offset, what: what.into() }
    }

    /// Whether the disk ran out of space.
    pub fn is_full(&self) -> bool {
        matches!(self, WalError::Full { .. })
    }

    /// Whether nothing was touched, because no file could be opened: the same may succeed in a moment.
    pub fn is_for_want_of_descriptors(&self) -> bool {
        matches!(self, WalError::NoDescriptors { .. })
    }

    /// The failed action and its reason, without the advice to start again: for a member that goes on.
    pub fn cause(&self) -> String {
        match self {
            WalError::Full { action, file, error } => format!("{action} {file}: the disk is full ({error})"),
            WalError::Io { action, file, offset, error } => format!("{action} {file}{}: {error}", at(*offset)),
            other => other.to_string(),
        }
    }

    /// Whether the resource that ran out may be there again later, so that work that can wait should wait.
    pub fn is_shortage(&self) -> bool {
        self.is_full() || self.is_for_want_of_descriptors()
    }
}
