//! An application's handle to a running node: [`Handle`].
//!
//! Cheap to clone; every method may be called from any task. Dropping a future abandons the request: it is forgotten, not
//! undone.

use bytes::Bytes;
use hustings_core::{
    Admin, ApplyVersion, Change, ClusterId, Contradiction, Lsn, Membership, MembershipChange, NodeId, Outcome, Refusal,
    Role, StateMachine, Term, Transition,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// A command that was applied, here and at a quorum.
#[derive(Clone, Debug)]
pub struct Applied<R> {
    /// Place of the entry in history.
    pub lsn: Lsn,
    /// The state machine's response.
    pub response: R,
}

/// A view that may be read.
#[derive(Clone)]
pub struct Readable<V> {
    /// The last entry that the view contains.
    pub applied: Lsn,
    /// View of the state.
    pub view: V,
}

/// The reason why a request has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// The protocol refused it: it was *definitely* not done.
    #[error("{0}")]
    Refused(Refusal),
    /// *Definitely* not done: this node's queue is full.
    #[error("this node has too many requests waiting; try again later")]
    QueueFull,
    /// *Definitely* not done: no frame to a peer and no batch of the log can hold it.
    #[error(
        "a command of {bytes} bytes is longer than {bytes_max}: propose it in parts, or raise `NodeConfig::frame_bytes_max` at all members"
    )]
    TooLarge {
        /// Length of the command.
        bytes: usize,
        /// The longest one that is taken.
        bytes_max: usize,
    },
    /// *Perhaps* done: the leader was lost, or the proposal was too old to be told from a second copy.
    #[error("the outcome is unknown: the request may or may not have been applied")]
    Unknown,
    /// The node has stopped; *perhaps* done.
    #[error("the node has stopped")]
    Stopped,
}

/// The refusal of what a witness cannot do: it holds no data.
pub(crate) const IS_WITNESS: RequestError = RequestError::Refused(Refusal::IsWitness);

/// A node as it sees itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// Id of this node.
    pub me: NodeId,
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// The role of this node at present.
    pub role: Role,
    /// The term it is in.
    pub term: Term,
    /// Leader that it follows (itself when leading); `None` if it knows of none.
    pub leader: Option<NodeId>,
    /// The end of its log.
    pub last: Lsn,
    /// The highest index it knows to be committed.
    pub commit: u64,
    /// The last entry that was applied here.
    pub applied: Lsn,
    /// The membership in force.
    pub membership: Arc<Membership>,
    /// Whether its disk answers.
    pub is_disk_healthy: bool,
    /// Another member's entry where one is committed here, until more is committed.
    pub contradiction: Option<Contradiction>,
    /// Whether it is preferred as leader no more for a while, because it lost leadership again and again.
    pub is_suspended: bool,
    /// Version of the rules by which it applies entries.
    pub version: ApplyVersion,
    /// Told by the leader: members whose state differed from that of most when states were last compared; `NodeId(0)` when nobody
    /// can say which is right.
    pub differing: BTreeSet<NodeId>,
    /// The entry at which this leader last compared states; 0 before that.
    pub compared_at: u64,
}

/// The member that leads, as a quorum has confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leads {
    /// Id of the member that leads.
    pub leader: NodeId,
    /// Fencing token of its leadership: its term, which grows from leader to leader.
    pub token: u64,
    /// Whether this node is that leader.
    pub is_me: bool,
}

/// A transition, and when this node saw it.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Moment by the wall clock, for people.
    pub at: SystemTime,
    /// The same moment by a clock that nobody sets, for how long something took.
    pub moment: Instant,
    /// The change and its reason.
    pub transition: Transition,
}

/// A request of the handle to the loop.
pub(crate) enum Call<S: StateMachine> {
    Propose { payload: Bytes, reply: oneshot::Sender<Result<Applied<S::Response>, RequestError>> },
    ChangeMembership { change: MembershipChange, reply: oneshot::Sender<Result<Arc<Membership>, RequestError>> },
    Read { reply: oneshot::Sender<Result<Readable<S::View>, RequestError>> },
    ReadLocal { reply: oneshot::Sender<Result<Readable<S::View>, RequestError>> },
    Admin { admin: Admin, reply: oneshot::Sender<Outcome> },
    Stop { reply: oneshot::Sender<()> },
}

/// A handle to a running node; clones share it.
pub struct Handle<S: StateMachine> {
    pub(crate) calls: mpsc::Sender<Call<S>>,
    pub(crate) status: watch::Receiver<NodeStatus>,
    pub(crate) applied: watch::Receiver<u64>,
    pub(crate) happenings: broadcast::Sender<Happening>,
    pub(crate) command_bytes_max: usize,
    /// Closed when the node's threads have ended.
    pub(crate) ended: watch::Receiver<()>,
}

impl<S: StateMachine> Clone for Handle<S> {
    fn clone(&self) -> Handle<S> {
        Handle {
            calls: self.calls.clone(),
            status: self.status.clone(),
            applied: self.applied.clone(),
            happenings: self.happenings.clone(),
            command_bytes_max: self.command_bytes_max,
            ended: self.ended.clone(),
        }
    }
}

impl<S: StateMachine> Handle<S> {
    /// Replicates a command and applies it; any node may be asked.
    ///
    /// Waits as long as it takes: bound it with a timeout of your own. Commands are applied at most once. Keep them far below the limit of
    /// [`NodeConfig::frame_bytes_max`](crate::NodeConfig::frame_bytes_max): one of megabytes holds up all behind it on every link and disk.
    ///
    /// # Errors
    /// [`RequestError::Refused`], [`RequestError::QueueFull`] and [`RequestError::TooLarge`] mean *definitely* not done, the others
    /// *perhaps*.
    pub async fn propose(&self, payload: Bytes) -> Result<Applied<S::Response>, RequestError> {
        let (bytes, bytes_max) = (payload.len(), self.command_bytes_max);
        if bytes > bytes_max {
            return Err(RequestError::TooLarge { bytes, bytes_max });
        }
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Propose { payload, reply })?;
        answer.await.unwrap_or(Err(RequestError::Stopped))
    }

    /// Changes the membership; the one that resulted comes back once it is in force.
    ///
    /// There is one change at a time, a leader's own notes of names and addresses among them: this one waits for those before it.
    ///
    /// # Errors
    /// As [`Handle::propose`]. Nothing else ends the wait, and an earlier change may be pending for as long as there is no quorum: bound
    /// it with a timeout of your own.
    pub async fn change_membership(&self, change: MembershipChange) -> Result<Arc<Membership>, RequestError> {
        let (mut status, mut applied) = (self.status.clone(), self.applied.clone());
        loop {
            status.borrow_and_update();
            applied.borrow_and_update();
            let (reply, answer) = oneshot::channel();
            self.submit(Call::ChangeMembership { change: change.clone(), reply })?;
            match answer.await.unwrap_or(Err(RequestError::Stopped)) {
                // The others said so before this node's log did.
                Err(RequestError::Stopped) if self.is_removed_by(&change) => {
                    return Ok(self.status.borrow().membership.clone());
                }
                // It is applied here, too, or another leader comes.
                Err(RequestError::Refused(Refusal::MembershipPending)) => {
                    let changed = tokio::select! {
                        changed = status.changed() => changed,
                        changed = applied.changed() => changed,
                    };
                    changed.map_err(|_| RequestError::Stopped)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// A view that contains everything that was acknowledged anywhere before this call (linearizable).
    ///
    /// # Errors
    /// [`RequestError::QueueFull`], [`RequestError::Stopped`], and [`Refusal::IsWitness`] of a member that holds no data.
    pub async fn read(&self) -> Result<Readable<S::View>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Read { reply })?;
        answer.await.unwrap_or(Err(RequestError::Stopped))
    }

    /// A view of what this node has applied so far (serializable): perhaps stale, always available.
    ///
    /// # Errors
    /// [`RequestError::QueueFull`], [`RequestError::Stopped`], and [`Refusal::IsWitness`] of a member that holds no data.
    pub async fn read_local(&self) -> Result<Readable<S::View>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::ReadLocal { reply })?;
        answer.await.unwrap_or(Err(RequestError::Stopped))
    }

    /// Tells which member leads the cluster, and the token of its leadership: true at some moment after the call. Waits for a quorum.
    ///
    /// The answer says nothing of later moments: a successor may be elected while it is read, for members elect as soon as a
    /// link to their leader breaks, and no lease holds them up. So whatever the leader does elsewhere carries the token, to a
    /// resource that refuses lower ones. For a leadership that is valid until a stated time, elect one of your application on
    /// top of this cluster: `Election::inside` of the crate `hustings-election`.
    ///
    /// ```no_run
    /// # async fn story(handle: hustings_node::Handle<()>) -> Result<(), hustings_node::RequestError> {
    /// let leads = handle.leadership().await?;
    /// if leads.is_me {
    ///     println!("this member leads, and its token is {}", leads.token);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub async fn leadership(&self) -> Result<Leads, RequestError> {
        loop {
            let before = self.leads();
            self.read().await?;
            // The same leader and term before and after: the quorum has confirmed this one.
            if let Some(leads) = before.filter(|before| self.leads() == Some(*before)) {
                return Ok(leads);
            }
            self.leader().await?;
        }
    }

    fn leads(&self) -> Option<Leads> {
        let status = self.status.borrow();
        let leader = status.leader?;
        Some(Leads { leader, token: status.term.0, is_me: leader == status.me })
    }

    /// Asks the protocol to campaign, resign, transfer or forget.
    ///
    /// A leader gives a hand-over up after the shortest election timeout and serves on, and its successor may be elected all the
    /// same. So a hand-over that timed out is judged by who leads when somebody does, and is asked for once more if this node still
    /// leads. etcd's `MoveLeader` waits for the successor, too, and asks once.
    ///
    /// # Errors
    /// The protocol's refusal, or [`RequestError::Unknown`]. A hand-over that timed out waits for a leader: bound it with a timeout of
    /// your own.
    pub async fn admin(&self, admin: Admin) -> Result<(), RequestError> {
        let first = self.ask(admin.clone()).await;
        if first != Err(RequestError::Refused(Refusal::TransferTimedOut)) {
            return first;
        }
        let (mut leader, me) = (self.leader().await?, self.status.borrow().me);
        if leader == me {
            match self.ask(admin.clone()).await {
                // The successor was elected meanwhile, or not this time either.
                Err(RequestError::Refused(Refusal::NotLeader(Some(successor)))) => leader = successor,
                Err(RequestError::Refused(Refusal::NotLeader(None) | Refusal::TransferTimedOut)) => {
                    leader = self.leader().await?;
                }
                outcome => return outcome,
            }
        }
        match admin {
            Admin::Transfer(to) if leader == to => Ok(()),
            Admin::Resign if leader != me => Ok(()),
            _ => first,
        }
    }

    /// The leader that this node follows, or itself, as soon as it knows of one.
    async fn leader(&self) -> Result<NodeId, RequestError> {
        let mut status = self.status.clone();
        let known = status.wait_for(|status| status.leader.is_some()).await.map_err(|_| RequestError::Stopped)?;
        known.leader.ok_or(RequestError::Stopped)
    }

    async fn ask(&self, admin: Admin) -> Result<(), RequestError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Call::Admin { admin, reply })?;
        match answer.await {
            Ok(Outcome::Done) => Ok(()),
            Ok(Outcome::Refused(refusal)) => Err(RequestError::Refused(refusal)),
            Ok(Outcome::Unknown) => Err(RequestError::Unknown),
            Err(_) => Err(RequestError::Stopped),
        }
    }

    /// The node as it sees itself now.
    pub fn status(&self) -> NodeStatus {
        self.status.borrow().clone()
    }

    /// Follows the node's role, term, leader, membership and disk; the latest wins.
    ///
    /// The positions in it are those of the moment that it is looked at, but nobody is woken when only they change: follow
    /// [`Handle::applied_changes`] for that.
    pub fn status_changes(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// Follows the index of the last applied entry; the latest wins. Wakes after each batch, when [`Handle::status`] shows it.
    pub fn applied_changes(&self) -> watch::Receiver<u64> {
        self.applied.clone()
    }

    /// Every transition from now on, with its reason.
    pub fn happenings(&self) -> broadcast::Receiver<Happening> {
        self.happenings.subscribe()
    }

    /// Whether this node was removed, as this change wanted.
    fn is_removed_by(&self, change: &MembershipChange) -> bool {
        let NodeStatus { me, membership, .. } = &*self.status.borrow();
        !membership.has(*me) && change.steps.contains(&Change::Remove(*me))
    }

    /// Stops the node: what is durable stays, requests that wait end as [`RequestError::Stopped`]. Its directory and its port can be
    /// taken then, also where it could not go on and ends by itself.
    pub async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.calls.send(Call::Stop { reply }).await.is_ok() {
            // An error means that the loop ended first, which is what was wanted.
            let _ = answer.await;
        }
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    fn submit(&self, call: Call<S>) -> Result<(), RequestError> {
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RequestError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => RequestError::Stopped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_core::{Member, SnapshotError};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    /// A state machine without a state.
    #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
    struct Nothing;

    impl StateMachine for Nothing {
        type Response = ();
        type View = ();

        fn apply(&mut self, _: Lsn, _: &Bytes) {}

        fn advance(&mut self, _: Duration) {}

        fn freeze(&self) {}

        fn next_deadline(&self) -> Option<Duration> {
            None
        }

        fn encode(_: &(), _: &mut dyn FnMut(Bytes)) {}

        fn decode(_: &mut dyn bytes::Buf) -> Result<Nothing, SnapshotError> {
            Ok(Nothing)
        }
    }

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    /// The loop's side of a handle, played by a story.
    struct Loop {
        calls: mpsc::Receiver<Call<Nothing>>,
        status: watch::Sender<NodeStatus>,
        applied: watch::Sender<u64>,
    }

    /// A handle to a node that leads, and its loop.
    fn node() -> (Handle<Nothing>, Loop) {
        let status = NodeStatus {
            me: ME,
            cluster_id: ClusterId(7),
            protocol: "raft",
            role: Role::Leader,
            term: Term(1),
            leader: Some(ME),
            last: Lsn::default(),
            commit: 0,
            applied: Lsn::default(),
            membership: Arc::new(Membership::default()),
            is_disk_healthy: true,
            contradiction: None,
            is_suspended: false,
            version: ApplyVersion::FIRST,
            differing: BTreeSet::new(),
            compared_at: 0,
        };
        let (call, calls) = mpsc::channel(4);
        let ((tell, status), (apply, applied)) = (watch::channel(status), watch::channel(0));
        let handle = Handle {
            calls: call,
            status,
            applied,
            happenings: broadcast::channel(1).0,
            command_bytes_max: 1 << 20,
            ended: watch::channel(()).1,
        };
        (handle, Loop { calls, status: tell, applied: apply })
    }

    impl Loop {
        /// Answers the change that somebody asks for; nobody asks for two at once.
        fn answer_change(&mut self, answer: Result<Arc<Membership>, RequestError>) {
            let Ok(Call::ChangeMembership { reply, .. }) = self.calls.try_recv() else {
                panic!("no change is asked for")
            };
            reply.send(answer).expect("somebody waits for it");
            assert!(self.calls.try_recv().is_err(), "one was asked for");
        }

        fn answer_admin(&mut self, wanted: &Admin, outcome: Outcome) {
            let Ok(Call::Admin { admin, reply }) = self.calls.try_recv() else { panic!("nothing is asked for") };
            assert_eq!(admin, *wanted);
            reply.send(outcome).expect("somebody waits for it");
        }

        fn is_led_by(&self, leader: Option<NodeId>) {
            self.status.send_modify(|status| status.leader = leader);
        }
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn change() -> MembershipChange {
        MembershipChange::of([Change::Describe(ME, Member::default())])
    }

    const PENDING: RequestError = RequestError::Refused(Refusal::MembershipPending);
    const TIMED_OUT: Outcome = Outcome::Refused(Refusal::TransferTimedOut);

    #[test]
    fn a_change_waits_for_the_one_that_is_pending() {
        let (handle, mut node) = node();
        let mut asked = pin!(handle.change_membership(change()));
        for index in 1..=3 {
            assert!(poll(asked.as_mut()).is_pending());
            node.answer_change(Err(PENDING));
            assert!(poll(asked.as_mut()).is_pending());
            assert!(node.calls.try_recv().is_err(), "it asks again before anything has changed");
            match index {
                1 => drop(node.applied.send_replace(index)),
                _ => node.is_led_by(Some(OTHER)),
            }
        }
        assert!(poll(asked.as_mut()).is_pending());
        let membership = Arc::new(Membership { next_id: 9, ..Membership::default() });
        node.answer_change(Ok(membership.clone()));
        assert_eq!(poll(asked.as_mut()), Poll::Ready(Ok(membership)));
    }

    #[test]
    fn what_is_applied_before_the_refusal_arrives_ends_the_wait() {
        let (handle, mut node) = node();
        let mut asked = pin!(handle.change_membership(change()));
        assert!(poll(asked.as_mut()).is_pending());
        node.applied.send_replace(1);
        node.answer_change(Err(PENDING));
        assert!(poll(asked.as_mut()).is_pending());
        node.answer_change(Err(RequestError::Unknown));
        assert_eq!(poll(asked.as_mut()), Poll::Ready(Err(RequestError::Unknown)), "any other refusal is the answer");
    }

    #[test]
    fn a_change_that_waits_ends_with_the_node() {
        let (handle, mut node) = node();
        let mut asked = pin!(handle.change_membership(change()));
        assert!(poll(asked.as_mut()).is_pending());
        node.answer_change(Err(PENDING));
        assert!(poll(asked.as_mut()).is_pending());
        drop(node);
        assert_eq!(poll(asked.as_mut()), Poll::Ready(Err(RequestError::Stopped)));
    }

    #[test]
    fn a_hand_over_that_timed_out_is_asked_for_once_more() {
        for (second, wanted) in [
            (Outcome::Done, Ok(())),
            (TIMED_OUT, Err(RequestError::Refused(Refusal::TransferTimedOut))),
            (Outcome::Unknown, Err(RequestError::Unknown)),
        ] {
            for admin in [Admin::Transfer(OTHER), Admin::Resign] {
                let (handle, mut node) = node();
                let mut asked = pin!(handle.admin(admin.clone()));
                assert!(poll(asked.as_mut()).is_pending());
                node.answer_admin(&admin, TIMED_OUT);
                assert!(poll(asked.as_mut()).is_pending());
                node.answer_admin(&admin, second.clone());
                assert_eq!(poll(asked.as_mut()), Poll::Ready(wanted.clone()), "{admin:?}");
            }
        }
    }

    #[test]
    fn a_successor_that_is_elected_late_is_still_the_successor() {
        let timed_out = Err(RequestError::Refused(Refusal::TransferTimedOut));
        for (admin, leader, wanted) in [
            (Admin::Transfer(OTHER), OTHER, Ok(())),
            (Admin::Transfer(OTHER), NodeId(3), timed_out),
            (Admin::Resign, NodeId(3), Ok(())),
        ] {
            let (handle, mut node) = node();
            let mut asked = pin!(handle.admin(admin.clone()));
            assert!(poll(asked.as_mut()).is_pending());
            node.is_led_by(None);
            node.answer_admin(&admin, TIMED_OUT);
            assert!(poll(asked.as_mut()).is_pending(), "nobody leads yet");
            node.is_led_by(Some(leader));
            assert_eq!(poll(asked.as_mut()), Poll::Ready(wanted), "{admin:?}");
            assert!(node.calls.try_recv().is_err(), "it was not asked for again");
        }
        // Elected while it was asked for once more.
        let (handle, mut node) = node();
        let admin = Admin::Transfer(OTHER);
        let mut asked = pin!(handle.admin(admin.clone()));
        assert!(poll(asked.as_mut()).is_pending());
        node.answer_admin(&admin, TIMED_OUT);
        assert!(poll(asked.as_mut()).is_pending());
        node.is_led_by(Some(OTHER));
        node.answer_admin(&admin, Outcome::Refused(Refusal::NotLeader(Some(OTHER))));
        assert_eq!(poll(asked.as_mut()), Poll::Ready(Ok(())));
    }
}
