//! Draws a request: its operation, its key, and the size of its value. All of it follows from the seed and the number of the
//! request, so that two runs of one seed ask the same, by any of their clients.

use anyhow::{Result, bail};
use bytes::Bytes;
use rand::distr::Distribution as _;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;
use std::fmt;
use std::str::FromStr;

/// Beginning of every key.
pub(super) const PREFIX: &str = "bench/";

/// The largest value that is asked for; servers refuse far smaller ones.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// The randomness of one request.
pub(super) fn dice(seed: u64, number: u64) -> StdRng {
    // An odd constant, so that neighbouring numbers give distant seeds.
    StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// An operation that a client of the store asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Put,
    Get,
    Txn,
    Range,
    Delete,
}

impl Operation {
    const ALL: [Operation; 5] = [Operation::Put, Operation::Get, Operation::Txn, Operation::Range, Operation::Delete];

    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Txn => "txn",
            Operation::Range => "range",
            Operation::Delete => "delete",
        }
    }

    /// Its name in a report where its key was not there.
    pub(super) fn name_in_vain(self) -> &'static str {
        match self {
            Operation::Put => "put, no key",
            Operation::Get => "get, no key",
            Operation::Txn => "txn, no key",
            Operation::Range => "range, no key",
            Operation::Delete => "delete, no key",
        }
    }
}

/// Operations with their shares, as `get:95,put:5`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mix {
    shares: Vec<(Operation, u32)>,
}

impl Mix {
    pub(super) fn only(operation: Operation) -> Mix {
        Mix { shares: vec![(operation, 1)] }
    }

    /// A mix of so many percent gets, the rest puts.
    pub(super) fn of_reads(percent: u32) -> Mix {
        let shares = vec![(Operation::Get, percent), (Operation::Put, 100 - percent)];
        Mix { shares: shares.into_iter().filter(|(_, share)| *share > 0).collect() }
    }

    pub(super) fn pick(&self, dice: &mut StdRng) -> Operation {
        pick(&self.shares, dice)
    }

    /// Whether any of it needs keys that are there.
    pub(super) fn needs_keys(&self) -> bool {
        self.shares.iter().any(|(operation, _)| *operation != Operation::Put)
    }

    pub(super) fn has(&self, wanted: Operation) -> bool {
        self.shares.iter().any(|(operation, _)| *operation == wanted)
    }
}

impl FromStr for Mix {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Mix> {
        let names = Operation::ALL.map(Operation::name).join(", ");
        let shares = shares(text, |name| {
            let found = Operation::ALL.into_iter().find(|operation| operation.name() == name);
            found.ok_or_else(|| anyhow::anyhow!("{name:?} is no operation; there are {names}"))
        })?;
        Ok(Mix { shares })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u32 = self.shares.iter().map(|(_, share)| share).sum();
        let part = |(operation, share): &(Operation, u32)| {
            format!("{} {:.4} %", operation.name(), f64::from(*share) * 100.0 / f64::from(all)).replace(".0000", "")
        };
        f.write_str(&self.shares.iter().map(part).collect::<Vec<_>>().join(", "))
    }
}

/// Reads shares of the form `NAME:SHARE,NAME:SHARE`.
fn shares<T>(text: &str, read: impl Fn(&str) -> Result<T>) -> Result<Vec<(T, u32)>> {
    let mut shares = Vec::new();
    let mut all = 0_u32;
    for part in text.split(',') {
        let Some((name, share)) = part.trim().rsplit_once(':') else {
            bail!("{part:?} has no share; write it as {:?}", format!("{}:50", part.trim()));
        };
        let Some(share) = share.parse::<u32>().ok().filter(|share| (1..=1_000_000).contains(share)) else {
            bail!("{share:?} is no share: a whole number from 1 to 1000000");
        };
        all = all.saturating_add(share);
        shares.push((read(name)?, share));
    }
    if all == u32::MAX {
        bail!("the shares are too large");
    }
    Ok(shares)
}

/// One of these, by its share.
fn pick<T: Copy>(shares: &[(T, u32)], dice: &mut StdRng) -> T {
    let (first, _) = shares[0];
    if shares.len() == 1 {
        return first;
    }
    let all: u32 = shares.iter().map(|(_, share)| share).sum();
    let mut drawn = dice.random_range(0..all);
    for (what, share) in shares {
        if drawn < *share {
            return *what;
        }
        drawn -= share;
    }
    first
}

/// The probability of each key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Popularity {
    /// Every key is as likely as any other.
    Uniform,
    /// The key of rank k with a weight of 1/k^theta; the lowest key is the most popular.
    Zipf { theta: f64 },
    /// One after the other, and from the first again.
    Sequential,
    /// Always the first key.
    Hot,
}

impl FromStr for Popularity {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Popularity> {
        match text.split_once(':') {
            None => match text {
                "uniform" => Ok(Popularity::Uniform),
                "zipf" | "zipfian" => Ok(Popularity::Zipf { theta: 0.99 }),
                "sequential" => Ok(Popularity::Sequential),
                "hot" => Ok(Popularity::Hot),
                _ => bail!("there are uniform, zipf, zipf:THETA, sequential and hot"),
            },
            Some(("zipf" | "zipfian", theta)) => match theta.parse::<f64>() {
                Ok(theta) if theta > 0.0 && theta <= 10.0 => Ok(Popularity::Zipf { theta }),
                _ => bail!("{theta:?} is no theta: a number above 0 and up to 10, as in zipf:0.99"),
            },
            Some((name, _)) => bail!("{name:?} takes nothing after a colon; only zipf:THETA does"),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => f.write_str("uniform"),
            Popularity::Zipf { theta } => write!(f, "zipf:{theta}"),
            Popularity::Sequential => f.write_str("sequential"),
            Popularity::Hot => f.write_str("hot"),
        }
    }
}

/// The keys: how many, how long, and which comes next.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) count: u64,
    pub(super) bytes: usize,
    pub(super) popularity: Popularity,
    zipf: Option<Zipf<f64>>,
}

impl Keys {
    /// # Errors
    /// So many keys cannot be told apart by names of that length.
    pub(super) fn new(count: u64, bytes: usize, popularity: Popularity) -> Result<Keys> {
        let digits = (count - 1).to_string().len();
        if bytes < PREFIX.len() + digits {
            bail!(
                "--key-size {bytes} is too short for {count} keys, which begin with {PREFIX:?}: {} at least",
                PREFIX.len() + digits
            );
        }
        let zipf = match popularity {
            Popularity::Zipf { theta } => Some(Zipf::new(count as f64, theta)?),
            _ => None,
        };
        Ok(Keys { count, bytes, popularity, zipf })
    }

    /// The key of the request of this number, from 0.
    pub(super) fn pick(&self, number: u64, dice: &mut StdRng) -> u64 {
        match (self.popularity, &self.zipf) {
            (Popularity::Uniform, _) => dice.random_range(0..self.count),
            (Popularity::Zipf { .. }, Some(zipf)) => ((zipf.sample(dice) as u64).max(1) - 1).min(self.count - 1),
            (Popularity::Sequential, _) => number % self.count,
            (Popularity::Hot | Popularity::Zipf { .. }, _) => 0,
        }
    }

    pub(super) fn named(&self, key: u64) -> Bytes {
        let width = self.bytes - PREFIX.len();
        Bytes::from(format!("{PREFIX}{:0width$}", key % self.count))
    }
}

/// The sizes of values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Sizes {
    Fixed(usize),
    /// Every size of a range alike, its end included.
    Range(usize, usize),
    /// Sizes with their shares.
    Shares(Vec<(usize, u32)>),
}

impl Sizes {
    pub(super) fn max(&self) -> usize {
        match self {
            Sizes::Fixed(size) | Sizes::Range(_, size) => *size,
            Sizes::Shares(shares) => shares.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    pub(super) fn pick(&self, dice: &mut StdRng) -> usize {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Range(from, to) => dice.random_range(*from..=*to),
            Sizes::Shares(shares) => pick(shares, dice),
        }
    }
}

impl FromStr for Sizes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Sizes> {
        let size = |text: &str| match text.trim().parse::<usize>() {
            Ok(size) if size <= VALUE_BYTES_MAX => Ok(size),
            _ => bail!("{text:?} is no size: bytes from 0 to {VALUE_BYTES_MAX}"),
        };
        if text.contains(':') {
            return Ok(Sizes::Shares(shares(text, size)?));
        }
        let Some((from, to)) = text.split_once("..").or_else(|| text.split_once('-')) else {
            return match size(text) {
                Ok(size) => Ok(Sizes::Fixed(size)),
                Err(error) => bail!("{error}; or a range as 100..4096, or sizes with shares as 256:90,16384:10"),
            };
        };
        let (from, to) = (size(from)?, size(to)?);
        if from > to {
            bail!("the range {text:?} ends before it begins");
        }
        Ok(Sizes::Range(from, to))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => size.fmt(f),
            Sizes::Range(from, to) => write!(f, "{from}..{to}"),
            Sizes::Shares(shares) => {
                f.write_str(&shares.iter().map(|(size, share)| format!("{size}:{share}")).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Values to send: slices of one random buffer, for what repeats could be compressed on its way.
#[derive(Clone, Debug)]
pub(super) struct Values {
    sizes: Sizes,
    buffer: Bytes,
}

impl Values {
    pub(super) fn new(sizes: Sizes, seed: u64) -> Values {
        let mut buffer = vec![0; sizes.max()];
        rand::Rng::fill_bytes(&mut dice(seed, u64::MAX), &mut buffer);
        Values { sizes, buffer: buffer.into() }
    }

    pub(super) fn pick(&self, dice: &mut StdRng) -> Bytes {
        self.buffer.slice(..self.sizes.pick(dice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(keys: &Keys, seed: u64, times: u64) -> Vec<u64> {
        (0..times).map(|number| keys.pick(number, &mut dice(seed, number))).collect()
    }

    #[test]
    fn zipf_has_its_shape_and_a_seed_repeats_it() {
        let theta = 0.99;
        let keys = Keys::new(1_000, 16, Popularity::Zipf { theta }).expect("they fit");
        let found = drawn(&keys, 7, 200_000);
        assert_eq!(found, drawn(&keys, 7, 200_000), "the same seed asks the same");
        assert_ne!(found, drawn(&keys, 8, 200_000), "another seed asks something else");
        let all: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-theta)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let seen = found.iter().filter(|key| **key == u64::from(rank) - 1).count() as f64 / 200_000.0;
            let wanted = f64::from(rank).powf(-theta) / all;
            assert!((seen / wanted - 1.0).abs() < 0.15, "rank {rank}: {seen} of {wanted}");
        }
        assert!(found.iter().all(|key| *key < 1_000));
    }

    #[test]
    fn every_other_popularity_is_what_its_name_says() {
        let of = |popularity| Keys::new(100, 16, popularity).expect("they fit");
        let mut even = [0_u32; 100];
        for key in drawn(&of(Popularity::Uniform), 7, 100_000) {
            even[usize::try_from(key).expect("small")] += 1;
        }
        assert!(even.iter().all(|times| (850..1_150).contains(times)), "{even:?}");
        assert_eq!(
            drawn(&of(Popularity::Sequential), 7, 201)[99..],
            (0..102).map(|n| (n + 99) % 100).collect::<Vec<_>>()
        );
        assert!(drawn(&of(Popularity::Hot), 7, 50).iter().all(|key| *key == 0));
    }

    #[test]
    fn sizes_and_mixes_keep_their_shares() {
        let sizes: Sizes = "256:90,16384:10".parse().expect("it is one");
        let large = (0..50_000).filter(|number| sizes.pick(&mut dice(7, *number)) == 16_384).count();
        assert!((4_500..5_500).contains(&large), "{large} of 50,000");
        let mix: Mix = "get:95,put:5".parse().expect("it is one");
        let puts = (0..50_000).filter(|number| mix.pick(&mut dice(7, *number)) == Operation::Put).count();
        assert!((2_250..2_750).contains(&puts), "{puts} of 50,000");
        assert_eq!((mix.to_string(), Mix::of_reads(100).to_string()), ("get 95 %, put 5 %".into(), "get 100 %".into()));
        let range: Sizes = "10..12".parse().expect("it is one");
        let seen: std::collections::BTreeSet<usize> = (0..100).map(|number| range.pick(&mut dice(7, number))).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [10, 11, 12]);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_the_remedy() {
        let told = |text: &str| text.parse::<Sizes>().map_err(|error| error.to_string()).expect_err("it is none");
        assert!(told("big").contains("256:90,16384:10"), "{}", told("big"));
        assert!(told("256:90,64").contains("64:50"), "{}", told("256:90,64"));
        assert!(told("9..3").contains("ends before it begins"));
        let told = |text: &str| text.parse::<Mix>().map_err(|error| error.to_string()).expect_err("it is none");
        assert!(told("reed:90").contains("put, get, txn, range, delete"), "{}", told("reed:90"));
        assert!(told("get:0").contains("1 to 1000000"), "{}", told("get:0"));
        let told = |text: &str| text.parse::<Popularity>().map_err(|error| error.to_string()).expect_err("it is none");
        assert!(told("zipf:-1").contains("zipf:0.99") && told("pareto").contains("zipf:THETA"));
        let error = Keys::new(100_000, 9, Popularity::Uniform).expect_err("they do not fit").to_string();
        assert!(error.contains("--key-size 9") && error.contains("11 at least"), "{error}");
    }
}
