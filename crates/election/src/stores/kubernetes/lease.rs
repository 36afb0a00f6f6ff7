//! A Lease as a record, and a record as a Lease.

use crate::stores::record::{Content, Holder, Numbering, Swap, Wished, note_of, note_to_text, wish_of, wish_to_text};
use hustings_lease::{CandidateId, Token};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::micro_time;

const TENURE: &str = "hustings.github.io/tenure";
const NOTE: &str = "hustings.github.io/note";
const WISH: &str = "hustings.github.io/wish";
const HISTORY: &str = "hustings.github.io/history";
const GENERATION: &str = "hustings.github.io/generation";

/// A whole Lease as the server gave it: what is not ours in it is written back as it was.
#[derive(Clone, Debug)]
pub(crate) struct Stamp(pub(super) Value);

impl PartialEq for Stamp {
    /// One version of one object. A Lease that was deleted and made again is another object.
    fn eq(&self, other: &Stamp) -> bool {
        let of = |lease: &Value| (lease["metadata"]["uid"].clone(), lease["metadata"]["resourceVersion"].clone());
        of(&self.0) == of(&other.0)
    }
}

/// The tenure that our annotations are about.
#[derive(Serialize, Deserialize)]
struct Tenure {
    /// The holder; empty once it has left.
    identity: String,
    transitions: i64,
    generation: u32,
    /// Absent in the write that won: its own version is the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    value: String,
    #[serde(default)]
    priority: u32,
}

/// The holder's name in a Lease.
fn identity_of(holder: &Holder) -> String {
    match holder.life.is_empty() {
        true => holder.id.0.clone(),
        false => format!("{}_{}", holder.id, holder.life),
    }
}

/// A name that one of our candidates wrote, in its parts; a stranger's is all name.
fn holder_of(identity: &str) -> Holder {
    let is_life = |life: &str| life.len() == 16 && life.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (id, life) = identity.rsplit_once('_').filter(|(_, life)| is_life(life)).unwrap_or((identity, ""));
    Holder { id: CandidateId::named(id), life: life.to_owned(), value: String::new(), priority: 0 }
}

fn text<'a>(spec: &'a Value, field: &str) -> Result<&'a str, String> {
    match &spec[field] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        other => Err(format!("the Lease's spec.{field} holds {other}, which is no text")),
    }
}

fn number(spec: &Value, field: &str) -> Result<Option<i64>, String> {
    match &spec[field] {
        Value::Null => Ok(None),
        value => value
            .as_i64()
            .filter(|number| *number >= 0)
            .map(Some)
            .ok_or_else(|| format!("the Lease's spec.{field} holds {value}, which is no count")),
    }
}

fn tenure_of(lease: &Value) -> Option<Tenure> {
    serde_json::from_str(lease["metadata"]["annotations"][TENURE].as_str()?).ok()
}

/// The contents of a Lease, and the generation that the next tenure will have.
///
/// # Errors
/// Contents that no candidate has written, with its place and the remedy.
pub(super) fn content_of(lease: &Value) -> Result<(Content, u32), String> {
    let (metadata, spec) = (&lease["metadata"], &lease["spec"]);
    let version = metadata["resourceVersion"].as_str().filter(|version| !version.is_empty());
    let version = version.ok_or("the answer is no Lease: it has no metadata.resourceVersion")?;
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    let raised: u32 = match annotation(GENERATION) {
        None => 0,
        Some(text) => text.trim().parse().map_err(|_| {
            format!(
                "the Lease's annotation {GENERATION} holds {text:?}, which is no number: annotate it with the right one"
            )
        })?,
    };
    let identity = text(spec, "holderIdentity")?;
    let transitions = number(spec, "leaseTransitions")?.unwrap_or_default();
    let seconds = number(spec, "leaseDurationSeconds")?;
    let tenure = tenure_of(lease).filter(|tenure| (&*tenure.identity, tenure.transitions) == (identity, transitions));
    // Versions that are no numbers cannot be compared; the count of holders can.
    let current = version.parse().unwrap_or(transitions.unsigned_abs());
    let mut content = Content {
        raised,
        history: annotation(HISTORY).unwrap_or_default().to_owned(),
        wish: annotation(WISH).and_then(wish_of),
        ttl: seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
        ..Content::default()
    };
    if identity.is_empty() {
        content.note = tenure.and_then(|_| note_of(annotation(NOTE)?));
        content.token = content.note.as_ref().map(|note| note.token).unwrap_or_default();
        return Ok((content, raised));
    }
    let mut holder = holder_of(identity);
    content.token = Token { generation: raised, number: current };
    content.is_guessed = tenure.as_ref().is_none_or(|tenure| tenure.number.is_none());
    if let Some(tenure) = tenure {
        content.token = Token { generation: tenure.generation, number: tenure.number.unwrap_or(current) };
        (holder.value, holder.priority) = (tenure.value, tenure.priority);
    }
    let preferred = text(spec, "preferredHolder")?;
    if !preferred.is_empty() && preferred != identity {
        let (token, because) = (content.token, "another holder is preferred".to_owned());
        content.wish = Some(Wished { token, because, to: Some(holder_of(preferred).id.0) });
    }
    content.holder = Some(holder);
    Ok((content, raised))
}

/// The Lease that a swap writes.
pub(super) fn written(namespace: &str, election: &str, swap: &Swap<'_, Stamp>) -> Value {
    let content = swap.content;
    let mut lease = match swap.over {
        Some(over) => over.stamp.0.clone(),
        None => json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": election, "namespace": namespace}, "spec": {},
        }),
    };
    let before = swap.over.and_then(|over| over.content.holder.as_ref());
    let old = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
    let now = micro_time::after(lease["spec"]["renewTime"].as_str());
    let mut tenure = tenure_of(&lease).filter(|tenure| (&tenure.identity, tenure.transitions) == (&old, transitions));
    let mut spec = match lease["spec"].take() {
        Value::Object(spec) => spec,
        _ => Map::new(),
    };
    match (&content.holder, swap.numbering) {
        (Some(holder), Numbering::New) => {
            let identity = identity_of(holder);
            let is_other = identity != old;
            let transitions =
                transitions + i64::from(swap.over.is_some() && is_other && transitions < i64::from(i32::MAX));
            spec.insert("holderIdentity".to_owned(), identity.clone().into());
            spec.insert("leaseTransitions".to_owned(), transitions.into());
            spec.insert("acquireTime".to_owned(), now.clone().into());
            spec.insert("renewTime".to_owned(), now.into());
            spec.remove("preferredHolder");
            let (generation, value, priority) = (content.raised, holder.value.clone(), holder.priority);
            tenure = Some(Tenure { identity, transitions, generation, number: None, value, priority });
        }
        (None, _) if before.is_some() => {
            spec.insert("holderIdentity".to_owned(), "".into());
            spec.insert("acquireTime".to_owned(), now.clone().into());
            spec.insert("renewTime".to_owned(), now.into());
            spec.remove("preferredHolder");
            let identity = String::new();
            let (generation, number) = (content.token.generation, Some(content.token.number));
            tenure = Some(Tenure { identity, transitions, generation, number, value: String::new(), priority: 0 });
        }
        _ => {
            if !swap.is_news {
                spec.insert("renewTime".to_owned(), now.into());
            }
            // A write of what is known for sure writes it down, also after the annotations were lost.
            tenure = match &content.holder {
                Some(holder) if !holder.life.is_empty() && !content.is_guessed => Some(Tenure {
                    identity: old,
                    transitions,
                    generation: content.token.generation,
                    number: Some(content.token.number),
                    value: holder.value.clone(),
                    priority: holder.priority,
                }),
                _ => tenure,
            };
        }
    }
    if content.holder.is_some() || before.is_some() {
        let seconds = content.ttl.filter(|_| content.holder.is_some()).map_or(1, |ttl| ttl.as_secs().max(1));
        spec.insert("leaseDurationSeconds".to_owned(), seconds.into());
    }
    lease["spec"] = Value::Object(spec);
    annotate(&mut lease, content, tenure);
    lease
}

fn annotate(lease: &mut Value, content: &Content, tenure: Option<Tenure>) {
    if !lease["metadata"]["annotations"].is_object() {
        lease["metadata"]["annotations"] = json!({});
    }
    let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() else { return };
    let mut set = |name: &str, value: Option<String>| match value {
        Some(value) => drop(annotations.insert(name.to_owned(), value.into())),
        None => drop(annotations.remove(name)),
    };
    if let Some(tenure) = tenure {
        set(TENURE, serde_json::to_string(&tenure).ok());
    }
    set(NOTE, content.note.as_ref().map(note_to_text));
    set(WISH, content.wish.as_ref().map(wish_to_text));
    set(HISTORY, Some(content.history.clone()).filter(|history| !history.is_empty()));
    set(GENERATION, Some(content.raised).filter(|raised| *raised > 0).map(|raised| raised.to_string()));
}
