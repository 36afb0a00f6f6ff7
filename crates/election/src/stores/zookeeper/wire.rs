//! ZooKeeper's bytes: the few requests that an election needs, and their answers.
//!
//! Numbers are big-endian; strings and buffers begin with their length, -1 for none. Bytes from the network are never
//! trusted: a message that is too short or too long is [`Malformed`].

use std::fmt;

/// The longest frame that is read; servers refuse above 1 MiB unless they are told otherwise.
pub(super) const FRAME_MAX: usize = 4 << 20;
/// Any version of a node's data.
pub(super) const ANY: i32 = -1;

/// Bytes that are no answer of ZooKeeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Code of a server's refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const NO_NODE: Code = Code(-101);
    const NO_AUTH: Code = Code(-102);
    pub(super) const BAD_VERSION: Code = Code(-103);
    pub(super) const NODE_EXISTS: Code = Code(-110);
    pub(super) const NOT_EMPTY: Code = Code(-111);
    pub(super) const SESSION_EXPIRED: Code = Code(-112);
    pub(super) const SESSION_MOVED: Code = Code(-118);
    const AUTH_FAILED: Code = Code(-115);
    const CONNECTION_LOSS: Code = Code(-4);
    const OPERATION_TIMEOUT: Code = Code(-7);

    /// Whether it says that the user may not.
    pub(super) fn is_denial(self) -> bool {
        [Code::NO_AUTH, Code::AUTH_FAILED].contains(&self)
    }

    /// Whether the outcome of the request is open.
    pub(super) fn is_unclear(self) -> bool {
        [Code::SESSION_MOVED, Code::CONNECTION_LOSS, Code::OPERATION_TIMEOUT].contains(&self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            -101 => f.write_str("there is no such node"),
            -102 => {
                f.write_str("access denied: the node's ACL admits other users, see USER:PASSWORD@ in the store's URL")
            }
            -103 => f.write_str("the node has another version"),
            -108 => f.write_str("an ephemeral node cannot have children: give the election another name"),
            -110 => f.write_str("the node is there already"),
            -112 => f.write_str("the session has expired"),
            -114 => f.write_str("the ACL is invalid: it wants a user, see USER:PASSWORD@ in the store's URL"),
            -115 => f.write_str("the server does not accept the user and password"),
            -118 => f.write_str("the session has moved to another member"),
            -119 => f.write_str("this member only reads"),
            -8 => f.write_str("ZooKeeper does not allow this path: give the election another name"),
            code => write!(f, "ZooKeeper's error {code}"),
        }
    }
}

/// A request to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ask<'a> {
    /// A node for good.
    Create {
        path: &'a str,
        data: &'a [u8],
    },
    /// A node that lives as long as the session, its name ending in the parent's counter.
    CreateEntry {
        prefix: &'a str,
        data: &'a [u8],
    },
    Delete {
        path: &'a str,
        version: i32,
    },
    Exists {
        path: &'a str,
        watch: bool,
    },
    Data {
        path: &'a str,
        watch: bool,
    },
    Write {
        path: &'a str,
        data: &'a [u8],
        version: i32,
    },
    Children {
        path: &'a str,
        watch: bool,
    },
    /// Catches up with the leader.
    Sync {
        path: &'a str,
    },
    /// All of these requests or none.
    Multi(Vec<Ask<'a>>),
    Check {
        path: &'a str,
        version: i32,
    },
    Auth {
        user: &'a str,
    },
    Close,
}

impl Ask<'_> {
    fn operation(&self) -> i32 {
        match self {
            Ask::Create { .. } => 1,
            Ask::CreateEntry { .. } => 15,
            Ask::Delete { .. } => 2,
            Ask::Exists { .. } => 3,
            Ask::Data { .. } => 4,
            Ask::Write { .. } => 5,
            Ask::Children { .. } => 12,
            Ask::Sync { .. } => 9,
            Ask::Multi(_) => 14,
            Ask::Check { .. } => 13,
            Ask::Auth { .. } => 100,
            Ask::Close => -11,
        }
    }

    /// Encodes a whole frame. `owned`: only the session's own user may touch what is created.
    pub(super) fn frame(&self, xid: i32, owned: bool) -> Vec<u8> {
        framed(|out| {
            out.extend(xid.to_be_bytes());
            out.extend(self.operation().to_be_bytes());
            self.body(out, owned);
        })
    }

    fn body(&self, out: &mut Vec<u8>, owned: bool) {
        match self {
            Ask::Create { path, data } => create(out, path, data, owned, 0),
            Ask::CreateEntry { prefix, data } => create(out, prefix, data, owned, 3),
            Ask::Delete { path, version } | Ask::Check { path, version } => {
                bytes(out, path.as_bytes());
                out.extend(version.to_be_bytes());
            }
            Ask::Exists { path, watch } | Ask::Data { path, watch } | Ask::Children { path, watch } => {
                bytes(out, path.as_bytes());
                out.push(u8::from(*watch));
            }
            Ask::Write { path, data, version } => {
                bytes(out, path.as_bytes());
                bytes(out, data);
                out.extend(version.to_be_bytes());
            }
            Ask::Sync { path } => bytes(out, path.as_bytes()),
            Ask::Multi(asks) => {
                for ask in asks {
                    multi_header(out, ask.operation(), false);
                    ask.body(out, owned);
                }
                multi_header(out, -1, true);
            }
            Ask::Auth { user } => {
                out.extend(0_i32.to_be_bytes());
                bytes(out, b"digest");
                bytes(out, user.as_bytes());
            }
            Ask::Close => {}
        }
    }
}

/// A frame without a body.
pub(super) fn ping() -> Vec<u8> {
    framed(|out| {
        out.extend(XID_PING.to_be_bytes());
        out.extend(11_i32.to_be_bytes());
    })
}

/// A session as a client knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SessionId {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
}

/// The first frame of a connection.
pub(super) fn connect(session: Option<&SessionId>, last_zxid: i64, timeout_ms: i32) -> Vec<u8> {
    framed(|out| {
        out.extend(0_i32.to_be_bytes());
        out.extend(last_zxid.to_be_bytes());
        out.extend(timeout_ms.to_be_bytes());
        out.extend(session.map_or(0, |session| session.id).to_be_bytes());
        bytes(out, session.map_or(&[0; 16], |session| &session.password));
        // It must be able to write.
        out.push(0);
    })
}

pub(super) const XID_PING: i32 = -2;
pub(super) const XID_EVENT: i32 = -1;

fn framed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    write(&mut out);
    let length = i32::try_from(out.len() - 4).unwrap_or(i32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes());
    out.extend(bytes);
}

fn create(out: &mut Vec<u8>, path: &str, data: &[u8], owned: bool, flags: i32) {
    const ALL: i32 = 31;
    bytes(out, path.as_bytes());
    bytes(out, data);
    out.extend(1_i32.to_be_bytes());
    out.extend(ALL.to_be_bytes());
    let (scheme, id) = if owned { ("auth", "") } else { ("world", "anyone") };
    bytes(out, scheme.as_bytes());
    bytes(out, id.as_bytes());
    out.extend(flags.to_be_bytes());
}

fn multi_header(out: &mut Vec<u8>, operation: i32, is_done: bool) {
    out.extend(operation.to_be_bytes());
    out.push(u8::from(is_done));
    out.extend((-1_i32).to_be_bytes());
}

/// The facts about a node beside its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    /// The transaction that created it.
    pub(super) created: i64,
    /// The one that wrote it last.
    pub(super) modified: i64,
    pub(super) version: i32,
    /// The session with which it ends, or 0.
    pub(super) owner: i64,
}

/// Bytes that are read from their beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a>(pub(super) &'a [u8]);

impl<'a> Reading<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Malformed)?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?))
    }

    /// None is as good as empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        match self.i32()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        // The count is not trusted: each text takes bytes, and those run out.
        (0..self.i32()?).map(|_| self.text().map(str::to_owned)).collect()
    }

    pub(super) fn stat(&mut self) -> Result<Stat, Malformed> {
        let (created, modified) = (self.i64()?, self.i64()?);
        self.take(16)?;
        let version = self.i32()?;
        self.take(8)?;
        let owner = self.i64()?;
        self.take(16)?;
        Ok(Stat { created, modified, version, owner })
    }

    /// The outcome of [`Ask::Multi`]: what the first part that failed was refused with, and which one that was.
    pub(super) fn multi(&mut self) -> Result<Result<(), (usize, Code)>, Malformed> {
        for part in 0.. {
            let (operation, is_done) = (self.i32()?, self.take(1)?[0] != 0);
            self.i32()?;
            if is_done {
                break;
            }
            match operation {
                // Parts before the one that failed have no error of their own.
                -1 => match self.i32()? {
                    0 => {}
                    code => return Ok(Err((part, Code(code)))),
                },
                1 => drop(self.text()?),
                15 => drop((self.text()?, self.stat()?)),
                5 => drop(self.stat()?),
                2 | 13 => {}
                _ => return Err(Malformed),
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_the_protocol_says() {
        let frame = Ask::Data { path: "/a", watch: true }.frame(7, false);
        assert_eq!(frame, [0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 1]);
        assert_eq!(ping(), [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]);
        assert_eq!(connect(None, 0, 1).len(), 4 + 45);
    }

    #[test]
    fn no_bytes_whatever_panic_or_take_memory() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
        for length in [-1, -2, 0, 3, i32::MAX, i32::MIN] {
            bytes[..4].copy_from_slice(&length.to_be_bytes());
            for end in 0..bytes.len() {
                let read = || Reading(&bytes[..end]);
                let _ = (read().bytes(), read().text(), read().texts(), read().stat(), read().multi());
            }
        }
        assert_eq!(Reading(&[127, 255, 255, 255]).texts(), Err(Malformed));
    }

    #[test]
    fn the_first_part_that_failed_is_told() {
        let part = |operation: i32, body: &[u8]| [&operation.to_be_bytes()[..], &[0, 0, 0, 0, 0], body].concat();
        let done = [&(-1_i32).to_be_bytes()[..], &[1, 255, 255, 255, 255]].concat();
        let good = [part(13, &[]), part(2, &[]), done.clone()].concat();
        assert_eq!(Reading(&good).multi(), Ok(Ok(())));
        let error = |code: i32| part(-1, &code.to_be_bytes());
        let bad = [error(0), error(-101), error(-2), done].concat();
        assert_eq!(Reading(&bad).multi(), Ok(Err((1, Code::NO_NODE))));
    }
}
