//! Strangers that may stand where a store should be: nobody, somebody silent, somebody who speaks another language.

use super::{candidate, in_time, log};
use hustings_election::{CampaignError, Election, StoreError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A port that is no store's.
pub struct Stranger {
    pub port: u16,
    /// Accepts, and never reads.
    _listener: Option<std::net::TcpListener>,
}

impl Stranger {
    /// A port where nobody listens.
    pub fn nobody() -> Stranger {
        let port = listener().local_addr().expect("it is bound").port();
        Stranger { port, _listener: None }
    }

    /// A port where everybody is accepted, and nobody answered.
    pub fn silent() -> Stranger {
        let listener = listener();
        Stranger { port: listener.local_addr().expect("it is bound").port(), _listener: Some(listener) }
    }

    /// A port where everybody is answered the same.
    pub fn answers(bytes: impl Into<Vec<u8>>) -> Stranger {
        let (listener, bytes) = (listener(), bytes.into());
        listener.set_nonblocking(true).expect("it can be");
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is a listener");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(&bytes).await;
            }
        });
        Stranger { port, _listener: None }
    }
}

fn listener() -> std::net::TcpListener {
    hustings_testbed::free_listener().expect("a port is free")
}

/// Campaigns and waits; the log says what for, with all of these words.
pub async fn is_waited_for(url: &str, ttl: Duration, words: &[&str]) {
    log::keep();
    let office = candidate(url, ttl, "a");
    let waiting = tokio::spawn(async move { office.campaign().await.map(drop) });
    let line = log::says(words).await;
    assert!(line.contains("WARN") && !waiting.is_finished(), "{line}");
    waiting.abort();
}

/// The error that an operator is told who asks for the history.
pub async fn told(url: &str) -> String {
    let asked = in_time("an answer", Election::open(url).expect("the URL is right").history()).await;
    asked.expect_err("it cannot be used").to_string()
}

/// The errors that operators are told where nobody listens, where nobody answers, and where somebody says this.
pub async fn told_of_strangers(url: impl Fn(u16) -> String, says: &'static [u8]) -> [(u16, String); 3] {
    let [nobody, silent, babbler] = [Stranger::nobody(), Stranger::silent(), Stranger::answers(says)];
    let urls = [url(nobody.port), url(silent.port), url(babbler.port)];
    let (nothing, silence, babble) = tokio::join!(told(&urls[0]), told(&urls[1]), told(&urls[2]));
    println!("{nothing}\n{silence}\n{babble}");
    for (port, why) in [(nobody.port, &nothing), (silent.port, &silence), (babbler.port, &babble)] {
        assert!(why.contains(&port.to_string()), "{why}");
    }
    assert!(nothing.contains("refused"), "{nothing}");
    [(nobody.port, nothing), (silent.port, silence), (babbler.port, babble)]
}

/// The error of a campaign whose candidate the store does not admit, or does not let stand; an observer is told so, too, if
/// it may not look either.
pub async fn denial(url: &str, ttl: Duration, observers: Observers) -> String {
    if observers == Observers::AreDenied {
        let mut observer = Election::open(url).expect("the URL is right").observe();
        let told = in_time("a refusal to an observer", observer.next()).await;
        assert!(matches!(told, Err(StoreError::Denied(_))), "{url}: {told:?}");
    }
    match in_time("a refusal", candidate(url, ttl, "a").campaign()).await {
        Err(CampaignError::Denied(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}

/// Whether the store shows the leader to a user that may not stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Observers {
    AreShown,
    AreDenied,
}

/// The error of a campaign that is refused for good.
pub async fn refusal(url: &str, ttl: Duration) -> String {
    match in_time("a refusal", candidate(url, ttl, "a").campaign()).await {
        Err(CampaignError::Store(why) | CampaignError::Timing(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}
