//! The statements, and how a row is read.

use crate::stores::record::{Content, Fault, Holder, Record, Swap, note_of, note_to_text, wish_of, wish_to_text};
use hustings_lease::{CandidateId, Token};
use std::sync::LazyLock;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// Makes the tables of elections; for a user that may.
pub(super) const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS hustings_elections (\
election text PRIMARY KEY, holder text, life text, value text NOT NULL DEFAULT '', priority bigint NOT NULL DEFAULT 0, \
token bigint NOT NULL DEFAULT 0, generation bigint NOT NULL DEFAULT 0, ttl_ms bigint, note text, wish text, \
history text NOT NULL DEFAULT '', raised bigint NOT NULL DEFAULT 0, timeline bigint NOT NULL DEFAULT 1, \
version bigint NOT NULL DEFAULT 1); \
CREATE SEQUENCE IF NOT EXISTS hustings_tokens;";

/// Rights that a user needs who did not make the tables.
pub(super) const RIGHTS: &str = "\
GRANT SELECT, INSERT, UPDATE ON hustings_elections TO \"USER\"; GRANT USAGE ON SEQUENCE hustings_tokens TO \"USER\";";

/// The timeline on which this server writes: the first eight digits of the segment's name. An error on a standby.
const SERVER: &str =
    "(SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline)";

/// The columns of a record `r` at a server `s`, as [`record_of`] reads them.
const COLUMNS: &str = "r.version, r.holder, r.life, r.value, r.priority, r.token, r.generation, r.ttl_ms, r.note, r.wish, \
r.history, r.raised, r.raised + 1000 * (GREATEST(r.timeline, s.timeline) - 1) AS next_generation";

/// One row always: without a record its columns are NULL.
pub(super) static READ: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM {SERVER} s LEFT JOIN hustings_elections r ON r.election = $1"));

/// Swaps exactly the version and token `$12`, `$13`.
pub(super) static UPDATE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH swapped AS (UPDATE hustings_elections r SET holder = $2, life = $3, value = $4, priority = $5, ttl_ms = $6, \
         note = $7, wish = $8, history = $9, version = r.version + 1, \
         raised = $10 + CASE WHEN $11 THEN 1000 * GREATEST(r.timeline - s.timeline, 0) ELSE 0 END, \
         timeline = CASE WHEN $11 THEN s.timeline ELSE r.timeline END, \
         token = CASE WHEN $11 THEN GREATEST(nextval('hustings_tokens'), r.token + 1) ELSE r.token END, \
         generation = CASE WHEN $11 THEN $10 + 1000 * (GREATEST(r.timeline, s.timeline) - 1) ELSE r.generation END \
         FROM {SERVER} s WHERE r.election = $1 AND r.version = $12 AND r.token = $13 RETURNING {COLUMNS}) \
         SELECT swapped.*, CASE WHEN $14 THEN pg_notify('hustings_elections', $1)::text END FROM swapped"
    )
});

/// Makes the row, if there is none.
pub(super) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let columns = COLUMNS.replace("GREATEST(r.timeline, s.timeline)", "r.timeline");
    format!(
        "WITH made AS (INSERT INTO hustings_elections AS r (election, holder, life, value, priority, ttl_ms, note, wish, \
         history, raised, timeline, token, generation) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, s.timeline, \
         CASE WHEN $11 THEN nextval('hustings_tokens') ELSE 0 END, \
         CASE WHEN $11 THEN $10 + 1000 * (s.timeline - 1) ELSE 0 END \
         FROM {SERVER} s ON CONFLICT (election) DO NOTHING RETURNING {columns}) \
         SELECT made.*, CASE WHEN $12 THEN pg_notify('hustings_elections', $1)::text END FROM made"
    )
});

/// A version of a row: numbers of versions begin anew when a row is deleted, tokens do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    version: i64,
    token: i64,
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The one parameter of a read.
pub(super) fn name<'a>(election: &'a &'a str) -> [Parameter<'a>; 1] {
    [(election, Type::TEXT)]
}

/// The values that a swap writes.
pub(super) struct Values {
    holder: Option<String>,
    life: Option<String>,
    value: String,
    priority: i64,
    ttl_ms: Option<i64>,
    note: Option<String>,
    wish: Option<String>,
    history: String,
    raised: i64,
    is_win: bool,
    is_news: bool,
}

impl Values {
    pub(super) fn of<S>(swap: &Swap<'_, S>, is_win: bool) -> Values {
        let content = swap.content;
        let holder = content.holder.as_ref();
        Values {
            holder: holder.map(|holder| holder.id.0.clone()),
            life: holder.map(|holder| holder.life.clone()),
            value: holder.map(|holder| holder.value.clone()).unwrap_or_default(),
            priority: holder.map(|holder| holder.priority.into()).unwrap_or_default(),
            ttl_ms: content.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
            note: content.note.as_ref().map(note_to_text),
            wish: content.wish.as_ref().map(wish_to_text),
            history: content.history.clone(),
            raised: content.raised.into(),
            is_win,
            is_news: swap.is_news,
        }
    }

    fn common<'a>(&'a self, election: &'a &'a str) -> Vec<Parameter<'a>> {
        vec![
            (election, Type::TEXT),
            (&self.holder, Type::TEXT),
            (&self.life, Type::TEXT),
            (&self.value, Type::TEXT),
            (&self.priority, Type::INT8),
            (&self.ttl_ms, Type::INT8),
            (&self.note, Type::TEXT),
            (&self.wish, Type::TEXT),
            (&self.history, Type::TEXT),
            (&self.raised, Type::INT8),
            (&self.is_win, Type::BOOL),
        ]
    }

    pub(super) fn for_update<'a>(&'a self, election: &'a &'a str, over: &'a Stamp) -> Vec<Parameter<'a>> {
        let mut all = self.common(election);
        all.extend([
            (&over.version as &(dyn ToSql + Sync), Type::INT8),
            (&over.token, Type::INT8),
            (&self.is_news, Type::BOOL),
        ]);
        all
    }

    pub(super) fn for_insert<'a>(&'a self, election: &'a &'a str) -> Vec<Parameter<'a>> {
        let mut all = self.common(election);
        all.push((&self.is_news, Type::BOOL));
        all
    }
}

/// The record in a row, if there is one.
///
/// # Errors
/// Contents that no candidate has written, with its column and the remedy.
pub(super) fn record_of(election: &str, row: Option<&Row>) -> Result<Option<Record<Stamp>>, Fault> {
    let Some(row) = row else { return Ok(None) };
    let version: Option<i64> = column(election, row, "version")?;
    let Some(version) = version else { return Ok(None) };
    let (token, generation) = (column(election, row, "token")?, column(election, row, "generation")?);
    let holder: Option<String> = column(election, row, "holder")?;
    let life: Option<String> = column(election, row, "life")?;
    let value: Option<String> = column(election, row, "value")?;
    let priority = column(election, row, "priority")?;
    let holder = holder.map(|id| Holder {
        id: CandidateId::named(id),
        life: life.unwrap_or_default(),
        value: value.unwrap_or_default(),
        // It decides nothing here.
        priority: u32::try_from(i64::clone(&priority)).unwrap_or_default(),
    });
    let ttl: Option<i64> = column(election, row, "ttl_ms")?;
    let ttl = ttl.map(|millis| number(election, "ttl_ms", millis)).transpose()?.map(Duration::from_millis);
    let (note, wish): (Option<String>, Option<String>) =
        (column(election, row, "note")?, column(election, row, "wish")?);
    let history: Option<String> = column(election, row, "history")?;
    let content = Content {
        holder,
        token: Token {
            generation: number(election, "generation", generation)?,
            number: number(election, "token", token)?,
        },
        is_guessed: false,
        ttl,
        note: note.as_deref().and_then(note_of),
        wish: wish.as_deref().and_then(wish_of),
        raised: number(election, "raised", column(election, row, "raised")?)?,
        history: history.unwrap_or_default(),
    };
    let generation = number(election, "raised or timeline", column(election, row, "next_generation")?)?;
    Ok(Some(Record { content, generation, stamp: Stamp { version, token } }))
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(election: &str, row: &'a Row, name: &str) -> Result<T, Fault> {
    row.try_get(name).map_err(|error| wrong(election, name, &error.to_string()))
}

fn number<T: TryFrom<i64>>(election: &str, name: &str, value: i64) -> Result<T, Fault> {
    T::try_from(value).map_err(|_| wrong(election, name, &format!("{value} is out of its range")))
}

fn wrong(election: &str, name: &str, why: &str) -> Fault {
    Fault::Refused(format!(
        "the row {election:?} of hustings_elections was written by somebody else, column {name}: {why}; repair it with \
         UPDATE, or delete the row while nobody leads"
    ))
}
