//! The settings that an application gives a node: [`NodeConfig`].

use crate::peer_stream::PeerTls;
use crate::secret::ClusterSecret;
use hustings_core::replica::Policy;
use hustings_core::{ApplyVersion, ClusterId, Limits, Member, Membership, NodeId, Priority, Timing};
use hustings_recorder::Tape;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two comparisons of members' states: rare enough that a large state costs a thousandth of a core.
const COMPARE_STATES_EVERY: Duration = Duration::from_secs(300);

/// Bytes that an entry of one byte takes in a frame, at most.
const ENTRY_OVERHEAD_BYTES: usize = 64;
/// Bytes of a command's frame and record besides the command, and room for what later versions add.
const FRAME_OVERHEAD_BYTES: usize = 64 << 10;

/// The largest batch that a segment of the log can hold is a little less than 1 GiB.
const LOG_BATCH_BYTES_MAX: usize = 1000 << 20;

/// Time for the last words of a process.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Says so once more where nobody reads the log, and ends the process.
fn abort(what: &str, why: &str) {
    // A log that takes nothing keeps no process alive.
    let watchdog = std::thread::Builder::new().name("hustings-end".into()).spawn(|| {
        std::thread::sleep(LAST_WORDS);
        std::process::abort();
    });
    drop(watchdog);
    tracing::error!("{what}: {why}");
    if !tracing::dispatcher::has_been_set() {
        // Standard error may be closed; there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "{what}: {why}");
    }
    std::process::abort();
}

/// Called when the node can no longer be trusted: its disk failed or its replica reached an impossible state.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Hears how long each sync of the log took; called on the disk thread, so it must be quick.
pub type OnSync = Arc<dyn Fn(Duration) + Send + Sync>;

/// Everything a node needs besides its protocol's options and its state machine.
#[derive(Clone)]
pub struct NodeConfig {
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Id of this member.
    pub me: NodeId,
    /// This member's name and the addresses it advertises. Its storage incarnation, if it has one, is for a data directory that is made
    /// now: a join token.
    pub member: Member,
    /// The membership that the cluster was founded with; a data directory that exists already knows its own.
    pub founding: Membership,
    /// Members that the founding membership does not know yet, to be dialled (for a node that joins).
    pub hints: Membership,
    /// Directory of the log and the snapshots.
    pub data_dir: PathBuf,
    /// The secret that all members know and strangers do not; without it, anybody who reaches the peer port may pretend to be a member.
    pub secret: Option<ClusterSecret>,
    /// TLS settings of the links to peers.
    pub tls: PeerTls,
    /// Addresses on which peers are accepted; port 0 picks a free one.
    pub peer_listen: Vec<std::net::SocketAddr>,
    /// Heartbeat and election ranges.
    pub timing: Timing,
    /// Whether they follow what is measured.
    pub timing_mode: TimingMode,
    /// Preference of this node for leading.
    pub priority: Priority,
    /// Bounds on memory and messages.
    pub limits: Limits,
    /// Policy by which snapshots are cut.
    pub policy: Policy,
    /// The highest apply version that this node says it can; above what its state machine can it means nothing. A cluster in which
    /// somebody holds back can still go back to older builds.
    pub version_max: ApplyVersion,
    /// The longest frame that a peer may send, in bytes: the same at all members. A command that would not fit into one is refused
    /// ([`crate::RequestError::TooLarge`]).
    pub frame_bytes_max: usize,
    /// Silence after which a disk counts as stalled.
    pub disk_stall_after: Duration,
    /// Pause between two comparisons of members' state digests, which are made if something was applied; `None` for never.
    pub compare_states_every: Option<Duration>,
    /// Hears how long each sync of the log took, for metrics.
    pub on_sync: OnSync,
    /// Recording for `hustings why` and `hustings replay`; `None` for no recording.
    pub recording: Option<RecordingConfig>,
    /// Called once when the node cannot go on; the default logs and aborts the process. Where nobody has said what becomes of the log
    /// (`tracing`), it writes to standard error.
    pub on_fatal: OnFatal,
    /// Called once when the peers say that this member was removed; the default does as that of [`NodeConfig::on_fatal`].
    pub on_removed: OnFatal,
}

/// The settings of a recording, in `recording` of the node's data directory.
#[derive(Clone, Debug)]
pub struct RecordingConfig {
    /// Tape on which its protocol is listened to: the one in [`hustings_recorder::RecordedOptions`].
    pub tape: Tape,
    /// Limit of the files together, in bytes.
    pub bytes_max: u64,
    /// The protocol's options, as one line.
    pub options: String,
    /// The build that runs.
    pub build: String,
    /// The settings that were given, one a line, without the values of secrets, for readers of the recording.
    pub settings: Vec<String>,
}

/// Whether heartbeat and election ranges follow what the node measures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TimingMode {
    /// They stay as configured; what does not fit the network is told as a warning.
    #[default]
    Fixed,
    /// They follow the network and the disk. All members need the same bounds.
    Auto {
        /// Bounds for the shortest election timeout; the heartbeat is a fifth of the lower one.
        election_min: std::ops::RangeInclusive<Duration>,
    },
}

impl NodeConfig {
    /// Defaults for member `me` of a cluster founded by `founding`, with its data under `data_dir`.
    ///
    /// # Panics
    /// When `founding` does not know `me`.
    pub fn new(cluster_id: ClusterId, me: NodeId, founding: Membership, data_dir: impl Into<PathBuf>) -> NodeConfig {
        let member =
            founding.members.get(&me).unwrap_or_else(|| panic!("{me} is not among the founding members")).clone();
        NodeConfig::joining(cluster_id, me, member, founding.clone(), founding, data_dir)
    }

    /// Defaults for a member that was added to a running cluster: `hints` is the membership as it is now.
    pub fn joining(
        cluster_id: ClusterId,
        me: NodeId,
        member: Member,
        founding: Membership,
        hints: Membership,
        data_dir: impl Into<PathBuf>,
    ) -> NodeConfig {
        NodeConfig {
            cluster_id,
            me,
            member,
            founding,
            hints,
            data_dir: data_dir.into(),
            secret: None,
            tls: PeerTls::default(),
            peer_listen: Vec::new(),
            timing: Timing::default(),
            timing_mode: TimingMode::Fixed,
            priority: Priority::default(),
            limits: Limits::default(),
            policy: Policy::default(),
            version_max: ApplyVersion(u32::MAX),
            frame_bytes_max: 64 << 20,
            disk_stall_after: Duration::from_secs(1),
            compare_states_every: Some(COMPARE_STATES_EVERY),
            on_sync: Arc::new(|_| {}),
            recording: None,
            on_fatal: Arc::new(|why| abort("fatal", why)),
            on_removed: Arc::new(|why| abort("removed", why)),
        }
    }

    /// The longest command that is taken: such a frame with it, and a batch of the log with that alone, are not too long.
    pub(crate) fn command_bytes_max(&self) -> usize {
        self.frame_bytes_max.min(LOG_BATCH_BYTES_MAX).saturating_sub(FRAME_OVERHEAD_BYTES)
    }

    /// The limits, with no larger messages of entries than fit into a frame, however small their entries are.
    pub(crate) fn limits_within_frames(&self) -> Limits {
        let message_bytes_max = (self.frame_bytes_max / ENTRY_OVERHEAD_BYTES).clamp(1, self.limits.message_bytes_max);
        Limits { message_bytes_max, ..self.limits }
    }
}

/// The reason why a node did not start. Nothing was changed on disk beyond what the message says.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] hustings_wal::WalError),
    /// A listen address cannot be bound.
    #[error("cannot listen for peers on {address}: {error}; is another node running there?")]
    Listen {
        /// Address that was to be listened on.
        address: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Heartbeat and election ranges cannot work.
    #[error("the timing cannot work: {0}")]
    Timing(String),
    /// The snapshot on disk cannot be read.
    #[error(
        "the snapshot on disk cannot be used: {0}; start the build that wrote it, or move the data directory away and let this node rejoin as a new member: never all of them"
    )]
    Snapshot(String),
    /// The snapshot on disk is a witness's, and this member is none.
    #[error(
        "{0} holds the snapshot of a witness, which has no data, and this member is to hold data: start it with a directory of its own"
    )]
    WitnessSnapshot(String),
    /// A thread cannot be started.
    #[error(
        "cannot start a thread: {0}; a member needs a dozen threads and some fifty descriptors (ulimit -u, ulimit -n)"
    )]
    Thread(std::io::Error),
}
