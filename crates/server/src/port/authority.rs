//! A repair of what old clients say: [`Repaired`] strips the scheme from `:authority`.
//!
//! grpc-go up to 1.2x, and etcdctl 3.4 with it, sends the endpoint as it was given: `:authority: http://127.0.0.1:2379`.
//! etcd takes it, h2 calls the request malformed (rightly: RFC 3986 §3.2). Nothing behind h2 can help, so this stands
//! before it: it looks at the HTTP/2 frames that a client sends and, in a header block, for that one value.
//!
//! ```text
//!    socket ──► frame heads are walked ──► HEADERS ──► fields are walked (lengths only, RFC 7541 §6)
//!                     │ all else: not touched                └── :authority = http... ──► stripped, frame length corrected
//!                     └──────────► straight into the reader's buffer
//! ```
//!
//! It keeps no table of header fields. The value goes by in full once on a connection; then the client names its place in
//! the dynamic table, where the decoder behind this has put what it was shown. That the decoder's entry is shorter than the
//! client's does no harm: its table fills later, so it forgets no entry that the client still names. (A client whose whole
//! table has room for the shorter and not for the longer would be misread; it was refused before.)
//!
//! It deliberately does not join a block that is cut into several frames. Pseudo-header fields stand first (RFC 9113
//! §8.3) and a first frame has room for them. A block that it cannot read it leaves alone; h2 judges it.
//!
//! Read next: [`crate::port::begun`], which tells HTTP/2 from HTTP/1.1.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::port::ahead::{Ahead, ReadAhead};

/// Bytes of the preface that every connection begins with.
const PREFACE: usize = 24;
/// Bytes in front of a frame's payload: length (3), type, flags, stream (4).
const HEAD: usize = 9;
/// The longest frame that h2 takes unless told otherwise, in bytes of payload. A longer one is not worth holding.
const PAYLOAD_MAX: usize = 16_384;
/// The longest value that is looked into; a host and a port need far less.
const VALUE_MAX: usize = 1_024;
const HEADERS: u8 = 0x1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A client's HTTP/2 connection, with the scheme stripped from `:authority` on its way in.
pub(crate) type Repaired<S> = ReadAhead<S, Repair>;

/// The state of reading such a connection.
pub(crate) struct Repair {
    /// Bytes of the present frame, or of the preface, that may pass unseen.
    unseen: usize,
    /// The beginning of a frame that must be whole to be judged.
    held: BytesMut,
    /// Bytes that were held and may be read now.
    ready: BytesMut,
}

impl<S: AsyncRead + Unpin> Repaired<S> {
    /// Over a connection whose first byte is the first of the preface.
    pub(crate) fn new(stream: S) -> Repaired<S> {
        ReadAhead::of(stream, Repair { unseen: PREFACE, held: BytesMut::new(), ready: BytesMut::new() })
    }
}

impl Repair {
    /// Number of these next bytes of the connection that may pass as they are.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let skipped = self.unseen.min(bytes.len() - at);
            self.unseen -= skipped;
            at += skipped;
            let Some(head) = bytes.get(at..at + HEAD) else {
                // The end, or a head that is cut in two.
                return at;
            };
            let length = length_of(head);
            if head[3] == HEADERS && length <= PAYLOAD_MAX {
                match bytes.get(at..at + HEAD + length) {
                    Some(frame) if repair(frame).is_none() => {}
                    _ => return at,
                }
            }
            self.unseen = HEAD + length;
        }
    }

    /// Moves what is judged from `held` to `ready`.
    fn settle(&mut self) {
        loop {
            let held = std::mem::take(&mut self.held);
            let passed = self.pass(&held);
            self.held = held;
            self.ready.extend_from_slice(&self.held[..passed]);
            self.held.advance(passed);
            let Some(head) = self.held.get(..HEAD) else { return };
            let end = HEAD + length_of(head);
            let Some(repaired) = self.held.get(..end).and_then(repair) else { return };
            self.ready.extend_from_slice(&repaired);
            self.held.advance(end);
        }
    }
}

fn length_of(head: &[u8]) -> usize {
    usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])
}

/// A HEADERS frame without the scheme in its `:authority`; `None` when it may stay as it is.
fn repair(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at(HEAD);
    let flags = head[4];
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        start += 1;
        end = end.checked_sub(usize::from(*payload.first()?))?;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    let (value, stripped) = scheme_in(payload.get(start..end)?)?;
    let value = start + value.start..start + value.end;
    let mut repaired = head.to_vec();
    repaired.extend_from_slice(&payload[..value.start]);
    put_string(&stripped, &mut repaired);
    repaired.extend_from_slice(&payload[value.end..]);
    let length = repaired.len() - HEAD;
    if length > PAYLOAD_MAX {
        return None;
    }
    repaired[..3].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes()[1..]);
    Some(repaired)
}

/// Finds the `:authority` value that has a scheme in a header block: its range, length included, and the value without the scheme.
fn scheme_in(block: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
    let mut at = 0;
    loop {
        let first = *block.get(at)?;
        // RFC 7541 §6: an indexed field, a change of the table's size, or a literal with or without a place in the table.
        let prefix_bits = match first {
            0x80.. => 7,
            0x40..=0x7f => 6,
            0x20..=0x3f => 5,
            _ => 4,
        };
        let index = integer(block, &mut at, prefix_bits)?;
        if matches!(prefix_bits, 7 | 5) {
            continue;
        }
        // 1 is `:authority` in the static table; 0 means that the name is spelled.
        let is_authority = match index {
            0 => text(string(block, &mut at)?).is_some_and(|name| name == b":authority"),
            index => index == 1,
        };
        let start = at;
        let value = string(block, &mut at)?;
        if is_authority {
            let value = text(value)?;
            let stripped = value.strip_prefix(b"http://").or_else(|| value.strip_prefix(b"https://"))?;
            return Some((start..at, stripped.to_vec()));
        }
    }
}

/// Reads an integer of RFC 7541 §5.1. `None` when it is cut or absurd.
fn integer(block: &[u8], at: &mut usize, prefix_bits: u32) -> Option<usize> {
    let full = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & full;
    *at += 1;
    if value < full {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string as it is encoded.
enum Encoded<'b> {
    Raw(&'b [u8]),
    Huffman(&'b [u8]),
}

/// Reads a string of RFC 7541 §5.2.
fn string<'b>(block: &'b [u8], at: &mut usize) -> Option<Encoded<'b>> {
    let is_huffman = *block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    let bytes = block.get(*at..at.checked_add(length)?)?;
    *at += length;
    Some(if is_huffman { Encoded::Huffman(bytes) } else { Encoded::Raw(bytes) })
}

fn put_string(bytes: &[u8], out: &mut Vec<u8>) {
    const FULL: usize = 0x7f;
    if bytes.len() < FULL {
        out.push(bytes.len() as u8);
    } else {
        out.push(FULL as u8);
        let mut rest = bytes.len() - FULL;
        while rest >= 0x80 {
            out.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(bytes);
}

/// Decodes a string; `None` when it is long, or holds what no authority holds.
fn text(string: Encoded<'_>) -> Option<Vec<u8>> {
    let encoded = match string {
        Encoded::Raw(bytes) => return (bytes.len() <= VALUE_MAX).then(|| bytes.to_vec()),
        Encoded::Huffman(encoded) if encoded.len() > VALUE_MAX => return None,
        Encoded::Huffman(encoded) => encoded,
    };
    let mut decoded = Vec::with_capacity(encoded.len() * 2);
    let (mut code, mut bits) = (0_u16, 0);
    for bit in encoded.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1)) {
        code = code << 1 | u16::from(bit);
        bits += 1;
        if let Some((symbol, ..)) = SYMBOLS.iter().find(|(_, known, length)| (*known, *length) == (code, bits)) {
            decoded.push(*symbol);
            (code, bits) = (0, 0);
        } else if bits == BITS_MAX {
            return None;
        }
    }
    // The rest of the last byte is filled with ones.
    (bits < 8 && code == (1 << bits) - 1).then_some(decoded)
}

const BITS_MAX: u8 = 13;

/// The Huffman codes of the bytes that an authority, a scheme and `:authority` are made of. Source: RFC 7541, Appendix B.
const SYMBOLS: [(u8, u16, u8); 73] = {
    // First code, length of all its codes in bits, and the bytes in the order of their codes.
    const CLASSES: [(u16, u8, &[u8]); 5] = [
        (0x0, 5, b"012aceiost"),
        (0x15, 6, b"%-./3456789=A_bdfghlmnpru"),
        (0x5c, 7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
        (0xfc, 8, b"XZ"),
        (0x1ffa, 13, b"@[]~"),
    ];
    let mut symbols = [(0, 0, 0); 73];
    let (mut class, mut count) = (0, 0);
    while class < CLASSES.len() {
        let (first, bits, bytes) = CLASSES[class];
        let mut position = 0;
        while position < bytes.len() {
            symbols[count] = (bytes[position], first + position as u16, bits);
            position += 1;
            count += 1;
        }
        class += 1;
    }
    assert!(count == symbols.len());
    symbols
};

impl<S: AsyncRead + Unpin> Ahead<S> for Repair {
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if !self.ready.is_empty() {
                let length = self.ready.len().min(buffer.remaining());
                buffer.put_slice(&self.ready[..length]);
                self.ready.advance(length);
                return Poll::Ready(Ok(()));
            }
            if self.held.is_empty() {
                let start = buffer.filled().len();
                ready!(Pin::new(&mut *stream).poll_read(context, buffer))?;
                let new = &buffer.filled()[start..];
                let passed = self.pass(new);
                if passed == new.len() {
                    // Also the end of the connection.
                    return Poll::Ready(Ok(()));
                }
                self.held.extend_from_slice(&new[passed..]);
                buffer.set_filled(start + passed);
                self.settle();
                if passed > 0 {
                    return Poll::Ready(Ok(()));
                }
            } else {
                let mut room = [0; 4_096];
                let mut more = ReadBuf::new(&mut room);
                ready!(Pin::new(&mut *stream).poll_read(context, &mut more))?;
                if more.filled().is_empty() {
                    // It is cut off in the middle of a frame: the reader shall see it so.
                    self.ready = std::mem::take(&mut self.held);
                    continue;
                }
                self.held.extend_from_slice(more.filled());
                self.settle();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    /// The fields before `:authority` in a gRPC request: two of the static table, a path that is remembered.
    const BEFORE: &[u8] = b"\x83\x86\x45\x03/a/";
    const AFTER: &[u8] = b"\x5f\x02te\x0f\x2f\x01x";

    fn huffman(said: &str) -> Vec<u8> {
        let (mut out, mut bits) = (Vec::new(), 0_u32);
        let mut put = |bit: u16| {
            if bits.is_multiple_of(8) {
                out.push(0);
            }
            *out.last_mut().unwrap() |= (bit as u8) << (7 - bits % 8);
            bits += 1;
        };
        for byte in said.bytes() {
            let (_, code, length) = SYMBOLS.iter().find(|(symbol, ..)| *symbol == byte).unwrap();
            (0..*length).rev().for_each(|shift| put(code >> shift & 1));
        }
        while bits % 8 != 0 {
            *out.last_mut().unwrap() |= 1 << (7 - bits % 8);
            bits += 1;
        }
        out
    }

    fn coded(said: &[u8], is_huffman: bool) -> Vec<u8> {
        let mut out = Vec::new();
        put_string(said, &mut out);
        out[0] |= if is_huffman { 0x80 } else { 0 };
        out
    }

    fn block(name: &[u8], value: &[u8]) -> Vec<u8> {
        [BEFORE, name, value, AFTER].concat()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        out.extend([kind, flags, 0, 0, 0, 1]);
        out.extend(payload);
        out
    }

    /// A connection that gives its bytes in pieces.
    struct Pieces<'p> {
        said: &'p [u8],
        lengths: std::slice::Iter<'p, usize>,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let piece = self.lengths.next().copied().unwrap_or(usize::MAX);
            let (now, later) = self.said.split_at(piece.min(out.remaining()).min(self.said.len()));
            out.put_slice(now);
            self.said = later;
            Poll::Ready(Ok(()))
        }
    }

    /// Reads a connection that comes in pieces of these lengths, into a small buffer.
    async fn read(said: &[u8], lengths: &[usize], buffer_bytes: usize) -> Vec<u8> {
        let mut repaired = Repaired::new(Pieces { said, lengths: lengths.iter() });
        let (mut out, mut buffer) = (Vec::new(), vec![0; buffer_bytes]);
        loop {
            match repaired.read(&mut buffer).await.unwrap() {
                0 => return out,
                length => out.extend(&buffer[..length]),
            }
        }
    }

    fn preface() -> Vec<u8> {
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
    }

    #[test]
    fn the_scheme_goes_however_name_and_value_are_coded() {
        for (said, left) in [
            ("http://127.0.0.1:2379", "127.0.0.1:2379"),
            ("https://[::1]:2379", "[::1]:2379"),
            (
                "http://a-very-long.example.name_of/with~everything%20in@it",
                "a-very-long.example.name_of/with~everything%20in@it",
            ),
        ] {
            let raw = coded(said.as_bytes(), false);
            let packed = coded(&huffman(said), true);
            let spelled = [&[0x00][..], &coded(b":authority", false)].concat();
            let spelled_packed = [&[0x40][..], &coded(&huffman(":authority"), true)].concat();
            for name in [&[0x41][..], &[0x01], &[0x11], &spelled, &spelled_packed] {
                for value in [&raw, &packed] {
                    let repaired = repair(&frame(HEADERS, 0x4, &block(name, value))).unwrap();
                    assert_eq!(repaired, frame(HEADERS, 0x4, &block(name, &coded(left.as_bytes(), false))), "{said}");
                }
            }
        }
    }

    #[test]
    fn padding_and_priority_stay_around_it() {
        let said = block(&[0x41], &coded(b"http://h:1", false));
        let left = block(&[0x41], &coded(b"h:1", false));
        let around = |block: &[u8]| [&[3, 0, 0, 0, 0, 9][..], block, &[0, 0, 0]].concat();
        let flags = PADDED | PRIORITY;
        assert_eq!(repair(&frame(HEADERS, flags, &around(&said))), Some(frame(HEADERS, flags, &around(&left))));
    }

    #[test]
    fn whatever_else_is_said_stays() {
        for (name, value) in
            [(&[0x41][..], "127.0.0.1:2379"), (&[0x41], "httpd:80"), (&[0x44], "http://path"), (&[0x41], "")]
        {
            for value in [coded(value.as_bytes(), false), coded(&huffman(value), true)] {
                assert_eq!(repair(&frame(HEADERS, 0x4, &block(name, &value))), None);
            }
        }
        // Referred to by its place in the tables, and cut off in the middle.
        assert_eq!(repair(&frame(HEADERS, 0x4, b"\x83\x86\xbe\xbf\xff\x80\x01")), None);
        let whole = block(&[0x41], &coded(b"http://h:1", false));
        for end in 0..BEFORE.len() + 12 {
            assert_eq!(repair(&frame(HEADERS, 0, &whole[..end])), None);
        }
    }

    #[test]
    fn the_code_is_that_of_the_standard() {
        // RFC 7541, C.4.1 and C.6.1.
        assert_eq!(huffman("www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(
            huffman("https://www.example.com"),
            b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3"
        );
    }

    proptest! {
        #[test]
        fn a_connection_says_the_same_however_it_is_cut(
            frames in proptest::collection::vec((0..3_u8, 0..40_usize), 1..8),
            pieces in proptest::collection::vec(1..60_usize, 0..40),
            buffer_bytes in 1..200_usize,
        ) {
            let (mut said, mut wanted) = (preface(), preface());
            for (kind, length) in frames {
                let (a, b) = match kind {
                    0 => (frame(0, 1, &vec![7; length]), frame(0, 1, &vec![7; length])),
                    1 => {
                        let host = "x".repeat(length);
                        let full = coded(&huffman(&format!("http://{host}")), true);
                        let left = coded(host.as_bytes(), false);
                        (frame(HEADERS, 4, &block(&[0x41], &full)), frame(HEADERS, 4, &block(&[0x41], &left)))
                    }
                    _ => (frame(HEADERS, 4, &[0xbe; 9]), frame(HEADERS, 4, &[0xbe; 9])),
                };
                said.extend(a);
                wanted.extend(b);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            prop_assert_eq!(runtime.block_on(read(&said, &pieces, buffer_bytes)), wanted);
        }

        #[test]
        fn garbage_is_passed_on_or_repaired_and_never_panics(
            garbage: Vec<u8>,
            pieces in proptest::collection::vec(1..60_usize, 0..10),
        ) {
            let said = [preface(), garbage.clone(), frame(HEADERS, garbage.first().copied().unwrap_or(0), &garbage)].concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let heard = runtime.block_on(read(&said, &pieces, 64));
            prop_assert_eq!(heard, runtime.block_on(read(&said, &[], 4_096)));
        }
    }
}
