//! The files that settings name, read as `serve` would read them: [`Settings::check_files`].

use super::Settings;
use super::tls::TlsPlan;
use anyhow::{Result, bail};
use hustings_node::ClusterSecret;
use hustings_server::Jwt;
use hustings_tls::ClientTls;
use std::path::Path;

impl Settings {
    /// Reads every certificate, key, CA, list of revocations and secret that is named here, and changes nothing. Gives what is to be
    /// said of files with which `serve` would serve all the same.
    ///
    /// # Errors
    /// A line for each that `serve` could not use.
    pub(super) fn check_files(&self) -> Result<Vec<String>> {
        let (mut faults, mut notes): (Vec<String>, Vec<String>) = Default::default();
        let mut tell = |setting: &str, fault: String| {
            let line = format!("{setting}: {fault}");
            // A file that is read for two ports is told once.
            if !faults.contains(&line) {
                faults.push(line);
            }
        };
        if let Some(("jwt", rest)) = self.text("auth-token").split_once(',') {
            Jwt::faults_of_setting(rest).into_iter().for_each(|fault| tell("auth-token", fault));
        }
        let secret = Some(self.text("cluster-secret-file")).filter(|path| !path.is_empty());
        if let Some(error) = secret.and_then(|path| ClusterSecret::read(Path::new(path)).err()) {
            tell("cluster-secret-file", error.to_string());
        }
        match self.tls_of_urls() {
            Err(error) => tell("TLS", format!("{error:#}")),
            Ok(tls) => {
                for port in tls.client.iter().chain(&tls.metrics).chain(&tls.peer) {
                    port.faults().iter().for_each(|fault| tell(port.of, fault.to_string()));
                }
                if let Some(why) = tls.unwelcome_port() {
                    tell("peer", why);
                }
                if let Some(dial) = &tls.dial {
                    dial.faults().iter().for_each(|fault| tell(dial.of, fault.to_string()));
                }
                notes.extend(tls.ask.iter().flat_map(ClientTls::faults).map(|error| TlsPlan::cannot_ask(&error)));
            }
        }
        if !faults.is_empty() {
            bail!("{}", faults.join("\n"));
        }
        Ok(notes)
    }
}
