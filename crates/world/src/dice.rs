//! Chances from a seed: [`Dice`].
//!
//! SplitMix64. Every source of chance in a world has dice of its own, made from the seed and a name, so that taking one fault
//! out of a run changes as little as possible of the rest.

/// A deterministic source of chances.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice for one purpose: equal arguments, equal throws.
    pub fn new(seed: u64, purpose: u64, number: u64) -> Dice {
        let mut dice = Dice(seed ^ purpose.rotate_left(24) ^ number.rotate_left(48));
        dice.throw();
        dice
    }

    /// Draws the next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for the small bounds used here.
        self.throw() % bound
    }

    /// A number between both, which may be the same.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True this many times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Draws one of them; `None` if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len() as u64) as usize) }
    }
}
