//! Ends a search in good order when the user wants it to end: [`Interruption`].

use anyhow::{Context, Result};
use hustings_console::exit::Code;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::signal::unix::{SignalKind, signal};

const LISTENS: u8 = 0;
const ASKED: u8 = 1;
const OVER: u8 = 2;

/// SIGINT or SIGTERM: the first one asks the search to end after this run, the next one ends the program at once.
#[derive(Clone)]
pub(crate) struct Interruption(Arc<AtomicU8>);

impl Interruption {
    /// Listens from now on, in a thread that ends with the program.
    ///
    /// # Errors
    /// The system gives no thread, or no signals.
    pub(crate) fn listen() -> Result<Interruption> {
        let interruption = Interruption(Arc::new(AtomicU8::new(LISTENS)));
        let heard = interruption.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // Registered here and not in the thread: a signal that comes at once is heard, too.
        let (mut interrupts, mut terminations) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let listening = async move {
            loop {
                tokio::select! {
                    _ = interrupts.recv() => heard.ask(),
                    _ = terminations.recv() => heard.ask(),
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(listening))
            .context("listening for signals")?;
        Ok(interruption)
    }

    fn ask(&self) {
        if self.0.swap(ASKED, Ordering::SeqCst) != LISTENS {
            std::process::exit(i32::from(Code::Interrupted.number()));
        }
        eprintln!("hustings: the search ends as soon as it can; once more ends it at once");
    }

    /// Whether the search was asked to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASKED
    }

    /// Marks the search as over: an interruption from now on ends the program at once. Returns whether there was one before.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::SeqCst) == ASKED
    }
}
