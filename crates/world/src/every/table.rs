//! Members and messages by number, shared by all threads: [`Table`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A hasher for numbers that are hashes already, or small: one multiplication.
#[derive(Clone, Copy, Default)]
pub struct Mixing(u64);

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// A map with the fast hasher.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Mixing>>;

/// Values stored once each, by number.
pub struct Table<T> {
    numbers: Mutex<FastMap<u64, Vec<u32>>>,
    values: RwLock<Vec<Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { numbers: Mutex::default(), values: RwLock::default() }
    }
}

impl<T: Eq + Hash> Table<T> {
    /// The number of a value, new or known. Equality decides, not the hash.
    pub fn number(&self, value: T) -> u32 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        // A panic elsewhere ends the search; what is stored here is whole at all times.
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = numbers.entry(hasher.finish()).or_default();
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        for number in known.iter() {
            if *values[*number as usize] == value {
                return *number;
            }
        }
        let number = u32::try_from(values.len()).expect("fewer than 2^32 members and messages fit a machine");
        values.push(Arc::new(value));
        known.push(number);
        number
    }

    /// The value with this number.
    pub fn value(&self, number: u32) -> Arc<T> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)[number as usize].clone()
    }

    /// Number of values stored.
    pub fn len(&self) -> usize {
        self.values.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
