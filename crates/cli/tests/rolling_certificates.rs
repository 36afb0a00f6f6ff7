//! Goal: a cluster changes its CA, and all certificates with it, while it serves: no request fails after one retry. Method: three real
//! members and clients that all show certificates; a file with both CAs, then new certificates, then the new CA alone, with a member
//! restarted after each step, so that links between old and new come about; and at the end the old CA is worth nothing.

use crate::support::{HUSTINGS, Running, http, text};
use crate::town::Town;
use hustings_api::Client;
use hustings_api::client::{Options, tls};
use hustings_testbed::{free_port, free_ports, get, put, wait_for};
use hustings_tls::made::{Authority, Subject};
use hustings_tls::{Connector, Identity, Pair, Trust};
use rustix::process::Signal;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const NAMES: [&str; 3] = ["db-a", "db-b", "db-c"];
/// Line of a member that has taken up new files: for clients, for peers that dial it, and for those that it dials.
const TAKEN_UP: &str = "certificates were replaced: new connections use the new ones";
const PORTS_OF_TLS: usize = 3;

/// A town whose CA is to be replaced, and its members.
struct Changing {
    town: Town,
    base: u16,
    new: Authority,
}

impl std::ops::Deref for Changing {
    type Target = Town;

    fn deref(&self) -> &Town {
        &self.town
    }
}

impl Changing {
    fn found() -> Changing {
        let base = free_ports(6).expect("six ports in a row are free");
        let changing =
            Changing { town: Town::with("the old CA"), base, new: Authority::new("the new CA").expect("made") };
        changing.trust(&[&changing.authority]);
        for name in NAMES.into_iter().chain(["client"]) {
            changing.renew(&changing.authority, name, "");
        }
        changing
    }

    /// Sets the authorities that all believe from now on.
    fn trust(&self, authorities: &[&Authority]) {
        let text = authorities.iter().map(|authority| {
            let path = authority.write_certificate(&self.path("")).expect("written");
            std::fs::read_to_string(path).expect("it was written")
        });
        std::fs::write(self.path("trust.new"), text.collect::<String>()).expect("written");
        std::fs::rename(self.path("trust.new"), self.path("trust.crt")).expect("renamed");
    }

    /// A new certificate in the place of the one before; its common name ends so.
    fn renew(&self, authority: &Authority, name: &str, end: &str) {
        let subject = Subject::new(&format!("{name}{end}")).host(name).address([127, 0, 0, 1]);
        self.issue_by(authority, name, &subject);
    }

    fn url(&self, position: usize, is_peer: bool) -> String {
        let offset = u16::try_from(position).expect("three") * 2 + u16::from(is_peer);
        format!("https://127.0.0.1:{}", self.base + offset)
    }

    fn endpoints(&self) -> Vec<String> {
        (0..NAMES.len()).map(|position| self.url(position, false)).collect()
    }

    fn start(&self, position: usize) -> Running {
        self.start_with(position, &[])
    }

    fn start_with(&self, position: usize, flags: &[&str]) -> Running {
        let (name, client, peer) = (NAMES[position], self.url(position, false), self.url(position, true));
        let all = NAMES.iter().enumerate().map(|(position, name)| format!("{name}={}", self.url(position, true)));
        let mut command = Command::new(HUSTINGS);
        command.args(["serve", "--name", name, "--log-format", "human", "--log-outputs", "stdout"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-cluster", &all.collect::<Vec<_>>().join(",")]);
        command.arg("--data-dir").arg(self.path(&format!("{name}.data")));
        for side in ["", "peer-"] {
            command.arg(format!("--{side}cert-file")).arg(self.path(&format!("{name}.crt")));
            command.arg(format!("--{side}key-file")).arg(self.path(&format!("{name}.key")));
            command.arg(format!("--{side}trusted-ca-file")).arg(self.path("trust.crt"));
        }
        Running::start(command.args(flags))
    }

    fn connector(&self, pair: Pair, trust: &str) -> Connector {
        tls(Trust::Authority(self.path(trust)), Some(Identity::Files(pair))).expect("its files are good")
    }

    fn own(&self) -> Pair {
        Pair { certificate: self.path("client.crt"), key: self.path("client.key") }
    }

    /// How the client connects, once a write of this key was acknowledged.
    async fn served(&self, key: &str) -> Options {
        let options = Options { tls: Some(self.connector(self.own(), "trust.crt")), ..Options::default() };
        wait_for("a cluster in TLS", async || {
            let client = Client::connect_with(&self.endpoints(), options.clone()).await.ok()?;
            put(&client, key, "value").await.ok()
        })
        .await
        .expect("it serves");
        options
    }

    /// Common name of the certificate that a new connection is shown at this port.
    async fn shown(&self, position: usize, is_peer: bool) -> String {
        let url = self.url(position, is_peer);
        let stream = TcpStream::connect(url.trim_start_matches("https://")).await.expect("it accepts");
        let (_, shown) =
            self.connector(self.own(), "trust.crt").connect("127.0.0.1", stream).await.expect("it speaks TLS");
        shown.expect("a member has one").common_name
    }

    /// Ends a member as an operator does, starts it again and waits until it serves.
    async fn restart(&self, members: &mut [Running], position: usize, options: &Options) {
        members[position].signal(Signal::TERM);
        assert_eq!(members[position].end(), Some(0));
        members[position] = self.start(position);
        self.is_one_of_three(position, options).await;
    }

    /// Waits until a member itself serves.
    async fn is_one_of_three(&self, position: usize, options: &Options) {
        let endpoint = [self.url(position, false)];
        wait_for("a member that serves", async || {
            let client = Client::connect_with(&endpoint, options.clone()).await.ok()?;
            get(&client, "steady").await.ok()
        })
        .await
        .expect("it is one of three");
    }
}

/// Results of the clients' requests.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    again: AtomicU64,
    failed: AtomicU64,
}

/// A client that writes: on one connection, or each time on a new one.
struct Writer {
    key: &'static str,
    is_steady: bool,
    endpoints: Vec<String>,
    options: Options,
    tries_max: u32,
}

impl Writer {
    /// Writes until told to stop.
    async fn run(self, counts: Arc<Counts>, is_over: Arc<AtomicBool>) {
        let mut client: Option<Client> = None;
        while !is_over.load(Ordering::Relaxed) {
            let number = counts.asked.fetch_add(1, Ordering::Relaxed);
            let mut outcome = Err("it was never tried".to_owned());
            for earlier in 0..self.tries_max {
                if earlier > 0 {
                    counts.again.fetch_add(1, Ordering::Relaxed);
                }
                outcome = self.write(&mut client, number, earlier).await;
                if outcome.is_ok() {
                    break;
                }
            }
            if let Err(why) = outcome {
                println!("{}: write {number} failed at each of {} tries: {why}", self.key, self.tries_max);
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Tries a write once, after so many earlier tries.
    async fn write(&self, client: &mut Option<Client>, number: u64, earlier: u32) -> Result<(), String> {
        match client {
            // On an error the old connection stays, and the write says what is wrong with it.
            Some(client) if self.is_steady && earlier > 0 => drop(client.move_on().await),
            Some(_) if self.is_steady => {}
            _ => {
                let connected = Client::connect_with(&self.endpoints, self.options.clone()).await;
                *client = Some(connected.map_err(|error| error.to_string())?);
            }
        }
        let client = client.as_ref().expect("it is connected");
        put(client, self.key, &number.to_string()).await.map(drop).map_err(|status| status.to_string())
    }
}

/// Eight writers: half of them on one connection each, half on a new one for each write.
struct Load {
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Each write is tried so often at most, at any endpoint of its writer.
    fn begin(endpoints_of: impl Fn(usize) -> Vec<String>, options: &Options, tries_max: u32) -> Load {
        let (counts, is_over) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let kinds = [("steady", true), ("new", false)].repeat(4);
        let writers = kinds.into_iter().enumerate().map(|(number, (key, is_steady))| {
            let (endpoints, options) = (endpoints_of(number / 2), options.clone());
            let writer = Writer { key, is_steady, endpoints, options, tries_max };
            tokio::spawn(writer.run(counts.clone(), is_over.clone()))
        });
        let writers = writers.collect();
        Load { counts, is_over, writers }
    }

    /// Waits until so many writes have begun.
    async fn has_begun(&self, writes: u64) {
        let is_there = async || (self.counts.asked.load(Ordering::Relaxed) > writes).then_some(());
        wait_for(&format!("{writes} writes"), is_there).await.expect("they go on");
    }

    /// Ends it; gives how many writes there were, were tried again, and failed.
    async fn end(self) -> (u64, u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("no writer panicked");
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.counts.asked), count(&self.counts.again), count(&self.counts.failed))
    }
}

fn taken_up(members: &mut [Running]) {
    for member in members {
        for _ in 0..PORTS_OF_TLS {
            member.line_with(TAKEN_UP);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_changes_its_ca_and_no_request_fails_after_one_retry() {
    let town = Changing::found();
    let mut members: Vec<Running> = (0..NAMES.len()).map(|position| town.start(position)).collect();
    let options = town.served("steady").await;
    let load = Load::begin(|_| town.endpoints(), &options, 2);

    // Both are believed. A client takes its files up as a member does, and says nothing of it.
    town.trust(&[&town.authority, &town.new]);
    taken_up(&mut members);
    town.restart(&mut members, 0, &options).await;
    // New certificates, one member after the other; one that has restarted speaks to those that have not.
    for position in 0..NAMES.len() {
        town.renew(&town.new, NAMES[position], " renewed");
        taken_up(&mut members[position..=position]);
        town.restart(&mut members, position, &options).await;
    }
    let old = Pair { certificate: town.path("retired.crt"), key: town.path("retired.key") };
    std::fs::copy(town.own().certificate, &old.certificate).expect("copied");
    std::fs::copy(town.own().key, &old.key).expect("copied");
    town.renew(&town.new, "client", " renewed");
    // The writers share one connector, which looks at its files each second; a look that has begun may have missed these.
    let connector = options.tls.clone().expect("it was given");
    let expiries = connector.expiries();
    wait_for("the clients' new certificate", async || (connector.expiries() != expiries).then_some(()))
        .await
        .expect("it is taken up");
    // The old CA goes, and nobody stands on it.
    town.trust(&[&town.new]);
    taken_up(&mut members);
    for position in 0..NAMES.len() {
        town.restart(&mut members, position, &options).await;
    }
    load.has_begun(1_000).await;
    let (asked, again, failed) = load.end().await;
    println!("{asked} writes, {again} tried again, {failed} failed after one retry");
    assert_eq!(failed, 0, "of {asked} writes, {again} of which were tried again");

    let retired = Options { tls: Some(town.connector(old, "trust.crt")), ..Options::default() };
    let refused = match Client::connect_with(&town.endpoints(), retired).await {
        Ok(client) => put(&client, "retired", "still here").await.err().map(|status| status.to_string()),
        Err(error) => Some(error.to_string()),
    };
    assert!(refused.is_some(), "a certificate of the old CA is worth nothing");
}

/// Goal: certificates are replaced under load, and no request fails. Method: as above, with one CA, no restart and no second try, each
/// writer with one member; the certificates and keys of all members are replaced twice while they write, for both ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load_and_no_request_fails() {
    let town = Changing::found();
    // On a slow machine no pause is taken for the leader's end: an election would refuse writes, and is not what this is about.
    let patient = ["--heartbeat-interval", "500", "--election-timeout", "5000"];
    let mut members: Vec<Running> = (0..NAMES.len()).map(|position| town.start_with(position, &patient)).collect();
    let options = town.served("steady").await;
    for position in 0..NAMES.len() {
        town.is_one_of_three(position, &options).await;
    }
    let load = Load::begin(|number| vec![town.url(number % NAMES.len(), false)], &options, 1);
    for (writes, end) in [(200, " second"), (500, " third")] {
        load.has_begun(writes).await;
        for name in NAMES {
            town.renew(&town.authority, name, end);
        }
        taken_up(&mut members);
        for (position, name) in NAMES.iter().enumerate() {
            for is_peer in [false, true] {
                assert_eq!(town.shown(position, is_peer).await, format!("{name}{end}"), "on each new connection");
            }
        }
    }
    load.has_begun(800).await;
    let (asked, _, failed) = load.end().await;
    println!("{asked} writes asked, {failed} failed, none tried again");
    assert_eq!(failed, 0, "of {asked} writes");
}

/// Goal: of those with a good certificate, a peer port lets in only the ones that it was told to. Method: three members whose certificates
/// have one common name, and one host, beside their own; any other that the CA signed for is turned away, and told to the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_port_admits_a_common_name_or_a_host_and_nobody_else() {
    for (flags, expected) in [
        (["--peer-cert-allowed-cn", "member"], "is not for the common name \"member\""),
        (["--peer-cert-allowed-hostname", "inner.example"], "is not for the host \"inner.example\""),
    ] {
        let town = Changing::found();
        for name in NAMES {
            let subject = Subject::new("member").host(name).host("inner.example").address([127, 0, 0, 1]);
            town.issue(name, &subject);
        }
        let stranger = Subject::new("stranger").host("outer.example").address([127, 0, 0, 1]);
        let stranger = town.issue("stranger", &stranger);
        let mut members: Vec<Running> = (0..NAMES.len()).map(|position| town.start_with(position, &flags)).collect();
        town.served("key").await;
        let connector = town.connector(stranger, "trust.crt");
        let port = town.url(0, true).rsplit(':').next().expect("a port").parse::<u16>().expect("a port");
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it accepts");
        // With TLS 1.3 the one who dials is done before it is judged.
        let _connected = connector.connect("127.0.0.1", stream).await;
        let line = members[0].line_with(expected);
        assert!(line.contains("its certificate, of \"stranger\""), "{line}");
    }
}

/// Goal: the end of each certificate that a member shows is told. Method: one that shows peers that it dials another certificate than its
/// port does, and one that shows them the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_certificate_for_dialling_is_told_where_it_is_another() {
    let town = Changing::found();
    let soon = Subject::new(NAMES[0]).host(NAMES[0]).address([127, 0, 0, 1]).days(5);
    let pair = town.issue("dials", &soon);
    let (certificate, key) = (text(&pair.certificate).to_owned(), text(&pair.key).to_owned());
    let flags = ["--peer-client-cert-file", &certificate, "--peer-client-key-file", &key];
    let metrics =
        [free_port().expect("a port"), free_port().expect("a port")].map(|port| format!("http://127.0.0.1:{port}"));
    let _first = town.start_with(0, &[&["--listen-metrics-urls", &metrics[0]][..], &flags].concat());
    let _second = town.start_with(1, &["--listen-metrics-urls", &metrics[1]]);
    town.served("key").await;
    let [first, second] = metrics.map(|url| http(&url, "GET", "/metrics", "").1);
    let ends = |text: &str, of: &str| {
        let series = format!("hustings_certificate_not_after_seconds{{of=\"{of}\"}} ");
        text.lines().filter_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok()).collect::<Vec<_>>()
    };
    let ([dials], [shows]) = (&ends(&first, "peer-client")[..], &ends(&first, "peer")[..]) else { panic!("{first}") };
    assert!(dials < shows, "it ends at {dials}, and that of the port at {shows}");
    assert_eq!((ends(&second, "peer-client").len(), ends(&second, "peer").len()), (0, 1));
}

/// Goal: a member whose certificate was revoked is no member any more. Method: a list that names one of three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_port_turns_a_revoked_certificate_away() {
    let town = Changing::found();
    let subject = Subject::new(NAMES[2]).host(NAMES[2]).address([127, 0, 0, 1]);
    let revoked = town.authority.issue(&subject).expect("issued");
    revoked.write(town.directory.path(), NAMES[2]).expect("written");
    let list = town.path("revoked.pem");
    town.authority.revoke(&[&revoked], &list).expect("written");
    let list = list.to_str().expect("paths here are text");
    let flags = ["--peer-crl-file", list, "--peer-client-cert-auth"];
    let mut members: Vec<Running> = (0..2).map(|position| town.start_with(position, &flags)).collect();
    // The one that was revoked knows nothing of it.
    let mut lost = town.start_with(2, &[]);
    // The two others are a majority.
    let options = town.served("key").await;
    for member in &mut members {
        member.line_with("Revoked");
    }
    assert_eq!(lost.child.try_wait().expect("it can be asked"), None, "it waits to be told better");
    let alone = Client::connect_with(&[town.url(2, false)], options).await.expect("its client port is open");
    let local =
        hustings_api::etcdserverpb::RangeRequest { key: "key".into(), serializable: true, ..Default::default() };
    let found = alone.kv().range(local).await.expect("it answers").into_inner();
    assert!(found.kvs.is_empty(), "nothing reaches it");
}
