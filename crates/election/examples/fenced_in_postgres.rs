//! A service with three replicas of which one works, and whose work no replica of the past can touch. The election and the
//! work are in PostgreSQL, with nothing else beside it. Start it three times, each with a name of its own, and kill or stop
//! (`kill -STOP`) the one that works:
//!
//! ```sh
//! cargo run -p hustings-election --example fenced_in_postgres -- postgres://me@127.0.0.1/shop/billing a
//! ```
//!
//! What to copy: [`open_the_gate`] when a replica takes office, and the `WHERE` of [`bill_one`] in every write.

use hustings_election::{Election, Lead, Named, StoreAddress};
use std::error::Error;
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

/// The service's own table: each row that leaders write has the token of its last writer.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS invoices (id bigint PRIMARY KEY, sent bigint NOT NULL, \
fence_generation bigint NOT NULL DEFAULT 0, fence_number bigint NOT NULL DEFAULT 0); \
INSERT INTO invoices (id, sent) VALUES (1, 0) ON CONFLICT DO NOTHING";

/// A write with a token: it is done, unless a later leader has written, or taken office.
const BILL_ONE: &str = "\
UPDATE invoices SET sent = sent + 1, fence_generation = $1, fence_number = $2 \
WHERE id = 1 AND (fence_generation, fence_number) <= ($1, $2)";

/// The first thing that a leader does, before it reads: from here on every earlier token is refused.
const OPEN_THE_GATE: &str = "\
UPDATE invoices SET fence_generation = $1, fence_number = $2 \
WHERE (fence_generation, fence_number) <= ($1, $2)";

/// The error for a leader that has been replaced, whatever it believes: a later one was here.
#[derive(Debug)]
pub struct Fenced;

/// Executes a statement with a token; false if it changed no row.
async fn with_token(client: &Client, statement: &str, generation: u32, number: u64) -> Result<bool, Box<dyn Error>> {
    let (generation, number) = (i64::from(generation), i64::try_from(number)?);
    let statement = client.prepare_typed(statement, &[Type::INT8, Type::INT8]).await?;
    Ok(client.execute(&statement, &[&generation, &number]).await? > 0)
}

/// Takes office: raise the gate, then read, then act.
pub async fn open_the_gate(
    client: &Client,
    generation: u32,
    number: u64,
) -> Result<Result<(), Fenced>, Box<dyn Error>> {
    Ok(with_token(client, OPEN_THE_GATE, generation, number).await?.then_some(()).ok_or(Fenced))
}

/// One piece of work: the check of the token and the effect are one step.
pub async fn bill_one(client: &Client, generation: u32, number: u64) -> Result<Result<(), Fenced>, Box<dyn Error>> {
    Ok(with_token(client, BILL_ONE, generation, number).await?.then_some(()).ok_or(Fenced))
}

/// Work that only the leader does: it cannot be called without the proof.
async fn work(lead: Lead<'_>, client: &Client) -> Result<(), Box<dyn Error>> {
    let token = lead.token();
    if open_the_gate(client, token.generation, token.number).await?.is_err() {
        println!("a later leader was here already");
        return Ok(());
    }
    loop {
        match bill_one(client, token.generation, token.number).await? {
            Ok(()) => println!("billed, with {lead}"),
            Err(Fenced) => break,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    println!("refused: a later leader has written");
    Ok(())
}

/// The service's own connection, to the database in which the election is.
pub async fn connect(url: &str) -> Result<Client, Box<dyn Error>> {
    let (address, _) = StoreAddress::parse(url)?;
    let mut config = tokio_postgres::Config::new();
    for endpoint in &address.endpoints {
        let (host, port) = endpoint.rsplit_once(':').ok_or("every endpoint has a port")?;
        config.host(host).port(port.parse()?);
    }
    let (user, password) = address.user.ok_or("the URL names no user: postgres://USER@HOST/DATABASE/ELECTION")?;
    config.user(user).dbname(address.place.ok_or("the URL names no database")?);
    if let Some(password) = password.map(|secret| secret.0).or_else(|| std::env::var("PGPASSWORD").ok()) {
        config.password(password);
    }
    // Of several servers the primary.
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Waits until this process is told to end: at a terminal by Ctrl-C, by systemd and Kubernetes with SIGTERM.
async fn told_to_end() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fenced_in_postgres postgres://USER@HOST/DATABASE/ELECTION NAME".into());
    };
    connect(&url).await?.batch_execute(SCHEMA).await?;
    let election = Election::open(&url)?;
    let office = election.candidate(Named::new(&name));
    let service = async {
        loop {
            println!("{name} stands for election");
            let leadership = office.campaign().await?;
            // A connection per tenure: the server that it led to may be gone.
            let client = connect(&url).await?;
            // Dropped when all must have ended; the election is released after that, never before.
            let ended = leadership.run(async |lead| work(lead, &client).await.map_err(|error| error.to_string())).await;
            println!("{name} leads no more: {ended:?}");
        }
    };
    tokio::select! {
        failed = service => failed,
        told = told_to_end() => {
            told?;
            // What was led is dropped, and released: without this a successor would wait until the lease ends.
            election.close().await;
            Ok(())
        }
    }
}
