//! `hustings lab`: a page on which anybody breaks a cluster by clicking, and sees what its protocol makes of it.
//!
//! The page is served on this machine and asks nobody else. It shows the production code in virtual time, as `play` runs it, and
//! gives what one did there as a script that `play` takes.
//!
//! ```text
//!   page: header, actions with times ──script──► POST /v1/lab/play ──► World, judged at every step ──► the run as JSON
//!         ▲                                                                                                  │
//!         └── drawn, forward and back; what is clicked is one more action, and the run is played again ◄─────┘
//! ```
//!
//! It deliberately remembers nothing: the script is the state of a laboratory, and stands in the page's address.
//!
//! Read next: [`playing`].

pub(crate) mod playing;
mod port;
mod published;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Request;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use port::Laboratory;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The command line of `lab`.
pub fn command() -> Command {
    Command::new("lab")
        .about("Open a laboratory on this machine: a page on which clusters are broken by clicking")
        .after_help(
            "The page works without a network. What one did there can be copied as a script for `hustings play`.",
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .default_value("127.0.0.1:2390")
                .value_parser(value_parser!(SocketAddr))
                .help("Where the page is served; port 0 is any free one"),
        )
        .arg(
            Arg::new("as-published")
                .long("as-published")
                .action(ArgAction::SetTrue)
                .help("Tell the stories of the defects in published protocols, each beside its repair"),
        )
        .arg(
            Arg::new("storms")
                .long("storms")
                .value_name("DIR")
                .default_value("scenarios")
                .value_parser(value_parser!(PathBuf))
                .help("Where storms are: DIR/<name>/storm.txt"),
        )
}

/// Runs `hustings lab`.
///
/// # Errors
/// Nobody can listen there.
pub fn run(matches: &ArgMatches) -> Result<()> {
    crate::keep_quiet_about_findings();
    let Some(listen) = matches.get_one::<SocketAddr>("listen").copied() else { return Ok(()) };
    let storms = matches.get_one::<PathBuf>("storms").cloned().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(open(listen, Laboratory::new(storms), matches.get_flag("as-published")))
}

async fn open(listen: SocketAddr, laboratory: Laboratory, tells_stories: bool) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("listening on {listen}; choose another with --listen"))?;
    let at = listener.local_addr()?;
    println!("The laboratory is open at http://{at}/ until Ctrl-C.");
    if tells_stories {
        println!("\nWhat was published, and what is in its place:\n");
        for story in published::STORIES {
            println!("  http://{at}/#story={:<28} {}", story.name, story.title);
        }
    }
    let laboratory = Arc::new(laboratory);
    let router = Router::new().fallback(move |request: Request| laboratory.clone().answer(request));
    tokio::select! {
        ended = async { axum::serve(listener, router).await } => Ok(ended?),
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
    }
}
