//! A panic inside a member that is simulated or played again is a finding: [`caught`]. Every other panic is a defect of the program that
//! runs it, and stays loud.

use std::any::Any;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// The words of a panic; empty where it has none.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}

/// Whether a panic of this thread would be caught by [`caught`], so that nobody needs to print it.
pub fn is_caught() -> bool {
    IS_CAUGHT.get()
}

/// Runs members, and gives the words of the panic with which one of them stopped.
///
/// # Errors
/// A member panicked; in its words.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let before = IS_CAUGHT.replace(true);
    let result = std::panic::catch_unwind(AssertUnwindSafe(run));
    IS_CAUGHT.set(before);
    result.map_err(|panic| {
        let text = panic_text(&*panic);
        if text.is_empty() { "a panic without words".into() } else { text.to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only the panic of a member is kept quiet. Method: it is asked before, within and after, also where one is in another.
    #[test]
    fn a_panic_is_awaited_within_a_run_and_nowhere_else() {
        assert!(!is_caught());
        let inner = caught(|| {
            assert!(is_caught());
            let innermost = caught(|| {
                if is_caught() {
                    panic!("a finding")
                }
            });
            assert!(is_caught());
            innermost
        });
        assert_eq!(inner, Ok(Err("a finding".to_owned())));
        assert!(!is_caught());
    }
}
