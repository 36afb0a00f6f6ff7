//! The settings of a store of Hustings or etcd that flags and variables give beside its URL, as for all other commands: [`fill_in`].

use crate::credentials;
use crate::output::OURS;
use anyhow::Result;
use clap::ArgMatches;
use hustings_election::{Secret, Security, StoreAddress, StoreTls};
use std::path::PathBuf;

/// Fills in what the URL does not say: TLS, the user, and, where no store is named at all, the members.
///
/// # Errors
/// A certificate without its key, or members of which some speak TLS and others plain text.
pub(super) fn fill_in(store: &mut StoreAddress, matches: &ArgMatches, is_unsaid: bool) -> Result<()> {
    let mut speaks_tls = false;
    if let Some(named) = variable("HUSTINGS_ENDPOINTS").or_else(|| variable("ETCDCTL_ENDPOINTS")).filter(|_| is_unsaid)
    {
        let (endpoints, is_tls) = members(&named)?;
        (store.endpoints, speaks_tls) = (endpoints, is_tls);
    }
    let given = |name: &str, etcdctl: &str| OURS.given(matches, name, etcdctl);
    let path = |name: &str, etcdctl: &str| given(name, etcdctl).map(PathBuf::from);
    let cacert = path("cacert", "ETCDCTL_CACERT");
    let (cert, key) = (path("cert", "ETCDCTL_CERT"), path("key", "ETCDCTL_KEY"));
    match (&cert, &key) {
        (Some(_), None) => anyhow::bail!("--cert is a certificate without its key: give --key too"),
        (None, Some(_)) => anyhow::bail!("--key is the key of no certificate: give --cert too"),
        _ => {}
    }
    let skips = given("insecure-skip-verify", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY").as_deref() == Some("true");
    let is_asked_for = speaks_tls || skips || cacert.is_some() || cert.is_some();
    let said = match &store.security {
        Security::Tls(tls) => Some(tls.clone()),
        Security::Unsaid if is_asked_for => Some(StoreTls { skips_verification: skips, ..StoreTls::default() }),
        _ => None,
    };
    if let Some(mut tls) = said {
        if !tls.skips_verification {
            tls.cacert = tls.cacert.or(cacert);
        }
        if tls.cert.is_none() && tls.key.is_none() {
            (tls.cert, tls.key) = (cert, key);
        }
        store.security = Security::Tls(tls);
    }
    if store.user.is_none()
        && let Some((name, password)) = credentials::named(matches)
    {
        // The parts of a URL are read so.
        let escaped = |text: String| text.replace('%', "%25");
        store.user = Some((escaped(name), password.map(|password| Secret(escaped(password)))));
    }
    Ok(())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The members that a list of endpoints names, as a store's address has them, and whether they speak TLS.
fn members(list: &str) -> Result<(Vec<String>, bool)> {
    let mut hosts = Vec::new();
    let mut schemes = Vec::new();
    for endpoint in list.split(',').map(|endpoint| endpoint.trim().trim_end_matches('/')).filter(|one| !one.is_empty())
    {
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("", endpoint));
        schemes.push(scheme);
        hosts.push(host);
    }
    let is_tls = schemes.contains(&"https");
    if is_tls && schemes.contains(&"http") {
        anyhow::bail!("{list:?} names members with and without TLS: name the store with --store");
    }
    let (store, _) = StoreAddress::parse(&format!("hustings://{}", hosts.join(",")))?;
    Ok((store.endpoints, is_tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_as_for_all_other_commands() {
        let of = |list: &str| members(list).expect("it is right");
        assert_eq!(of("http://a:1, b:2/"), (vec!["a:1".to_owned(), "b:2".to_owned()], false));
        assert_eq!(of("https://a,https://b:2"), (vec!["a:2379".to_owned(), "b:2".to_owned()], true));
        assert!(members("https://a,http://b").is_err());
    }
}
