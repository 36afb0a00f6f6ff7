//! Translates an error of PostgreSQL for the request that met it.

use crate::stores::record::Fault;
use std::error::Error;
use tokio_postgres::error::SqlState;

/// Another transaction came first, under an isolation level that says so: nothing was written.
pub(super) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code))
}

/// The server is no primary (any more): another one is.
pub(super) fn is_standby(error: &tokio_postgres::Error) -> bool {
    let states = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE];
    matches!(error.code(), Some(code) if states.contains(code))
}

/// Whether the user is not admitted, or may not.
pub(super) fn is_denial(error: &tokio_postgres::Error) -> bool {
    let states =
        [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION, SqlState::INSUFFICIENT_PRIVILEGE];
    // The server asks for a password, and there is none: no code says so.
    words(error).contains("password missing") || matches!(error.code(), Some(code) if states.contains(code))
}

/// Whether trying again does not help: a user that may not log in, a database that is not there.
pub(super) fn is_final(error: &tokio_postgres::Error) -> bool {
    let states = [
        SqlState::INVALID_CATALOG_NAME,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::WRONG_OBJECT_TYPE,
        SqlState::DATATYPE_MISMATCH,
    ];
    is_denial(error) || matches!(error.code(), Some(code) if states.contains(code))
}

/// Remedy for the error, as far as one is known.
pub(super) fn remedy(error: &tokio_postgres::Error, is_encrypted: bool) -> &'static str {
    match error.code() {
        // The rules of who may come, and how, stand in `pg_hba.conf`; the server says in its own language what it misses.
        Some(code) if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => match is_encrypted {
            false => {
                "; the user and the password come from the URL, or from PGUSER and PGPASSWORD; where the server asks for TLS, say \
                 `?sslmode=verify-full&sslrootcert=FILE` behind the URL, or PGSSLMODE and PGSSLROOTCERT"
            }
            true => {
                "; the user and the password come from the URL, or from PGUSER and PGPASSWORD; where the server asks for a \
                 certificate, give sslcert=FILE and sslkey=FILE behind the `?` of the URL, or PGSSLCERT and PGSSLKEY"
            }
        },
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            "; name a database that is there behind the host of the URL, or make this one (`createdb`)"
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "; let the user come to this database there (GRANT CONNECT ON DATABASE), or name another user or database in the URL"
        }
        _ if is_denial(error) => "; the password comes from the URL or from PGPASSWORD",
        _ if is_final(error) => {
            "; something of that name is there that is not ours: take it away, or name another database"
        }
        None if words(error).contains("server does not support TLS") => {
            "; switch it on there (ssl = on), or say `?sslmode=disable` where plain text is meant"
        }
        _ => "",
    }
}

/// Translates the error of a failed request: was it done?
pub(super) fn fault_of(error: &tokio_postgres::Error) -> Fault {
    let words = words(error);
    let Some(code) = error.code() else { return Fault::Unknown(words) };
    // A statement that the server answers with an error has written nothing, except where the server itself went away.
    match code.code() {
        "40003" => Fault::Unknown(words),
        code if code.starts_with("08")
            || code.starts_with("57P")
            || code.starts_with("58")
            || code.starts_with("XX") =>
        {
            Fault::Unknown(words)
        }
        _ if is_denial(error) => Fault::Denied(words),
        _ => Fault::Refused(words),
    }
}

/// All that the error says: the outermost layer of it says little.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("{}: {}{hint}", error.code().code(), error.message());
    }
    let mut all = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !all.contains(&inner) {
            all = format!("{all}: {inner}");
        }
        source = error.source();
    }
    all
}
