//! The children that this process has started itself, told from the orphans that it inherits: [`Own`].
//!
//! A process of a command that leaves its group, its session and its parents belongs to the warden, and once that was killed to the
//! sidecar. So everything here that is not one's own child, and was none before either, is something that a command, or a shell of
//! health, has left behind.

use hustings_election::supervisor;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::process::{Child, Command};

/// Process numbers of the children that this process has started and looks after.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A child that this process has started; known as its own until this value is dropped.
pub(crate) struct Own {
    pub(crate) child: Child,
    /// Its process number, also after it has ended.
    pub(crate) number: Option<u32>,
}

impl Own {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's error when the command cannot be started.
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Own> {
        // Nobody looks for orphans between its start and its being known.
        let mut own = own();
        let child = command.spawn()?;
        let number = child.id();
        own.extend(number);
        Ok(Own { child, number })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(number) = &self.number {
            own().remove(number);
        }
    }
}

/// Leaves the children alone that this process had before it was a sidecar: `sh -c "log & exec hustings run ..."` started them.
pub(crate) fn spare_earlier_children() {
    own().extend(supervisor::children());
}

/// Takes in orphans that have ended.
pub(crate) fn reap_orphans() {
    let own = own();
    supervisor::reap_orphans(|pid| own.contains(&pid));
}

/// Kills all orphans and what descends from them; says whether there was none any more.
pub(crate) fn end_orphans() -> bool {
    let own = own();
    supervisor::end_orphans(|pid| own.contains(&pid))
}

fn own() -> MutexGuard<'static, BTreeSet<u32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
