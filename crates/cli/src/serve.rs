//! `hustings serve`: one node and its clients.

use crate::huge_pages;
use crate::settings::advertised::{are_same, is_wildcard};
use crate::settings::{OfProcess, Plan, Settings, TlsPlan, with_settings};
use crate::{descriptors, logging, protocols};
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use hustings_core::replica::Policy;
use hustings_core::{Admin, ClusterId, Member, Membership, NodeId, Role, StateMachine as _};
use hustings_kv::KvStore;
use hustings_node::{ClusterSecret, Counters, Handle, NodeConfig, PeerTls, RecordingConfig};
use hustings_recorder::{Mark, Tape};
use hustings_server::{Port, Server, ServerOptions};
use hustings_tls::{Acceptor, Connector};
use hustings_wal::WalError;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

/// Names the socket at which `hustings up` takes orders from the dashboards of its members.
pub(crate) const WORKBENCH: &str = "HUSTINGS_WORKBENCH";

/// Time in which the answers of a member that was removed go out.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Divisor of the memory limit: the log may take this part of it before a snapshot is cut, however large that is.
const LOG_PART_OF_MEMORY_LIMIT: u64 = 6;

/// The command line of `serve`.
pub(crate) fn command() -> Command {
    let command = Command::new("serve").about("Run one node (takes etcd's flag names)");
    with_settings(command)
        .arg(Arg::new("version").long("version").action(ArgAction::SetTrue).help("Show versions, as etcd does"))
        .arg(Arg::new("exit-with-parent").long("exit-with-parent").action(ArgAction::SetTrue).hide(true))
}

/// Runs a node until it is told to stop.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    if matches.get_flag("version") {
        // As etcd's scripts read it: the version of etcd that is spoken here, on the first line.
        println!("etcd Version: {}", hustings_server::VERSION);
        println!("Hustings Version: {}", env!("CARGO_PKG_VERSION"));
        println!("OS/Arch: {}/{}", std::env::consts::OS, std::env::consts::ARCH);
        return Ok(());
    }
    huge_pages::hold_back();
    let start = huge_pages::come_with_size();
    let settings = Settings::resolve(matches, &OfProcess)?;
    logging::start(&settings.logging()?)?;
    for note in settings.check()? {
        tracing::warn!("{note}");
    }
    let plan = settings.to_plan()?;
    if plan.is_forced {
        crate::recover::force_new_cluster(&plan)?;
    }
    let descriptors = descriptors::raise_limit();
    // One core is the loop's; more client threads than the others would only switch between each other.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .thread_name("hustings-client")
        .build();
    let runtime = runtime.context("cannot start the client runtime")?;
    let result = runtime.block_on(serve(plan, start, descriptors, matches.get_flag("exit-with-parent")));
    // The task that waits for the parent's end blocks in a read that nobody can cancel: it is left behind.
    runtime.shutdown_background();
    result
}

async fn serve(plan: Plan, start: huge_pages::Start, descriptors: u64, exits_with_parent: bool) -> Result<()> {
    plan.tls.idle.iter().for_each(|why| tracing::warn!("{why}"));
    // At the first member of a rolling upgrade that asks for this, not once the last one has stopped.
    if let Some(why) = plan.tls.unwelcome_port() {
        bail!("{why}");
    }
    let client_tls = plan.tls.client.clone().map(Acceptor::new).transpose()?;
    // One certificate for both ports: its files are watched once.
    let metrics_tls = match &client_tls {
        Some(client) => plan.tls.metrics.as_ref().map(|_| client.clone()),
        None => plan.tls.metrics.clone().map(Acceptor::new).transpose()?,
    };
    let mut ports = listen(&plan.client_listen, client_tls.as_ref(), "clients", "listen-client-urls").await?;
    ports.iter_mut().for_each(|port| port.names_users = plan.tls.names_users);
    let metrics_ports = listen(&plan.metrics_listen, metrics_tls.as_ref(), "metrics", "listen-metrics-urls").await?;
    let mut config = node_config(&plan).await?;
    let (peer_acceptor, peer_connector) = (config.tls.acceptor.clone(), config.tls.connector.clone());
    // The server's metrics exist only once the node runs; syncs before that are not counted.
    let metrics: Arc<OnceLock<Arc<hustings_server::Metrics>>> = Arc::default();
    let heard = metrics.clone();
    config.on_sync = Arc::new(move |took| {
        if let Some(metrics) = heard.get() {
            metrics.on_fsync(took);
        }
    });
    let tape = (plan.ring_bytes > 0).then(Tape::new);
    config.recording = tape.clone().map(|tape| RecordingConfig {
        tape,
        bytes_max: plan.ring_bytes,
        options: plan.protocol_options.clone(),
        build: format!("hustings {}", env!("CARGO_PKG_VERSION")),
        settings: plan.settings.clone(),
    });
    let (protocol, protocol_options) = (plan.protocol.clone(), plan.protocol_options.clone());
    let node = tokio::task::spawn_blocking(move || protocols::start(&protocol, &protocol_options, config)).await??;
    drop(start);
    let handle = node.handle.clone();
    tracing::info!(
        node = plan.member.name,
        // As `member list` shows it, and `member remove` takes it.
        id = format!("{:x}", node.me.0),
        cluster = %handle.status().cluster_id,
        protocol = plan.protocol,
        data_dir = %plan.data_dir.display(),
        peers = ?node.peer_addresses,
        clients = ?plan.member.client_urls,
        "serving"
    );
    if node.torn_bytes > 0 {
        tracing::warn!(bytes = node.torn_bytes, "dropped an unfinished record at the end of the log");
    }
    let options = ServerOptions::default();
    let connections_max = descriptors::connections_max(descriptors, options.connections_max);
    if connections_max < options.connections_max {
        tracing::warn!(
            descriptors,
            connections_max,
            "few open files are allowed (ulimit -n): further clients wait until others have left"
        );
    }
    let options = ServerOptions {
        has_cluster_secret: plan.secret_file.is_some(),
        auth_token_ttl: plan.auth_token_ttl,
        jwt: plan.jwt.clone(),
        bcrypt_cost: plan.bcrypt_cost,
        quota_backend_bytes: plan.quota_bytes,
        memory_limit_bytes: plan.memory_limit_bytes,
        max_request_bytes: plan.request_bytes_max,
        timing: plan.timing,
        max_txn_ops: plan.txn_operations_max,
        streams_per_connection_max: plan.streams_max,
        keep_alive_interval: plan.probe_interval,
        keep_alive_timeout: plan.probe_timeout,
        progress_notify_interval: plan.progress_interval,
        compaction: plan.compaction,
        origins: plan.origins.clone(),
        hosts: plan.hosts.clone(),
        connections_max,
        slow_after: plan.slow_after,
        has_histograms_of_calls: plan.has_histograms_of_calls,
        data_dir: Some(plan.data_dir.clone()),
        connector: asking(&plan),
        workbench: std::env::var_os(WORKBENCH).map(PathBuf::from),
        ..options
    };
    let server = Server::new(handle.clone(), options).with_metrics_on(metrics_ports);
    let _ = metrics.set(server.metrics());
    server.metrics().tell_of_peers(node.counters.clone());
    let dials_as_another = plan.tls.dials_as_another();
    server.metrics().tell_of_expiries(Box::new(move || {
        let of_port = |port: Option<&Acceptor>| port.map(Acceptor::expiries).unwrap_or_default();
        let mut dialling = peer_connector.as_ref().map(Connector::expiries).unwrap_or_default();
        // Of the port all is told that both have in common.
        dialling.retain(|expiry| peer_acceptor.is_none() || (expiry.of == "peer-client" && dials_as_another));
        [of_port(client_tls.as_ref().or(metrics_tls.as_ref())), of_port(peer_acceptor.as_ref()), dialling].concat()
    }));
    // A supervisor that hears that this member is ready may stop it at once.
    let signals = Signals::listen()?;
    tokio::spawn(say_when_ready(handle.clone()));
    tokio::spawn(time_elections(handle.clone(), server.metrics()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve_boxed(
        ports,
        Box::pin(async {
            // An error means that this function has ended, and the server with it.
            let _ = stopped.await;
        }),
    ));
    let mut signals = wait_for_stop(signals, exits_with_parent.then(|| node.counters.clone())).await;
    if let Some(tape) = &tape {
        tape.mark(Mark::Stopping);
    }
    // A second signal ends the process at once.
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(1);
    });
    shut_down(handle, stop, serving, &plan).await;
    Ok(())
}

/// TLS for the client ports of other members, which the dashboard alone asks: a member serves without it.
fn asking(plan: &Plan) -> Option<Connector> {
    let connector = Connector::new(plan.tls.ask.clone()?);
    connector.inspect_err(|error| tracing::warn!("{}", TlsPlan::cannot_ask(error))).ok()
}

/// Listens on all of these; the error names what cannot be served and which setting to change.
async fn listen(
    addresses: &[(SocketAddr, bool)],
    tls: Option<&Acceptor>,
    whom: &str,
    setting: &str,
) -> Result<Vec<Port>> {
    let mut ports = Vec::new();
    for (address, is_tls) in addresses {
        if *is_tls && tls.is_none() {
            bail!("{setting}: https://{address} is asked for, and there is no certificate");
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!("cannot listen for {whom} on {address}: is another process there? choose others with --{setting}")
        })?;
        ports.push(Port { listener, tls: tls.cloned().filter(|_| *is_tls), names_users: false });
    }
    Ok(ports)
}

/// Feeds the metrics with how long this member's elections took, from the first question to leadership.
async fn time_elections(handle: Handle<KvStore>, metrics: Arc<hustings_server::Metrics>) {
    let mut happenings = handle.happenings();
    let (mut begun, mut has_missed) = (None, false);
    loop {
        let happening = match happenings.recv().await {
            Ok(happening) => happening,
            Err(RecvError::Closed) => return,
            // What began an election may be among those that are missed: that one is not counted.
            Err(RecvError::Lagged(_)) => {
                (begun, has_missed) = (None, true);
                continue;
            }
        };
        match happening.transition.to {
            Role::PreCandidate | Role::Candidate => begun = begun.or(Some(happening.moment)),
            Role::Leader if happening.transition.from != Role::Leader => {
                let begun = begun.take();
                if !std::mem::take(&mut has_missed) {
                    metrics.on_election(begun.map_or(Duration::ZERO, |begun| happening.moment.duration_since(begun)));
                }
            }
            Role::Leader | Role::Synchronizing => {}
            Role::Follower => (begun, has_missed) = (None, false),
        }
    }
}

/// First leadership, then clients, then the disk.
async fn shut_down(
    handle: Handle<KvStore>,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
    plan: &Plan,
) {
    let grace = plan.grace;
    // Time for a hand-over that is asked for twice; where the whole cluster is stopped at once, nobody takes it.
    let hand_over = (*plan.timing.election().end() * 2).min(grace);
    let (is_alone, leads) = {
        let status = handle.status();
        (status.membership.all_voters().eq([status.me]), status.leader == Some(status.me))
    };
    match (is_alone, leads) {
        (true, _) => tracing::info!("stopping: this is the only voter, so nobody takes over"),
        (false, true) => tracing::info!("stopping: handing leadership over"),
        (false, false) => tracing::info!("stopping"),
    }
    let graceful = async {
        match tokio::time::timeout(hand_over, handle.admin(Admin::Resign)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) if is_alone => {}
            Ok(Err(error)) => tracing::info!("leadership was not handed over: {error}"),
            Err(_) => tracing::info!("leadership was not handed over: nobody took it within {hand_over:?}"),
        }
        let _ = stop.send(());
        if let Err(error) = serving.await {
            tracing::warn!("the client server ended: {error}");
        }
    };
    if tokio::time::timeout(grace, graceful).await.is_err() {
        tracing::warn!("still busy after {grace:?}: stopping anyway");
    }
    // A disk that is full or does not answer holds the log's thread: nothing that waits for it was acknowledged.
    if tokio::time::timeout(grace, handle.stop()).await.is_err() {
        tracing::warn!("the disk did not answer within {grace:?}: ending without it");
    }
}

/// The signals that end a member. None ends it at once from the moment on at which it listens.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        Ok(Signals { terminate, interrupt })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal; or, with counters, for the end of the parent, whose words are obeyed until then: `cut` and `heal`.
async fn wait_for_stop(mut signals: Signals, parent: Option<Arc<Counters>>) -> Signals {
    let orphaned = async {
        if let Some(counters) = parent {
            // A thread of its own and not the runtime's: the runtime would wait for it at the end, and the parent, which
            // holds the pipe open, waits for that end.
            let (ended, end) = tokio::sync::oneshot::channel::<()>();
            std::thread::spawn(move || {
                // Whether it ends or breaks: the parent is gone.
                for word in std::io::stdin().lock().lines().map_while(Result::ok) {
                    match word.as_str() {
                        "cut" => counters.cut.set(true),
                        "heal" => counters.cut.set(false),
                        _ => {}
                    }
                }
                drop(ended);
            });
            let _ = end.await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = signals.next() => {}
        () = orphaned => {}
    }
    signals
}

/// Refuses the directory of one founder to another one: an operator who exchanges two is told before anything is said in a wrong name. A
/// name that no other founder has may be a new one.
fn check_name(plan: &Plan, founding: &Membership, me: NodeId) -> Result<()> {
    let Some(founder) = founding.members.get(&me).filter(|founder| founder.name != plan.member.name) else {
        return Ok(());
    };
    if founding.members.values().all(|other| other.name != plan.member.name) {
        return Ok(());
    }
    let (found, configured) = (founder.name.clone(), plan.member.name.clone());
    Err(WalError::Foreign { directory: plan.data_dir.display().to_string(), what: "member", found, configured }.into())
}

/// Refuses to begin under other URLs than those that the other founders are told, as etcd does: they would look for this member elsewhere.
fn check_urls(plan: &Plan) -> Result<()> {
    let Some(listed) = plan.founders.iter().find(|founder| founder.name == plan.member.name) else { return Ok(()) };
    if are_same(&plan.member.peer_urls, &listed.peer_urls) {
        return Ok(());
    }
    bail!(
        "--initial-cluster says that {:?} is at {}, and --initial-advertise-peer-urls that it is at {}: give both the same",
        plan.member.name,
        listed.peer_urls.join(","),
        plan.member.peer_urls.join(",")
    )
}

/// This member as it describes itself to others, on a directory that it has begun. The URLs that it was founded with are no news: others
/// may know better ones since (`member update`). A member that joined leaves its URLs to `member update`, and nobody tells a wildcard.
fn as_known(plan: &Plan, founding: &Membership, me: NodeId) -> Member {
    let is_wild = plan.advertised.iter().any(|url| is_wildcard(url));
    let is_news = |founder: &Member| !is_wild && !are_same(&plan.advertised, &founder.peer_urls);
    let peer_urls = if founding.members.get(&me).is_some_and(is_news) { plan.advertised.clone() } else { Vec::new() };
    Member { peer_urls, ..plan.member.clone() }
}

/// Tells systemd, or another owner of `NOTIFY_SOCKET`, once there is a leader: as etcd does, whose unit has `Type=notify`.
async fn say_when_ready(handle: Handle<KvStore>) {
    let mut status = handle.status_changes();
    if status.wait_for(|status| status.leader.is_some()).await.is_ok()
        && let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready])
    {
        tracing::warn!(%error, "the process that started this one cannot be told that it is ready: look at NOTIFY_SOCKET");
    }
}

/// A directory that etcd wrote is not one to begin an empty cluster in.
fn refuse_data_of_etcd(data_dir: &Path) -> Result<()> {
    let is_etcds = data_dir.join("member/wal").exists() || data_dir.join("member/snap").exists();
    if !is_etcds {
        return Ok(());
    }
    bail!(
        "{} holds the data of an etcd, in which nothing is begun: give another --data-dir, made by `hustings snapshot \
         restore` from a snapshot of that etcd; docs/coming-from-etcd.md has the ways over",
        data_dir.display()
    )
}

/// Names of directories in this one that hold members, in order.
pub(crate) fn members_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let holds_member = |entry: &std::fs::DirEntry| entry.path().is_dir() && is_begun(&entry.path());
    let names = entries.filter(holds_member).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Whether a directory has the log of a member.
pub(crate) fn is_begun(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.into_iter().any(|name| name.starts_with("wal-") && name.ends_with(".seg"))
}

/// A directory of members' directories is not one to begin another cluster in, beside their data.
fn refuse_directory_of_members(data_dir: &Path) -> Result<()> {
    let members = members_in(data_dir);
    let Some(first) = members.first().filter(|_| !is_begun(data_dir)) else { return Ok(()) };
    bail!(
        "--data-dir {} is no data directory, and holds those of members: {}. Did you mean {}?",
        data_dir.display(),
        members.join(", "),
        data_dir.join(first).display()
    )
}

/// Warns of a directory that is not this member's alone, such as `/etc`: what is begun there stands among the files of others.
fn warn_of_others(data_dir: &Path) {
    // A member's own files: what is wrong with them is said where they are read.
    if is_begun(data_dir) {
        return;
    }
    // A disk's own, and what an operator hides.
    let is_usual = |name: &str| name == "lost+found" || name.starts_with('.');
    let entries = std::fs::read_dir(data_dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !is_usual(name));
    names.sort();
    if let Some(first) = names.first() {
        tracing::warn!(
            "a member begins in {}, which holds {first:?} and {} more: a data directory is best a member's alone",
            data_dir.display(),
            names.len() - 1
        );
    }
}

/// The configuration of this node: its data directory knows its identity, else the founding members, else those it joins.
async fn node_config(plan: &Plan) -> Result<NodeConfig> {
    refuse_data_of_etcd(&plan.data_dir)?;
    let known = hustings_wal::peek(&plan.data_dir)?;
    if known.is_none() {
        refuse_directory_of_members(&plan.data_dir)?;
        warn_of_others(&plan.data_dir);
    }
    let secret = plan.secret_file.as_deref().map(ClusterSecret::read).transpose()?;
    let tls = PeerTls {
        acceptor: plan.tls.peer.clone().map(Acceptor::new).transpose()?,
        connector: plan.tls.dial.clone().map(Connector::new).transpose()?,
        binds_identity: plan.tls.binds_identity,
    };
    let must_show = plan.tls.peer.as_ref().is_some_and(|peer| peer.trusted_ca.is_some());
    if secret.is_none() && !must_show {
        tracing::warn!(
            "no cluster secret and no certificates of peers: anyone who reaches {:?} can pretend to be a member and change the cluster's data; give all members the same --cluster-secret-file, or certificates with --peer-trusted-ca-file",
            plan.peer_listen
        );
    }
    let mut config = if let Some(known) = known {
        let (cluster_id, me) = (known.identity.cluster_id, known.identity.node);
        check_name(plan, &known.founding, me)?;
        let (hints, member) = (known.founding.clone(), as_known(plan, &known.founding, me));
        NodeConfig::joining(cluster_id, me, member, known.founding, hints, &plan.data_dir)
    } else if plan.is_joining {
        check_urls(plan)?;
        let urls: Vec<String> = plan.founders.iter().flat_map(|founder| founder.peer_urls.clone()).collect();
        let welcome = hustings_node::discover(
            &urls,
            &plan.member,
            &plan.identity,
            KvStore::VERSION_MAX,
            secret.as_ref(),
            tls.connector.as_ref(),
        )
        .await
        .context("cannot join: add this member first, and name the others in --initial-cluster")?;
        tracing::info!(node = plan.member.name, id = %welcome.you, cluster = %welcome.cluster_id, "joining");
        let (founding, hints) = (welcome.founding, welcome.membership);
        let member = Member { is_witness: hints.is_witness(welcome.you), ..plan.member.clone() };
        NodeConfig::joining(welcome.cluster_id, welcome.you, member, founding, hints, &plan.data_dir)
    } else {
        check_urls(plan)?;
        let founding = Membership::founded_by(plan.founders.iter().cloned());
        let me = founding.members.iter().find(|(_, member)| member.name == plan.member.name).map(|(id, _)| *id);
        let me: NodeId = me.expect("the settings were checked: this member is a founder");
        let cluster_id = cluster_id_of(&plan.token, &founding);
        NodeConfig { member: plan.member.clone(), ..NodeConfig::new(cluster_id, me, founding, &plan.data_dir) }
    };
    config.secret = secret;
    config.tls = tls;
    config.peer_listen = plan.peer_listen.clone();
    config.timing = plan.timing;
    config.timing_mode = plan.timing_mode.clone();
    config.priority = plan.priority;
    config.compare_states_every = plan.compare_states_every;
    config.version_max = plan.version_max;
    let log_bytes_max = (plan.memory_limit_bytes / LOG_PART_OF_MEMORY_LIMIT).max(Policy::default().bytes_max);
    config.policy = Policy { entries_max: plan.snapshot_count, log_bytes_max, ..Policy::default() };
    config.frame_bytes_max = config.frame_bytes_max.max(plan.request_bytes_max * 4);
    config.on_fatal = Arc::new(|why| {
        tracing::error!("fatal: {why}");
        let why = why.to_owned();
        hustings_console::last_words(move || {
            logging::finish();
            logging::say(format_args!("fatal: {why}"));
        });
        std::process::exit(1);
    });
    // As etcd ends: nothing failed, and a supervisor must not start it again.
    config.on_removed = Arc::new(|why| {
        tracing::warn!("ending: {why}");
        let why = why.to_owned();
        let end = move || {
            hustings_console::last_words(move || logging::say(format_args!("{why}")));
            // The client that asked this member for its own removal has to hear of it; etcd waits a second.
            std::thread::sleep(LAST_ANSWERS);
            hustings_console::last_words(logging::finish);
            std::process::exit(0);
        };
        if std::thread::Builder::new().spawn(end).is_err() {
            std::process::exit(0);
        }
    });
    Ok(config)
}

/// Derives the cluster's id from what all founders were given: the token, the names and the peer URLs, in whatever order. Clusters at
/// other addresses are other clusters, as at etcd.
pub(crate) fn cluster_id_of(token: &str, founding: &Membership) -> ClusterId {
    let mut hash = Sha256::new();
    hash.update(token.as_bytes());
    for member in founding.members.values() {
        hash.update([0]);
        hash.update(member.name.as_bytes());
        let urls: BTreeSet<String> = member.peer_urls.iter().map(|url| url.to_lowercase()).collect();
        for url in urls {
            hash.update([1]);
            hash.update(url.as_bytes());
        }
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    // Never zero, which means "unknown" on the wire, and positive for clients that read it as signed.
    ClusterId(u64::from_be_bytes(first) >> 1 | 1)
}
