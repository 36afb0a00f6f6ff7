//! Files in one: [`Archive`], in the format that every `tar` reads (POSIX.1-1988, "ustar").

/// Size to which a header and each part of a file are filled up, in bytes.
const BLOCK: usize = 512;
/// The longest name that fits into a header.
const NAME_BYTES_MAX: usize = 100;

/// An archive in memory.
pub(super) struct Archive {
    bytes: Vec<u8>,
    unix_seconds: u64,
}

impl Archive {
    /// An empty one, whose files will be as old as this.
    pub(super) fn new(unix_seconds: u64) -> Archive {
        Archive { bytes: Vec::new(), unix_seconds }
    }

    /// Adds a file that its owner alone may read.
    ///
    /// Panics: its name is longer than a header has room for, which those of a report never are.
    pub(super) fn add(&mut self, name: &str, contents: &[u8]) {
        assert!(name.len() <= NAME_BYTES_MAX, "{name}: the name is too long");
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, "0000600");
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", contents.len()));
        put(136, &format!("{:011o}", self.unix_seconds));
        // While the sum is taken its own place holds blanks.
        put(148, "        ");
        put(156, "0");
        put(257, "ustar");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// All of it, with the two empty blocks that end it.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}
