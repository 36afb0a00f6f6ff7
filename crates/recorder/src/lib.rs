//! The recorder: the inputs of a member's protocol, its answers, and what happened to its host meanwhile.
//!
//! ```text
//!   loop ── Recorded<P>: each input, a fingerprint of the answer ──┐
//!        ── Mark: links, disk, pauses, requests of operators ──────┴─► Tape ──► hustings-record ──► DATA/recording/
//! ```
//!
//! A protocol is a value, so its inputs are all that is needed to play a life again: [`replay`] gives a value of the
//! same build the same inputs, and compares what it says with what it said. The loop only writes to memory ([`Tape`]);
//! a thread of its own writes the files ([`ring`]), so that no disk delays an election. The contents of clients'
//! requests are not kept: a payload is its length and its checksum ([`mask`]).
//!
//! Files keep what clients wrote as a length and a checksum:
//!
//! ```
//! use bytes::Bytes;
//! use hustings_core::EntryKind;
//! use hustings_recorder::mask;
//!
//! let mut payload = Bytes::from_static(b"a secret of a client");
//! mask::hide(EntryKind::Command, &mut payload);
//! assert!(!payload.windows(6).any(|bytes| bytes == b"secret"));
//! ```
//!
//! Read next: [`Recorded`], then [`replay`], then [`judge`], which compares the lives of all members.

mod clock;
mod fingerprint;
pub mod judge;
mod lasting;
mod mark;
pub mod mask;
mod ordering;
pub mod picture;
pub mod playing;
mod recorded;
pub mod replay;
pub mod ring;
pub mod script;
mod shape;
mod shortening;
pub mod story;
mod tape;

pub use clock::Clock;
pub use mark::{Heard, Mark};
pub use recorded::{Recorded, RecordedOptions};
pub use ring::{Damage, MICROS_MAX, Recording, RecordingError};
pub use shape::{INPUT_WORDS, Life, Note, NoteKind};
pub use tape::{Recorder, Tape, boot_micros, both_clocks_micros, note_panic, unix_micros};

/// The example of the README compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
