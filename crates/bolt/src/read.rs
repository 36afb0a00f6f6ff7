//! Reading: the buckets of a file, and the entries of a bucket in the order of their keys.
//!
//! A file may be damaged or made to do harm. So each walk visits a page at most once, which bounds its time by the length of the
//! file; pages are read one at a time, which bounds its memory by the longest page and the depth of the tree.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

use crate::error::BoltError;
use crate::page::{BRANCH, BUCKET_BYTES, Found, HEAD_BYTES, Head, IS_BUCKET, LEAF, META_BYTES, Meta};
use crate::source::Source;

/// The smallest and largest pages that a file may have.
const PAGE_BYTES_MIN: u64 = 512;
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// A tree of full pages of 4 KiB is not half as deep with as many pages as there can be.
const DEPTH_MAX: usize = 32;

/// etcd 3.5 has ten buckets.
const BUCKETS_MAX: usize = 1_000;

/// A database file that is open.
#[derive(Debug)]
pub struct Database<S> {
    source: S,
    page_bytes: u64,
    pages: u64,
    buckets: BTreeMap<Bytes, Place>,
}

/// The place of a bucket's tree.
#[derive(Clone, Debug)]
enum Place {
    Page(u64),
    /// A small one stands in its parent, as one page without a number.
    Inline(Bytes),
}

impl<S: Source> Database<S> {
    /// Opens the database in the first `length` bytes of a source.
    ///
    /// # Errors
    /// When it is none, is not whole, or its buckets cannot be read.
    pub fn open(source: S, length: u64) -> Result<Database<S>, BoltError> {
        let meta = newest_meta(&source, length)?;
        let page_bytes = u64::from(meta.page_bytes);
        let is_size = page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes);
        if !is_size {
            return Err(damaged(0, "its pages have an impossible size"));
        }
        let expected = meta.pages.saturating_mul(page_bytes);
        if expected > length {
            return Err(BoltError::CutOff { found: length, expected });
        }
        let mut database = Database { source, page_bytes, pages: meta.pages, buckets: BTreeMap::new() };
        let mut buckets = BTreeMap::new();
        let mut walk = Walk::new(&database, &Place::Page(meta.root))?;
        while let Some(element) = walk.next()? {
            if !element.is_bucket || element.value.len() < BUCKET_BYTES {
                return Err(damaged(meta.root, "something that is no bucket stands among the buckets"));
            }
            if buckets.len() == BUCKETS_MAX {
                return Err(damaged(meta.root, "there are more buckets than etcd could have made"));
            }
            let mut value = element.value;
            let root = value.get_u64_le();
            let _counter = value.get_u64_le();
            buckets.insert(element.key, if root == 0 { Place::Inline(value) } else { Place::Page(root) });
        }
        database.buckets = buckets;
        Ok(database)
    }

    /// The names of the buckets, in their order.
    pub fn buckets(&self) -> impl Iterator<Item = &Bytes> {
        self.buckets.keys()
    }

    /// The bytes that the pages of the file take.
    pub fn bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }

    /// The entries of a bucket, in the order of their keys; none if there is no such bucket.
    pub fn entries(&self, bucket: &[u8]) -> Entries<'_, S> {
        let walk = match self.buckets.get(bucket) {
            Some(place) => Walk::new(self, place).map(Some),
            None => Ok(None),
        };
        Entries { walk: Some(walk) }
    }

    /// Reads a page with those that belong to it, and takes note that it was visited.
    fn page(&self, id: u64, visited: &mut Visited) -> Result<Page, BoltError> {
        if !(2..self.pages).contains(&id) {
            return Err(damaged(id, "it is named, and the file has no such page"));
        }
        let mut head = [0; HEAD_BYTES];
        self.read(id * self.page_bytes, &mut head)?;
        let head = Head::decode(&head);
        if head.id != id {
            return Err(damaged(id, "it says that it is another page"));
        }
        let end = id + 1 + u64::from(head.overflow);
        if end > self.pages {
            return Err(damaged(id, "it is longer than the file"));
        }
        if !(id..end).all(|page| visited.visit(page)) {
            return Err(damaged(id, "it is used twice"));
        }
        let mut bytes = vec![0; ((end - id) * self.page_bytes) as usize];
        self.read(id * self.page_bytes, &mut bytes)?;
        Ok(Page { id, head, bytes: bytes.into() })
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BoltError> {
        read(&self.source, offset, bytes)
    }
}

/// The entries of a bucket, in the order of their keys: keys with values. Ends after an error.
pub struct Entries<'d, S> {
    /// `None` after the end.
    walk: Option<Result<Option<Walk<'d, S>>, BoltError>>,
}

impl<S> std::fmt::Debug for Entries<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.walk.is_some() { "entries" } else { "no more entries" })
    }
}

impl<S: Source> Iterator for Entries<'_, S> {
    type Item = Result<(Bytes, Bytes), BoltError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut walk = match self.walk.take()? {
            Ok(walk) => walk?,
            Err(error) => return Some(Err(error)),
        };
        match walk.next() {
            Ok(Some(element)) if element.is_bucket => Some(Err(damaged(0, "a bucket stands inside a bucket"))),
            Ok(Some(Element { key, value, .. })) => {
                self.walk = Some(Ok(Some(walk)));
                Some(Ok((key, value)))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// An element of a leaf: an entry or a bucket.
struct Element {
    key: Bytes,
    value: Bytes,
    is_bucket: bool,
}

/// One way through a tree, from its first leaf to its last.
struct Walk<'d, S> {
    database: &'d Database<S>,
    visited: Visited,
    /// The way from the root down, each page with the number of its element that comes next.
    path: Vec<(Page, u16)>,
    last: Option<Bytes>,
}

impl<'d, S: Source> Walk<'d, S> {
    fn new(database: &'d Database<S>, place: &Place) -> Result<Walk<'d, S>, BoltError> {
        let mut visited = Visited::new(database.pages);
        let root = match place {
            Place::Page(id) => database.page(*id, &mut visited)?,
            Place::Inline(bytes) if bytes.len() < HEAD_BYTES => {
                return Err(damaged(0, "a bucket that stands in its parent is too short"));
            }
            Place::Inline(bytes) => Page { id: 0, head: Head::decode(bytes), bytes: bytes.clone() },
        };
        Ok(Walk { database, visited, path: vec![(root, 0)], last: None })
    }

    fn next(&mut self) -> Result<Option<Element>, BoltError> {
        loop {
            let Some((page, position)) = self.path.last_mut() else { return Ok(None) };
            if *position == page.head.count {
                self.path.pop();
                continue;
            }
            let at = *position;
            *position += 1;
            match page.head.flags {
                LEAF => {
                    let element = page.leaf(at)?;
                    if self.last.as_ref().is_some_and(|last| *last >= element.key) {
                        return Err(damaged(page.id, "its keys do not ascend"));
                    }
                    self.last = Some(element.key.clone());
                    return Ok(Some(element));
                }
                BRANCH => {
                    let child = page.branch(at)?;
                    if self.path.len() == DEPTH_MAX {
                        return Err(damaged(child, "it lies too deep in its tree"));
                    }
                    let child = self.database.page(child, &mut self.visited)?;
                    self.path.push((child, 0));
                }
                _ => return Err(damaged(page.id, "it is neither a branch nor a leaf")),
            }
        }
    }
}

/// A page with those that belong to it.
#[derive(Debug)]
struct Page {
    id: u64,
    head: Head,
    bytes: Bytes,
}

impl Page {
    /// The fields of an element.
    fn element(&self, position: u16) -> Result<(usize, Bytes), BoltError> {
        let start = HEAD_BYTES + usize::from(position) * HEAD_BYTES;
        if start + HEAD_BYTES > self.bytes.len() {
            return Err(damaged(self.id, "it has more elements than room"));
        }
        Ok((start, self.bytes.slice(start..start + HEAD_BYTES)))
    }

    fn slice(&self, start: usize, length: u32) -> Result<Bytes, BoltError> {
        let end = start.checked_add(length as usize).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(damaged(self.id, "one of its elements ends outside of it"))?;
        Ok(self.bytes.slice(start..end))
    }

    fn leaf(&self, position: u16) -> Result<Element, BoltError> {
        let (start, mut fields) = self.element(position)?;
        let (flags, offset) = (fields.get_u32_le(), fields.get_u32_le());
        let (key_bytes, value_bytes) = (fields.get_u32_le(), fields.get_u32_le());
        let key = self.slice(start + offset as usize, key_bytes)?;
        let value = self.slice(start + offset as usize + key.len(), value_bytes)?;
        Ok(Element { key, value, is_bucket: flags & IS_BUCKET != 0 })
    }

    /// Page of the child at this position.
    fn branch(&self, position: u16) -> Result<u64, BoltError> {
        let (_, mut fields) = self.element(position)?;
        let (_offset, _key_bytes) = (fields.get_u32_le(), fields.get_u32_le());
        Ok(fields.get_u64_le())
    }
}

/// Pages that a walk has seen: one bit each.
struct Visited(Vec<u64>);

impl Visited {
    fn new(pages: u64) -> Visited {
        Visited(vec![0; pages.div_ceil(64) as usize])
    }

    /// Whether it is the first visit.
    fn visit(&mut self, page: u64) -> bool {
        let (word, bit) = (&mut self.0[(page / 64) as usize], 1 << (page % 64));
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}

fn damaged(page: u64, what: &'static str) -> BoltError {
    BoltError::Damaged { page, what }
}

fn read(source: &impl Source, offset: u64, bytes: &mut [u8]) -> Result<(), BoltError> {
    let length = bytes.len();
    source.read_at(offset, bytes).map_err(|error| BoltError::Io { offset, length, error })
}

/// The valid meta page of the later transaction. The second page begins where the first says, or, where the first is
/// damaged, behind a page of one of the usual sizes.
fn newest_meta(source: &impl Source, length: u64) -> Result<Meta, BoltError> {
    let mut refusal = BoltError::NotADatabase;
    let mut at = |offset: u64| -> Result<Option<Meta>, BoltError> {
        if offset + META_BYTES as u64 > length {
            return Ok(None);
        }
        let mut page = [0; META_BYTES];
        read(source, offset, &mut page)?;
        match Meta::decode(&page) {
            Found::Meta(meta) => return Ok(Some(meta)),
            Found::Version(version) => refusal = BoltError::Version(version),
            Found::Nothing => {}
        }
        Ok(None)
    };
    let first = at(0)?;
    let second = match first {
        Some(meta) => at(u64::from(meta.page_bytes))?,
        None => {
            let mut found = None;
            for power in 9..=20 {
                found = found.or(at(1 << power)?);
            }
            found
        }
    };
    let newest = first.into_iter().chain(second).max_by_key(|meta| meta.transaction);
    newest.ok_or(refusal)
}
