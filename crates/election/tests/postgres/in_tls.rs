//! PostgreSQL over TLS. Method: a real server that admits nobody who speaks plain text, and one that speaks nothing else.

use crate::stories::log::keep;
use crate::stories::strangers::{Observers, denial, is_waited_for, refusal};
use crate::stories::town::Town;
use crate::stories::{a_will_releases_its_tenure_and_no_other, campaign, candidate, one_leads_after_the_other};
use hustings_testbed::Postgres;
use hustings_tls::made::Subject;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3);

/// Rules of admission: a user that comes as `certified` shows a certificate with that name.
const RULES: &str = "hostssl all postgres 127.0.0.1/32 trust\nhostssl all certified 127.0.0.1/32 cert\n";

fn server(town: &Town) -> Postgres {
    Postgres::start_in_tls(&town.server.certificate, &town.server.key, &town.ca, RULES).expect("it starts")
}

fn url(server: &Postgres, user: &str, query: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres/billing{query}", server.port)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_in_tls_is_one_in_every_mode() {
    let town = Town::found();
    let server = server(&town);
    let ca = town.ca.display();
    for query in [
        format!("?sslmode=verify-full&sslrootcert={ca}"),
        format!("?sslmode=verify-ca&sslrootcert={ca}"),
        "?sslmode=require".to_owned(),
    ] {
        one_leads_after_the_other(&url(&server, "postgres", &query), TTL).await;
    }
    let full = url(&server, "postgres", &format!("?sslmode=verify-full&sslrootcert={ca}"));
    a_will_releases_its_tenure_and_no_other(&full, TTL).await;
    // By a certificate, and without a password.
    server
        .sql("CREATE ROLE certified LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO certified")
        .expect("it is made");
    server.sql("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO certified").expect("it is granted");
    let full = format!("?sslmode=verify-full&sslrootcert={ca}");
    let why = denial(&url(&server, "certified", &full), TTL, Observers::AreDenied).await;
    assert!(why.contains("28000") && why.contains("give sslcert=FILE and sslkey=FILE"), "{why}");
    let pair = town.issue("certified", &Subject::new("certified"));
    let shown = format!("{full}&sslcert={}&sslkey={}", pair.certificate.display(), pair.key.display());
    let leadership = campaign(&candidate(&url(&server, "certified", &shown), TTL, "a")).await;
    let encrypted = server
        .sql(
            "SELECT count(*), bool_and(ssl), max(client_dn) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE application_name = 'hustings-election' AND usename = 'certified'",
        )
        .expect("it is told");
    assert_eq!(encrypted, "1|t|/CN=certified");
    leadership.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_tls_from_coming_about_is_named_with_the_remedy() {
    keep();
    let town = Town::found();
    let secured = server(&town);
    let port = secured.port.to_string();
    // Plain text where TLS is asked for.
    for query in ["", "?sslmode=disable"] {
        let why = denial(&url(&secured, "postgres", query), TTL, Observers::AreDenied).await;
        assert!(why.contains("28000") && why.contains("say `?sslmode=verify-full&sslrootcert=FILE`"), "{why}");
    }
    // Another CA.
    for mode in ["verify-full", "verify-ca", "require"] {
        let query = format!("?sslmode={mode}&sslrootcert={}", town.other_ca.display());
        let words = ["tried again", &port, "signed by a CA that is not trusted here", "sslrootcert=FILE"];
        is_waited_for(&url(&secured, "postgres", &query), TTL, &words).await;
    }
    // No CA at all.
    let why = refusal(&url(&secured, "postgres", "?sslmode=verify-full&sslrootcert=/nowhere/ca.crt"), TTL).await;
    assert!(why.contains("/nowhere/ca.crt: it cannot be read"), "{why}");
    // TLS where plain text is all there is.
    let plain = Postgres::start(&[]).expect("it starts");
    let (port, query) = (plain.port.to_string(), format!("?sslmode=verify-full&sslrootcert={}", town.ca.display()));
    let words = ["tried again", &port, "server does not support TLS", "ssl = on"];
    is_waited_for(&url(&plain, "postgres", &query), TTL, &words).await;
}

/// Goal: a certificate counts for its host alone, unless the URL says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_another_host_is_believed_by_verify_ca_alone() {
    keep();
    let town = Town::found();
    let other = town.issue("other", &Subject::new("other").host("db.example.org"));
    let rules = "hostssl all postgres 127.0.0.1/32 trust\n";
    let server = Postgres::start_in_tls(&other.certificate, &other.key, &town.ca, rules).expect("it starts");
    let at = |mode: &str| url(&server, "postgres", &format!("?sslmode={mode}&sslrootcert={}", town.ca.display()));
    let words = ["tried again", &server.port.to_string(), "not valid for name"];
    is_waited_for(&at("verify-full"), TTL, &words).await;
    campaign(&candidate(&at("verify-ca"), TTL, "a")).await.resign("done").await;
}
