//! Pages: the numbers at their beginning, and the two that describe the whole file.

use std::hash::Hasher;

use bytes::{Buf, BufMut};
use fnv::FnvHasher;

/// Bytes of the pages that are written here.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Bytes at the beginning of a page, and of each element in it.
pub(crate) const HEAD_BYTES: usize = 16;

/// Bytes of a bucket's value in its parent: the root page and a counter.
pub(crate) const BUCKET_BYTES: usize = 16;

pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;

/// The flag of a leaf element that is a bucket.
pub(crate) const IS_BUCKET: u32 = 0x01;

const MAGIC: u32 = 0xED0C_DAED;
pub(crate) const VERSION: u32 = 2;

/// Bytes of a meta page that count, the page's own head included.
pub(crate) const META_BYTES: usize = HEAD_BYTES + 64;

/// The beginning of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) id: u64,
    pub(crate) flags: u16,
    pub(crate) count: u16,
    /// Pages that follow and belong to this one.
    pub(crate) overflow: u32,
}

impl Head {
    pub(crate) fn decode(mut bytes: &[u8]) -> Head {
        assert!(bytes.len() >= HEAD_BYTES, "a head is asked for where there is one");
        Head {
            id: bytes.get_u64_le(),
            flags: bytes.get_u16_le(),
            count: bytes.get_u16_le(),
            overflow: bytes.get_u32_le(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.id);
        out.put_u16_le(self.flags);
        out.put_u16_le(self.count);
        out.put_u32_le(self.overflow);
    }
}

/// The contents of a meta page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) page_bytes: u32,
    /// The page at which the tree of buckets begins.
    pub(crate) root: u64,
    /// Number of pages in the file.
    pub(crate) pages: u64,
    /// The transaction that wrote it.
    pub(crate) transaction: u64,
}

/// The find in a meta page's place.
pub(crate) enum Found {
    Meta(Meta),
    /// One of another version.
    Version(u32),
    Nothing,
}

impl Meta {
    pub(crate) fn decode(page: &[u8]) -> Found {
        let Some(bytes) = page.get(HEAD_BYTES..META_BYTES) else { return Found::Nothing };
        let (summed, mut sum) = bytes.split_at(56);
        let is_whole = sum.get_u64_le() == checksum(summed);
        let mut fields = summed;
        if fields.get_u32_le() != MAGIC {
            return Found::Nothing;
        }
        let version = fields.get_u32_le();
        if version != VERSION {
            return Found::Version(version);
        }
        if !is_whole {
            return Found::Nothing;
        }
        let page_bytes = fields.get_u32_le();
        let _flags = fields.get_u32_le();
        let root = fields.get_u64_le();
        let _counter = fields.get_u64_le();
        let _freelist = fields.get_u64_le();
        let pages = fields.get_u64_le();
        let transaction = fields.get_u64_le();
        Found::Meta(Meta { page_bytes, root, pages, transaction })
    }

    /// The whole page; `freelist` is the page of the free pages.
    pub(crate) fn encode(&self, id: u64, freelist: u64) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.page_bytes as usize);
        Head { id, flags: META, count: 0, overflow: 0 }.encode(&mut page);
        page.put_u32_le(MAGIC);
        page.put_u32_le(VERSION);
        page.put_u32_le(self.page_bytes);
        page.put_u32_le(0);
        page.put_u64_le(self.root);
        page.put_u64_le(0);
        page.put_u64_le(freelist);
        page.put_u64_le(self.pages);
        page.put_u64_le(self.transaction);
        page.put_u64_le(checksum(&page[HEAD_BYTES..]));
        page.resize(self.page_bytes as usize, 0);
        page
    }
}

/// FNV-1a with 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
