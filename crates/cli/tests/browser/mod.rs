//! A real Chromium for stories about pages, driven over WebDriver. Screenshots stay in the target directory's `tmp/dashboard` and
//! `tmp/lab`.
#![allow(dead_code, reason = "every story uses its part")]

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hustings_testbed::{free_port, spawn};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Time that the page may take to show something; a busy machine is slow.
pub const PATIENCE_MILLIS: u32 = 60_000;

/// A browser, and the program that drives it.
pub struct Browser {
    pub client: Client,
    /// Directory of its pictures, below the target directory's `tmp`.
    pictures: &'static str,
    driver: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens a page; pictures of it go to this directory.
    pub async fn open(url: &str, pictures: &'static str) -> Browser {
        let port = free_port().expect("a port");
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = spawn(&mut command).expect("chromedriver is installed: apt-get install chromium chromium-driver");
        let profile = tempfile::tempdir().expect("a directory");
        let options = json!({
            "binary": "/usr/bin/chromium",
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--window-size=1300,1200", format!("--user-data-dir={}", profile.path().display())],
        });
        let mut wishes = Capabilities::new();
        wishes.insert("goog:chromeOptions".into(), options);
        wishes.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
        wishes.insert("timeouts".into(), json!({ "script": PATIENCE_MILLIS * 2 }));
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        builder.capabilities(wishes);
        let at = format!("http://127.0.0.1:{port}");
        let listens = async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop);
        hustings_testbed::wait_for("chromedriver", listens).await.expect("it listens");
        // Asked once: a second browser would find its profile in use. On a busy machine one takes longer than a request may.
        let client = builder.connect(&at).await;
        let client = client.expect("chromium is installed: apt-get install chromium chromium-driver");
        client.goto(url).await.expect("the page opens");
        Browser { client, pictures, driver, _profile: profile }
    }

    /// Value of a piece of JavaScript.
    pub async fn ask(&self, script: &str) -> Value {
        self.client.execute(&format!("return ({script});"), Vec::new()).await.expect("the page answers")
    }

    /// Waits inside the page until something is so there; answers after how many milliseconds it was.
    pub async fn until(&self, what: &str, script: &str) -> f64 {
        let wait = format!(
            "const done = arguments[arguments.length - 1]; const begun = performance.now();
             const look = () => {{
               let is_so = false;
               try {{ is_so = Boolean({script}); }} catch (_) {{}}
               if (is_so) done(performance.now() - begun);
               else if (performance.now() - begun > {PATIENCE_MILLIS}) done(null);
               else setTimeout(look, 5);
             }};
             look();"
        );
        let waited = self.client.execute_async(&wait, Vec::new()).await.expect("the page answers");
        match waited.as_f64() {
            Some(millis) => millis,
            None => {
                self.picture("waited-in-vain").await;
                let text = self.ask("document.body.innerText").await;
                panic!("waited in vain until {what}; the page says:\n{}", text.as_str().unwrap_or_default());
            }
        }
    }

    /// Clicks on the first element that matches.
    pub async fn click(&self, selector: &str) {
        let found = self.client.find(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}")).click().await.expect("it can be clicked");
    }

    /// Presses a key for whatever has the focus: the page draws itself anew at any moment, and a found element may be gone.
    pub async fn press_key(&self, value: char) {
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        self.client.perform_actions(keys).await.expect("a key");
    }

    /// Keeps a screenshot of the page.
    pub async fn picture(&self, name: &str) {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(self.pictures);
        std::fs::create_dir_all(&directory).expect("a directory");
        let picture = self.client.screenshot().await.expect("a picture");
        std::fs::write(directory.join(format!("{name}.png")), picture).expect("it can be written");
    }

    /// Errors on the page's console since the last call.
    pub async fn errors(&self) -> Vec<String> {
        let lines = self.client.issue_cmd(Console).await.expect("the driver answers");
        let lines = lines.as_array().cloned().unwrap_or_default();
        let errors = lines.iter().filter(|line| line["level"] == "SEVERE");
        errors.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Ends the browser and its driver.
    pub async fn close(mut self) {
        self.client.clone().close().await.expect("the browser ends");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Chromium's own command for what stands on the console.
#[derive(Debug)]
struct Console;

impl WebDriverCompatibleCommand for Console {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}
