//! The sidecar: campaigns, lets the warden run the command, and releases last. [`Sidecar`].

use super::health;
use super::notify::{self, Notify, ReadyAs};
use super::own::{end_orphans, spare_earlier_children};
use super::signals::{Signalled, Signals, code_of};
use super::warden::{Containment, WARDEN_TIMEOUT, Warden};
use super::watchman::{self, Board, Wish};
use crate::exit::Code;
use crate::logging::say_aside as say;
use anyhow::{Context, Result};
use hustings_election::supervisor::{Before, Cage, Say, Start, Tell, Times, adopt_orphans};
use hustings_election::{CampaignError, Change, Election, Leadership, Named, Office, Token};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Longest and shortest pause between two looks at the clock and the warden, which hears of a renewal at once.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(200);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// Time after which a process that was killed and lives still is told of.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(2);
/// Time that the warden has for killing what did not stop, before the sidecar does it.
const WARDEN_DELAY: Duration = Duration::from_millis(100);
/// Time for which a sidecar that ends waits for the store to take the leadership back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Exit code of a command that was killed.
const KILLED: u8 = 128 + 9;

/// The sidecar's way on after a loss of leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLoss {
    /// Stand for election again.
    Campaign,
    /// Exit; a supervisor of this process may start it again.
    Exit,
}

/// The settings of `hustings run`.
pub(crate) struct Sidecar {
    pub(crate) election: Election,
    pub(crate) named: Named,
    pub(crate) id: String,
    pub(crate) stop_grace: Duration,
    pub(crate) kill_margin: Duration,
    pub(crate) on_loss: OnLoss,
    pub(crate) restarts: u32,
    /// Whether it is a failure that the command never ran: a service that stands by may end, a command that waits for a lock may not.
    pub(crate) must_run: bool,
    pub(crate) health_command: Option<String>,
    pub(crate) pre_stop: Option<String>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) ready_as: ReadyAs,
    pub(crate) containment: Containment,
    pub(crate) command: Vec<String>,
}

/// The end of a tenure for the sidecar.
enum End {
    /// The command ended by itself.
    Command(u8),
    /// The leadership was lost, or given away.
    Lost(String),
    /// This process was told to end; with the exit code of the command.
    Told(u8),
    /// The warden is gone.
    NoWarden(String),
}

/// A command that lives on although it was killed.
#[derive(Default)]
struct Unkillable {
    /// The first look at it.
    since: Option<Instant>,
    is_told: bool,
}

impl Unkillable {
    /// It lives still; tells it once.
    fn look(&mut self) {
        let since = self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > UNKILLABLE_AFTER && !std::mem::replace(&mut self.is_told, true) {
            say(format_args!(
                "the command cannot be killed (does it wait for a disk, or has it become another user?): \
                 the election stays held until it has ended"
            ));
        }
    }
}

impl Sidecar {
    /// Runs the command whenever this process leads; gives the exit code, once nothing of it stands in the store any more.
    pub(crate) async fn run(self) -> Result<u8> {
        spare_earlier_children();
        adopt_orphans().context("this process cannot become the reaper of its command")?;
        let election = self.election.clone();
        let notify = Arc::new(Notify::new(election.name(), self.ready_as));
        let watch = tokio::spawn(notify::keep_watch());
        let code = self.serve(notify.clone()).await;
        notify.ends();
        election.close().await;
        watch.abort();
        code
    }

    async fn serve(self, notify: Arc<Notify>) -> Result<u8> {
        let mut signals = Signals::new()?;
        let (board, mut wishes, _listening) =
            watchman::start(self.socket.as_deref(), &self.id, &self.election, notify).await?;
        let office = self.election.candidate(self.named.clone());
        board.counts(office.clone());
        if self.health_command.is_some() {
            // Until it has answered.
            office.say_healthy(false);
        }
        tokio::spawn(health::keep(office.clone(), self.health_command.clone(), board.clone()));
        loop {
            // A warden that is up already costs no time at the turn.
            let mut warden = tokio::select! {
                started = Warden::start(self.containment) => started?,
                name = signals.end() => {
                    return Ok(self.leaves(name, "before it stood for election"));
                }
            };
            let campaign = campaign(&office, &board);
            let leadership = tokio::select! {
                won = campaign => won?,
                name = signals.end() => {
                    return Ok(self.leaves(name, "while standing for election"));
                }
            };
            let mut left = self.restarts;
            let end = self.lead(&leadership, &mut warden, &board, &mut wishes, &mut signals, &mut left).await;
            let because = match &end {
                Ok(End::Command(code)) => format!("the command ended with status {code}"),
                Ok(End::Lost(loss)) => loss.clone(),
                Ok(End::Told(_)) => "told to stop".to_owned(),
                Ok(End::NoWarden(why)) => why.clone(),
                Err(error) => format!("{error:#}"),
            };
            warden.cage.iter().for_each(Cage::remove);
            // Orphans of the command, and of what runs before its stop, were the warden's; others come of the shells of health.
            if !warden.has_reaped || self.health_command.is_some() {
                end_leftovers().await;
            }
            // Nothing of it acts any more.
            let stays = matches!(end, Ok(End::Lost(_))) && self.on_loss == OnLoss::Campaign;
            if let Some(why) = release(leadership, &because, stays, &mut signals).await {
                say(format_args!("{why} before the store has answered: the election is free when its lease ends"));
                return Ok(match end? {
                    End::Command(code) | End::Told(code) => code,
                    End::Lost(_) | End::NoWarden(_) => Code::Lost.number(),
                });
            }
            match end? {
                End::Command(code) | End::Told(code) => return Ok(code),
                End::NoWarden(why) => {
                    say(format_args!("{why}: the command was killed"));
                    return Ok(Code::Sidecar.number());
                }
                End::Lost(loss) => {
                    say(format_args!("leads {} no more: {loss}", self.election.name()));
                    if self.on_loss == OnLoss::Exit {
                        return Ok(Code::Lost.number());
                    }
                }
            }
        }
    }

    /// Gives the exit code of one that is told to end and runs nothing.
    fn leaves(&self, signal: &str, when: &str) -> u8 {
        match self.must_run {
            true => {
                say(format_args!("{signal} {when}: leaves, and the command was not run"));
                code_of(signal)
            }
            false => {
                say(format_args!("{signal} {when}: leaves"));
                0
            }
        }
    }

    fn times(&self, leadership: &Leadership) -> Times {
        leadership.times(self.stop_grace, self.kill_margin)
    }

    /// The moments that count now: later ones, if the lease was renewed.
    fn extended(&self, times: Times, leadership: &Leadership) -> Times {
        let now = self.times(leadership);
        let is_later = leadership.is_leader() && now.kill_micros > times.kill_micros;
        if is_later { now } else { times }
    }

    /// Pause between two looks at the clock: a fraction of the lease, and of the margin in which this process ends what the warden did not.
    fn look_every(&self, leadership: &Leadership) -> Duration {
        (leadership.remaining() / 20).min(self.kill_margin / 2).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
    }

    fn environment(&self, token: Token) -> BTreeMap<String, String> {
        let mut environment = BTreeMap::from([
            ("HUSTINGS_ELECTION".to_owned(), self.election.name().to_owned()),
            ("HUSTINGS_ID".to_owned(), self.id.clone()),
            ("HUSTINGS_FENCE_GENERATION".to_owned(), token.generation.to_string()),
            ("HUSTINGS_FENCE_NUMBER".to_owned(), token.number.to_string()),
        ]);
        if let Some(socket) = &self.socket {
            environment.insert(hustings_election::supervisor::SOCKET.to_owned(), socket.display().to_string());
        }
        environment
    }

    fn start(&self, leadership: &Leadership, token: Token, times: Times, cage: &Option<Cage>) -> Say {
        let (command, environment) = (self.command.clone(), self.environment(token));
        Say::Start(Box::new(Start { command, environment, times, will: leadership.will(), cage: cage.clone() }))
    }

    /// One tenure: from the start of the command to the end of all that it started.
    async fn lead(
        &self,
        leadership: &Leadership,
        warden: &mut Warden,
        board: &Board,
        wishes: &mut mpsc::UnboundedReceiver<Wish>,
        signals: &mut Signals,
        restarts: &mut u32,
    ) -> Result<End> {
        let Ok(lead) = leadership.lead() else { return Ok(End::Lost("lost before the command began".to_owned())) };
        let token = lead.token();
        let mut times = self.times(leadership);
        let has_cage = self.containment == Containment::ControlGroup;
        warden.cage = has_cage.then(Cage::new).transpose().context("no control group for the command")?;
        let start = self.start(leadership, token, times, &warden.cage);
        // The command may ask at once.
        board.leads(leadership);
        say(format_args!("leads {}, token {token}", self.election.name()));
        if !warden.say(&start) {
            return Ok(End::NoWarden("the warden was gone before the command began".to_owned()));
        }
        let (mut group, mut begun) = (0, Instant::now());
        // The moments that the warden goes by, as far as it has said; one question after the other.
        let (mut noted, mut is_noting) = (times, false);
        let mut tick = tokio::time::interval(self.look_every(leadership));
        let mut extensions = leadership.extensions();
        let mut unkillable = Unkillable::default();
        // The reason why it stops, once it does, and whether this process ends then.
        let mut stopping: Option<(String, bool)> = None;
        // Whether this process has ended the warden, and the command with it.
        let mut is_replaced = false;
        let is_silent = |noted: Times, times: Times| noted.until_kill().is_zero() && !times.until_kill().is_zero();
        loop {
            tokio::select! {
                heard = warden.hear() => match heard {
                    Ok(Tell::Started { group: started }) => group = started,
                    Ok(Tell::Noted(heard)) => (noted, is_noting) = (heard, false),
                    // Its sidecar had stopped to wait for it.
                    Ok(Tell::Prepared { .. }) => {}
                    Ok(Tell::Failed { why }) => {
                        say(format_args!("the command cannot be started: {why}"));
                        return Ok(End::Command(Code::NotExecutable.number()));
                    }
                    Ok(Tell::Ended { code, at_deadline }) => {
                        warden.is_done().await;
                        let is_over = at_deadline || times.is_stop_due();
                        if stopping.is_none() && code != 0 && *restarts > 0 && leadership.is_leader() && !is_over {
                            *restarts -= 1;
                            say(format_args!("the command ended with status {code}: starts it again ({restarts} left)"));
                            // Until there is another one, the warden that has ended keeps the cage: whoever ends this removes it there.
                            let next = tokio::select! {
                                started = Warden::start(self.containment) => started?,
                                _ = signals.end() => return Ok(End::Told(code)),
                            };
                            warden.cage = std::mem::replace(warden, next).cage;
                            times = self.times(leadership);
                            if times.is_stop_due() {
                                return Ok(End::Lost("the store was silent while the command was to start again".to_owned()));
                            }
                            (group, begun, unkillable) = (0, Instant::now(), Unkillable::default());
                            let again = self.start(leadership, token, times, &warden.cage);
                            (noted, is_noting) = (times, false);
                            // One that is gone is heard.
                            let _ = warden.say(&again);
                            continue;
                        }
                        return Ok(self.on_command_ended(code, stopping, leadership, is_over).await);
                    }
                    Err(error) => {
                        self.end_without_warden(group, warden, unkillable).await;
                        if is_replaced && stopping.is_none() && is_silent(noted, times) && leadership.is_leader() {
                            return Ok(End::NoWarden("the warden stood still".to_owned()));
                        }
                        if is_replaced {
                            return Ok(self.on_command_ended(KILLED, stopping, leadership, times.is_stop_due()).await);
                        }
                        return Ok(End::NoWarden(format!("{error:#}")));
                    }
                },
                _ = tick.tick() => {
                    if stopping.is_none() {
                        times = self.extended(times, leadership);
                    }
                    if stopping.is_none() && times != noted && !is_noting {
                        is_noting = warden.say(&Say::Times(times));
                    }
                    // Before its start was told the command may run or not: only the warden knows.
                    let is_left = || if group == 0 { !is_replaced } else { !warden.has_ended(group) };
                    // One that has not noted later moments by the time of its own stands still. Should this process do so, too, nobody would
                    // end the command in time.
                    let is_due = times.until_kill().is_zero() || is_silent(noted, times);
                    if is_due && is_left() {
                        // The warden should have done it by now: it stands still, and goes with the rest.
                        warden.replace(group);
                        is_replaced = true;
                    }
                    if group != 0 && times.until_kill().is_zero() {
                        unkillable.look();
                    }
                    if group == 0 && !is_replaced && begun.elapsed() > WARDEN_TIMEOUT {
                        self.end_without_warden(group, warden, unkillable).await;
                        let waited = WARDEN_TIMEOUT.as_secs();
                        return Ok(End::NoWarden(format!("the warden has not started the command for {waited} s")));
                    }
                }
                // At once: the warden goes by the moments that it knows, and would stop a command whose lease was renewed in time.
                () = extensions.next(), if stopping.is_none() => {
                    times = self.extended(times, leadership);
                    is_noting |= times != noted && warden.say(&Say::Times(times));
                }
                (loss, left) = leadership.stop(), if stopping.is_none() => {
                    stopping = Some((loss.to_string(), false));
                    times.end_within(self.stop(warden, board, left.min(times.until_kill())).await + WARDEN_DELAY);
                }
                signalled = signals.next() => match signalled {
                    Signalled::End(name) => {
                        if stopping.is_none() {
                            times.end_within(self.stop(warden, board, times.until_kill()).await + WARDEN_DELAY);
                        }
                        stopping = Some((name.to_owned(), true));
                    }
                    // A warden that is gone is heard.
                    Signalled::Relay(number) => {
                        if !warden.say(&Say::Signal(number)) {
                            say(format_args!("signal {number} is not passed on: the warden does not read"));
                        }
                    }
                },
                // The tenure is told to stop, and that is heard here.
                Some(wish) = wishes.recv() => match wish.to {
                    _ if wish.token != token => {}
                    Some(heir) => leadership.begin_hand_over(&heir),
                    None => leadership.step_down(&wish.because),
                },
            }
        }
    }

    /// Lets the command stop, within what is left; gives the time it has been given.
    async fn stop(&self, warden: &mut Warden, board: &Board, left: Duration) -> Duration {
        let mut left = left.min(self.stop_grace);
        if let Some(command) = &self.pre_stop {
            let begun = Instant::now();
            let within_micros = u64::try_from((left / 2).as_micros()).unwrap_or(u64::MAX);
            let before = Before { command: command.clone(), environment: board.environment(), within_micros };
            if let Some(instead) = warden.prepare(before).await {
                say(format_args!("the pre-stop command {instead}"));
            }
            left = left.saturating_sub(begun.elapsed());
        }
        let grace_micros = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        // That a warden is gone is seen where its messages are read.
        let _ = warden.say(&Say::Stop { grace_micros });
        left
    }

    /// `is_over`: the warden has asked the command to stop, as it says itself, or was about to.
    async fn on_command_ended(
        &self,
        code: u8,
        stopping: Option<(String, bool)>,
        leadership: &Leadership,
        is_over: bool,
    ) -> End {
        match stopping {
            Some((_, true)) => End::Told(code),
            Some((why, false)) => End::Lost(why),
            // The warden stopped it at its deadline, before this process heard of the loss.
            None if !leadership.is_leader() => End::Lost(leadership.lost().await.to_string()),
            // The same, and the belief lasts for the kill margin still; or the renewal came when the command had been asked to stop.
            None if is_over => End::Lost("the store was silent until the command had to stop".to_owned()),
            None => End::Command(code),
        }
    }

    /// Ends what the command started after the warden is gone: the kernel has killed the command with it, everything else is killed here.
    /// The warden's orphans are this process's by now, also those of a command whose group it had no time to tell.
    async fn end_without_warden(&self, group: i32, warden: &mut Warden, mut unkillable: Unkillable) {
        warden.replace(group);
        let _ = warden.process.child.wait().await;
        while !end_orphans() || !warden.has_ended(group) {
            warden.end(group);
            unkillable.look();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Gives the leadership back. A store that does not answer keeps nobody who ends, or is told to; then this says why it was not waited for.
async fn release(leadership: Leadership, because: &str, stays: bool, signals: &mut Signals) -> Option<&'static str> {
    let too_long = async {
        match stays {
            true => std::future::pending().await,
            false => tokio::time::sleep(RELEASE_TIMEOUT).await,
        }
    };
    tokio::select! {
        () = leadership.resign(because) => None,
        name = signals.end() => Some(name),
        () = too_long => Some("ends"),
    }
}

/// Ends what commands of health have left behind: nothing of this process acts beside its successor.
async fn end_leftovers() {
    let begun = Instant::now();
    while !end_orphans() && begun.elapsed() < UNKILLABLE_AFTER {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stands for election until it is won. Every transition is told, also those of the tenure that begins.
async fn campaign(office: &Office, board: &Board) -> Result<Leadership, CampaignError> {
    let (sender, mut changes) = mpsc::unbounded_channel();
    let board = board.clone();
    tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            match &change {
                Change::Waits => say(format_args!("waits for its turn")),
                Change::StandsBack(_) => say(format_args!("{change}")),
                _ => {}
            }
            board.told(&change);
        }
    });
    office.campaign_told(Some(sender)).await
}
