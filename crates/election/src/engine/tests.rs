//! The engine's bookkeeping beside a store whose answers are given by hand.

use super::*;
use crate::condition::Condition;
use crate::seat::Later;
use crate::will::Will;
use hustings_lease::Profile;
use std::future::ready;
use tokio::sync::mpsc::UnboundedSender;

const TTL: Duration = Duration::from_secs(10);

/// Requests, in the order in which they were asked.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(Attempt, Request)>>>);

impl Asked {
    fn last(&self) -> (Attempt, Request) {
        self.0.lock().expect("nobody panics").last().cloned().expect("it asks")
    }
}

impl Store for Asked {
    fn profile(&self) -> Profile {
        Profile::HUSTINGS
    }

    fn open(&mut self, _: UnboundedSender<DriverEvent>) {}

    fn seat(&mut self, _: Sitter) -> Box<dyn Seat> {
        Box::new(self.clone())
    }

    fn close(&mut self) -> Later<'_, ()> {
        Box::pin(ready(()))
    }
}

impl Seat for Asked {
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64 {
        self.0.lock().expect("nobody panics").push((attempt, request));
        boot_micros()
    }

    fn watch(&mut self) {}

    fn will(&self, _: Token) -> Option<Will> {
        None
    }

    fn won(&mut self, _: Token) {}
}

impl Host {
    /// The store answers what was asked last.
    fn is_answered(&mut self, key: Key, asked: &Asked, answer: Answer) {
        self.on_told(DriverEvent::For(key, Input::Answer(asked.last().0, answer)));
        self.fire();
    }
}

/// A host whose store is open, and what ends a campaign in it.
type Campaign = (Host, Key, oneshot::Receiver<Result<Arc<Tenure>, CampaignError>>);

/// A candidate stands for an election at this store.
fn campaign(asked: &Asked, named: Named) -> Campaign {
    let (condition, key) = (Condition::new(), Key::next());
    let (orders, incoming) = mpsc::unbounded_channel();
    let seen = Arc::new(Seen::at("hustings://here".to_owned()));
    let mut host = Host::new(Box::new(asked.clone()), TTL, incoming, seen).expect("a descriptor is left");
    host.on_told(DriverEvent::Opened(TTL));
    let (waiter, won) = oneshot::channel();
    let standing = Standing {
        election: "billing".to_owned(),
        named,
        ticker: Ticker::new(None),
        presence: condition.present(key, &orders),
        renewals: Arc::default(),
        has_will: false,
        changes: None,
    };
    host.on_order(Order::Stand(key, standing, waiter));
    (host, key, won)
}

/// Goal: whoever waits for the end of a leadership hears of it when the thread that keeps it has died. Method: it dies while one leads.
#[tokio::test]
async fn a_leadership_ends_with_its_thread() {
    let asked = Asked::default();
    let (mut host, key, mut won) = campaign(&asked, Named::new("a"));
    host.is_answered(key, &asked, Answer::Gone);
    host.is_answered(key, &asked, Answer::Won(Token::new(7)));
    let tenure = won.try_recv().expect("the campaign is over").expect("it leads");
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _host = host;
        panic!("an impossible state");
    }));
    assert!(died.is_err());
    let (loss, by_micros) = tokio::time::timeout(TTL, tenure.stopping()).await.expect("it is told");
    assert_eq!((loss, by_micros), (Loss::Silence, 0));
}

/// Goal: a tenure that nobody was told of, since its first belief was over when it came, is given back, and the campaign goes on. Method: the
/// process stands still between an answer and what it leads to; its host holds on until the work has stopped, and there is none.
#[tokio::test]
async fn a_tenure_whose_first_belief_is_over_is_given_back_and_the_campaign_goes_on() {
    let asked = Asked::default();
    let (mut host, key, mut won) = campaign(&asked, Named::new("a").held_until_stopped());
    host.is_answered(key, &asked, Answer::Gone);
    let (attempt, request) = asked.last();
    assert!(matches!(request, Request::Contend { .. }), "{request:?}");
    let runner = host.runners.get_mut(&key).expect("it stands");
    let effects = runner.candidate.handle(Input::Answer(attempt, Answer::Won(Token::new(7))));
    runner.book.on_ask(attempt, 1);
    host.carry_out(key, effects);
    host.note_timer(key);
    host.fire();
    let (_, request) = asked.last();
    assert!(matches!(request, Request::Release(_)), "it is held, and nobody leads: {request:?}");
    assert!(won.try_recv().is_err(), "nobody is told");
    host.is_answered(key, &asked, Answer::Gone);
    host.is_answered(key, &asked, Answer::Gone);
    host.is_answered(key, &asked, Answer::Won(Token::new(8)));
    let tenure = won.try_recv().expect("the campaign is over").expect("it leads");
    assert_eq!(tenure.token, Token::new(8));
}
