//! Writing: a file in one pass, without ever holding more of it than a page for each level of a tree.
//!
//! The first two pages of a file say where its root is and how many pages there are. So a file is written in two runs over
//! the same entries: [`Writer::measure`] counts, [`Writer::begin`] takes what the first run found and writes. Pages leave as soon
//! as they are full, a branch right after its last child: bbolt asks for no order.
//!
//! ```text
//!   leaf  leaf  leaf  branch(of the three)  leaf  leaf  branch  branch(of the two branches)  ...  leaf(the buckets)
//! ```

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};

use crate::page::{BRANCH, BUCKET_BYTES, FREELIST, HEAD_BYTES, Head, IS_BUCKET, LEAF, Meta, PAGE_BYTES};

/// The page of the (empty) list of free pages; those of the trees follow.
const FREELIST_PAGE: u64 = 2;

/// The result of a writer's first run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    root: u64,
    pages: u64,
}

impl Layout {
    /// The length of the file, bytes.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }
}

/// Writes a database, a page at a time.
pub struct Writer<'s> {
    out: Out<'s>,
    expected: Option<Layout>,
    buckets: BTreeMap<Vec<u8>, u64>,
    open: Option<(Vec<u8>, Tree)>,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a database of {} pages so far", self.out.next)
    }
}

/// The output for pages.
struct Out<'s> {
    /// The number of the next one.
    next: u64,
    /// `None` while they are only counted.
    sink: Option<&'s mut dyn FnMut(Bytes)>,
}

impl Out<'_> {
    /// Writes what becomes one page with those that belong to it, and answers its number.
    fn put(&mut self, flags: u16, count: u16, contents: impl FnOnce(&mut Vec<u8>), length: usize) -> u64 {
        let id = self.next;
        let pages = (HEAD_BYTES + length).div_ceil(PAGE_BYTES);
        self.next += pages as u64;
        if let Some(sink) = &mut self.sink {
            let mut page = Vec::with_capacity(pages * PAGE_BYTES);
            let overflow = u32::try_from(pages - 1).expect("an entry is far below 16 TiB");
            Head { id, flags, count, overflow }.encode(&mut page);
            contents(&mut page);
            assert_eq!(page.len(), HEAD_BYTES + length, "a page is as long as it was counted");
            page.resize(pages * PAGE_BYTES, 0);
            sink(page.into());
        }
        id
    }
}

impl<'s> Writer<'s> {
    /// A writer that counts pages and writes nothing.
    pub fn measure() -> Writer<'s> {
        let out = Out { next: FREELIST_PAGE + 1, sink: None };
        Writer { out, expected: None, buckets: BTreeMap::new(), open: None }
    }

    /// A writer that writes what another one has measured; its parts are whole pages.
    pub fn begin(layout: Layout, sink: &'s mut dyn FnMut(Bytes)) -> Writer<'s> {
        let page_bytes = PAGE_BYTES as u32;
        // As bbolt: the page of a transaction is its number modulo two.
        for (id, transaction) in [(0, 2), (1, 1)] {
            let meta = Meta { page_bytes, root: layout.root, pages: layout.pages, transaction };
            sink(meta.encode(id, FREELIST_PAGE).into());
        }
        let mut out = Out { next: FREELIST_PAGE, sink: Some(sink) };
        out.put(FREELIST, 0, |_| {}, 0);
        Writer { out, expected: Some(layout), buckets: BTreeMap::new(), open: None }
    }

    /// Begins a bucket; what was begun before is complete.
    ///
    /// # Panics
    /// When a bucket of that name was there before.
    pub fn bucket(&mut self, name: &[u8]) {
        self.close();
        assert!(!self.buckets.contains_key(name), "a bucket is written once");
        self.open = Some((name.to_vec(), Tree::default()));
    }

    /// Adds an entry to the bucket that was begun last.
    ///
    /// # Panics
    /// When no bucket was begun, or the key is not behind the one before.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        let (_, tree) = self.open.as_mut().expect("an entry belongs to a bucket");
        tree.add(&mut self.out, key, value, 0);
    }

    fn close(&mut self) {
        if let Some((name, tree)) = self.open.take() {
            let root = tree.finish(&mut self.out);
            self.buckets.insert(name, root);
        }
    }

    /// Ends the file with its tree of buckets.
    ///
    /// # Panics
    /// When the entries were not those that were measured.
    pub fn finish(mut self) -> Layout {
        self.close();
        let mut tree = Tree::default();
        for (name, root) in std::mem::take(&mut self.buckets) {
            let mut value = Vec::with_capacity(BUCKET_BYTES);
            value.put_u64_le(root);
            value.put_u64_le(0);
            tree.add(&mut self.out, &name, &value, IS_BUCKET);
        }
        let root = tree.finish(&mut self.out);
        let layout = Layout { root, pages: self.out.next };
        assert!(self.expected.is_none_or(|expected| expected == layout), "both runs have the same entries");
        layout
    }
}

/// A tree under construction: its rightmost pages, which are not full yet; leaves first.
#[derive(Default)]
struct Tree {
    leaf: Leaf,
    branches: Vec<Branch>,
}

impl Tree {
    fn add(&mut self, out: &mut Out<'_>, key: &[u8], value: &[u8], flags: u32) {
        if !self.leaf.has_room(key.len() + value.len()) {
            let full = std::mem::take(&mut self.leaf);
            let (first, id) = full.write(out);
            self.raise(out, 0, first, id);
        }
        self.leaf.add(key, value, flags);
    }

    /// Gives a page a place in the level above it.
    fn raise(&mut self, out: &mut Out<'_>, level: usize, first: Vec<u8>, id: u64) {
        if level == self.branches.len() {
            self.branches.push(Branch::default());
        }
        if !self.branches[level].has_room(first.len()) {
            let full = std::mem::take(&mut self.branches[level]);
            let (first, id) = full.write(out);
            self.raise(out, level + 1, first, id);
        }
        self.branches[level].add(first, id);
    }

    /// Writes what is left and answers the root.
    fn finish(mut self, out: &mut Out<'_>) -> u64 {
        let (mut first, mut id) = std::mem::take(&mut self.leaf).write(out);
        let mut level = 0;
        while level < self.branches.len() {
            self.raise(out, level, first, id);
            (first, id) = std::mem::take(&mut self.branches[level]).write(out);
            level += 1;
        }
        id
    }
}

/// A leaf page that is being filled.
#[derive(Default)]
struct Leaf {
    /// Flags, length of the key, length of the value.
    elements: Vec<(u32, u32, u32)>,
    data: Vec<u8>,
    last: Option<(usize, usize)>,
}

impl Leaf {
    fn has_room(&self, length: usize) -> bool {
        let elements = self.elements.len();
        elements == 0 || HEAD_BYTES + (elements + 1) * HEAD_BYTES + self.data.len() + length <= PAGE_BYTES
    }

    fn add(&mut self, key: &[u8], value: &[u8], flags: u32) {
        let is_behind = self.last.is_none_or(|(start, end)| &self.data[start..end] < key);
        assert!(is_behind, "keys come in their order, each once");
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB");
        self.elements.push((flags, length(key), length(value)));
        let start = self.data.len();
        self.last = Some((start, start + key.len()));
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
    }

    /// Answers its first key and its number.
    fn write(self, out: &mut Out<'_>) -> (Vec<u8>, u64) {
        let Leaf { elements, data, .. } = self;
        let count = u16::try_from(elements.len()).expect("a page has room for 255");
        let first = elements.first().map_or(0, |(_, key_bytes, _)| *key_bytes as usize);
        let first = data[..first].to_vec();
        let heads = elements.len() * HEAD_BYTES;
        let contents = |page: &mut Vec<u8>| {
            let mut before = 0;
            for (position, (flags, key_bytes, value_bytes)) in elements.iter().enumerate() {
                page.put_u32_le(*flags);
                page.put_u32_le(offset(heads, position, before));
                page.put_u32_le(*key_bytes);
                page.put_u32_le(*value_bytes);
                before += *key_bytes as usize + *value_bytes as usize;
            }
            page.extend_from_slice(&data);
        };
        let id = out.put(LEAF, count, contents, heads + data.len());
        (first, id)
    }
}

/// A branch page that is being filled: first keys and numbers of its children.
#[derive(Default)]
struct Branch {
    children: Vec<(Vec<u8>, u64)>,
    key_bytes: usize,
}

impl Branch {
    /// Always for two, or a tree of very long keys would never come to an end.
    fn has_room(&self, key_bytes: usize) -> bool {
        let children = self.children.len();
        children < 2 || HEAD_BYTES + (children + 1) * HEAD_BYTES + self.key_bytes + key_bytes <= PAGE_BYTES
    }

    fn add(&mut self, first: Vec<u8>, id: u64) {
        self.key_bytes += first.len();
        self.children.push((first, id));
    }

    /// Answers its first key and its number.
    fn write(self, out: &mut Out<'_>) -> (Vec<u8>, u64) {
        let Branch { children, key_bytes } = self;
        let count = u16::try_from(children.len()).expect("a page has room for 255");
        let first = children.first().map(|(first, _)| first.clone()).unwrap_or_default();
        let heads = children.len() * HEAD_BYTES;
        let contents = |page: &mut Vec<u8>| {
            let mut before = 0;
            for (position, (first, id)) in children.iter().enumerate() {
                page.put_u32_le(offset(heads, position, before));
                page.put_u32_le(u32::try_from(first.len()).expect("keys are far below 4 GiB"));
                page.put_u64_le(*id);
                before += first.len();
            }
            children.iter().for_each(|(first, _)| page.extend_from_slice(first));
        };
        let id = out.put(BRANCH, count, contents, heads + key_bytes);
        (first, id)
    }
}

/// Offset of an element's data from the element itself: behind all heads and the data of those before.
fn offset(heads: usize, position: usize, before: usize) -> u32 {
    u32::try_from(heads - position * HEAD_BYTES + before).expect("a page's entries are far below 4 GiB")
}
