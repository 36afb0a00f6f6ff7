//! The server over a store without a cluster or a disk: to try clients against, and to measure what the server itself
//! costs. `cargo run -p hustings-server --example alone -- 127.0.0.1:2379`

// The double is written for tests, where a failed lock ends the test; it ends this program as well.
#[allow(clippy::unwrap_used)]
#[path = "../tests/stories/support/mod.rs"]
mod support;

use hustings_server::{Server, ServerOptions};
use support::Double;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2379".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("serving on {address} until Ctrl-C");
    let server = Server::new(Double::new(), ServerOptions::default());
    server.serve(vec![listener], async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
