//! The nodes of an election, and the order of its entries.

use super::connection::{Connection, Failure};
use super::wire::{Ask, Code};

/// The paths of one election's nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Nodes {
    /// Its children are the entries.
    pub(super) directory: String,
    pub(super) note: String,
    pub(super) generation: String,
    pub(super) history: String,
    pub(super) wish: String,
}

impl Nodes {
    pub(super) fn of(election: &str) -> Nodes {
        Nodes {
            directory: format!("/{election}"),
            note: format!("/{election}.note"),
            generation: format!("/{election}.generation"),
            history: format!("/{election}.history"),
            wish: format!("/{election}.wish"),
        }
    }

    /// Name of the election.
    pub(super) fn election(&self) -> &str {
        &self.directory[1..]
    }

    pub(super) fn entry(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Beginning of an entry's path; ZooKeeper adds the number.
    pub(super) fn prefix(&self, unique: &str) -> String {
        format!("{}/{}", self.directory, beginning(unique))
    }

    /// Creates the directory and what it stands in, as far as it is not there.
    pub(super) async fn prepare(&self, connection: &Connection) -> Result<(), Failure> {
        let ends = self.directory.char_indices().skip(1).filter(|(_, letter)| *letter == '/').map(|(end, _)| end);
        for end in ends.chain([self.directory.len()]) {
            match connection.ask(Ask::Create { path: &self.directory[..end], data: b"" }).await {
                Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

/// Beginning of the names of entries that were created under this name: Curator's form, so that its `LeaderLatch` may be a
/// rival, and that an entry is found again whose answer was lost.
fn beginning(unique: &str) -> String {
    format!("_c_{unique}-latch-")
}

pub(super) fn is_created_as(name: &str, unique: &str) -> bool {
    name.strip_prefix(&beginning(unique)).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A name that nobody has had, as a version 4 UUID.
pub(super) fn unique() -> String {
    let bits = rand::random::<u128>() & !(0xf << 76 | 0x3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The number that ZooKeeper gave an entry. `None`: it is none, or the counter has wrapped, which it does after 2^31 entries.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.get(name.len().checked_sub(10)?..)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number <= i32::MAX as u32)
}

/// The entries among a directory's children, in their order. A child without a number is none.
pub(super) fn in_order(names: Vec<String>) -> Vec<String> {
    let mut entries: Vec<(u32, String)> =
        names.into_iter().filter_map(|name| Some((number_of(&name)?, name))).collect();
    entries.sort_unstable();
    entries.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_recipes_stand_in_one_order() {
        let names =
            ["_c_f7-latch-0000000012", "0a1b__lock__0000000007", "n_0000000011", "readme", "x-00000000", "é000000001"];
        let order = in_order(names.map(str::to_owned).to_vec());
        assert_eq!(order, ["0a1b__lock__0000000007", "n_0000000011", "_c_f7-latch-0000000012"]);
    }

    #[test]
    fn a_counter_that_has_wrapped_gives_no_number() {
        assert_eq!(number_of("latch-2147483647"), Some(i32::MAX as u32));
        assert_eq!((number_of("latch--2147483648"), number_of("latch--000000005")), (None, None));
    }

    #[test]
    fn an_entry_is_found_by_its_name() {
        let (mine, other) = (unique(), unique());
        assert_ne!(mine, other);
        assert_eq!((mine.len(), &mine[14..15]), (36, "4"));
        let path = Nodes::of("team/billing").prefix(&mine) + "0000000003";
        let name = path.strip_prefix("/team/billing/").expect("it is in the directory");
        assert!(is_created_as(name, &mine) && !is_created_as(name, &other));
    }
}
