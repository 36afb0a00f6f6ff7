//! Calls of the application's state machine: a panic in one says where it was, and what helps.

use crate::panics::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The start of what a panic in the application's own code says.
pub const IN_APPLICATION: &str = "StateMachine::";

/// Calls the application; its panic goes on with `what` before its words, which begin with [`IN_APPLICATION`].
pub(super) fn call<T>(what: impl FnOnce() -> String, application: impl FnOnce() -> T) -> T {
    // A panic is fatal for its node: what it left half done is never looked at.
    catch_unwind(AssertUnwindSafe(application)).unwrap_or_else(|panic| {
        let text = format!("{IN_APPLICATION}{}: {}", what(), panic_text(&*panic));
        resume_unwind(Box::new(text))
    })
}
