//! Three nodes in one process, with a state machine of one's own: a bank whose accounts survive the death of a leader.
//!
//! ```text
//! cargo run -p hustings-node --example three_nodes
//! ```
//!
//! The part that an embedding application writes is above the line "The story": a deterministic [`Bank`], its commands,
//! its snapshots. Everything else is the story: a node is started per member, money is moved through every node, an
//! account is read linearizably, the leader is stopped and started again, and the money is counted at the end. Read next:
//! `hustings_node::Handle`, whose methods are all that is called here.

use bytes::{Buf, Bytes, BytesMut};
use hustings_core::{ClusterId, Lsn, Member, Membership, NodeId, SnapshotError, StateMachine};
use hustings_node::{Handle, Node, NodeConfig};
use hustings_raft::{Options, Raft};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

// --- The commands. -----------------------------------------------------------------------------------------------

/// A client's request to the bank. How it is written down is the application's own business; here it is a line of text.
enum Command {
    Deposit { account: String, amount: u64 },
    Transfer { from: String, to: String, amount: u64 },
}

impl Command {
    fn to_payload(&self) -> Bytes {
        Bytes::from(match self {
            Command::Deposit { account, amount } => format!("deposit {account} {amount}"),
            Command::Transfer { from, to, amount } => format!("transfer {from} {to} {amount}"),
        })
    }

    /// Reads a command; `None` for anything else: the log holds whatever was proposed.
    fn from_payload(payload: &[u8]) -> Option<Command> {
        let words: Vec<&str> = std::str::from_utf8(payload).ok()?.split(' ').collect();
        match words[..] {
            ["deposit", account, amount] => {
                Some(Command::Deposit { account: account.into(), amount: amount.parse().ok()? })
            }
            ["transfer", from, to, amount] => {
                Some(Command::Transfer { from: from.into(), to: to.into(), amount: amount.parse().ok()? })
            }
            _ => None,
        }
    }
}

// --- The state machine. ------------------------------------------------------------------------------------------

/// Accounts and what is on them. Ordered, because equal runs must give equal states on every node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Bank {
    /// Shared with the views that readers and snapshots hold: taking a view copies a pointer, and only the first change
    /// after it copies the map.
    accounts: Arc<BTreeMap<String, u64>>,
    /// The log's clock: the same on every node, unlike any clock of a machine.
    age: Duration,
}

/// The bank's answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Receipt {
    /// The balance of the account that gave (or got) the money.
    Balance(u64),
    /// There is not enough, or the account is full; nothing was moved.
    Declined,
    /// The payload is no command; nothing was changed.
    NotUnderstood,
}

impl StateMachine for Bank {
    type Response = Receipt;
    type View = Bank;

    fn advance(&mut self, elapsed: Duration) {
        self.age = self.age.saturating_add(elapsed);
    }

    /// Deterministic, and never a panic: a command that cannot be carried out is answered, on every node alike.
    fn apply(&mut self, _lsn: Lsn, payload: &Bytes) -> Receipt {
        let Some(command) = Command::from_payload(payload) else { return Receipt::NotUnderstood };
        match command {
            Command::Deposit { account, amount } => self.deposit(account, amount),
            Command::Transfer { from, to, amount } => self.transfer(&from, to, amount),
        }
    }

    fn freeze(&self) -> Bank {
        self.clone()
    }

    /// This bank lends nothing, so nothing ever falls due. One that grants leases says here when the next one ends, and
    /// the leader lets the log's clock advance even when no client says anything.
    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    /// Called off the node's loop, so it may take its time; chunks keep a large state from being in memory twice.
    fn encode(view: &Bank, sink: &mut dyn FnMut(Bytes)) {
        let micros = u64::try_from(view.age.as_micros()).unwrap_or(u64::MAX);
        sink(Bytes::copy_from_slice(&micros.to_le_bytes()));
        sink(Bytes::copy_from_slice(&(view.accounts.len() as u64).to_le_bytes()));
        for (account, balance) in view.accounts.iter() {
            let mut line = BytesMut::new();
            line.extend_from_slice(&(account.len() as u64).to_le_bytes());
            line.extend_from_slice(account.as_bytes());
            line.extend_from_slice(&balance.to_le_bytes());
            sink(line.freeze());
        }
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Bank, SnapshotError> {
        let length = snapshot.remaining();
        let wrong = |rest: usize, what: &str| SnapshotError { what: format!("{what} at byte {}", length - rest) };
        let number = |snapshot: &mut dyn Buf| {
            let rest = snapshot.remaining();
            snapshot.try_get_u64_le().map_err(|_| wrong(rest, "a number is cut off"))
        };
        let age = Duration::from_micros(number(snapshot)?);
        let mut accounts = BTreeMap::new();
        for _ in 0..number(snapshot)? {
            let characters = usize::try_from(number(snapshot)?).unwrap_or(usize::MAX);
            let rest = snapshot.remaining();
            // Checked before anything is allocated: the length may be rot.
            if characters > rest {
                return Err(wrong(rest, "an account's name is cut off"));
            }
            let name = snapshot.copy_to_bytes(characters).to_vec();
            let name = String::from_utf8(name).map_err(|_| wrong(rest, "an account's name is not text"))?;
            accounts.insert(name, number(snapshot)?);
        }
        Ok(Bank { accounts: Arc::new(accounts), age })
    }
}

impl Bank {
    fn deposit(&mut self, account: String, amount: u64) -> Receipt {
        let balance = Arc::make_mut(&mut self.accounts).entry(account).or_default();
        match balance.checked_add(amount) {
            Some(more) => {
                *balance = more;
                Receipt::Balance(more)
            }
            None => Receipt::Declined,
        }
    }

    fn transfer(&mut self, from: &str, to: String, amount: u64) -> Receipt {
        let balance_of = |account: &str| self.accounts.get(account).copied().unwrap_or_default();
        let (Some(left), Some(more)) = (balance_of(from).checked_sub(amount), balance_of(&to).checked_add(amount))
        else {
            return Receipt::Declined;
        };
        if from == to {
            return Receipt::Balance(balance_of(from));
        }
        let accounts = Arc::make_mut(&mut self.accounts);
        accounts.insert(from.into(), left);
        accounts.insert(to, more);
        Receipt::Balance(left)
    }

    fn total(&self) -> u64 {
        self.accounts.values().sum()
    }
}

// --- The story. --------------------------------------------------------------------------------------------------

/// Ports that are free now. A real deployment configures them.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    // All are held until all are known, so that no port is given out twice.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// Starts (or starts again) one member. The data directory remembers everything else.
fn start(
    id: NodeId,
    founding: &Membership,
    address: SocketAddr,
    directory: &Path,
) -> Result<Node<Bank>, Box<dyn Error>> {
    // Only nodes of the same cluster id talk to each other; any number will do, if it is everybody's.
    let mut config = NodeConfig::new(ClusterId(0xBA2C), id, founding.clone(), directory.join(id.to_string()));
    config.peer_listen = vec![address];
    let node = hustings_node::start::<Raft, Bank>(config, Options::default(), Bank::default())?;
    // The protocol's log: every change of role, term or leader, and why.
    let mut happenings = node.handle.happenings();
    tokio::spawn(async move {
        while let Ok(happening) = happenings.recv().await {
            println!("    {}", happening.transition);
        }
    });
    Ok(node)
}

/// Waits until this node follows a leader other than `not`, or leads.
async fn wait_for_leader(handle: &Handle<Bank>, not: Option<NodeId>) -> Result<NodeId, Box<dyn Error>> {
    let mut status = handle.status_changes();
    let known = status.wait_for(|status| status.leader.is_some() && status.leader != not).await?;
    known.leader.ok_or_else(|| "the status that was waited for has a leader".into())
}

async fn propose(handle: &Handle<Bank>, command: Command) -> Result<Receipt, Box<dyn Error>> {
    // A proposal waits as long as it takes; an application says how long that may be.
    let applied = tokio::time::timeout(Duration::from_secs(10), handle.propose(command.to_payload())).await??;
    Ok(applied.response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let addresses = free_addresses(3)?;
    // Everybody must be told the same founders; ids are given in the order of names.
    let founding = Membership::founded_by(["ada", "bob", "cyd"].iter().zip(&addresses).map(|(name, address)| Member {
        name: (*name).into(),
        peer_urls: vec![format!("http://{address}")],
        ..Member::default()
    }));
    let start = |id: NodeId| start(id, &founding, addresses[id.0 as usize - 1], directory.path());

    println!("three nodes start and elect a leader");
    let mut nodes = BTreeMap::new();
    for id in founding.voters.iter().copied() {
        nodes.insert(id, start(id)?.handle);
    }

    println!("every node takes deposits, no matter which one leads");
    for (id, handle) in &nodes {
        let receipt = propose(handle, Command::Deposit { account: founding.name_of(*id), amount: 100 }).await?;
        assert_eq!(receipt, Receipt::Balance(100));
    }
    let handle = &nodes[&NodeId(2)];
    let overdraft = Command::Transfer { from: "ada".into(), to: "bob".into(), amount: 1_000 };
    assert_eq!(propose(handle, overdraft).await?, Receipt::Declined, "a refusal of the state machine is an answer too");

    let leader = wait_for_leader(handle, None).await?;
    println!("the leader, {leader}, is stopped; the others go on");
    let stopped = nodes.remove(&leader).ok_or("the leader is one of the three")?;
    stopped.stop().await;
    let survivor = nodes.values().next().ok_or("two nodes are left")?;
    // Whether or not a new leader is known already: the proposal waits for it, and is applied once.
    let moved = Command::Transfer { from: "ada".into(), to: "bob".into(), amount: 30 };
    assert_eq!(propose(survivor, moved).await?, Receipt::Balance(70));
    let successor = wait_for_leader(survivor, Some(leader)).await?;

    println!("it is started again on its directory, follows {successor} and catches up");
    nodes.insert(leader, start(leader)?.handle);
    let returned = &nodes[&leader];
    // Linearizable wherever it is asked: the view holds everything that was acknowledged anywhere before the question.
    let bank = returned.read().await?.view;
    println!("{leader} reads {:?} when the log is {:?} old", bank.accounts, bank.age);
    assert_eq!((bank.accounts["ada"], bank.accounts["bob"], bank.total()), (70, 130, 300), "no money was lost or made");

    println!("all stop");
    for handle in nodes.values() {
        handle.stop().await;
    }
    Ok(())
}
