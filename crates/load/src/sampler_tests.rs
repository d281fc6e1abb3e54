use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A node without a host's load, so that what sources say is all that there is.
fn settings(sources: &str) -> Settings {
    let text = format!(
        "cpu = {{ factor = 0 }}\nnetwork = {{ factor = 0 }}\nmemory = {{ stall_max = 0 }}\n{sources}"
    );
    toml::from_str(&text).expect("valid settings")
}

fn program(script: &str, more: &str) -> String {
    let script = toml::Value::String(script.into());
    format!("[[source]]\nname = \"source\"\nprogram = {{ run = [\"/bin/sh\", \"-c\", {script}] }}\n{more}\n")
}

fn at(seconds: u32) -> Time {
    Time::ZERO + SECOND * seconds
}

#[tokio::test]
async fn a_report_says_what_the_sources_say_together() {
    let one =
        program("echo jobs=3; echo load=0.25; echo credits=9; echo latency_ms=5; echo jobs_per_s=1", "");
    let other = program(
        "echo jobs=4; echo load=0.5; echo credits=7; echo latency_ms=3; echo jobs_per_s=2",
        "factor = 0.5",
    );
    let mut sampler = Sampler::start(&settings(&(one + &other)), at(0));
    let sample = sampler.sample_patiently(at(1)).await;
    assert_eq!(sample.failed, []);
    let expected = Report {
        measured_at: at(1),
        jobs: Some(7),
        load: Some(0.5),
        health: Some(Health::saturating(50)),
        credits: Some(7),
        jobs_per_s: Some(3.0),
        errors_per_s: None,
        latency: Some(Duration::from_millis(5)),
    };
    assert_eq!(sample.report, expected);
}

#[tokio::test]
async fn each_service_has_what_is_of_it_and_what_is_of_all() {
    let sources = [
        program("echo jobs=3; echo health=40", "service = \"web\""),
        program("echo jobs=4", "service = \"mail\""),
        program("echo load=0.25", ""),
        "[[source]]\nservice = \"mail\"\nmemcached = \"127.0.0.1:1\"\nrequired = true\n".into(),
    ];
    let mut sampler = Sampler::start(&settings(&sources.concat()), at(0));
    let sample = sampler.sample_patiently(at(1)).await;
    let told = |report: &Report| (report.jobs, report.load, report.health.map(Health::value));
    let services: Vec<_> =
        sample.services.iter().map(|(name, report)| (name.as_str(), told(report))).collect();
    assert_eq!(services, [("web", (Some(3), Some(0.25), Some(40))), ("mail", (None, Some(0.25), Some(0)))]);
    assert_eq!(told(&sample.report), (None, Some(0.25), Some(0)), "the node is all of it");
}

#[tokio::test]
async fn the_worst_health_is_the_nodes() {
    let mut sampler = Sampler::start(&settings(&(program("echo 80", "") + &program("echo 30", ""))), at(0));
    let report = sampler.sample_patiently(at(1)).await.report;
    assert_eq!((report.health, report.load, report.jobs), (Some(Health::saturating(30)), None, None));
}

#[tokio::test]
async fn a_node_is_not_well_because_its_doctor_is_silent() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mkdir {}/once && echo 30 && exit; exit 1", folder.path().display());
    let text = program(&script, "") + &program("echo load=0.5", "");
    let mut sampler = Sampler::start(&settings(&text), at(0));
    assert_eq!(sampler.sample_patiently(at(1)).await.report.health, Some(Health::saturating(30)));
    let silent = sampler.sample_patiently(at(2)).await.report;
    assert_eq!((silent.load, silent.health), (Some(0.5), None));
}

#[tokio::test]
async fn what_one_source_does_not_say_is_not_known_of_the_whole() {
    // Port 1 of the loopback: nobody listens there.
    let closed = "[[source]]\nname = \"closed\"\nmemcached = \"127.0.0.1:1\"\n";
    let mut sampler = Sampler::start(&settings(&(program("echo jobs=3; echo load=0.5", "") + closed)), at(0));
    let sample = sampler.sample_patiently(at(1)).await;
    assert_eq!((sample.report.jobs, sample.report.load), (None, Some(0.5)));
    assert_eq!(sample.failed.len(), 1);
    assert_eq!(sample.failed[0].source, "closed");
    assert!(sample.failed[0].reason.starts_with("connect: "), "{:?}", sample.failed);
    assert_eq!(sample.report.health, Some(Health::saturating(50)), "it is not required");
}

#[tokio::test]
async fn a_node_without_what_it_requires_is_of_no_use() {
    let closed = "[[source]]\nrequired = true\nmemcached = \"127.0.0.1:1\"\n";
    let mut sampler = Sampler::start(&settings(closed), at(0));
    assert_eq!(sampler.sample_patiently(at(1)).await.report.health, Some(Health::NONE));
}

#[tokio::test]
async fn a_slow_source_keeps_nobody_waiting_and_counts_until_it_is_too_old() {
    let folder = tempfile::tempdir().expect("a folder");
    // The first answer comes, none after it.
    let script = format!("mkdir {}/once && echo jobs=5 && exit; sleep 1000", folder.path().display());
    let fast = "[[source]]\nname = \"fast\"\nprogram = { run = [\"/bin/echo\", \"load=0.5\"] }\n";
    let mut settings = settings(&(program(&script, "timeout = \"20s\"") + fast));
    settings.patience = Duration::from_millis(1);
    let mut sampler = Sampler::start(&settings, at(0));
    let first = sampler.sample_patiently(at(1)).await;
    assert_eq!((first.report.jobs, first.report.measured_at), (Some(5), at(1)));
    let began = std::time::Instant::now();
    let second = sampler.sample(at(2)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waits for the slow one");
    assert_eq!((second.report.jobs, second.report.measured_at), (Some(5), at(1)), "as old as it is");
    let late = sampler.sample(at(30)).await;
    assert_eq!(late.report.jobs, None);
    let old = late.failed.iter().find(|failure| failure.source == "source").expect("it is told");
    assert_eq!(old.reason, "the last answer is 29s old");
}

#[tokio::test]
async fn a_late_answer_leaves_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mkdir {}/once && echo jobs=5 && exit; sleep 1000", folder.path().display());
    let mut sampler = Sampler::start(&settings(&program(&script, "timeout = \"300ms\"")), at(0));
    // On a machine under load even a shell may need longer than the limit.
    let mut second = 1;
    while sampler.sample_patiently(at(second)).await.report.jobs.is_none() {
        assert!(second < 20, "no answer");
        let _ = std::fs::remove_dir(folder.path().join("once"));
        second += 1;
    }
    let next = sampler.sample_patiently(at(second + 1)).await;
    assert_eq!((next.report.jobs, next.report.measured_at), (Some(5), at(second)));
    assert_eq!(next.failed[0].reason, "no answer within 300ms");
    assert_eq!(sampler.sample_patiently(at(second + 5)).await.report.jobs, None, "but not for ever");
}

#[tokio::test]
async fn a_source_is_asked_as_often_as_it_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("echo x >> {0}/count; echo jobs=$(wc -l < {0}/count)", folder.path().display());
    let mut sampler = Sampler::start(&settings(&program(&script, "interval = \"3s\"")), at(0));
    let mut jobs = Vec::new();
    for second in 1..=7 {
        jobs.extend(sampler.sample_patiently(at(second)).await.report.jobs);
    }
    assert_eq!(jobs, [1, 1, 1, 2, 2, 2, 3]);
}

#[tokio::test]
async fn this_machine_can_be_sampled() {
    let mut sampler = Sampler::start(&Settings::default(), Time::ZERO);
    let start = std::time::Instant::now();
    let sample = loop {
        let sample = sampler.sample(Time::ZERO + start.elapsed()).await;
        if sample.report.load.is_some() {
            break sample;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", sample.failed);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(sample.report.health.is_some_and(|health| health >= Health::saturating(1)));
    assert!(sample.parts.iter().any(|part| part.name == "cpu"));
}
