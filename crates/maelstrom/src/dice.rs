//! A source of chances from a seed: [`Dice`], SplitMix64.
//!
//! Each purpose has dice of its own, so that a run with one fault less stays as like as it can to the run with it.

/// A deterministic source of chances.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice for one purpose: equal arguments, equal throws.
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut dice = Dice(seed ^ purpose.rotate_left(40));
        dice.throw();
        dice
    }

    /// The next number, from all 64 bits.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when the bound is.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for the small bounds used here.
        if bound == 0 { 0 } else { self.throw() % bound }
    }

    /// A number between both, which may be the same.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A fraction, at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        // 53 bits are all that a double holds exactly.
        (self.throw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// One position of a list this long; 0 when it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// The list in a random order.
    pub fn shuffled<T>(&mut self, mut list: Vec<T>) -> Vec<T> {
        for last in (1..list.len()).rev() {
            let other = self.index(last + 1);
            list.swap(last, other);
        }
        list
    }
}
