//! The Leases of a [`super::FakeKube`], and what a server demands of them.

use super::Refusal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of an empty store.
pub(super) const FIRST: u64 = 100;
const NAMESPACES: [&str; 2] = ["default", "team"];

/// A change, for watches and for reads of the past.
struct Event {
    revision: u64,
    kind: &'static str,
    key: (String, String),
    object: Value,
}

/// All Leases, and how they came to be what they are.
pub(super) struct Leases {
    revision: u64,
    all: BTreeMap<(String, String), Value>,
    events: Vec<Event>,
    /// Changes up to this one are forgotten.
    compacted: u64,
    next_uid: u64,
}

impl Default for Leases {
    fn default() -> Leases {
        Leases { revision: FIRST, all: BTreeMap::new(), events: Vec::new(), compacted: FIRST, next_uid: 1 }
    }
}

impl Leases {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn of(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&key(namespace, name))
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    pub(super) fn get(&self, namespace: &str, name: &str, stale: u64) -> Result<Value, Refusal> {
        let past = self.revision.saturating_sub(stale);
        let key = key(namespace, name);
        let known = match stale {
            0 => self.all.get(&key).cloned(),
            _ => {
                let event = self.events.iter().rev().find(|event| event.key == key && event.revision <= past);
                event.filter(|event| event.kind != "DELETED").map(|event| event.object.clone())
            }
        };
        known.ok_or_else(|| not_found(name))
    }

    pub(super) fn list(&self, namespace: &str, selector: Option<&str>) -> Value {
        let name = selector.and_then(|selector| selector.strip_prefix("metadata.name="));
        let items: Vec<&Value> = self
            .all
            .iter()
            .filter(|((of, named), _)| of == namespace && name.is_none_or(|name| name == named))
            .map(|(_, lease)| lease)
            .collect();
        json!({
            "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"resourceVersion": self.revision.to_string()}, "items": items,
        })
    }

    pub(super) fn create(&mut self, namespace: &str, mut lease: Value) -> Result<Value, Refusal> {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !NAMESPACES.contains(&namespace) {
            return Err(Refusal::new(404, "NotFound", format!("namespaces {namespace:?} not found")));
        }
        check_name(&name)?;
        check_spec(&name, &lease["spec"])?;
        if self.all.contains_key(&key(namespace, &name)) {
            let message = format!("leases.coordination.k8s.io {name:?} already exists");
            return Err(Refusal::new(409, "AlreadyExists", message));
        }
        if lease["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
            return Err(Refusal::new(400, "BadRequest", "resourceVersion should not be set on objects to be created"));
        }
        lease["metadata"]["namespace"] = namespace.into();
        lease["metadata"]["uid"] = format!("00000000-0000-4000-8000-{:012x}", self.next_uid).into();
        self.next_uid += 1;
        Ok(self.write("ADDED", namespace, &name, lease))
    }

    /// Replaces a Lease at any version.
    pub(super) fn replace(&mut self, namespace: &str, name: &str, mut lease: Value) -> Result<Value, Refusal> {
        let known = self.all.get(&key(namespace, name)).ok_or_else(|| not_found(name))?;
        check_spec(name, &lease["spec"])?;
        for field in ["uid", "namespace", "creationTimestamp"] {
            if let Some(value) = known["metadata"].get(field) {
                lease["metadata"][field] = value.clone();
            }
        }
        lease["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"].clone();
        if lease == *known {
            // A server writes nothing, and the version stays.
            return Ok(lease);
        }
        Ok(self.write("MODIFIED", namespace, name, lease))
    }

    pub(super) fn update(&mut self, namespace: &str, name: &str, lease: Value) -> Result<Value, Refusal> {
        let known = self.all.get(&key(namespace, name)).ok_or_else(|| not_found(name))?;
        if lease["metadata"]["name"].as_str() != Some(name) {
            let message = "the name of the object does not match the name on the URL";
            return Err(Refusal::new(400, "BadRequest", message));
        }
        let said = |field: &str| lease["metadata"][field].as_str().unwrap_or_default();
        if said("resourceVersion").is_empty() {
            let message = format!(
                "Lease.coordination.k8s.io {name:?} is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                 specified for an update"
            );
            return Err(Refusal::new(422, "Invalid", message));
        }
        let is_other = |field: &str| !said(field).is_empty() && known["metadata"][field].as_str() != Some(said(field));
        if is_other("resourceVersion") || is_other("uid") {
            return Err(conflict(name));
        }
        self.replace(namespace, name, lease)
    }

    pub(super) fn patch(&mut self, namespace: &str, name: &str, patch: &Value) -> Result<Value, Refusal> {
        let mut lease = self.all.get(&key(namespace, name)).ok_or_else(|| not_found(name))?.clone();
        merge(&mut lease, patch);
        self.update(namespace, name, lease)
    }

    pub(super) fn delete(&mut self, namespace: &str, name: &str, options: &Value) -> Result<Value, Refusal> {
        let known = self.all.get(&key(namespace, name)).ok_or_else(|| not_found(name))?.clone();
        for field in ["uid", "resourceVersion"] {
            let wanted = options["preconditions"][field].as_str();
            if wanted.is_some() && wanted != known["metadata"][field].as_str() {
                return Err(conflict(name));
            }
        }
        self.all.remove(&key(namespace, name));
        self.note("DELETED", namespace, name, known);
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
    }

    fn write(&mut self, kind: &'static str, namespace: &str, name: &str, lease: Value) -> Value {
        let lease = self.note(kind, namespace, name, lease);
        self.all.insert(key(namespace, name), lease.clone());
        lease
    }

    fn note(&mut self, kind: &'static str, namespace: &str, name: &str, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.events.push(Event { revision: self.revision, kind, key: key(namespace, name), object: object.clone() });
        object
    }

    /// The changes after a version; without one all that is there, as if it were new.
    pub(super) fn events(&self, namespace: &str, name: Option<&str>, from: Option<u64>) -> Result<Vec<Value>, Refusal> {
        let is_wanted = |key: &(String, String)| key.0 == namespace && name.is_none_or(|name| name == key.1);
        let Some(from) = from else {
            let all = self.all.iter().filter(|(key, _)| is_wanted(key));
            return Ok(all.map(|(_, lease)| json!({"type": "ADDED", "object": lease})).collect());
        };
        if from < self.compacted {
            return Err(Refusal::new(410, "Expired", format!("too old resource version: {from} ({})", self.compacted)));
        }
        let later = self.events.iter().filter(|event| event.revision > from && is_wanted(&event.key));
        Ok(later.map(|event| json!({"type": event.kind, "object": event.object})).collect())
    }
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

fn not_found(name: &str) -> Refusal {
    Refusal::new(404, "NotFound", format!("leases.coordination.k8s.io {name:?} not found"))
}

fn conflict(name: &str) -> Refusal {
    let message = format!(
        "Operation cannot be fulfilled on leases.coordination.k8s.io {name:?}: the object has been modified; please apply \
         your changes to the latest version and try again"
    );
    Refusal::new(409, "Conflict", message)
}

/// Merges a patch into an object, by RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().map(|object| object.remove(name))),
            value => merge(&mut object[name.as_str()], value),
        }
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let is_right = is_edge(name.bytes().next()) && is_edge(name.bytes().last()) && name.bytes().all(is_inner);
    match is_right && name.len() <= 253 {
        true => Ok(()),
        false => Err(invalid(name, "metadata.name", "a lowercase RFC 1123 subdomain must consist of lower case ...")),
    }
}

fn invalid(name: &str, field: &str, why: &str) -> Refusal {
    Refusal::new(
        422,
        "Invalid",
        format!("Lease.coordination.k8s.io {name:?} is invalid: {field}: Invalid value: {why}"),
    )
}

fn check_spec(name: &str, spec: &Value) -> Result<(), Refusal> {
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        match &spec[field] {
            Value::Null => {}
            value => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
                    Refusal::new(
                        400,
                        "BadRequest",
                        format!("cannot unmarshal into Go struct field LeaseSpec.spec.{field}"),
                    )
                })?;
                if number < least {
                    return Err(invalid(name, &format!("spec.{field}"), &format!("must be at least {least}")));
                }
            }
        }
    }
    for field in ["acquireTime", "renewTime"] {
        let is_right = match &spec[field] {
            Value::Null => true,
            value => value.as_str().is_some_and(is_micro_time),
        };
        if !is_right {
            let message = format!("parsing time {}: cannot parse as \"2006-01-02T15:04:05.000000Z07:00\"", spec[field]);
            return Err(Refusal::new(400, "BadRequest", message));
        }
    }
    for field in ["holderIdentity", "strategy", "preferredHolder"] {
        if !spec[field].is_null() && !spec[field].is_string() {
            return Err(Refusal::new(400, "BadRequest", format!("cannot unmarshal into LeaseSpec.spec.{field}")));
        }
    }
    if spec["preferredHolder"].as_str().is_some_and(|name| !name.is_empty()) && spec["strategy"].is_null() {
        return Err(invalid(name, "spec.preferredHolder", "may only be specified if `strategy` is defined"));
    }
    Ok(())
}

/// `2006-01-02T15:04:05.000000Z`, six digits of a second and no other number.
fn is_micro_time(text: &str) -> bool {
    let form = b"0000-00-00T00:00:00.000000Z";
    let is_like = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() == form.len() && text.bytes().zip(form).all(is_like)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(seconds: i64) -> Value {
        json!({"metadata": {"name": "billing"}, "spec": {"leaseDurationSeconds": seconds}})
    }

    fn code(done: Result<Value, Refusal>) -> u16 {
        done.map_or_else(|refusal| refusal.code, |_| 200)
    }

    #[test]
    fn only_the_latest_version_can_be_written() {
        let mut leases = Leases::default();
        let first = leases.create("default", lease(15)).map_err(|_| ()).expect("it is new");
        let mut second = first.clone();
        second["spec"]["leaseDurationSeconds"] = 16.into();
        let version = leases.revision();
        assert_eq!(code(leases.update("default", "billing", first.clone())), 200);
        assert_eq!(leases.revision(), version, "what changes nothing is no version");
        assert_eq!(code(leases.update("default", "billing", second)), 200);
        assert_eq!(code(leases.update("default", "billing", first)), 409);
        assert_eq!(code(leases.update("default", "billing", lease(15))), 422, "an update names a version");
        let patch = json!({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "x"}});
        assert_eq!(code(leases.patch("default", "billing", &patch)), 409);
        let patch = json!({"spec": {"holderIdentity": "x", "leaseDurationSeconds": null}});
        let patched = leases.patch("default", "billing", &patch).map_err(|_| ()).expect("it names no version");
        assert_eq!(patched["spec"], json!({"holderIdentity": "x"}));
    }

    #[test]
    fn what_a_server_refuses_is_refused() {
        let mut leases = Leases::default();
        assert_eq!(code(leases.create("nowhere", lease(15))), 404);
        assert_eq!(code(leases.create("default", lease(0))), 422);
        let mut named = lease(15);
        named["metadata"]["name"] = "Team/Billing".into();
        assert_eq!(code(leases.create("default", named)), 422);
        let mut timed = lease(15);
        timed["spec"]["renewTime"] = "2026-11-22T10:00:00Z".into();
        assert_eq!(code(leases.create("default", timed)), 400, "micro times have six digits");
        assert_eq!(code(leases.create("default", lease(15))), 200);
        assert_eq!(code(leases.create("default", lease(15))), 409);
        assert_eq!(code(leases.delete("default", "billing", &json!({"preconditions": {"uid": "x"}}))), 409);
        leases.compact();
        assert_eq!(leases.events("default", None, Some(FIRST)).map_err(|refusal| refusal.code), Err(410));
    }
}
