//! Starting a node: open the data directory, bind the peer port, start the threads.
//!
//! ```text
//!    hustings-loop      one tokio thread: replica, timers, peer links      never waits for a disk or a client
//!    hustings-door      handshakes of peers and of strangers               gives way to all others
//!    hustings-life      lifelines at peers, and nothing else               ends before the process's memory is freed
//!    hustings-disk      records in, "durable through n" out                one fdatasync per batch
//!    hustings-snapshot  cuts, fetches, loads                               large files, no hurry
//! ```

use crate::config::{NodeConfig, RecordingConfig, StartError};
use crate::counters::{Counters, micros};
use crate::detached::Detached;
use crate::disk::DiskThread;
use crate::door::Door;
use crate::frame::{Build, Hello};
use crate::gatekeeper::Gatekeeper;
use crate::handle::{Handle, NodeStatus};
use crate::host::{Host, Wiring, clock_offset_micros};
use crate::lifeline::Holder;
use crate::link::Links;
use crate::loop_timer::LoopTimer;
use crate::pace::Pace;
use crate::positions::Positions;
use crate::snapshots;
use bytes::Bytes;
use hustings_core::options::Options as _;
use hustings_core::panics::panic_text;
use hustings_core::replica::ReplicaState;
use hustings_core::replica::application::IN_APPLICATION;
use hustings_core::replica::{Birth, Policy, Replica};
use hustings_core::{
    ApplyVersion, Change, Cluster, Durable, EntryKind, Lsn, Membership, MembershipChange, NodeId, Protocol, Role,
    StateMachine, Term, Wire as _,
};
use hustings_recorder::{Life, Mark, Recorder};
use hustings_wal::reserve::RESERVE_BYTES;
use hustings_wal::{Disk, Identity, Options, RealDisk, SnapshotStore, Wal, WalError, peers};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};

/// A sync that takes this long is noted for the recorder.
const SLOW_SYNC: Duration = Duration::from_millis(50);
/// Requests that may wait for the loop; beyond, they are refused at once.
const CALLS_MAX: usize = 16_384;
/// Peer messages that may wait for the loop; beyond, TCP holds the peer back.
const ARRIVALS_MAX: usize = 1_024;
/// Transitions that a slow listener may be behind before it misses some.
const HAPPENINGS_MAX: usize = 1_024;

/// A running node: the handle for requests, and what it is known by.
pub struct Node<S: StateMachine> {
    /// Handle for the application's requests.
    pub handle: Handle<S>,
    /// Counters of the node.
    pub counters: Arc<Counters>,
    /// Addresses on which peers are accepted.
    pub peer_addresses: Vec<std::net::SocketAddr>,
    /// The member it runs as.
    pub me: NodeId,
    /// Bytes of an unfinished record that were found at the end of the log and dropped: written, never acknowledged.
    pub torn_bytes: u64,
}

/// Starts a node with protocol `P` and state machine `S`; `machine` is the state of an empty log.
///
/// Blocks while the log and snapshot are read; call it from a blocking context when they are large. The node runs on threads
/// of its own until [`Handle::stop`] or until all handles are gone.
///
/// # Errors
/// When the data directory, an address or the timing cannot be used; the message says what to do.
pub fn start<P: Protocol, S: StateMachine>(
    mut config: NodeConfig,
    options: P::Options,
    machine: S,
) -> Result<Node<S>, StartError> {
    config.timing.check().map_err(|misfit| StartError::Timing(misfit.to_string()))?;
    let listeners = bind(&config.peer_listen)?;
    let peer_addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();

    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&config.data_dir)?);
    let protocol = options.identity(P::NAME);
    let identity = Identity { cluster_id: config.cluster_id, node: config.me, protocol: protocol.clone() };
    let can = config.version_max.min(S::VERSION_MAX);
    let options_of_log = Options {
        version_max: can,
        storage_incarnation: config.member.storage_incarnation,
        reserve_bytes: RESERVE_BYTES,
        ..Options::default()
    };
    if config.member.is_witness {
        peers::mark_witness(&*disk)?;
    }
    let is_witness = peers::is_witness(&*disk)?;
    let (wal, recovered) = Wal::open(disk.clone(), &identity, &config.founding, options_of_log)?;
    let positions = Positions::of(peers::read_positions(&*disk).unwrap_or_else(|error| {
        tracing::warn!("what was remembered of other members is lost: {error}");
        Vec::new()
    }));
    let store = SnapshotStore::open(disk.clone())?;
    let files = disk;
    let blank = machine.clone();
    let (machine, state) = match &recovered.durable.snapshot {
        Some(reference) => {
            let (mut loaded, state) = snapshots::load::<S>(&store, reference).map_err(StartError::Snapshot)?;
            loaded.inherit(&machine);
            if state.is_witness && !is_witness {
                return Err(StartError::WitnessSnapshot(config.data_dir.display().to_string()));
            }
            (loaded, state)
        }
        None => (machine, ReplicaState::default()),
    };
    if state.version > can {
        let directory = config.data_dir.display().to_string();
        return Err(WalError::NewerRules { directory, found: state.version, supported: can }.into());
    }
    let torn_bytes = recovered.torn_bytes;
    // Before the recording reads both clocks: whoever sets one from now on is noted.
    let clock_offset_micros = clock_offset_micros();
    let recorder = record::<P>(&mut config);
    let mut member = config.member.clone();
    member.storage_incarnation = Some(recovered.storage_incarnation);

    let (calls, call_queue) = mpsc::channel(CALLS_MAX);
    let (applied, applied_watch) = watch::channel(0);
    let (happenings, _) = broadcast::channel(HAPPENINGS_MAX);
    let (status, status_watch) = watch::channel(NodeStatus {
        me: config.me,
        cluster_id: config.cluster_id,
        protocol: P::NAME,
        role: Role::Follower,
        term: Term::ZERO,
        leader: None,
        last: Lsn::ZERO,
        commit: 0,
        applied: Lsn::ZERO,
        membership: Arc::new(recovered.founding.clone()),
        is_disk_healthy: true,
        contradiction: None,
        is_suspended: false,
        version: ApplyVersion::FIRST,
        differing: BTreeSet::new(),
        compared_at: 0,
    });
    let counters = Arc::new(Counters::default());
    let (disk_news, disk_queue) = mpsc::unbounded_channel();
    let (disk, disk_thread) =
        DiskThread::spawn(wal, disk_news, counters.clone(), config.on_sync.clone()).map_err(StartError::Thread)?;
    let (snapshot_news, snapshot_queue) = mpsc::unbounded_channel();
    let (snapshot_jobs, snapshot_thread) =
        snapshots::spawn(store, files.clone(), snapshot_news, config.on_fatal.clone()).map_err(StartError::Thread)?;

    let (ending, ended) = watch::channel(());
    let handle = Handle {
        calls,
        status: status_watch,
        applied: applied_watch,
        happenings: happenings.clone(),
        command_bytes_max: config.command_bytes_max(),
        ended,
    };
    let me = config.me;
    let hello = Hello {
        cluster_id: config.cluster_id,
        from: me,
        to: NodeId(0),
        protocol,
        boots: recovered.boots,
        process: recovered.starts.last().map_or_else(rand::random, |start| start.process),
        nonce: Bytes::new(),
        build: Build::this(can),
        born_with: recovered.batches,
        durable: recovered.batches,
        starts: recovered.starts,
        lifeline: Bytes::new(),
        member,
    };
    let loop_counters = counters.clone();
    let tape = recorder.as_ref().map(Recorder::tape);
    let hints = with_members_of_log(config.hints.clone(), &recovered.durable);
    let limits = config.limits_within_frames();
    let (has_secret, binds_identity) = (config.secret.is_some(), config.tls.binds_identity);
    let (door, door_thread, callers) =
        Door::open(listeners, config.tls, config.secret, counters.clone()).map_err(StartError::Thread)?;
    let lifelines = Holder::start();
    let runtime = Detached::new().map_err(StartError::Thread)?;
    let clock = {
        let _entered = runtime.handle().enter();
        LoopTimer::new().map_err(StartError::Thread)?
    };
    let run = move || {
        let birth = Birth {
            cluster: Cluster {
                me,
                membership: Arc::new(recovered.founding.clone()),
                timing: config.timing,
                priority: config.priority,
                limits,
                defect: None,
            },
            options,
            recovered: recovered.durable,
            machine,
            blank,
            is_witness,
            state,
            incarnation: recovered.boots,
            policy: staggered(config.policy, me),
            can,
        };
        let runtime = runtime.take();
        let tasks = tokio::task::LocalSet::new();
        let stopping = tasks.block_on(&runtime, async move {
            let gatekeeper = Gatekeeper::new(hello, recovered.founding, hints, has_secret, binds_identity, positions);
            let gatekeeper = Rc::new(RefCell::new(gatekeeper));
            let (arrivals, arrival_queue) = mpsc::channel(ARRIVALS_MAX);
            let links = Links::new(
                gatekeeper.clone(),
                arrivals,
                loop_counters.clone(),
                door,
                lifelines,
                config.frame_bytes_max,
            );
            links.receive(callers);
            let mut actions = Vec::new();
            let replica = Replica::<P, S>::start(birth, &mut actions);
            let wiring = Wiring {
                disk,
                disk_queue,
                snapshot_jobs,
                snapshot_queue,
                links,
                gatekeeper,
                arrival_queue,
                call_queue,
                status,
                applied,
                happenings,
                counters: loop_counters,
                files,
                disk_stall_after: config.disk_stall_after,
                compare_states_every: config.compare_states_every,
                pace: Pace::new(config.timing_mode, config.timing),
                clock,
                on_fatal: config.on_fatal,
                on_removed: config.on_removed,
                tape,
                clock_offset_micros,
            };
            // A task like those of the links: an arrival then wakes it within the same tick, without a look at the sockets
            // in between.
            let host = tokio::task::spawn_local(Host::new(replica, wiring).run(actions));
            host.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
        });
        // The caller that stopped the node may take its port and directory at once: the sockets live in the tasks, the
        // lock in the threads, and those end when the host's end of their queues is gone.
        drop(tasks);
        drop(runtime);
        let ended = [door_thread.join(), disk_thread.join(), snapshot_thread.join()];
        if ended.iter().any(Result::is_err) {
            tracing::error!("a thread of the node panicked");
        }
        drop(recorder);
        if let Some(stopping) = stopping {
            let _ = stopping.send(());
        }
        drop(ending);
    };
    std::thread::Builder::new().name("hustings-loop".into()).spawn(run).map_err(StartError::Thread)?;
    Ok(Node { handle, counters, peer_addresses, me, torn_bytes })
}

/// Begins the recording that is asked for; how the node ends is noted in it, too. A recording that cannot be made is told, and no more.
fn record<P: Protocol>(config: &mut NodeConfig) -> Option<Recorder> {
    let RecordingConfig { tape, bytes_max, options, build, settings } = config.recording.clone()?;
    let life = Life {
        cluster_id: config.cluster_id.0,
        member_id: config.me.0,
        name: config.member.name.clone(),
        protocol: P::NAME.to_owned(),
        options,
        build,
        settings,
        process_id: std::process::id(),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
        ..Life::default()
    };
    let directory = config.data_dir.join("recording");
    let recorder = match Recorder::start(tape.clone(), &directory, life, bytes_max) {
        Ok(recorder) => recorder,
        Err(error) => {
            tape.end();
            tracing::warn!(directory = %directory.display(), "what happens is not recorded: {error}; nothing else depends on it");
            return None;
        }
    };
    for end in [&mut config.on_fatal, &mut config.on_removed] {
        let (before, tape) = (end.clone(), tape.clone());
        *end = Arc::new(move |why| {
            tape.mark(Mark::Ended { why: why.to_owned() });
            tape.settle();
            before(why);
        });
    }
    let before = config.on_sync.clone();
    config.on_sync = Arc::new(move |took| {
        if took >= SLOW_SYNC {
            tape.mark(Mark::SlowSync { micros: micros(took) });
        }
        before(took);
    });
    Some(recorder)
}

/// Adds the members that this node's own log names, committed or not, to those that it was told of.
fn with_members_of_log(mut hints: Membership, durable: &Durable) -> Membership {
    if let Some(snapshot) = &durable.snapshot {
        hints.members.extend(snapshot.membership.members.clone());
        hints.learners.extend(snapshot.membership.everyone());
    }
    let changes = durable.entries.values().filter(|entry| entry.kind == EntryKind::Membership);
    for change in changes.filter_map(|entry| MembershipChange::decode(entry.payload.clone()).ok()) {
        for step in change.steps {
            if let Change::Describe(id, member) = step {
                hints.members.insert(id, member);
                hints.learners.insert(id);
            }
        }
    }
    hints
}

/// Members cut their snapshots at different entries, or all their disks would be busy at once.
fn staggered(policy: Policy, NodeId(me): NodeId) -> Policy {
    Policy { entries_max: policy.entries_max.saturating_add(policy.entries_max / 10 * (me % 5)), ..policy }
}

fn bind(addresses: &[std::net::SocketAddr]) -> Result<Vec<std::net::TcpListener>, StartError> {
    let bind = |address: &std::net::SocketAddr| {
        let domain = socket2::Domain::for_address(*address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        // A restarted node takes its port again at once; two running ones still exclude each other.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&(*address).into())?;
        socket.listen(1_024)?;
        Ok(std::net::TcpListener::from(socket))
    };
    let listen = |address: &std::net::SocketAddr| {
        bind(address).map_err(|error| StartError::Listen { address: address.to_string(), error })
    };
    addresses.iter().map(listen).collect()
}

/// Runs `body`; a panic in it is fatal: a half-alive node is worse than a dead one (ADR 34).
pub(crate) fn or_fatal<T>(on_fatal: &crate::config::OnFatal, body: impl FnOnce() -> T) -> Option<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(panic) => {
            match panic_text(&*panic) {
                text if text.starts_with(IN_APPLICATION) => on_fatal(text),
                text => on_fatal(&format!("an impossible state was reached: {text}")),
            }
            None
        }
    }
}
