//! Goal: a visitor of the laboratory sees an election, breaks a cluster by clicking, goes back in time, and takes the script of it
//! along; the defects of published protocols are told beside their repair. Method: `hustings lab`, and a real Chromium; the page is
//! asked what a reader would see. Screenshots stay in the target directory's `tmp/lab`.

mod browser;
mod support;

use browser::Browser;
use fantoccini::Locator;
use hustings_testbed::Cluster;
use serde_json::{Value, json};
use std::process::Command;
use support::{HUSTINGS, Running, http, hustings, program};

/// A laboratory that is open.
struct Lab {
    running: Running,
    url: String,
}

impl Lab {
    fn start(arguments: &[&str]) -> Lab {
        let mut command = Command::new(HUSTINGS);
        let storms = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        command.args(["lab", "--listen", "127.0.0.1:0", "--storms", storms]).args(arguments);
        let mut running = Running::start(&mut command);
        let line = running.line_with("The laboratory is open at ");
        let url = line.split(' ').find(|word| word.starts_with("http://")).expect("it says where");
        Lab { url: url.trim_end_matches('/').to_owned(), running }
    }

    fn stop(mut self) {
        self.running.signal(rustix::process::Signal::INT);
        assert_eq!(self.running.end(), Some(0));
    }
}

/// A script for the state that a pane shows for a member.
fn state_of(pane: u8, member: u8) -> String {
    format!("document.querySelector('[data-pane=\"{pane}\"] .member[data-id=\"{member}\"]').dataset.state")
}

/// A script for the leader in the first pane.
const LEADER: &str =
    "Number(document.querySelector('[data-pane=\"0\"] .member[data-state=\"leader\"]')?.dataset.id ?? 0)";

/// A script for the text in the script's field.
const SCRIPT: &str = "document.getElementById('script').value";

/// A script for the moment that is shown, in microseconds.
const MOMENT: &str = "Number(document.getElementById('time').value)";

/// Moves the slider to a moment.
async fn go_to(browser: &Browser, moment: u64) {
    let script = format!(
        "(() => {{ const slider = document.getElementById('time'); slider.value = {moment};
           slider.dispatchEvent(new Event('input')); return true; }})()"
    );
    browser.ask(&script).await;
}

/// Chooses a member with the mouse.
async fn choose(browser: &Browser, member: u64) {
    browser.click(&format!("[data-pane=\"0\"] .member[data-id=\"{member}\"] .body")).await;
    let is_chosen = format!("document.getElementById('chosen').textContent.startsWith('n{member}')");
    browser.until("it is chosen", &is_chosen).await;
}

/// Presses a button by its words.
async fn press(browser: &Browser, words: &str) {
    let path = format!("//button[normalize-space()=\"{words}\"]");
    let found = browser.client.find(Locator::XPath(&path)).await;
    found.unwrap_or_else(|error| panic!("{words}: {error}")).click().await.expect("it can be clicked");
}

/// Chooses from a list by value.
async fn select(browser: &Browser, id: &str, value: &str) {
    let list = browser.client.find(Locator::Id(id)).await.unwrap_or_else(|error| panic!("{id}: {error}"));
    list.select_by_value(value).await.unwrap_or_else(|error| panic!("{id} has no {value}: {error}"));
}

/// Types a line of a script and waits until it was played.
async fn say(browser: &Browser, line: &str) {
    let field = browser.client.find(Locator::Id("command")).await.expect("a field");
    field.send_keys(&format!("{line}\u{e007}")).await.expect("typed");
    let is_said = format!("document.getElementById('told').textContent.endsWith('{line}')");
    browser.until(&format!("{line} is done"), &is_said).await;
}

/// Lets time stand still.
async fn pause(browser: &Browser) {
    if browser.ask("document.getElementById('play').textContent").await == json!("Pause") {
        browser.click("#play").await;
    }
}

/// Goal: a leader is elected before one's eyes, dies by a click, another follows, and time goes back to before. The same is a
/// script that `play` takes, and a link that shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_elected_killed_and_brought_back_in_time() {
    let lab = Lab::start(&[]);
    let browser = Browser::open(&lab.url, "lab").await;
    browser.until("five members are shown", "document.querySelectorAll('.member').length === 5").await;
    let first_picture = browser.ask("Number(document.documentElement.dataset.firstPicture)").await;
    select(&browser, "speed", "3").await;
    browser.until("somebody leads", LEADER).await;
    browser.until("messages fly", "Number(document.querySelector('canvas').dataset.seen) > 0").await;
    pause(&browser).await;
    let first = browser.ask(LEADER).await.as_u64().expect("a member leads");
    let elected = browser.ask(MOMENT).await.as_u64().expect("a moment");
    browser.picture("elected").await;

    choose(&browser, first).await;
    press(&browser, "Write here").await;
    browser.until("the write is a line", &format!("{SCRIPT}.includes('put x')")).await;
    browser.click("#play").await;
    browser
        .until("it is committed", "document.querySelectorAll('[data-pane=\"0\"] rect.committed').length >= 10")
        .await;
    pause(&browser).await;
    press(&browser, "Read here").await;
    browser.click("#play").await;
    let told = "document.getElementById('lines').textContent.includes('answers its operator: x is v')";
    browser.until("the read is answered", told).await;
    pause(&browser).await;
    press(&browser, "Kill").await;
    browser.until("it is down", &format!("{} === 'down'", state_of(0, first as u8))).await;
    browser.click("#play").await;
    browser.until("another leads", &format!("({LEADER}) && ({LEADER}) !== {first}")).await;
    pause(&browser).await;
    browser.picture("another").await;

    let link = browser.client.current_url().await.expect("an address").to_string();
    let script = browser.ask(SCRIPT).await.as_str().expect("text").to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("story.txt");
    std::fs::write(&path, &script).expect("written");
    let played = hustings(&["play", path.to_str().expect("text")]).ok();
    assert!(played.matches("→ Leader").count() >= 2, "{script}\n{played}");

    // Back to when the first one was elected, and something else is done there.
    go_to(&browser, elected).await;
    browser.until("it leads again", &format!("({LEADER}) === {first}")).await;
    let before = browser.ask(MOMENT).await.as_f64().expect("a moment");
    browser.click("#step").await;
    browser.until("one event on", &format!("{MOMENT} > {before}")).await;
    browser.click("#back").await;
    say(&browser, &format!("isolate n{first}")).await;
    let forked = browser.ask(SCRIPT).await;
    assert!(forked.as_str().is_some_and(|text| text.contains("isolate") && !text.contains("crash")), "{forked}");
    let cut = "document.querySelectorAll('[data-pane=\"0\"] line.link.cut').length === 4";
    browser.until("its links are cut", cut).await;

    browser.client.goto(&link).await.expect("it opens");
    browser.client.refresh().await.expect("it opens");
    browser.until("the link shows the same", &format!("{} === 'down'", state_of(0, first as u8))).await;
    assert_eq!(browser.errors().await, Vec::<String>::new());
    println!("first picture after {first_picture} ms");
    browser.close().await;
    lab.stop();
}

/// Goal: all that can be broken is broken by clicking. Method: each button of a member, of a link and of a message, and what the picture
/// shows afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_broken_by_clicking() {
    let lab = Lab::start(&[]);
    let browser = Browser::open(&lab.url, "lab").await;
    select(&browser, "speed", "3").await;
    browser.until("somebody leads", LEADER).await;
    pause(&browser).await;
    choose(&browser, 2).await;
    press(&browser, "Pause").await;
    browser.until("it stands still", &format!("{} === 'paused'", state_of(0, 2))).await;
    press(&browser, "Resume").await;
    browser.until("it goes on", &format!("{} !== 'paused'", state_of(0, 2))).await;
    press(&browser, "Stall the disk").await;
    browser
        .until("its disk is stalled", "document.getElementById('chosen').textContent.includes('disk stalled')")
        .await;
    press(&browser, "Let the disk answer").await;
    let answers = "!document.getElementById('chosen').textContent.includes('disk stalled')";
    browser.until("its disk answers", answers).await;
    press(&browser, "Cut the power").await;
    browser.until("it is off", &format!("{} === 'down'", state_of(0, 2))).await;
    press(&browser, "Start again").await;
    browser.until("it runs", &format!("{} !== 'down'", state_of(0, 2))).await;
    press(&browser, "Link to n3…").await;
    browser.until("the link is chosen", "document.querySelector('line.link.chosen')").await;
    press(&browser, "Cut n2 → n3").await;
    browser.until("it is cut", "document.querySelectorAll('line.link.cut').length === 1").await;
    press(&browser, "Mend it").await;
    browser.until("it is whole", "document.querySelectorAll('line.link.cut').length === 0").await;
    press(&browser, "Slow n3 → n2").await;
    browser.until("it is slow", "document.querySelectorAll('line.link.slow').length === 1").await;
    press(&browser, "Heal all links").await;
    browser.until("it is whole", "document.querySelectorAll('line.link.slow').length === 0").await;

    // One message: of those under way the first in the list.
    for _ in 0..100 {
        if browser.ask(&format!("Boolean({DELAYS})")).await == json!(true) {
            break;
        }
        let before = browser.ask(MOMENT).await.as_f64().expect("a moment");
        browser.click("#step").await;
        browser.until("one event on", &format!("{MOMENT} > {before}")).await;
    }
    let message = browser.ask(&format!("({DELAYS}).parentElement.textContent")).await;
    let message = message.as_str().expect("text").to_owned();
    browser.click("#messages button").await;
    browser.until("a line says so", &format!("{SCRIPT}.includes('delay n')")).await;
    let words: Vec<&str> = message.split(' ').collect();
    let same = format!(
        "[...document.querySelectorAll('#messages li')].some((item) => item.textContent.startsWith('{} {} → {}')
           && Number(/in ([0-9.]+) ms/.exec(item.textContent)?.[1]) > 1000)",
        words[0],
        words[1],
        words[3].trim_end_matches(',')
    );
    browser.until("it comes a second later", &same).await;

    // A typo is answered, and changes nothing.
    let script = browser.ask(SCRIPT).await;
    let field = browser.client.find(Locator::Id("command")).await.expect("a field");
    field.send_keys("crush n1\u{e007}").await.expect("typed");
    browser
        .until("it is answered", "document.getElementById('told').textContent.includes('did you mean `crash`?')")
        .await;
    assert_eq!(browser.ask(SCRIPT).await, script);
    // The browser notes an answer that refuses; it is the only thing that it had to note.
    let noted = browser.errors().await;
    assert!(noted.len() == 1 && noted[0].contains("400"), "{noted:?}");
    say(&browser, "partition n1 n2 | n3 n4 n5").await;
    browser.until("it is cut in two", "document.querySelectorAll('line.link.cut').length === 6").await;
    browser.picture("broken").await;
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// A script for the button that delays the first message under way.
const DELAYS: &str = "document.querySelector('#messages button')";

/// Goal: a published defect is told in a few steps, beside its repair, and the judge speaks when the property falls. Method: each
/// story is stepped through to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_defects_are_told_beside_their_repair() {
    let lab = Lab::start(&["--as-published"]);
    let (status, catalogue) = http(&lab.url, "GET", "/v1/lab/catalogue", "");
    assert_eq!(status, 200);
    let catalogue: Value = serde_json::from_str(&catalogue).expect("JSON");
    let stories = catalogue["stories"].as_array().expect("stories");
    assert!(stories.len() >= 5, "one for each protocol");
    let browser = Browser::open(&lab.url, "lab").await;
    for story in stories {
        let (name, property) =
            (story["name"].as_str().expect("a name"), story["property"].as_str().expect("a property"));
        browser.client.goto(&format!("{}/#story={name}", lab.url)).await.expect("it opens");
        let title = story["title"].as_str().expect("a title");
        browser.until("it is told", &format!("document.getElementById('guide-title').textContent === {title:?}")).await;
        browser.until("both are shown", "document.querySelectorAll('.pane .member').length === 6").await;
        let (mut told, mut steps) = (Vec::new(), 0);
        let verdict = |pane: u8| format!("document.querySelector('[data-pane=\"{pane}\"] .verdict').textContent");
        loop {
            let text = browser.ask("document.getElementById('narration').textContent").await;
            told.push(text.as_str().unwrap_or_default().to_owned());
            steps += 1;
            let fallen = browser.ask(&verdict(0)).await;
            if fallen != json!("") {
                assert!(fallen.as_str().is_some_and(|said| said.contains(property)), "{name}: {fallen}");
                break;
            }
            assert!(steps < 20, "{name} does not end: {told:#?}");
            // Once it plays it stops at the next part; nobody need wait for the picture.
            let at = browser.ask(MOMENT).await.as_f64().expect("a moment");
            browser.click("#next").await;
            select(&browser, "speed", "10").await;
            let stands = format!("document.getElementById('play').textContent === 'Play' && {MOMENT} > {at}");
            browser.until(&format!("{name} goes on"), &stands).await;
        }
        told.dedup();
        assert!(told.len() >= 4 && told.iter().all(|text| text.len() > 20), "{name}: {told:#?}");
        assert_eq!(browser.ask(&verdict(1)).await, json!(""), "{name}: the repaired form holds");
        println!("{name}: {property} falls after {steps} steps");
        browser.picture(name).await;
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// Goal: the page is small, fits a phone, has a dark look, and needs no mouse. Method: seven members at ten times the speed, then a
/// narrow window, the dark, and the keyboard alone. How soon the page is there and how many frames it draws is printed for
/// docs/lab.md, and not judged: that depends on what else the machine does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_small_fits_a_phone_and_needs_no_mouse() {
    let lab = Lab::start(&[]);
    let files = ["/", "/lab.css", "/spacetime.css", "/model.js", "/spacetime.js", "/lab.js"];
    let bytes: usize = files.iter().map(|path| http(&lab.url, "GET", path, "").1.len()).sum();
    println!("the page: {bytes} bytes");
    assert!(bytes < 100_000);
    let browser = Browser::open(&lab.url, "lab").await;
    browser.until("it is drawn", "document.documentElement.dataset.firstPicture").await;
    let first_picture = browser.ask("Number(document.documentElement.dataset.firstPicture)").await;
    println!("first picture: {first_picture} ms after the page was asked for");
    select(&browser, "nodes", "7").await;
    select(&browser, "speed", "10").await;
    browser.until("seven members", "document.querySelectorAll('.member').length === 7").await;
    browser.until("somebody leads", LEADER).await;
    let count = "window.frames_seen = []; const frame = (now) => { window.frames_seen.push(now); requestAnimationFrame(frame); };
        requestAnimationFrame(frame);";
    browser.client.execute(count, Vec::new()).await.expect("the page answers");
    let spans = "window.frames_seen.length > 1 && window.frames_seen.at(-1) - window.frames_seen[0] > 5000";
    browser.until("five seconds of frames", spans).await;
    let per_second = "Math.round(10 * (window.frames_seen.length - 1) / ((window.frames_seen.at(-1) - window.frames_seen[0]) / 1000)) / 10";
    let longest =
        "Math.round(Math.max(...window.frames_seen.slice(1).map((at, place) => at - window.frames_seen[place])))";
    let (per_second, longest) = (browser.ask(per_second).await, browser.ask(longest).await);
    println!("seven members at 10x: {per_second} frames a second, longest pause {longest} ms");
    pause(&browser).await;
    browser.picture("seven").await;

    browser.client.set_window_size(375, 800).await.expect("a phone");
    browser.until("nothing sticks out on a phone", "document.documentElement.scrollWidth <= window.innerWidth").await;
    browser.picture("phone").await;
    browser.client.set_window_size(1300, 1200).await.expect("a screen");
    browser.click("#theme").await;
    let ground = browser.ask("getComputedStyle(document.body).backgroundColor").await;
    assert_eq!(ground, json!("rgb(20, 24, 27)"), "it is dark");
    browser.picture("dark").await;

    // By keyboard: Tab to a member, Enter, Tab on to its buttons, and it dies.
    browser.client.execute("document.querySelector('.skip').focus();", Vec::new()).await.expect("focused");
    let stop = "document.activeElement.dataset.id ?? document.activeElement.id ?? ''";
    let mut stops = Vec::new();
    while stops.len() < 40 && stops.last().is_none_or(|stop| stop != "3") {
        browser.client.active_element().await.expect("one").send_keys("\u{e004}").await.expect("Tab");
        stops.push(browser.ask(stop).await.as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(stops.last().map(String::as_str), Some("3"), "no member is reached by Tab: {stops:?}");
    browser.client.active_element().await.expect("one").send_keys("\u{e007}").await.expect("Enter");
    browser.until("it is chosen", "document.getElementById('chosen').textContent.startsWith('n3')").await;
    let mut words = Vec::new();
    while words.len() < 40 && words.last().is_none_or(|word| word != "Kill") {
        browser.client.active_element().await.expect("one").send_keys("\u{e004}").await.expect("Tab");
        words.push(browser.ask("document.activeElement.textContent").await.as_str().unwrap_or_default().to_owned());
    }
    browser.client.active_element().await.expect("one").send_keys("\u{e007}").await.expect("Enter");
    browser.until("it is down", &format!("{} === 'down'", state_of(0, 3))).await;
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// Goal: two protocols meet the same storm side by side. Method: a storm from the list, and another protocol beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_protocols_meet_one_storm() {
    let lab = Lab::start(&[]);
    let browser = Browser::open(&lab.url, "lab").await;
    browser.until("storms are offered", "document.querySelectorAll('#storm option').length > 20").await;
    select(&browser, "protocol-1", "zab").await;
    browser.until("two are shown", "document.querySelectorAll('.pane').length === 2").await;
    select(&browser, "storm", "leader-crash").await;
    browser.until("it is played", &format!("{SCRIPT}.includes('crash leader')")).await;
    let summary = "document.getElementById('summary').textContent";
    browser.until("both are told of", &format!("/raft.*zab/.test({summary})")).await;
    let end = browser.ask("Number(document.getElementById('time').max)").await.as_u64().expect("a moment");
    go_to(&browser, end).await;
    browser
        .until("both have leaders", &format!("/raft repaired: n. leads.*zab repaired: n. leads/.test({summary})"))
        .await;
    for pane in ["0", "1"] {
        let verdict =
            browser.ask(&format!("document.querySelector('[data-pane=\"{pane}\"] .verdict').textContent")).await;
        assert_eq!(verdict, json!(""), "all properties hold");
    }
    browser.picture("two").await;
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// A report that is open is the same drawing: messages, spells, marks and cells; text and picture are linked, names stay, one can zoom.
async fn is_drawn_and_linked(browser: &Browser, verb: &str) {
    // It is chance which of the shortest traces it is; two leaders have two calls and two votes at the least.
    // Logs have cells where a run is simulated; the checker tells none, and of recordings the contents are not known.
    for (what, least) in [
        ("line.message", 4),
        ("rect.span", 3),
        ("circle.mark", 3),
        ("rect.cell", usize::from(!matches!(verb, "check" | "replay"))),
    ] {
        let count = browser.ask(&format!("document.querySelectorAll('.spacetime {what}').length")).await;
        assert!(count.as_u64() >= Some(least as u64), "{verb} draws {count} of {what}");
    }
    // A line shows its mark, a mark its line.
    browser.ask("(document.querySelector('#lines li:nth-child(3) button').click(), true)").await;
    browser.until("the mark is shown", "document.querySelector('circle.mark.chosen')").await;
    let marked = "document.querySelector('circle.mark.chosen').dataset.line === document.querySelector('#lines li.chosen').dataset.line";
    assert_eq!(browser.ask(marked).await, json!(true));
    browser.ask("(document.querySelectorAll('circle.mark')[1].dispatchEvent(new MouseEvent('click')), true)").await;
    assert_eq!(browser.ask(marked).await, json!(true));
    let width = browser.ask("document.querySelector('.frame').scrollWidth").await.as_u64();
    browser.click("[aria-label=\"Zoom in\"]").await;
    browser
        .until("it is larger", &format!("document.querySelector('.frame').scrollWidth > {}", width.unwrap_or(0)))
        .await;
    let sticks = "(() => { const frame = document.querySelector('.frame'); frame.scrollLeft = 1e6;
        return Math.abs(frame.getBoundingClientRect().left - document.querySelector('.names').getBoundingClientRect().left) < 3; })()";
    assert_eq!(browser.ask(sticks).await, json!(true), "names stay");
    browser.picture(&format!("report-{verb}")).await;
}

/// Goal: a report is the same drawing: the step that violates is marked, text and picture are linked, names stay, one can zoom.
/// Method: a story that fails, a trace of the checker and a seed, each with `--report`, opened as files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_show_where_a_property_falls() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/../prove/src/lab/published/paxos-raised-ballot.txt");
    let (played, traced, drawn) = (written("played.html"), written("traced.html"), written("drawn.html"));
    let trace =
        ["check", "--protocol", "gmt2000", "--as-published", "--terms", "2", "--fires", "2", "--report", &traced];
    let seed = [
        "simulate",
        "--protocol",
        "raft",
        "--seed",
        "3",
        "--minutes",
        "1",
        "--plant",
        "votes-for-stale-logs",
        "--report",
        &drawn,
    ];
    let runs: [(&[&str], &str, &str); 3] = [
        (
            &["play", story, "--protocol", "paxos", "--as-published", "--report", &played],
            &played,
            "state-machine-safety",
        ),
        (&trace, &traced, "one-leader-per-term"),
        (&seed, &drawn, "leader-completeness"),
    ];
    let lab = Lab::start(&[]);
    let browser = Browser::open(&lab.url, "lab").await;
    for (arguments, page, property) in runs {
        let ended = hustings(arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        browser.client.goto(&format!("file://{page}")).await.expect("it opens");
        browser.until("it is drawn", "document.querySelectorAll('.names text').length >= 3").await;
        let verdict = browser.ask("document.getElementById('verdict').textContent").await;
        assert!(verdict.as_str().is_some_and(|verdict| verdict.contains(property)), "{arguments:?}: {verdict}");
        browser
            .until(
                "the step is marked",
                "document.querySelector('line.violation') && document.querySelector('li.violation')",
            )
            .await;
        is_drawn_and_linked(&browser, arguments[0]).await;
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// Goal: what members recorded is drawn as a run of the laboratory is. Method: real members, whose leader is killed after a write; what
/// they recorded is played again with `--report`, and the page is opened as a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_are_drawn_as_runs_are() {
    let mut cluster = Cluster::start(program(), 3).await.expect("three members serve");
    let leader = cluster.leader().await.expect("one of them leads");
    let put = hustings(&["put", "greeting", "hello", "--endpoints", &cluster.endpoints().join(",")]);
    assert_eq!(put.code, Some(0), "{put:?}");
    cluster.kill(leader);
    cluster.leader().await.expect("another one leads");
    let page = cluster.directory().join("replay.html").to_str().expect("text").to_owned();
    let rings: Vec<String> =
        cluster.nodes.iter().map(|node| node.data_dir.to_str().expect("text").to_owned()).collect();
    let mut arguments = vec!["replay", "--report", &page];
    arguments.extend(rings.iter().map(String::as_str));
    let ended = hustings(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lab = Lab::start(&[]);
    let browser = Browser::open(&lab.url, "lab").await;
    browser.client.goto(&format!("file://{page}")).await.expect("it opens");
    browser.until("it is drawn", "document.querySelectorAll('.names text').length >= 3").await;
    let lines = browser.ask("document.getElementById('lines').textContent").await;
    assert!(lines.as_str().is_some_and(|lines| lines.contains("leads") || lines.contains("Leader")), "{lines}");
    is_drawn_and_linked(&browser, "replay").await;
    assert_eq!(browser.errors().await, Vec::<String>::new());
    browser.close().await;
    lab.stop();
}

/// Goal: no page of somebody else plays here. Method: names that were made to point here, and orders that are no JSON.
#[test]
fn nobody_else_s_page_may_ask() {
    let lab = Lab::start(&[]);
    let order =
        json!({ "protocol": "raft", "form": "repaired", "script": "cluster 3", "until": 1_000_000 }).to_string();
    let asked = |head: &str| {
        let address = lab.url.trim_start_matches("http://");
        let request = format!(
            "POST /v1/lab/play HTTP/1.1\r\n{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{order}",
            head.replace("HERE", address),
            order.len()
        );
        let answer = support::throw(&lab.url, request.as_bytes(), support::PATIENCE);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(asked("Host: HERE\r\nContent-Type: application/json"), 200);
    assert_eq!(asked("Host: HERE\r\nOrigin: http://HERE\r\nContent-Type: application/json"), 200);
    assert_eq!(asked("Host: evil.example\r\nContent-Type: application/json"), 403);
    assert_eq!(asked("Host: HERE\r\nOrigin: http://evil.example\r\nContent-Type: application/json"), 403);
    assert_eq!(asked("Host: HERE\r\nContent-Type: text/plain"), 415);
    lab.stop();
}
