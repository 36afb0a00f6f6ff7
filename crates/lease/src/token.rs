//! Fencing tokens of tenures: [`Token`].

use std::fmt;
use std::str::FromStr;

/// The number that a resource checks to refuse leaders of the past: each tenure of an election has a higher one.
///
/// Shown as `7`, or as `2.7` when the generation is not zero. Two numbers, because a store that is restored from a backup
/// counts from an older number again: then the generation is raised by hand, and all tokens grow on.
///
/// Source: `docs/leadership.md`, "Token".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token {
    /// Raised when the store's history is replaced; stands beside the record and is compared in the winning write.
    pub generation: u32,
    /// The store's own growing number: a revision, a czxid, a counter.
    pub number: u64,
}

impl Token {
    /// A token of the first generation.
    pub fn new(number: u64) -> Token {
        Token { generation: 0, number }
    }

    /// The same number in another generation.
    pub fn in_generation(self, generation: u32) -> Token {
        Token { generation, ..self }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            0 => write!(f, "{}", self.number),
            generation => write!(f, "{generation}.{}", self.number),
        }
    }
}

/// A text that is no token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAToken(String);

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no fencing token: write a number (7), or generation and number (2.7)", self.0)
    }
}

impl std::error::Error for NotAToken {}

impl FromStr for Token {
    type Err = NotAToken;

    /// Reads a token as `Display` writes it.
    ///
    /// # Errors
    /// The text is not one or two decimal numbers, or one of them is too large.
    fn from_str(text: &str) -> Result<Token, NotAToken> {
        let refused = || NotAToken(text.chars().take(80).collect());
        // `u64::from_str` would take a leading plus sign.
        if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(refused());
        }
        let (generation, number) = text.split_once('.').unwrap_or(("0", text));
        let generation = generation.parse().map_err(|_| refused())?;
        let number = number.parse().map_err(|_| refused())?;
        Ok(Token { generation, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for token in [Token::new(7), Token::new(u64::MAX).in_generation(u32::MAX), Token::default()] {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        assert_eq!("2.7".parse(), Ok(Token::new(7).in_generation(2)));
        assert_eq!("7".parse(), Ok(Token::new(7)));
    }

    #[test]
    fn the_generation_weighs_more_than_the_number() {
        assert!(Token::new(1).in_generation(1) > Token::new(u64::MAX));
        assert!(Token::new(8) > Token::new(7));
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_form() {
        for text in ["", ".", "7.", ".7", "1.2.3", "+7", "-1", " 7", "7x", "18446744073709551616", "4294967296.1"] {
            let refused = text.parse::<Token>().unwrap_err();
            assert!(refused.to_string().contains("2.7"), "{text}: {refused}");
        }
    }
}
