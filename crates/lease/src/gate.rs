//! A gate that makes latecomers harmless: [`FenceGate`], at the resource that a leader writes to.
//!
//! A leader that was paused between its last check and its write does not know that it is late; the resource does. The
//! gate keeps the highest token that it has seen. Checking a token and having the effect must be one step: under one
//! lock, in one transaction, in one conditional write. A gate that is asked first and a write that follows later let a
//! paused writer through.
//!
//! A new leader takes office in this order: it raises the gate, reads, and only then acts. Otherwise a late write of its
//! predecessor is admitted after it has read and before its own first write.
//!
//! Source: `docs/leadership.md`, "Gates"; "Leader and Followers", fencing by generation.

use crate::token::Token;
use std::convert::Infallible;
use std::fmt;

/// The place where a gate keeps the highest token: memory, a file that is synced, a row beside the data.
pub trait Shelf {
    /// The reason why the shelf could not be read or written.
    type Error: fmt::Debug + fmt::Display;

    /// The token kept; `None` if there never was one.
    ///
    /// # Errors
    /// The shelf cannot be read. A shelf that lost its token must say so here, and not `None`.
    fn load(&mut self) -> Result<Option<Token>, Self::Error>;

    /// Keeps the token for good before it returns.
    ///
    /// # Errors
    /// It is perhaps not kept.
    fn keep(&mut self, token: Token) -> Result<(), Self::Error>;
}

/// A shelf in memory: for resources that live no longer than their process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory(Option<Token>);

impl Shelf for Memory {
    type Error = Infallible;

    fn load(&mut self) -> Result<Option<Token>, Infallible> {
        Ok(self.0)
    }

    fn keep(&mut self, token: Token) -> Result<(), Infallible> {
        self.0 = Some(token);
        Ok(())
    }
}

/// The reason why a gate did not admit a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Barred<E> {
    /// A later tenure has been here.
    Late {
        /// The token that was offered.
        offered: Token,
        /// The highest one that was seen before.
        highest: Token,
    },
    /// The shelf failed: whether the token is kept is not known, so nothing may be done with it.
    Shelf(E),
}

impl<E: fmt::Display> fmt::Display for Barred<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Barred::Late { offered, highest } => write!(
                f,
                "the fencing token {offered} is below {highest}: a later leader has been here; stop acting, and stand for \
                 election again"
            ),
            Barred::Shelf(error) => write!(f, "the fencing token could not be kept: {error}; nothing was admitted"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Barred<E> {}

/// Lets the highest token and higher ones through, and no lower one ever again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FenceGate<S> {
    shelf: S,
    highest: Option<Token>,
}

impl<S: Shelf> FenceGate<S> {
    /// A gate that goes on where its shelf stands.
    ///
    /// # Errors
    /// The shelf cannot be read.
    pub fn open(mut shelf: S) -> Result<FenceGate<S>, S::Error> {
        let highest = shelf.load()?;
        Ok(FenceGate { shelf, highest })
    }

    /// Lets an effect with this token happen, if no later tenure has been here. To be called in one step with the effect.
    ///
    /// # Errors
    /// [`Barred::Late`] with both tokens; [`Barred::Shelf`] if a higher token could not be kept.
    pub fn admit(&mut self, token: Token) -> Result<(), Barred<S::Error>> {
        match self.highest {
            Some(highest) if token < highest => Err(Barred::Late { offered: token, highest }),
            Some(highest) if token == highest => Ok(()),
            _ => {
                self.shelf.keep(token).map_err(Barred::Shelf)?;
                self.highest = Some(token);
                Ok(())
            }
        }
    }

    /// Raises the gate, which a new leader does before it reads: from now on its predecessors are refused.
    ///
    /// # Errors
    /// As [`Self::admit`]: then this leader is itself late, and must not act.
    pub fn raise(&mut self, token: Token) -> Result<(), Barred<S::Error>> {
        self.admit(token)
    }

    /// The highest token seen; `None` if there was none.
    pub fn highest(&self) -> Option<Token> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_lets_equal_and_higher_tokens_through_and_says_both_when_it_does_not() {
        let mut gate = FenceGate::open(Memory::default()).expect("memory does not fail");
        for admitted in [3, 3, 7] {
            assert_eq!(gate.admit(Token::new(admitted)), Ok(()));
        }
        let late = Barred::Late { offered: Token::new(6), highest: Token::new(7) };
        assert_eq!(gate.admit(Token::new(6)), Err(late.clone()));
        assert!(late.to_string().contains("6 is below 7"), "{late}");
        assert_eq!(
            gate.admit(Token::new(1).in_generation(1)),
            Ok(()),
            "a raised generation is above all of the last one"
        );
        assert!(gate.admit(Token::new(8)).is_err());
    }

    #[test]
    fn a_gate_goes_on_where_its_shelf_stands() {
        let gate = FenceGate::open(Memory(Some(Token::new(9)))).expect("memory does not fail");
        assert_eq!(gate.highest(), Some(Token::new(9)));
    }

    /// A shelf that cannot keep anything.
    struct Full;

    impl Shelf for Full {
        type Error = &'static str;

        fn load(&mut self) -> Result<Option<Token>, &'static str> {
            Ok(Some(Token::new(4)))
        }

        fn keep(&mut self, _: Token) -> Result<(), &'static str> {
            Err("no space")
        }
    }

    #[test]
    fn what_cannot_be_kept_is_not_admitted() {
        let mut gate = FenceGate::open(Full).expect("it can be read");
        assert_eq!(gate.admit(Token::new(5)), Err(Barred::Shelf("no space")));
        assert_eq!(gate.admit(Token::new(4)), Ok(()), "what stands is kept already");
    }
}
