use std::net::Ipv4Addr;

use evener_feedback::necp::{Forwarding, Prefix, Scope};

use super::*;

fn read(text: &str) -> Result<Settings, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
}

#[test]
fn nothing_said_is_the_default() {
    let settings = read("").expect("valid");
    assert_eq!(settings, Settings::default());
    assert!(!settings.tell.is_told());
}

#[test]
fn everything_can_be_said_beside_what_is_measured() {
    let text = r#"
        interval = "2s"
        node = "rat"
        director = ["necp://10.0.0.9", { url = "https://[::1]", keys = "/k2", tls = { certificate = "c", key = "k", ca = "a" } }]
        service = [80, "udp/53,forwarding=tunnel,name=dns,start=always", { port = 3306, forwarding = "direct", name = "sql" }]
        except = [{ source = "10.1.2.3/16", protocol = "tcp", port = 80, scope = "global", ttl = "1h" }]
        keys = "/etc/evener/feedback.keys"
        tls = { certificate = "agent.crt", key = "agent.key", ca = "ca.crt" }
        update = "periodic"
        period = "2s"
        age_max = "9s"
        listen = 9998
        agent_check = [":9999", { listen = 9997, service = "sql" }]
        user = "evener"
        keepalive = "1s"
        reconnect = { max = "20s" }
        stop_timeout = "3s"
        cpu = { source = "pressure" }
        [datagrams]
        to = ["239.255.32.62:3263"]
        listen = ":3263"
        interface = "10.0.0.1"
        [[source]]
        service = "sql"
        connections = { port = 3306 }
    "#;
    let Settings { measure, tell } = read(text).expect("valid");
    assert_eq!((measure.interval, measure.sources.len()), (Duration::from_secs(2), 1));
    let urls: Vec<String> = tell.directors.iter().map(|director| director.url.to_string()).collect();
    assert_eq!(urls, ["necp://10.0.0.9:3262", "https://[::1]:443/report"]);
    assert_eq!(tell.directors[1].keys, Some("/k2".into()));
    let services: Vec<_> = tell
        .services
        .iter()
        .map(|service| (service.port.to_string(), service.forwarding, service.name.as_deref(), service.start))
        .collect();
    assert_eq!(
        services,
        [
            ("tcp/80".into(), Forwarding::Layer3, None, Start::Healthy),
            ("udp/53".into(), Forwarding::Gre, Some("dns"), Start::Always),
            ("tcp/3306".into(), Forwarding::Layer2, Some("sql"), Start::Healthy),
        ]
    );
    let [Except(exception)] = tell.exceptions[..] else { panic!("one exception") };
    assert_eq!((exception.scope, exception.ttl_s), (Scope::Global, 3600));
    assert_eq!(Some(exception.flows.source), Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16));
    assert_eq!((exception.flows.destination, exception.flows.protocol), (Prefix::ALL, 6));
    assert_eq!(tell.listen.expect("said").to_string(), "127.0.0.1:9998");
    let checks: Vec<_> =
        tell.agent_checks.iter().map(|check| (check.listen.to_string(), check.service.as_deref())).collect();
    assert_eq!(checks, [(":9999".into(), None), ("127.0.0.1:9997".into(), Some("sql"))]);
    let datagrams = tell.datagrams.as_ref().expect("said");
    assert_eq!((datagrams.to.len(), datagrams.window), (1, Duration::from_secs(15)));
    assert_eq!(tell.reconnect, Reconnect { min: Duration::from_secs(1), max: Duration::from_secs(20) });
    assert!(tell.is_told());
}

#[test]
fn one_of_a_list_needs_no_list() {
    let tell = read("director = \"necp://a:1\"\nservice = 80\nagent_check = 1\n").expect("valid").tell;
    assert_eq!((tell.directors.len(), tell.services.len(), tell.agent_checks.len()), (1, 1, 1));
}

#[test]
fn what_cannot_be_is_refused_where_it_stands() {
    let refused = [
        ("interval = \"1s\"\ndirectr = 1", "unknown key \"directr\"; did you mean \"director\"?"),
        ("intervall = 1", "did you mean \"interval\"?"),
        ("zzz = 1", "unknown key \"zzz\"\n"),
        ("\ndirector = \"10.0.0.9\"", "line 2"),
        ("director = \"ftp://10.0.0.9\"", "expected a director such as necp://"),
        ("director = \"necp://10.0.0.9/report\"", "expected a director"),
        ("director = \"necp://::1\"", "expected a director"),
        ("director = \"necp://a:0\"", "expected a director"),
        ("director = \"http://u@h/\"", "expected a director"),
        ("director = { url = \"necp://a\", key = \"x\" }", "unknown field `key`"),
        ("director = true", "a director such as \"necp://10.0.0.9\", or a list of such"),
        ("service = 0", "expected a service such as 80"),
        ("service = 70000", "expected a service such as 80"),
        ("service = \"sctp/80\"", "expected a service"),
        ("service = \"80,forwarding=gre\"", "expected a service"),
        ("service = { port = 0 }", "expected a port from 1"),
        ("service = { port = 1, forwarding = \"masq\" }", "unknown variant `masq`"),
        ("except = [{}]", "to be spared everything, start no service"),
        ("except = [{ source = \"::1\" }]", "NECP has no others"),
        ("except = [{ port = 1, ttl = \"1ms\" }]", "expected a ttl from 1s"),
        ("listen = \"localhost:1\"", "expected a port such as 9998"),
        ("listen = 70000", "expected a port such as 9998"),
        ("period = \"0s\"", "expected a time from 1ms to 1day"),
        ("node = \"a b\"", "expected a name of at most 253"),
        ("update = \"never\"", "unknown variant `never`"),
        ("tls = { certificate = \"a\" }", "missing field `ca`"),
        ("tls = { certificate = \"a\", ca = \"b\" }", "expected both a certificate and its key, or neither"),
        ("reconnect = { min = \"0s\" }", "expected a time from 1ms to 1day"),
        ("reconnect = { max = \"10ms\" }", "expected a min that is not above max"),
        ("datagrams = { window = \"0s\" }", "expected a time from 1ms to 1day"),
        ("datagrams = { to = [\"all\"] }", "invalid socket address"),
        ("memory = { stall_max = 20 }", "expected a number from 0 to 1"),
    ];
    for (text, told) in refused {
        let message = read(text).expect_err(text);
        assert!(message.contains(told), "{text}: {message}");
    }
}
