//! The clock that belief is computed on: it runs on while the machine is suspended, and nobody sets it.

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

const MILLION: u64 = 1_000_000;

/// Microseconds since the machine started, those in which it was suspended included.
pub(crate) fn boot_micros() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Both are never negative on this clock.
    now.tv_sec.cast_unsigned() * MILLION + now.tv_nsec.cast_unsigned() / 1_000
}

/// Microseconds of a duration; the most that fit if it is longer.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Seconds since 1970 by the wall clock, for people who read a history; nothing is decided by it.
pub(crate) fn unix_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Lets a timer on that clock fire once, at this moment; one that has passed fires at once, 0 never. Takes back an earlier setting.
pub(crate) fn fire_once(timer: impl AsFd, at_micros: u64) -> rustix::io::Result<()> {
    let part = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    let it_value = Timespec { tv_sec: part(at_micros / MILLION), tv_nsec: part(at_micros % MILLION * 1_000) };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value }).map(drop)
}

/// A timer on that clock. Timers of the runtime stand still while the machine is suspended.
pub(crate) struct BootTimer {
    file: AsyncFd<OwnedFd>,
}

impl BootTimer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// Too many open files, most likely.
    pub(crate) fn new() -> std::io::Result<BootTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(deprecated, reason = "its fault is with owners that change or close what they own: this one does not")]
        let file = AsyncFd::new(timer)?;
        Ok(BootTimer { file })
    }

    /// Waits until this moment; for ever without one.
    pub(crate) async fn wait_until(&self, at: Option<u64>) -> std::io::Result<()> {
        let Some(at) = at else { return std::future::pending().await };
        if at <= boot_micros() {
            return Ok(());
        }
        fire_once(&self.file, at)?;
        loop {
            let mut ready = self.file.readable().await?;
            let mut count = [0; 8];
            match rustix::io::read(&self.file, &mut count) {
                Ok(_) => return Ok(()),
                // It fired for an earlier setting.
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits until this moment of boot time. Without a descriptor for a timer, on the runtime's clock, which may be late by the time
/// for which the machine was suspended.
pub(crate) async fn sleep_until(at_micros: u64) {
    let fired = match BootTimer::new() {
        Ok(timer) => timer.wait_until(Some(at_micros)).await,
        Err(error) => Err(error),
    };
    if fired.is_err() {
        tokio::time::sleep(Duration::from_micros(at_micros.saturating_sub(boot_micros()))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_rings_at_its_moment_and_can_be_set_again() {
        let timer = BootTimer::new().expect("a descriptor is left");
        let begun = boot_micros();
        tokio::select! {
            biased;
            _ = timer.wait_until(Some(begun + 60 * MILLION)) => panic!("it fired an hour early"),
            () = std::future::ready(()) => {}
        }
        timer.wait_until(Some(begun + 2_000)).await.expect("it fires");
        assert!(boot_micros() >= begun + 2_000);
    }
}
