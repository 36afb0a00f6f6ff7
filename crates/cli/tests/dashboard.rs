//! Goal: the page of any member shows the whole cluster, shows at once what becomes of it, and can break it. Method: `hustings
//! up`, and a real Chromium, driven over WebDriver; the page is asked what a reader would see. Screenshots stay in the target
//! directory's `tmp/dashboard`.

mod browser;
mod support;

use browser::Browser;
use fantoccini::Locator;
use hustings_api::etcdserverpb::{LeaseGrantRequest, PutRequest};
use hustings_testbed::free_ports;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use support::{HUSTINGS, Running, hustings, run};

/// Presses a button of a member.
async fn press(browser: &Browser, member: &str, verb: &str) {
    let selector = format!("#members-body tr[data-key=\"{member}\"] button[data-verb=\"{verb}\"]");
    browser.until(&format!("{member} has a button to {verb}"), &format!("document.querySelector('{selector}')")).await;
    browser.click(&selector).await;
}

/// A local cluster that `hustings up` runs.
struct Up {
    running: Running,
    base: u16,
}

impl Up {
    fn start(directory: &Path, arguments: &[&str]) -> Up {
        let base = free_ports(6).expect("six ports in a row are free");
        let mut command = Command::new(HUSTINGS);
        command.args(["up", "--base-port", &base.to_string(), "--data-dir"]).arg(directory).args(arguments);
        let mut running = Running::start(&mut command);
        running.line_with("→ Leader");
        Up { running, base }
    }

    /// The address of member `number`.
    fn url(&self, number: u16) -> String {
        format!("http://127.0.0.1:{}", self.base + 2 * (number - 1))
    }

    fn stop(mut self) {
        self.running.signal(rustix::process::Signal::INT);
        assert_eq!(self.running.end(), Some(0));
    }
}

/// A script for the role that the table shows for a member.
fn role_of(member: &str) -> String {
    format!("document.querySelector('#members-body tr[data-key=\"{member}\"] td').textContent.trim().split(' ')[1]")
}

/// A script for the colours of terms, around each member that is reachable.
const TERMS: &str = "[...document.querySelectorAll('#ring circle.term')].map(term => term.getAttribute('stroke'))";

/// A script for the bars of leaderships in time, by what is said of each up to its times.
const LINE: &str = "[...document.querySelectorAll('#line rect title')].map(title => title.textContent.split(':')[0])";

/// A script for whether the store is measured against the quota of two gibibytes.
const QUOTA: &str = "(() => { const meter = document.querySelector('#store meter'); \
    return meter && meter.max === 2 * 1024 ** 3 && meter.value > 0 && meter.value < meter.max; })()";

/// A script for the elements that can be used, or are pictures, and of which a reader of screens has nothing to say.
const NAMELESS: &str = "[...document.querySelectorAll('button, input, meter, svg[role], [role=img], table, dialog')].filter(each => \
    !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length || each.getAttribute('aria-labelledby') \
    || each.caption)).map(each => each.outerHTML)";

/// Bytes that came over the wire, and when the first picture stood, in milliseconds after it was asked for.
const WEIGHT: &str = "(() => { const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
    const bytes = all.reduce((sum, each) => sum + each.encodedBodySize, 0); \
    const picture = performance.getEntriesByName('first-contentful-paint')[0]; \
    return picture && `${all.length} files, ${bytes} bytes, first picture after ${Math.round(picture.startTime)} ms`; })()";

impl Up {
    /// Each cell of the row of n1 tells something while somebody writes there.
    async fn tells_of_load(&self, browser: &Browser) {
        let store = hustings_api::Client::connect(&[self.url(1)]).await.expect("connected");
        let writes = tokio::spawn(async move {
            loop {
                let request = PutRequest { key: "load".into(), value: "x".into(), ..PutRequest::default() };
                store.kv().put(request).await.expect("written");
            }
        });
        let cell = |place: u32| {
            format!("document.querySelector('#members-body tr[data-key=\"n1\"]').children[{place}].textContent")
        };
        let (sync, rate, p99, disk) = (cell(4), cell(5), cell(6), cell(7));
        browser.until("it is asked", &format!("parseFloat({rate}) > 1")).await;
        browser.until("syncs take their time", &format!("/^[\\d.<>≤ ]+ ?(µs|ms|s) \\/ /.test({sync})")).await;
        browser.until("so do requests", &format!("/(µs|ms|s)$/.test({p99})")).await;
        browser.until("some of its disk is left", &format!("/(GiB|GB|MiB|MB|TB|TiB)$/.test({disk})")).await;
        writes.abort();
    }
}

/// A script for the element that has the focus.
const STOP: &str = "document.activeElement.id || document.activeElement.dataset.name || document.activeElement.getAttribute('aria-label')";

/// A script for the member that leads.
const LEADER: &str = "[...document.querySelectorAll('#members-body tr')].find(row => row.children[1].className === 'leader')?.dataset.key ?? null";

async fn leader(browser: &Browser) -> String {
    browser.until("somebody leads", LEADER).await;
    browser.ask(LEADER).await.as_str().expect("somebody leads").to_owned()
}

/// Goal: the page shows every element of a cluster, and what is done to it, within a second on a machine at rest. Method: look at
/// each element; cut the leader off, heal it, kill it, pause it, let another lead, by the page's own buttons. How long that took to be
/// seen is printed; of several kills, the one in the middle counts, for a busy machine delays some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_a_cluster_and_what_becomes_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Up::start(directory.path(), &[]);
    hustings(&["put", "--endpoints", &cluster.url(1), "greeting", "hello"]).ok();
    let browser = Browser::open(&cluster.url(1), "dashboard").await;
    let first = leader(&browser).await;
    browser.until("three members stand on the ring", "document.querySelectorAll('#ring g.member').length === 3").await;
    browser.until("three links are up", "document.querySelectorAll('#ring line.link:not(.dead)').length === 3").await;
    let said = browser.ask("document.getElementById('summary').textContent").await;
    assert_eq!(said, json!(format!("{first} leads in term 1")));
    let quorum = browser.ask("document.getElementById('quorum').textContent").await;
    assert_eq!(quorum, json!("3 of 3 voters reachable, quorum held"));
    let store = browser.ask("document.getElementById('store').textContent").await;
    assert!(store.as_str().is_some_and(|store| store.contains("Keys1") && store.contains("raft")), "{store}");
    let log = "[...document.querySelectorAll('#members-body .small')].map(log => log.textContent)";
    let are_told = format!("{log}.length === 3 && {log}.every(text => /^[1-9]\\d*, [1-9]\\d*, [1-9]\\d*$/.test(text))");
    browser.until("each member's last, committed and applied entry are told", &are_told).await;
    browser.until("a round trip is told", "document.querySelector('#ring text.detail')").await;
    browser
        .until(
            "the leadership has a reason, and who voted",
            "/, because vote won \\{n\\d/.test(document.querySelector('#leaderships li').textContent)",
        )
        .await;
    assert_eq!(browser.ask(LINE).await, json!([format!("{first}, term 1")]), "one bar, from its election on");
    browser.until("the store is measured against its quota", QUOTA).await;
    browser.picture("at-rest").await;
    browser.until("the page says what it weighs", WEIGHT).await;
    println!("{}", browser.ask(WEIGHT).await);
    assert_eq!(browser.ask(NAMELESS).await, json!([]), "a reader of screens has nothing to say of these");
    cluster.tells_of_load(&browser).await;
    let terms = browser.ask(TERMS).await;
    assert!(terms[0] == terms[1] && terms[1] == terms[2], "one term, one colour: {terms}");

    press(&browser, &first, "cut").await;
    let seen = browser.until("another leads", &format!("({LEADER}) && ({LEADER}) !== '{first}'")).await;
    println!("cut off: seen after {seen:.0} ms");
    browser.until("its links are dead", "document.querySelectorAll('#ring line.dead').length === 2").await;
    browser
        .until(
            "a warning names it",
            &format!("document.getElementById('warnings').textContent.includes('{first} silent')"),
        )
        .await;
    let cure = "document.querySelector('#warnings code').textContent.startsWith('systemctl restart hustings')";
    browser.until("a warning names its cure", cure).await;
    browser
        .until(
            "the gap is told",
            "/nobody led for [\\d.]+ (µs|ms|s)$/.test(document.querySelector('#leaderships li').textContent)",
        )
        .await;
    let bars = browser.ask(LINE).await;
    assert!(
        bars[0] == json!(format!("{first}, term 1")) && bars.as_array().is_some_and(|bars| bars.len() > 1),
        "{bars}"
    );
    browser.picture("cut-off").await;
    press(&browser, &first, "heal").await;
    browser.until("it follows again", &format!("{} === 'follower'", role_of(&first))).await;
    browser.until("all are in another term", &format!("{TERMS}.length === 3 && new Set({TERMS}).size === 1")).await;
    assert_ne!(browser.ask(TERMS).await, terms);
    browser.until("its links are up again", "document.querySelectorAll('#ring line.dead').length === 0").await;

    // Not the one that shows the page.
    let victim = if leader(&browser).await == "n2" { "n2" } else { "n3" };
    let before = browser.ask("document.querySelectorAll('#members-body tr').length").await;
    let gone = format!("{} === 'unreachable'", role_of(victim));
    let mut kills = Vec::new();
    for _ in 0..KILLS {
        press(&browser, victim, "kill").await;
        let seen = browser.until("it is seen to be gone", &gone).await;
        println!("killed: seen after {seen:.0} ms");
        kills.push(seen);
        assert_eq!(
            browser.ask("document.querySelectorAll('#members-body tr').length").await,
            before,
            "it is a member still"
        );
        browser.until("`up` has started it again", &format!("{} !== 'unreachable'", role_of(victim))).await;
    }
    kills.sort_by(f64::total_cmp);
    assert!(kills[KILLS / 2] <= SECOND, "most of {KILLS} kills were seen later than {SECOND} ms: {kills:?}");

    press(&browser, victim, "pause").await;
    browser.until("it is seen to stand still", &gone).await;
    let unseen = browser.ask("document.getElementById('not-seen').textContent").await;
    assert!(
        unseen.as_str().is_some_and(|unseen| unseen.starts_with(&format!("It cannot ask {victim} now"))),
        "{unseen}"
    );
    press(&browser, victim, "resume").await;
    browser.until("it goes on", &format!("{} !== 'unreachable'", role_of(victim))).await;
    browser.until("all are asked again", "document.getElementById('not-seen').textContent === ''").await;

    let now = leader(&browser).await;
    let next = ["n1", "n2", "n3"].into_iter().find(|name| *name != now).expect("there are others");
    press(&browser, next, "lead").await;
    browser.until("it leads", &format!("({LEADER}) === '{next}'")).await;
    assert_eq!(browser.errors().await, Vec::<String>::new());

    // The one that shows the page answers before it ends; that it stands still is the same order, of which nobody would hear the end.
    let mut order = Command::new("curl");
    order.args(["-s", "-H", "Content-Type: application/json", "-d", r#"{"verb": "kill", "member": "n1"}"#]);
    let said = run(order.arg(format!("{}/v1/workbench", cluster.url(1)))).ok();
    assert_eq!(said, r#"{"done":true}"#);
    browser
        .until("the page shows the cluster again", &format!("({LEADER}) && {} !== 'unreachable'", role_of("n1")))
        .await;
    browser.close().await;
    cluster.stop();
}

/// Goal: who voted for a leader is told, also where it leads only once it has synchronized. Method: a cluster of each other protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_who_voted_under_each_protocol() {
    for (protocol, voted) in
        [("gmt2000", "vote won"), ("blazingmq", "vote won"), ("zab", "n\\d is elected by"), ("paxos", "vote won")]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let cluster = Up::start(directory.path(), &["--protocol", protocol]);
        let browser = Browser::open(&cluster.url(1), "dashboard").await;
        leader(&browser).await;
        let told =
            format!("/, because {voted} \\{{n\\d/.test(document.querySelector('#leaderships li')?.textContent ?? '')");
        browser.until(&format!("{protocol}: who voted"), &told).await;
        assert_eq!(browser.errors().await, Vec::<String>::new());
        browser.close().await;
        cluster.stop();
    }
}

/// Milliseconds within which the page shows what happened.
const SECOND: f64 = 1_000.0;

/// Milliseconds for which the page may stand still.
const STALL: f64 = 300.0;

/// So many kills are looked at.
const KILLS: usize = 3;

/// Rows that the page adds to its list between two frames, at most: a slice when it is asked, and the next one.
const ROWS_A_FRAME: u64 = 200;

/// A script that counts frames from now on, and keeps the longest pause between two of them and the most rows that came between.
const FRAMES: &str = "window.longest = 0; window.frames = 0; window.most = 0; let last = performance.now(), added = 0;
    const count = (changes) => changes.forEach((change) => { added += change.addedNodes.length; });
    new MutationObserver(count).observe(document.getElementById('elections-body'), { childList: true });
    const frame = (now) => { window.longest = Math.max(window.longest, now - last); window.most = Math.max(window.most, added);
        window.frames += 1; last = now; added = 0; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);";

/// A script that makes a page of which the list takes more than a second to draw.
const SLOW_LIST: &str = "const draws = drawElections;
    window.drawElections = () => { const begun = performance.now(); while (performance.now() - begun < 1200); draws(); };";

/// Shows the elections that have this in their names, as if it were typed.
async fn set_filter(browser: &Browser, text: &str) {
    let script = format!(
        "(() => {{ const filter = document.getElementById('filter'); filter.value = '{text}';
           filter.dispatchEvent(new Event('input')); return true; }})()"
    );
    browser.ask(&script).await;
}

/// The longest pause between two frames, in milliseconds, while all of so many elections are drawn anew, then with one more.
async fn pause_of_a_list(browser: &Browser, store: &hustings_api::Client, number: u32) -> f64 {
    let is_listed = |count: u32| format!("document.querySelectorAll('#elections-body tr').length === {count}");
    browser.ask("window.longest = 0").await;
    set_filter(browser, "0042").await;
    browser.until("one is left", &is_listed(1)).await;
    set_filter(browser, "").await;
    browser.until("all are listed again", &is_listed(number)).await;
    stands_for(store, &format!("service-{number}")).await;
    browser.until("one more is listed", &is_listed(number + 1)).await;
    let frames = browser.ask("window.frames").await;
    browser.until("what was drawn is seen", &format!("window.frames > {frames} + 1")).await;
    browser.ask("window.longest").await.as_f64().expect("a number")
}

/// Goal: a thousand elections are listed while the page stays alive, also on a phone, in the dark, and by keyboard alone. Method:
/// a thousand keys as candidates write them; the list is drawn anew, and with one election more, again and again. Each time has a
/// longest pause between two frames; the shortest of these counts, for a busy machine makes some longer, and a slow page all of them.
/// Only so many rows come between two frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_elections_are_listed_without_a_stall() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Up::start(directory.path(), &[]);
    let store = hustings_api::Client::connect(&[cluster.url(1)]).await.expect("connected");
    let mut token = 0;
    for number in 0..1_000 {
        let lease = store.lease().lease_grant(LeaseGrantRequest { ttl: 36_000, ..LeaseGrantRequest::default() }).await;
        let lease = lease.expect("granted").into_inner().id;
        let key = format!("service-{number:04}/{lease:x}");
        let value = json!({ "id": format!("host-{number}"), "value": "" }).to_string();
        let request = PutRequest { key: key.into(), value: value.into(), lease, ..PutRequest::default() };
        let written = store.kv().put(request).await.expect("written").into_inner();
        if number == 7 {
            // Its predecessor left a note, and its winner wrote it down.
            token = written.header.expect("who wrote it").revision;
            let history = format!("{token}\thost-7\tnoted\tstepped aside for an upgrade\t1700000000\n");
            let request =
                PutRequest { key: "service-0007.history".into(), value: history.into(), ..PutRequest::default() };
            store.kv().put(request).await.expect("written");
        }
    }
    let browser = Browser::open(&cluster.url(2), "dashboard").await;
    browser.until("all are listed", "document.querySelectorAll('#elections-body tr').length === 1000").await;
    let row = browser.ask("document.querySelector('#elections-body tr[data-key=\"service-0007\"]').textContent").await;
    assert!(row.as_str().is_some_and(|row| row.contains("host-7") && row.contains("10 h of 10 h")), "{row}");
    let cells = "[...document.querySelector('#elections-body tr[data-key=\"service-0007\"]').children].map(cell => cell.textContent)";
    let cells = browser.ask(cells).await;
    assert_eq!((&cells[2], &cells[6]), (&json!(token.to_string()), &json!("stepped aside for an upgrade")), "{cells}");
    browser.client.find(Locator::Css("#filter")).await.expect("a filter").send_keys("0042").await.expect("typed");
    browser.until("one is left", "document.querySelectorAll('#elections-body tr').length === 1").await;
    browser.client.execute(FRAMES, Vec::new()).await.expect("the page answers");
    let mut least = f64::INFINITY;
    for number in 1_000..1_005 {
        let pause = pause_of_a_list(&browser, &store, number).await;
        println!("{number} elections: longest pause between frames {pause:.0} ms");
        least = least.min(pause);
    }
    assert!(least <= STALL, "the page stands still for {least:.0} ms or more");
    let most = browser.ask("window.most").await.as_u64().expect("a number");
    assert!((1..=ROWS_A_FRAME).contains(&most), "the page draws {most} rows without a frame between");
    // A list that takes so long to draw would have been seen.
    browser.client.execute(SLOW_LIST, Vec::new()).await.expect("the page answers");
    let pause = pause_of_a_list(&browser, &store, 1_005).await;
    assert!(pause > SECOND, "a page that stood still was not seen: {pause:.0} ms");
    browser.client.refresh().await.expect("the page as it was");
    browser.until("all are listed", "document.querySelectorAll('#elections-body tr').length === 1006").await;
    set_filter(&browser, "0042").await;

    browser.client.set_window_size(375, 800).await.expect("a phone");
    let is_narrow = "document.documentElement.scrollWidth <= window.innerWidth";
    browser.until("nothing sticks out on a phone", is_narrow).await;
    browser.picture("phone").await;
    browser.client.set_window_size(1300, 1200).await.expect("a screen");
    browser.click("#theme").await;
    let ground = browser.ask("getComputedStyle(document.body).backgroundColor").await;
    assert_eq!(ground, json!("rgb(20, 24, 27)"), "it is dark");
    browser.picture("dark").await;

    // By keyboard: from the top with Tab through all that can be done, to the filter.
    let mut stops = Vec::new();
    browser.client.execute("document.querySelector('.skip').focus();", Vec::new()).await.expect("focused");
    while stops.len() < 40 && stops.last().is_none_or(|stop| stop != "filter") {
        browser.press_key('\u{e004}').await;
        let stop = browser.ask(STOP).await;
        stops.push(stop.as_str().unwrap_or_default().to_owned());
    }
    for wanted in ["theme", "n1", "n2", "n3", "Kill: n1", "filter"] {
        assert!(stops.iter().any(|stop| stop == wanted), "{wanted} cannot be reached by Tab: {stops:?}");
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    cluster.stop();
}

/// Somebody stands for an election of this name, as candidates write it down.
async fn stands_for(store: &hustings_api::Client, name: &str) {
    let granted = store.lease().lease_grant(LeaseGrantRequest { ttl: 36_000, ..LeaseGrantRequest::default() }).await;
    let lease = granted.expect("granted").into_inner().id;
    let value = json!({ "id": "host", "value": "" }).to_string();
    let key = format!("{name}/{lease:x}");
    let request = PutRequest { key: key.into(), value: value.into(), lease, ..PutRequest::default() };
    store.kv().put(request).await.expect("written");
}

/// A script for whether the page is told what happens, now.
const IS_LIVE: &str = "document.getElementById('connection').className === 'live'";

/// Goal: no name of an election stops the page. Method: names with the characters that one reader or another takes for the end of a
/// line, and one more name after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_the_end_of_a_line_in_it_is_listed_and_the_page_stays_live() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Up::start(directory.path(), &[]);
    let store = hustings_api::Client::connect(&[cluster.url(1)]).await.expect("connected");
    let browser = Browser::open(&cluster.url(1), "dashboard").await;
    leader(&browser).await;
    for name in ["bill\u{2028}ing", "post\u{2029}age", "sup\u{85}port", "ware\r\nhouse", "plain"] {
        stands_for(&store, name).await;
        let is_listed = format!(
            "[...document.querySelectorAll('#elections-body tr')].some(row => row.dataset.key === {})",
            json!(name)
        );
        browser.until(&format!("{name:?} is listed"), &is_listed).await;
        assert_eq!(browser.ask(IS_LIVE).await, json!(true), "after {name:?}");
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    cluster.stop();
}

/// More failures than a browser opens connections to one server: six.
const FAILURES: u32 = 8;

/// Goal: a page that cannot read what it is told leaves no stream behind at the member. Method: reading fails more often than a browser
/// has connections; one that kept them all could not ask again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_read_an_event_gives_its_stream_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Up::start(directory.path(), &[]);
    let browser = Browser::open(&cluster.url(1), "dashboard").await;
    leader(&browser).await;
    let stumble = format!(
        "const parse = JSON.parse; window.failures = 0;
         JSON.parse = (text) => {{
           if (window.failures === {FAILURES}) return parse(text);
           window.failures += 1;
           throw new SyntaxError('the story has it fail');
         }};"
    );
    browser.client.execute(&stumble, Vec::new()).await.expect("the page answers");
    browser.until("each failure led to another stream", &format!("window.failures === {FAILURES}")).await;
    browser.until("the page is told again", IS_LIVE).await;
    browser.close().await;
    cluster.stop();
}

/// Goal: with users the page asks for one, and shows what that one may see. Method: a wrong password, a user without rights, root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_users_the_page_asks_who_one_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Up::start(directory.path(), &[]);
    let endpoint = cluster.url(1);
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ann:word"],
        &["auth", "enable"],
    ] {
        hustings(&[words, &["--endpoints", &endpoint]].concat()).ok();
    }
    let browser = Browser::open(&cluster.url(2), "dashboard").await;
    browser.until("it asks who one is", "document.getElementById('sign-in').open").await;
    let members = browser.ask("document.querySelectorAll('#members-body tr').length").await;
    assert_eq!(members, json!(0), "nothing is shown to strangers");
    let sign_in = async |user: &str, password: &str| {
        for (field, text) in [("#user", user), ("#password", password)] {
            let field = browser.client.find(Locator::Css(field)).await.expect("a field");
            field.clear().await.expect("cleared");
            field.send_keys(text).await.expect("typed");
        }
        browser.click("#sign-in button[type=submit]").await;
    };
    sign_in("ann", "wrong").await;
    browser.until("it says no", "document.getElementById('sign-in-error').textContent.includes('failed')").await;
    sign_in("ann", "word").await;
    leader(&browser).await;
    browser
        .until(
            "she may not read all keys",
            "document.getElementById('elections-count').textContent.includes('permission denied')",
        )
        .await;
    press(&browser, "n3", "kill").await;
    browser
        .until("she may not break it", "document.getElementById('told').textContent.includes('permission denied')")
        .await;
    browser.click("#sign-out").await;
    browser.until("it asks again", "document.getElementById('sign-in')?.open").await;
    sign_in("root", "secret").await;
    browser.until("root may", "document.getElementById('elections-count').textContent === '0'").await;
    press(&browser, "n3", "kill").await;
    browser.until("n3 is killed", "document.getElementById('told').textContent.includes('kill n3: done')").await;
    browser.close().await;
    cluster.stop();
}
