use proptest::prelude::*;

use super::*;

/// As HAProxy 3.2 answers `show servers state app`.
const STATE: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
    srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
    bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr \
    srv_agent_addr srv_agent_port\n\
    3 app 1 n1 127.0.0.1 2 0 40 100 1 1 0 2 0 0 0 0 - 18081 - 0 0 - - 0\n\
    3 app 2 n2 127.0.0.1 0 8 50 50 1 8 2 0 6 0 0 0 - 18082 - 0 0 - - 0\n\
    3 app 3 n3 ::1 0 5 1 1 1 1 0 0 8 0 0 0 - 80 - 0 0 - - 0\n\
    3 app 4 evener-[ - 2 0 1 1 1 1 0 2 0 0 0 0 - 0 - 0 0 - - 0\n\n";

fn state() -> String {
    STATE.replace("evener-[", "u")
}

#[test]
fn servers_are_read_as_haproxy_tells_them() {
    let servers = servers(state().as_bytes(), "app").expect("an answer");
    let shown: Vec<String> = servers
        .iter()
        .map(|s| {
            let (drains, maintained) = (s.admin.drains(), s.admin.is_maintained());
            format!(
                "{} {:?}:{} {}/{} {drains} {maintained}",
                s.name, s.address, s.port, s.weight, s.initial_weight
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "n1 Some(127.0.0.1):18081 40/100 false false",
            "n2 Some(127.0.0.1):18082 50/50 true false",
            "n3 Some(::1):80 1/1 false true",
            "u None:0 1/1 false false",
        ]
    );
    assert_eq!(servers[1].operation, Operation::Stopped);
}

#[test]
fn what_is_not_understood_whole_is_refused() {
    let read = |text: &str| servers(text.as_bytes(), "app");
    assert_eq!(read("Can't find backend.\n\n"), Err(AnswerError::Refused(Refusal::NoProxy)));
    assert_eq!(read("Permission denied\n\n"), Err(AnswerError::Refused(Refusal::Denied)));
    assert_eq!(read(&state().replacen('1', "2", 1)), Err(AnswerError::Version));
    assert_eq!(read(STATE), Err(AnswerError::Line(6)), "a name that HAProxy does not allow");
    assert_eq!(read(&state().replace(" app 2 ", " other 2 ")), Err(AnswerError::Line(4)));
    assert_eq!(read(&state().replace("srv_uweight", "weight")), Err(AnswerError::Column("srv_uweight")));
    assert_eq!(read(&state().replace(" n2 ", " n1 ")), Err(AnswerError::Twice(4)));
    assert_eq!(read(&state().replace(" 40 100 ", " 257 100 ")), Err(AnswerError::Line(3)));
    assert_eq!(read(&state().replace("18081 -", "18081")), Err(AnswerError::Line(3)));
    assert_eq!(servers(b"1\n# \xff", "app"), Err(AnswerError::Text));
}

#[test]
fn words_of_refusal_are_told_apart() {
    let refused = |text: &str| match obeyed(text.as_bytes(), "") {
        Err(AnswerError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(obeyed(b"", ""), Ok(()));
    assert_eq!(obeyed(b"New server registered.\n", "New server registered."), Ok(()));
    assert_eq!(refused("No such server.\n"), Refusal::Other("No such server.".into()));
    let text = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.\n";
    assert_eq!(refused(text), Refusal::Static);
    assert_eq!(refused("Server still has connections attached to it, cannot remove it.\n"), Refusal::Busy);
    assert_eq!(refused(&"x\u{1b}".repeat(999)), Refusal::Other("x ".repeat(100)));
}

#[test]
fn sessions_are_those_that_run_and_those_that_wait() {
    let text = "# pxname,svname,qcur,qmax,scur,smax,slim,\napp,n1,2,9,3,4,,\"a,b\"\napp,n2,0,0,0,0,,\n\n";
    assert_eq!(sessions(text.as_bytes(), "app"), Ok(vec![("n1".into(), 5), ("n2".into(), 0)]));
    assert_eq!(sessions(text.as_bytes(), "web"), Err(AnswerError::Line(2)));
    assert_eq!(sessions(text.replace(",3,", ",,").as_bytes(), "app"), Err(AnswerError::Line(2)));
    assert_eq!(
        sessions(text.replace("qmax,scur", "scur,qmax").as_bytes(), "app"),
        Err(AnswerError::Column("qmax"))
    );
}

#[test]
fn processes_are_told_apart_by_number_and_start() {
    let text = "Name: HAProxy\nVersion: 3.2.26-1\nPid: 32378\nStart_time_sec: 1795259726\nStopping: 0\n\n";
    let read = process(text.as_bytes()).expect("an answer");
    assert_eq!(
        (read.version.as_str(), read.pid, read.started_s, read.stopping),
        ("3.2.26-1", 32378, 1795259726, false)
    );
    assert!(process(text.replace("Stopping: 0", "Stopping: 1").as_bytes()).expect("an answer").stopping);
    assert_eq!(process(b"Name: HAProxy\nVersion: 3\n"), Err(AnswerError::Missing("a process number")));
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9.:_-]{1,12}"
}

fn server() -> impl Strategy<Value = Server> {
    let address = proptest::option::of(any::<IpAddr>());
    (name(), address, any::<u16>(), 0..4_u8, any::<u32>(), 0..=256_u32, 0..=256_u32).prop_map(
        |(name, address, port, operation, admin, weight, initial_weight)| Server {
            name,
            address,
            port,
            operation: [Operation::Stopped, Operation::Starting, Operation::Running, Operation::Stopping]
                [usize::from(operation)],
            admin: Admin(admin),
            weight,
            initial_weight,
        },
    )
}

fn written(proxy: &str, servers: &[Server]) -> String {
    let header = STATE.lines().nth(1).expect("a header");
    let lines = servers.iter().enumerate().map(|(at, s)| {
        let address = s.address.map_or("-".into(), |address| address.to_string());
        let operation = s.operation as u8;
        format!(
            "3 {proxy} {at} {} {address} {operation} {} {} {} 1 1 0 2 0 0 0 0 - {} - 0 0 - - 0\n",
            s.name, s.admin.0, s.weight, s.initial_weight, s.port
        )
    });
    format!("1\n{header}\n{}\n", lines.collect::<String>())
}

proptest! {
    #[test]
    fn what_is_told_is_read(proxy in name(), mut told in proptest::collection::vec(server(), 0..20)) {
        told.sort_by(|a, b| a.name.cmp(&b.name));
        told.dedup_by(|a, b| a.name == b.name);
        prop_assert_eq!(servers(written(&proxy, &told).as_bytes(), &proxy), Ok(told));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (servers(&bytes, "app"), sessions(&bytes, "app"), process(&bytes), obeyed(&bytes, ""));
    }

    #[test]
    fn a_changed_answer_is_read_or_refused(at in 0..700_usize, byte in any::<u8>()) {
        let mut bytes = state().into_bytes();
        let place = at % bytes.len();
        bytes[place] = byte;
        if let Ok(servers) = servers(&bytes, "app") {
            prop_assert!(servers.iter().all(|server| is_name(&server.name) && server.weight <= WEIGHT_MAX));
        }
    }
}
