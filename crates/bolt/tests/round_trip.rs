//! Goal: entries of any size are read back as they were written; a damaged file is refused or read without harm. Method: drawn buckets and
//! entries, written and read; drawn changes to the bytes, under checksums that fit.

use std::collections::BTreeMap;
use std::hash::Hasher;

use bytes::Bytes;
use fnv::FnvHasher;
use hustings_bolt::{BoltError, Database, Layout, Writer};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const PAGE_BYTES: usize = 4096;

type Bucket = BTreeMap<Vec<u8>, Vec<u8>>;
type Buckets = BTreeMap<Vec<u8>, Bucket>;

fn fill(writer: &mut Writer<'_>, buckets: &Buckets) {
    // Not in the order of their names: a writer does not know that of its caller.
    for (name, entries) in buckets.iter().rev() {
        writer.bucket(name);
        entries.iter().for_each(|(key, value)| writer.entry(key, value));
    }
}

fn written(buckets: &Buckets) -> (Layout, Bytes) {
    let mut measuring = Writer::measure();
    fill(&mut measuring, buckets);
    let layout = measuring.finish();
    let mut file = Vec::new();
    let mut sink = |part: Bytes| file.extend_from_slice(&part);
    let mut writer = Writer::begin(layout, &mut sink);
    fill(&mut writer, buckets);
    writer.finish();
    (layout, file.into())
}

fn read(file: &Bytes) -> Result<Buckets, BoltError> {
    let database = Database::open(file.clone(), file.len() as u64)?;
    let mut found = Buckets::new();
    for name in database.buckets() {
        let mut entries = Bucket::new();
        for entry in database.entries(name) {
            let (key, value) = entry?;
            entries.insert(key.to_vec(), value.to_vec());
        }
        found.insert(name.to_vec(), entries);
    }
    Ok(found)
}

/// Makes both meta pages valid again, the second of which is at this place.
fn seal(file: &mut [u8], second: usize) {
    for page in [0, second] {
        let mut hasher = FnvHasher::default();
        hasher.write(&file[page + 16..page + 72]);
        file[page + 72..page + 80].copy_from_slice(&hasher.finish().to_le_bytes());
    }
}

fn entries() -> impl Strategy<Value = Bucket> {
    let key = prop_oneof![8 => vec(any::<u8>(), 1..24), 1 => vec(any::<u8>(), 1..6_000)];
    let value = prop_oneof![8 => vec(any::<u8>(), 0..200), 1 => vec(any::<u8>(), 0..20_000)];
    btree_map(key, value, 0..60)
}

fn buckets() -> impl Strategy<Value = Buckets> {
    btree_map(vec(any::<u8>(), 1..12), entries(), 0..5)
}

proptest! {
    #[test]
    fn what_is_written_is_read(buckets in buckets()) {
        let (layout, file) = written(&buckets);
        prop_assert_eq!(layout.bytes(), file.len() as u64);
        prop_assert_eq!(read(&file).unwrap(), buckets);
    }

    /// A file that is cut off is never taken for a whole one.
    #[test]
    fn a_part_of_a_file_is_refused(buckets in buckets(), cut: prop::sample::Index) {
        let (_, file) = written(&buckets);
        prop_assert!(read(&file.slice(..cut.index(file.len()))).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Method: numbers that matter (heads of pages, of elements, of the file) are overwritten by others that are likely to harm.
    #[test]
    fn no_bytes_do_harm(
        sizes in vec(0..3_000_usize, 1..40),
        changes in vec((any::<prop::sample::Index>(), 0..48_usize, prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            (0..9_u64).prop_map(|number| number.to_le_bytes().to_vec()),
            Just(vec![255; 4]), Just(vec![255; 8]), Just(vec![0; 16]),
        ]), 1..6),
        sealed: bool,
    ) {
        let entry = |(number, size): (usize, &usize)| (number.to_be_bytes().to_vec(), vec![7; *size]);
        let bucket: Bucket = sizes.iter().enumerate().map(entry).collect();
        let (_, file) = written(&[(b"key".to_vec(), bucket.clone()), (b"meta".to_vec(), bucket)].into());
        let mut file = file.to_vec();
        for (page, place, bytes) in changes {
            let start = page.index(file.len() / PAGE_BYTES) * PAGE_BYTES + place;
            file[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        if sealed {
            seal(&mut file, PAGE_BYTES);
        }
        // A damaged file comes to an end too, and no entry is longer than the file.
        let _ = read(&file.into());
    }

    #[test]
    fn garbage_is_refused(garbage in vec(any::<u8>(), 0..10_000)) {
        prop_assert!(matches!(read(&garbage.into()), Err(BoltError::NotADatabase)));
    }
}

/// Goal: three levels of branches are right, and a key longer than a page does no harm.
#[test]
fn a_large_tree_is_read_back() {
    let key = |number: u32| [&number.to_be_bytes()[..], &[0; 400]].concat();
    let mut bucket: Bucket = (0..6_000_u32).map(|number| (key(number), vec![1; 100])).collect();
    bucket.insert(vec![255; 30_000], vec![2; 30_000]);
    bucket.insert(vec![254; 30_000], vec![2; 30_000]);
    let buckets = [(b"key".to_vec(), bucket)].into();
    assert_eq!(read(&written(&buckets).1).unwrap(), buckets);
}

/// Goal: each refusal says what is wrong, where.
#[test]
fn refusals_name_the_place() {
    let bucket: Bucket = (0..500_u32).map(|number| (number.to_be_bytes().to_vec(), vec![0; 50])).collect();
    let (_, file) = written(&[(b"key".to_vec(), bucket)].into());
    let changed = |place: usize, bytes: &[u8]| {
        let mut file = file.to_vec();
        file[place..place + bytes.len()].copy_from_slice(bytes);
        seal(&mut file, PAGE_BYTES);
        read(&file.into()).unwrap_err().to_string()
    };
    let page = |number: usize| number * PAGE_BYTES;
    assert_eq!(
        read(&file.slice(..page(5))).unwrap_err().to_string(),
        format!(
            "the bbolt database has {} bytes where its meta page says {}: it was not copied whole",
            page(5),
            file.len()
        )
    );
    for (place, bytes, said) in [
        (page(3), &[9][..], "in page 3: it says that it is another page"),
        (page(3) + 8, &[9], "in page 3: it is neither a branch nor a leaf"),
        (page(3) + 12, &[255], "in page 3: it is longer than the file"),
        (page(3) + 12, &[1], "in page 4: it is used twice"),
        (page(3) + 10, &[255, 255], "in page 3: its keys do not ascend"),
        (page(3) + 16 + 8, &[255; 4], "in page 3: one of its elements ends outside of it"),
        (16 + 8, &[3], "in page 0: its pages have an impossible size"),
        (16 + 16, &[255; 8], "in page 18446744073709551615: it is named, and the file has no such page"),
    ] {
        let refusal = changed(place, bytes);
        assert!(refusal.contains(said), "{refusal} instead of {said}");
    }
    let mut newer = file.to_vec();
    newer[20] = 3;
    newer[PAGE_BYTES + 20] = 3;
    assert!(read(&newer.into()).unwrap_err().to_string().contains("has version 3"));
    // One damaged meta page is what the other one is for.
    let mut half = file.to_vec();
    half[30] ^= 1;
    assert!(read(&half.into()).is_ok());
}

/// Goal: a file of a machine with larger pages is read. Method: the same pages, further apart.
#[test]
fn larger_pages_are_read() {
    let bucket: Bucket = (0..2_000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 60])).collect();
    let large = [(b"large".to_vec(), vec![9; 50_000])].into();
    let buckets = [(b"key".to_vec(), bucket), (b"lease".to_vec(), Bucket::new()), (b"meta".to_vec(), large)].into();
    let (_, file) = written(&buckets);
    for size in [8_192, 16_384, 65_536] {
        let mut apart = vec![0; file.len() / PAGE_BYTES * size];
        let mut page = 0;
        while page < file.len() / PAGE_BYTES {
            let from = page * PAGE_BYTES;
            let overflow = u32::from_le_bytes(file[from + 12..from + 16].try_into().unwrap()) as usize;
            let length = (1 + overflow) * PAGE_BYTES;
            apart[page * size..page * size + length].copy_from_slice(&file[from..from + length]);
            page += 1 + overflow;
        }
        for meta in [0, size] {
            apart[meta + 24..meta + 28].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
        }
        seal(&mut apart, size);
        assert_eq!(read(&apart.clone().into()).unwrap(), buckets);
        // Without its first page the second one is found.
        apart[..80].fill(0);
        assert_eq!(read(&apart.into()).unwrap(), buckets);
    }
}
