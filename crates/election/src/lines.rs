//! Lines of JSON from a socket that does not block: [`Lines`]. Between a program and the process that outlives it.

use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read, Result};
use std::os::unix::net::UnixStream;

/// The lines of one end.
pub(crate) struct Lines {
    socket: UnixStream,
    /// Bytes of a line whose end has not come yet.
    unread: Vec<u8>,
}

impl Lines {
    /// # Errors
    /// It is no open socket.
    pub(crate) fn new(socket: UnixStream) -> Result<Lines> {
        socket.set_nonblocking(true)?;
        Ok(Lines { socket, unread: Vec::new() })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// All that has come, in order; and whether more may come.
    ///
    /// # Errors
    /// A line is not what it should be.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<(Vec<T>, bool)> {
        let is_open = self.take_in();
        let mut said = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            said.push(serde_json::from_slice(&line)?);
        }
        Ok((said, is_open))
    }

    fn take_in(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A peer that was killed may leave its socket in any state.
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_said_before_the_end_is_read() {
        let (mut other, mine) = UnixStream::pair().expect("sockets");
        let mut lines = Lines::new(mine).expect("it is open");
        other.write_all(b"1\n2\n3").expect("it fits");
        assert_eq!(lines.read::<u32>().expect("numbers"), (vec![1, 2], true), "the third is not whole");
        other.write_all(b"4\n5").expect("it fits");
        drop(other);
        assert_eq!(lines.read::<u32>().expect("numbers"), (vec![34], false));
    }
}
