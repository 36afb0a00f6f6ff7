//! The signals that a sidecar hears: [`Signals`].

use std::io::IsTerminal as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the sidecar from outside, and those that are meant for its command.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where the process that started this one has it ignored, as `nohup` does.
    hangup: Option<Signal>,
    users: [Signal; 2],
    /// A terminal that hangs up ends what it had started. Elsewhere the signal asks a service to read its settings again.
    hangup_ends: bool,
}

/// Whether this process was started with the signal ignored; false where the kernel does not say.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored >> (kind.as_raw_value() - 1) & 1 == 1)
}

/// A signal from outside.
pub(super) enum Signalled {
    /// End: the name of the signal.
    End(&'static str),
    /// Pass it on to the command: the number of the signal.
    Relay(i32),
}

/// The exit code of one that such a signal has ended, as a shell tells it.
pub(super) fn code_of(name: &str) -> u8 {
    128 + match name {
        "SIGHUP" => 1,
        "SIGINT" => 2,
        _ => 15,
    }
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: (!is_ignored(SignalKind::hangup())).then(|| signal(SignalKind::hangup())).transpose()?,
            users: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            hangup_ends: std::io::stdin().is_terminal(),
        })
    }

    pub(super) async fn next(&mut self) -> Signalled {
        let [first, second] = &mut self.users;
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signalled::End("SIGTERM"),
            _ = self.interrupt.recv() => Signalled::End("SIGINT"),
            _ = hangup => match self.hangup_ends {
                true => Signalled::End("SIGHUP"),
                false => Signalled::Relay(SignalKind::hangup().as_raw_value()),
            },
            _ = first.recv() => Signalled::Relay(SignalKind::user_defined1().as_raw_value()),
            _ = second.recv() => Signalled::Relay(SignalKind::user_defined2().as_raw_value()),
        }
    }

    /// The name of the next one that ends the sidecar; others have nobody to reach.
    pub(super) async fn end(&mut self) -> &'static str {
        loop {
            if let Signalled::End(name) = self.next().await {
                return name;
            }
        }
    }
}
