use super::*;

fn read(text: &str) -> Result<Settings, String> {
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(read(""), Ok(Settings::default()));
}

#[test]
fn the_list_of_keys_is_complete() {
    let error = read("none-of-them = 1").expect_err("not a key");
    let listed: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert_eq!(listed, Settings::KEYS, "{error}");
}

#[test]
fn everything_can_be_said() {
    let text = r#"
        interval = "2s"
        patience = "100ms"
        cgroup = "/system.slice/mariadb.service"
        [cpu]
        source = "pressure"
        [network]
        factor = 0.5
        interfaces = ["eth0"]
        speed_mbit_per_s = { eth0 = 1000 }
        [disk]
        devices = ["sda"]
        [memory]
        stall_max = 0.1
        [descriptors]
        used_max = 0.5
        [health]
        load_max = 2
        [[source]]
        connections = { port = 80, less = 1 }
        [[source]]
        name = "database"
        service = "sql"
        timeout = "500ms"
        interval = "5s"
        required = true
        mysql = { address = "/run/mysqld/mysqld.sock", user = "evener", password_file = "/etc/evener/mysql" }
        [[source]]
        redis = { address = "[::1]:6379" }
        [[source]]
        memcached = "localhost:11211"
        [[source]]
        nginx = "http://127.0.0.1/status"
        [[source]]
        json = { url = "http://localhost:9000?all=1", pointer = "/queue/0", says = "load", scale = 0.01 }
        [[source]]
        prometheus = { url = "http://[::1]/metrics", metric = 'running{model="m"}' }
        [[source]]
        factor = 2
        program = { run = ["/bin/true"], answer = "exit_status" }
    "#;
    let settings = read(text).expect("valid");
    let names: Vec<_> = settings.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "connections of port 80",
            "database",
            "redis [::1]:6379",
            "memcached localhost:11211",
            "nginx http://127.0.0.1:80/status",
            "json http://localhost:9000/?all=1 /queue/0",
            "prometheus http://[::1]:80/metrics",
            "program /bin/true",
        ]
    );
    assert_eq!(settings.sources[1].service.as_deref(), Some("sql"));
    assert_eq!(settings.sources[7].factor.value(), 2.0);
    assert_eq!(settings.cgroup, Cgroup::Path("/system.slice/mariadb.service".into()));
}

#[test]
fn what_cannot_be_is_refused_with_what_was_expected() {
    let refused = [
        ("intervall = \"1s\"", "unknown field `intervall`"),
        ("interval = \"0s\"", "expected a time from 1ms to 1day"),
        ("cgroup = \"mine\"", "expected \"own\", \"none\" or a path"),
        ("cgroup = \"/../etc\"", "expected \"own\", \"none\" or a path"),
        ("cpu = { factor = -1 }", "expected a number from 0"),
        ("cpu = { factor = nan }", "expected a number from 0"),
        ("memory = { stall_max = 20 }", "expected a number from 0 to 1"),
        ("health = { load_max = 0 }", "expected a number above 0"),
        ("network = { speed_mbit_per_s = { eth0 = 0 } }", "nonzero"),
        ("[[source]]\nname = \"x\"", "expected one of connections, mysql"),
        ("[[source]]\nnginx = \"http://a/\"\nmemcached = \"a:1\"", "expected one of connections, mysql"),
        ("[[source]]\nconnections = { port = 0 }", "nonzero"),
        ("[[source]]\nmemcached = \"11211\"", "expected an address such as"),
        ("[[source]]\nmemcached = \"::1:11211\"", "expected an address such as"),
        ("[[source]]\nnginx = \"https://a/\"", "expected a URL such as"),
        ("[[source]]\nnginx = \"http://a/ b\"", "expected a URL such as"),
        ("[[source]]\njson = { url = \"http://a/\", pointer = \"x\" }", "expected a pointer such as"),
        ("[[source]]\nprometheus = { url = \"http://a/\", metric = \"1\" }", "expected a metric such as"),
        ("[[source]]\nprogram = { run = [] }", "expected a program and its arguments"),
        ("[[source]]\nmysql = { address = \"a:1\" }", "missing field `user`"),
    ];
    for (text, told) in refused {
        let message = read(text).expect_err(text);
        assert!(message.contains(told), "{text}: {message}");
    }
}
