//! The switches that only one protocol has, by name: [`Options`], [`Switch`], [`OptionError`].
//!
//! A protocol's options are a struct of its own; this is how a command line sets them without knowing it. Options for
//! the laboratory only (published forms, planted defects) have no name here, so no server can be told to run them.

use crate::quorum::Quorums;
use std::fmt::{self, Debug};
use std::str::FromStr;

/// One option that an operator may set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Switch {
    /// Its name, in kebab case.
    pub name: &'static str,
    /// The values that it takes, as shown to people: `true|false`, `0 to 4096`.
    pub values: &'static str,
    /// The effect of this option, in one line.
    pub help: &'static str,
}

/// The switches of one protocol. The default is the safe form with everything repaired.
pub trait Options: Clone + Default + Debug + Send + 'static {
    /// The options that an operator may set.
    const SWITCHES: &'static [Switch];

    /// Sets one of them. `None` when `name` is not among [`Options::SWITCHES`] or `value` not one of its values.
    fn set(&mut self, name: &str, value: &str) -> Option<()>;

    /// Whether a value with these options is for the laboratory only: no server may run it.
    fn is_laboratory(&self) -> bool;

    /// Numbers of voters that must promise a term and hold an entry at the least; for judges.
    fn quorums(&self) -> Quorums {
        Quorums::Majority
    }

    /// Number of voters, of so many, without which nobody is elected or nothing is committed; for judges of liveness.
    fn voters_to_serve(&self, voters: usize) -> usize {
        self.quorums().promises(voters).max(self.quorums().accepts(voters))
    }

    /// The variant of the protocol that these options make, if nodes without them could not join in: the same on all
    /// members, from the founding on. Directories and handshakes compare it with the protocol's name.
    fn variant(&self) -> Option<String> {
        None
    }

    /// The name of `protocol` in this form, as directories and handshakes know it.
    fn identity(&self, protocol: &str) -> String {
        self.variant().map_or(protocol.to_string(), |variant| format!("{protocol} {variant}"))
    }

    /// The defaults, changed by a list like `partitions=8,scouting=true`; an empty list changes nothing.
    ///
    /// # Errors
    /// An option that `protocol` does not have, one without a value, or a value that it does not take.
    fn parse(protocol: &'static str, list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').map_or((item, ""), |(name, value)| (name.trim(), value.trim()));
            if options.set(name, value).is_none() {
                let switch = Self::SWITCHES.iter().find(|switch| switch.name == name);
                let (name, value) = (name.to_string(), value.to_string());
                return Err(OptionError { protocol, name, value, switch, valid: Self::SWITCHES });
            }
        }
        Ok(options)
    }
}

/// A switch that cannot be set so: nothing was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// Name of the protocol whose options were parsed.
    pub protocol: &'static str,
    /// The name that was given.
    pub name: String,
    /// The value that was given.
    pub value: String,
    /// The switch of that name, if there is one: then the value is wrong.
    pub switch: Option<&'static Switch>,
    /// All options that this protocol has.
    pub valid: &'static [Switch],
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OptionError { protocol, name, value, switch, valid } = self;
        match switch {
            Some(Switch { values, .. }) => {
                write!(f, "option `{name}` of protocol `{protocol}` takes {values}, not `{value}`")
            }
            None if valid.is_empty() => write!(f, "protocol `{protocol}` has no options, so none named `{name}`"),
            None => {
                write!(f, "protocol `{protocol}` has no option `{name}`; it has: ")?;
                for (position, switch) in valid.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{}=<{}>", switch.name, switch.values)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for OptionError {}

/// Puts a parsed value into a field: for [`Options::set`].
pub fn put<T: FromStr>(field: &mut T, value: &str) -> Option<()> {
    *field = value.parse().ok()?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Debug, Default)]
    struct Kettle {
        litres: u32,
        is_whistling: bool,
    }

    impl Options for Kettle {
        const SWITCHES: &'static [Switch] = &[
            Switch { name: "litres", values: "a number", help: "How much it holds" },
            Switch { name: "whistle", values: "true|false", help: "Whether it says that it boils" },
        ];

        fn set(&mut self, name: &str, value: &str) -> Option<()> {
            match name {
                "litres" => put(&mut self.litres, value),
                "whistle" => put(&mut self.is_whistling, value),
                _ => None,
            }
        }

        fn is_laboratory(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_list_sets_what_it_names() {
        let kettle = Kettle::parse("tea", " litres=2, whistle=true,").expect("both are options");
        assert_eq!(kettle, Kettle { litres: 2, is_whistling: true });
        assert_eq!(Kettle::parse("tea", ""), Ok(Kettle::default()));
    }

    #[test]
    fn an_unknown_option_is_answered_with_those_that_there_are() {
        let error = Kettle::parse("tea", "volume=2").expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "protocol `tea` has no option `volume`; it has: litres=<a number>, whistle=<true|false>"
        );
        let error = Kettle::parse("tea", "whistle=loud").expect_err("not a value");
        assert_eq!(error.to_string(), "option `whistle` of protocol `tea` takes true|false, not `loud`");
        let error = Kettle::parse("tea", "whistle").expect_err("no value");
        assert_eq!(error.to_string(), "option `whistle` of protocol `tea` takes true|false, not ``");
    }
}
