//! The timer that wakes the loop: [`LoopTimer`].
//!
//! The runtime's own timers are a wheel of milliseconds. A loop with one deadline that moves at every turn pays for it: each
//! deadline is passed down from slot to slot, with a wake-up each, and each rearming wakes the runtime once more, by an
//! eventfd. At rest a leader was woken 76 times a second, half of them for nothing. So on Linux the kernel keeps the one
//! deadline, to the nanosecond; elsewhere the runtime does.

use std::io;
use tokio::time::Instant;

#[cfg(target_os = "linux")]
mod kernel {
    use super::{Instant, io};
    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use std::time::Duration;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A deadline that can be waited for.
    pub(crate) struct LoopTimer {
        timer: AsyncFd<OwnedFd>,
        armed: Option<Instant>,
    }

    impl LoopTimer {
        /// A clock without a deadline.
        ///
        /// # Errors
        /// When the kernel has no descriptor left.
        pub(crate) fn new() -> io::Result<LoopTimer> {
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            #[expect(
                deprecated,
                reason = "its fault is with owners that change or close what they own: this one does not"
            )]
            let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
            Ok(LoopTimer { timer, armed: None })
        }

        /// Waits until `deadline`, or a little less: the caller looks at the time. Nothing is lost when the wait is given up.
        ///
        /// A follower's deadline moves away with each heartbeat. So the kernel is told only of one that is sooner than what it
        /// knows; when it wakes the loop too soon, it is told the rest.
        ///
        /// # Errors
        /// The kernel's error.
        pub(crate) async fn reach(&mut self, deadline: Instant) -> io::Result<()> {
            loop {
                if self.armed.is_none_or(|armed| deadline < armed) {
                    self.arm(deadline)?;
                }
                // The descriptor is not read: arming it anew forgets what has fired.
                self.timer.readable().await?.clear_ready();
                if self.armed.take() == Some(deadline) || Instant::now() >= deadline {
                    return Ok(());
                }
            }
        }

        fn arm(&mut self, deadline: Instant) -> io::Result<()> {
            // Nothing at all would disarm it.
            let rest = deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            let value = Timespec {
                tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: rest.subsec_nanos().into(),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            self.armed = Some(deadline);
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod runtime {
    use super::{Instant, io};
    use std::pin::Pin;
    use tokio::time::{Sleep, sleep_until};

    /// A deadline that can be waited for.
    pub(crate) struct LoopTimer {
        sleep: Pin<Box<Sleep>>,
    }

    impl LoopTimer {
        /// A clock without a deadline.
        ///
        /// # Errors
        /// None here.
        pub(crate) fn new() -> io::Result<LoopTimer> {
            Ok(LoopTimer { sleep: Box::pin(sleep_until(Instant::now())) })
        }

        /// Waits until `deadline`. Nothing is lost when the wait is given up.
        ///
        /// # Errors
        /// None here.
        pub(crate) async fn reach(&mut self, deadline: Instant) -> io::Result<()> {
            if self.sleep.deadline() != deadline {
                self.sleep.as_mut().reset(deadline);
            }
            self.sleep.as_mut().await;
            Ok(())
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use kernel::LoopTimer;
#[cfg(not(target_os = "linux"))]
pub(crate) use runtime::LoopTimer;

#[cfg(test)]
mod tests {
    use super::{Instant, LoopTimer};
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread")]
    async fn a_deadline_is_reached_and_not_before_and_can_be_moved() -> std::io::Result<()> {
        let mut clock = LoopTimer::new()?;
        let past = Instant::now();
        clock.reach(past).await?;
        let (soon, late) = (Instant::now() + Duration::from_millis(5), Instant::now() + Duration::from_secs(3_600));
        tokio::select! { biased;
            _ = clock.reach(late) => panic!("an hour has not passed"),
            () = tokio::task::yield_now() => {}
        }
        while Instant::now() < soon {
            clock.reach(soon).await?;
        }
        assert!(Instant::now() < late, "the earlier deadline replaced the later one");
        Ok(())
    }
    #[tokio::test(flavor = "current_thread")]
    async fn a_deadline_that_moved_away_is_not_reached_at_the_old_one() -> std::io::Result<()> {
        let mut clock = LoopTimer::new()?;
        let (soon, later) = (Instant::now() + Duration::from_millis(2), Instant::now() + Duration::from_millis(20));
        tokio::select! { biased;
            _ = clock.reach(soon) => panic!("two milliseconds have not passed"),
            () = tokio::task::yield_now() => {}
        }
        clock.reach(later).await?;
        assert!(Instant::now() + Duration::from_millis(1) >= later, "it woke at the deadline that had moved");
        Ok(())
    }
}
