//! What was measured, as text.

use evener_load::Sample;
use evener_load::measure::Answer;
use evener_model::Report;
use serde_json::{Value, json};

/// For machines.
pub(super) fn describe(sample: &Sample) -> Value {
    let sources = sample
        .answers
        .iter()
        .map(|(name, answer)| json!({ "name": name, "answer": answer.as_ref().map(fields) }));
    let services = sample.services.iter().map(|(name, report)| (name.clone(), fields(&said(report))));
    json!({
        "report": fields(&said(&sample.report)),
        "services": services.collect::<serde_json::Map<_, _>>(),
        "parts": sample.parts,
        "readings": sample.readings,
        "sources": sources.collect::<Vec<_>>(),
        "failed": sample.failed,
    })
}

/// A report without its time, which is now.
fn said(report: &Report) -> Answer {
    Answer {
        jobs: report.jobs,
        load: report.load,
        health: report.health,
        credits: report.credits,
        jobs_per_s: report.jobs_per_s,
        errors_per_s: report.errors_per_s,
        latency: report.latency,
    }
}

fn fields(answer: &Answer) -> Value {
    json!({
        "health": answer.health.map(|health| health.value()),
        "load": answer.load,
        "jobs": answer.jobs,
        "credits": answer.credits,
        "jobs_per_s": answer.jobs_per_s,
        "errors_per_s": answer.errors_per_s,
        "latency_ms": answer.latency.map(|latency| latency.as_secs_f64() * 1000.0),
    })
}

/// For people: a line, and one for each thing that could not be measured.
pub(super) fn summary(sample: &Sample) -> String {
    let report = &sample.report;
    let shown = |value: Option<f32>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let mut out = format!(
        "health {}  load {}  jobs {}",
        report.health.map_or("-".into(), |health| health.value().to_string()),
        shown(report.load),
        report.jobs.map_or("-".into(), |jobs| jobs.to_string()),
    );
    if let Some(jobs) = report.jobs_per_s {
        out += &format!("  jobs/s {jobs:.1}");
    }
    let parts = sample.parts.iter().map(|part| {
        let load = shown(part.load.map(|load| load as f32));
        if part.factor == 1.0 {
            format!("{} {load}", part.name)
        } else {
            format!("{} {load} × {}", part.name, part.factor)
        }
    });
    out += &format!("  ({})\n", parts.collect::<Vec<_>>().join(", "));
    for failure in &sample.failed {
        out += &format!("  {}: {}\n", failure.source, failure.reason);
    }
    out
}
