//! The words about a run: the setting before it, the figures after it.

use super::choice::Operation;
use super::recorder::{Pace, Recorder};
use super::settings::{LeaseWork, Settings, Work};
use super::surroundings::Surroundings;
use hdrhistogram::Histogram;
use hustings_console::usage::Usage;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The quantiles that are told.
const QUANTILES: [(&str, f64); 6] =
    [("p50_ms", 0.5), ("p90_ms", 0.9), ("p95_ms", 0.95), ("p99_ms", 0.99), ("p99.9_ms", 0.999), ("p99.99_ms", 0.9999)];

fn milliseconds(delays: &Histogram<u64>, quantile: f64) -> f64 {
    delays.value_at_quantile(quantile) as f64 / 1_000.0
}

fn is_reading(work: &Work) -> bool {
    match work {
        Work::Store(work) => work.mix.has(Operation::Get) || work.mix.has(Operation::Range),
        _ => false,
    }
}

/// Whether nobody asks anything but to wait.
fn is_expiry(work: &Work) -> bool {
    matches!(work, Work::Lease { what: LeaseWork::Expiry { .. }, .. })
}

/// The setting, for people.
pub(super) fn setting_in_words(settings: &Settings, around: &Surroundings) -> String {
    let mut text = String::new();
    let how = match settings.pace {
        _ if is_expiry(&settings.work) => "all leases are granted, then each is waited for".to_owned(),
        Pace::Closed => "closed loop: a client asks again once it has its answer (--rate for an open loop)".to_owned(),
        Pace::Open { per_second } => {
            format!("open loop: {per_second} requests are due per second, and each counts from when it was due")
        }
    };
    let _ = writeln!(text, "{}: {how}", settings.verb);
    let mut target = vec![around.server.clone().unwrap_or_else(|| "a server that does not say its version".into())];
    target
        .extend(around.members.map(|members| format!("{members} {}", if members == 1 { "member" } else { "members" })));
    target.extend(around.protocol.clone());
    let _ = writeln!(text, "  target    {} at {}", target.join(", "), settings.endpoints.join(","));
    let mut load = format!("{} clients, {} connections", settings.clients, settings.connections);
    match (settings.run, settings.total) {
        _ if is_expiry(&settings.work) => {}
        (Some(run), None) => load.push_str(&format!(", {run:?} after {:?} of warming up", settings.warm_up)),
        (None, total) => {
            load.push_str(&format!(", {} requests after {:?} of warming up", total.unwrap_or(0), settings.warm_up));
        }
        (Some(run), Some(total)) => {
            load.push_str(&format!(", {total} requests or {run:?}, after {:?} of warming up", settings.warm_up));
        }
    }
    let _ = writeln!(text, "  load      {load}; answers within {:?}; seed {}", settings.timeout, settings.seed);
    let keys = |keys: &super::choice::Keys| format!("{} keys of {} bytes, {}", keys.count, keys.bytes, keys.popularity);
    let asks = match &settings.work {
        Work::Store(work) => {
            let reads = match (is_reading(&settings.work), work.is_serializable) {
                (false, _) => "",
                (true, true) => ", reads serializable",
                (true, false) => ", reads linearizable",
            };
            format!("{}{reads}; {}; values of {} bytes", work.mix, keys(&work.keys), work.sizes)
        }
        Work::Watch { watchers, keys: watched, sizes } => {
            format!(
                "puts, and their events at {watchers} watchers; {}; values of {sizes} bytes, 32 at least",
                keys(watched)
            )
        }
        Work::Lease { what: LeaseWork::Expiry { leases }, ttl_seconds } => {
            format!("{leases} leases of {ttl_seconds} s, and how late each expires")
        }
        Work::Lease { ttl_seconds, .. } => format!("leases of {ttl_seconds} s"),
    };
    let _ = writeln!(text, "  requests  {asks}");
    let processor = around.processor.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    let _ = write!(text, "  driver    {} cores{processor}", around.cores);
    text
}

/// The setting, for programs.
fn setting_as_json(settings: &Settings, around: &Surroundings) -> Value {
    let (mut mix, mut keys, mut sizes, mut consistency) = (None, None, None, None);
    let (mut watchers, mut ttl, mut leases) = (None, None, None);
    match &settings.work {
        Work::Store(work) => {
            (mix, keys, sizes) = (Some(work.mix.to_string()), Some(&work.keys), Some(work.sizes.to_string()));
            let named = if work.is_serializable { "serializable" } else { "linearizable" };
            consistency = is_reading(&settings.work).then_some(named);
        }
        Work::Watch { watchers: told, keys: watched, sizes: told_sizes } => {
            (watchers, keys, sizes) = (Some(*told), Some(watched), Some(told_sizes.to_string()));
        }
        Work::Lease { what, ttl_seconds } => {
            ttl = Some(*ttl_seconds);
            if let LeaseWork::Expiry { leases: told } = what {
                leases = Some(*told);
            }
        }
    }
    json!({
        "endpoints": settings.endpoints,
        "server": around.server,
        "protocol": around.protocol,
        "members": around.members,
        "warm_up_seconds": settings.warm_up.as_secs_f64(),
        "total": settings.total,
        "timeout_seconds": settings.timeout.as_secs_f64(),
        "seed": settings.seed,
        "mix": mix,
        "keys": keys.map(|keys| keys.count),
        "key_size": keys.map(|keys| keys.bytes),
        "distribution": keys.map(|keys| keys.popularity.to_string()),
        "value_size": sizes,
        "consistency": consistency,
        "watchers": watchers,
        "lease_ttl_seconds": ttl,
        "leases": leases,
        "cores": around.cores,
        "processor": around.processor,
    })
}

/// A run that has ended.
pub(super) struct Report<'a> {
    pub(super) settings: &'a Settings,
    pub(super) around: &'a Surroundings,
    pub(super) recorder: &'a Recorder,
    pub(super) usage: Usage,
    /// Duration of the part that counts.
    pub(super) measured: Duration,
}

impl Report<'_> {
    fn seconds(&self) -> f64 {
        self.measured.as_secs_f64().max(1e-6)
    }

    /// Processor time of the members on this machine per answer; nothing when they run elsewhere.
    fn server_micros(&self) -> f64 {
        self.usage.servers().as_secs_f64() * 1e6 / self.recorder.answered.max(1) as f64
    }

    fn delays_as_json(delays: &Histogram<u64>) -> Value {
        let mut figures = json!({
            "min_ms": delays.min() as f64 / 1_000.0,
            "mean_ms": delays.mean() / 1_000.0,
            "max_ms": delays.max() as f64 / 1_000.0,
        });
        for (name, quantile) in QUANTILES {
            figures[name] = milliseconds(delays, quantile).into();
        }
        figures
    }

    /// The object of `-o json`.
    pub(super) fn as_json(&self) -> Value {
        let Report { settings, recorder, usage, .. } = self;
        let (named, rate) = match settings.pace {
            _ if is_expiry(&settings.work) => ("none", None),
            Pace::Closed => ("closed", None),
            Pace::Open { per_second } => ("open", Some(per_second)),
        };
        let mut report = json!({
            "apiVersion": "v1", "kind": "Bench",
            "verb": settings.verb,
            "loop": named,
            "rate": rate,
            "clients": settings.clients,
            "connections": settings.connections,
            "seconds": self.measured.as_secs_f64(),
            "interrupted": recorder.is_interrupted,
            "answered": recorder.answered,
            "per_second": recorder.answered as f64 / self.seconds(),
            "unsent": recorder.unsent,
            "errors": recorder.error_count(),
            "errors_by_kind": recorder.errors.iter().map(|(kind, count)| json!({ "error": kind, "count": count })).collect::<Vec<_>>(),
            "first_error": recorder.first_error.as_ref().map(|status| status.message()),
            "service": rate.map(|_| Report::delays_as_json(&recorder.service)),
            "server_cpu_micros_per_request": self.server_micros(),
            "cpu_idle_share": usage.idle_share(),
            "cpu_driver_share": usage.own_share(),
            "cpu_others_share": usage.others_share(),
            "setting": setting_as_json(settings, self.around),
        });
        let flat = Report::delays_as_json(&recorder.delays);
        for (name, value) in flat.as_object().into_iter().flatten() {
            report[name] = value.clone();
        }
        let operations = recorder.operations.iter().map(|(name, operation)| {
            let mut figures = Report::delays_as_json(&operation.delays);
            figures["operation"] = (*name).into();
            figures["answered"] = operation.answered.into();
            figures["per_second"] = (operation.answered as f64 / self.seconds()).into();
            figures
        });
        report["operations"] = operations.collect();
        report
    }

    fn delays_in_words(delays: &Histogram<u64>) -> String {
        let at = |quantile| format!("{:.2}", milliseconds(delays, quantile));
        format!(
            "p50 {}  p90 {}  p99 {}  p99.9 {}  p99.99 {}  max {:.1} ms",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(0.9999),
            delays.max() as f64 / 1_000.0
        )
    }

    /// The figures, for people.
    pub(super) fn in_words(&self) -> String {
        let Report { settings, recorder, usage, .. } = self;
        let mut text = String::new();
        let rate = recorder.answered as f64 / self.seconds();
        if recorder.is_interrupted {
            let _ = write!(text, "\n  interrupted: these are the figures of what was measured until then");
        }
        let _ = writeln!(
            text,
            "\n  {rate:.0}/s  ({} answered in {:.1} s, {} errors)",
            recorder.answered,
            self.measured.as_secs_f64(),
            recorder.error_count()
        );
        let of = match &settings.work {
            Work::Watch { .. } => "put to event",
            work if is_expiry(work) => "too late by",
            _ if settings.pace != Pace::Closed => "since due",
            _ => "latency",
        };
        let _ = writeln!(text, "  {of:<16}{}", Report::delays_in_words(&recorder.delays));
        if settings.pace != Pace::Closed {
            let _ = writeln!(text, "  {:<16}{}", "since sent", Report::delays_in_words(&recorder.service));
        }
        if recorder.operations.len() > 1 {
            for (name, operation) in &recorder.operations {
                let per_second = operation.answered as f64 / self.seconds();
                let delays = Report::delays_in_words(&operation.delays);
                let _ = writeln!(text, "  {name:<16}{delays}  {per_second:.0}/s");
            }
        }
        if recorder.unsent > 0 {
            let _ = writeln!(
                text,
                "  the target fell behind: {} requests were due and still waited for a client at the end. They count with the time that they had waited; it would have become more. More --clients help only if the target was not busy",
                recorder.unsent
            );
        }
        let servers = match usage.has_servers() {
            true => format!("servers {:.1} µs per answer; ", self.server_micros()),
            // They are elsewhere, or have ended.
            false => String::new(),
        };
        let _ = write!(
            text,
            "  processors      {servers}driver {:.0} %, others {:.0} %, idle {:.0} % of this machine",
            usage.own_share() * 100.0,
            usage.others_share() * 100.0,
            usage.idle_share() * 100.0
        );
        for (kind, count) in &recorder.errors {
            let _ = write!(text, "\n  error           {count} × {kind}");
        }
        if let Some(error) = &recorder.first_error {
            let _ = write!(text, "\n  first error     {}", error.message());
        }
        text
    }
}
